/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that run varied programs share. */
#ifndef UMAKIT_PROGRAMS_INTERNAL_H
#define UMAKIT_PROGRAMS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "umakit/simulator.h"
#include "umakit_programs.h"

/* An access of a program, as umakit_programs.h says. */
struct umakit_programs_access {
    char kind;
    uint32_t offset; /* of a register; an address; cycles of a wait */
    uint32_t value;  /* that is written; bytes of a buffer; bits compared at rest, or polled */
    uint32_t other;  /* direction of a buffer; bits compared while there is work */
    uint32_t expected;
    bool has_expected; /* of a read; of a rest: the driver polls */
    unsigned char *data; /* of a buffer */
};

/* Registers with masks. */
struct umakit_programs_list {
    uint32_t *offsets;
    uint32_t *masks;
    size_t count;
};

/* What holds for all programs. */
struct umakit_programs_setting {
    struct umakit_programs_list starts;
    struct umakit_programs_list at_rest;
    struct umakit_programs_list at_end;
    bool has_idle;
    uint32_t idle;
    bool has_busy;
    uint32_t busy;
    uint32_t busy_mask;
    bool counts_work; /* the model's counter of busy cycles grows while there is work */
    bool has_error;
    uint32_t error;
    uint32_t error_mask;
    bool stays_inside; /* programs that leave the buffers are not compared */
};

struct umakit_programs_program {
    char number[24];
    uint32_t pauses;
    uint64_t cycles; /* of its layer on the model */
    bool rests_at_once; /* behind each write that begins work */
    struct umakit_programs_access *accesses;
    size_t count;
};

/* What the model shows at one place of a program. */
enum umakit_programs_kind {
    UMAKIT_PROGRAMS_REGISTER,
    UMAKIT_PROGRAMS_ERROR,
    UMAKIT_PROGRAMS_MEMORY,
    UMAKIT_PROGRAMS_INTERRUPT,
    UMAKIT_PROGRAMS_REST
};

struct umakit_programs_note {
    enum umakit_programs_kind kind;
    size_t access;
    uint32_t address; /* a register's offset, or a bus address */
    uint32_t value;   /* of the register; bytes of memory; whether the interrupt came; whether the
                         device said itself that it is at rest */
    uint32_t mask;
    bool is_at_rest;
    uint64_t cycles;      /* of the wait, or until it came to rest */
    size_t bytes;         /* where those of memory are, in `bytes` of the notes */
};

enum umakit_programs_end {
    UMAKIT_PROGRAMS_OK,
    UMAKIT_PROGRAMS_ENDED, /* with an error, or another value than expected */
    UMAKIT_PROGRAMS_LONG,
    UMAKIT_PROGRAMS_FAILED,
    UMAKIT_PROGRAMS_DIFFERS
};

#define UMAKIT_PROGRAMS_NOTES 65536u
#define UMAKIT_PROGRAMS_BYTES 16777216u

/* What a run of the model showed; in memory that the process of the run shares. */
struct umakit_programs_notes {
    enum umakit_programs_end end;
    char failure[UMAKIT_FAILURE_BYTES]; /* why the model cannot go on */
    bool is_beyond; /* the model accessed what no buffer has */
    size_t count;
    size_t used; /* of `bytes` */
    struct umakit_programs_note notes[UMAKIT_PROGRAMS_NOTES];
    unsigned char bytes[UMAKIT_PROGRAMS_BYTES];
};

/* The first difference. */
struct umakit_programs_difference {
    size_t access;
    const char *kind;
    const char *refused; /* by whom */
    uint32_t address;
    uint32_t expected;
    uint32_t found;
};

/* One side while it runs a program. */
struct umakit_programs_run {
    const struct umakit_programs_setting *setting;
    const struct umakit_programs_program *program;
    umakit_device *device;
    bool is_rtl;
    bool is_patient; /* the RTL may be far slower than the model */
    uint32_t delay;  /* cycles behind each access; at most, if `random` is not 0 */
    uint32_t random; /* state */
    uint64_t settling; /* cycles of the model for which each of its rests goes on */
    bool is_at_rest;
    bool has_ended; /* an interrupt came since work began */
    size_t access;
    unsigned char *buffers[UMAKIT_SIMULATOR_WINDOW_COUNT];
    struct umakit_programs_notes *notes; /* the model adds to them, the RTL is compared */
    size_t next;                         /* note that the RTL is compared with */
    struct umakit_programs_difference difference;
};

/* Run the program; the device is in its state after power-on. */
enum umakit_programs_end umakit_programs_run(struct umakit_programs_run *run);

/* Let cycles pass. */
void umakit_programs_pass(struct umakit_programs_run *run, uint64_t cycles);

/* Cycles since the device was reset; UMAKIT_UNKNOWN if it has no clock. */
uint64_t umakit_programs_clock(const struct umakit_programs_run *run);

/* Note what the model shows, or compare what the RTL shows with the next note. False if it
 * differs, or there is no memory. */
bool umakit_programs_see_register(struct umakit_programs_run *run, bool is_error, uint32_t offset,
                                  uint32_t mask, uint32_t *value);
bool umakit_programs_see_memory(struct umakit_programs_run *run, uint32_t slot);

/* The note that comes next of the model, NULL if there are too many; the RTL's to be compared with. */
struct umakit_programs_note *umakit_programs_note(struct umakit_programs_run *run,
                                                  enum umakit_programs_kind kind,
                                                  uint32_t address);

/* Whether the device has failed; whether the model has taken longer than it may. */
bool umakit_programs_has_failed(const struct umakit_programs_run *run);
bool umakit_programs_is_too_long(const struct umakit_programs_run *run);

/* Wait for the interrupt, at most `limit` cycles. */
enum umakit_programs_end umakit_programs_wait(struct umakit_programs_run *run, uint32_t limit);
/* Come to rest. `polled` has the register that the driver polls; NULL: it polls none. */
enum umakit_programs_end umakit_programs_rest(struct umakit_programs_run *run,
                                              const struct umakit_programs_access *polled);

/* Whether notes of two runs are of the same course; clears masks of bits that differ in the first. */
bool umakit_programs_agree(struct umakit_programs_notes *first,
                           const struct umakit_programs_notes *second);

/* Read the next program; false at the end of the input. Lines that are not of a program are added
 * to the setting. `is_sound` is cleared at a line that is not understood, or without memory. */
bool umakit_programs_read(FILE *input, struct umakit_programs_setting *setting,
                          struct umakit_programs_program *program, bool *is_sound);
void umakit_programs_free(struct umakit_programs_program *program);

#endif /* UMAKIT_PROGRAMS_INTERNAL_H */
