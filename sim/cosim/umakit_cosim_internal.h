/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the co-simulation device share. */
#ifndef UMAKIT_COSIM_INTERNAL_H
#define UMAKIT_COSIM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator.h"
#include "umakit_cosim.h"

#define UMAKIT_COSIM_LAST_WRITES 8u
#define UMAKIT_COSIM_COUNTERS 7u
#define UMAKIT_COSIM_CLOCK 0u /* index of the counter */
#define UMAKIT_COSIM_BYTES_WRITTEN 6u

/* Numbers of a list in the environment; NULL and 0 if it is not set. */
struct umakit_cosim_list {
    uint32_t *numbers;
    uint32_t *masks; /* behind a colon, all ones without one */
    size_t count;
    bool is_set;
};

struct umakit_cosim_options {
    struct umakit_cosim_list layers;
    struct umakit_cosim_list doorbells;
    struct umakit_cosim_list not_compared;
    uint32_t tiles;        /* UINT32_MAX: all */
    uint64_t catch_up;     /* cycles */
    uint64_t times;        /* that the RTL may take as long as the model */
    uint32_t corrupt;      /* layer; UINT32_MAX: none */
    uint32_t idle;         /* register; UINT32_MAX: none */
    uint32_t watch_layer;  /* UINT32_MAX: none */
    uint32_t watch;        /* bus address in the buffer that is watched in it */
    char *wave;            /* file; NULL: no waveform */
    uint64_t wave_first;
    uint64_t wave_last;
    uint32_t wave_resets;
};

/* What both sides answered for a register. */
struct umakit_cosim_register {
    uint32_t offset;
    uint32_t agreed;
    bool has_agreed;
    bool is_written; /* by the driver, since they agreed */
    bool has_been_written;
    uint32_t written; /* last */
    uint64_t writes;  /* of the driver, when both agreed */
    bool has_been_read;
    uint32_t stale; /* bits that differ since the RTL took part again, and may until they agree */
};

/* A register access of the driver before it mapped a buffer. */
struct umakit_cosim_access {
    bool is_write;
    uint32_t offset;
    uint32_t value;
};

/* Copy of mapped memory, for windows that overlap. */
struct umakit_cosim_copy {
    unsigned int users;
    unsigned char *bytes;
};

/* A window as the RTL has it. */
struct umakit_cosim_window {
    struct umakit_simulator_window mapped; /* memory is NULL: none */
    struct umakit_cosim_copy *copy;        /* NULL while the RTL is detached */
    unsigned char *shadow;                 /* in the copy */
};

/* Where the driver is, for a difference. */
struct umakit_cosim_moment {
    uint64_t access;  /* the driver's register access in the layer, from 1 */
    uint64_t command; /* writes to doorbells in the layer */
    uint64_t tile;    /* tiles that have ended in the layer */
    uint64_t first_cycle;
    uint64_t last_cycle;
    size_t write_count;
    uint32_t write_offsets[UMAKIT_COSIM_LAST_WRITES]; /* a ring */
    uint32_t write_values[UMAKIT_COSIM_LAST_WRITES];
};

/* A byte that differs while both may still be working. */
struct umakit_cosim_suspect {
    bool is_set;
    uint32_t slot;
    size_t byte;
    unsigned char expected;
    unsigned char found;
    unsigned int patience;
    struct umakit_cosim_moment moment;
};

struct umakit_cosim_difference {
    const char *kind;
    const struct umakit_cosim_moment *moment;
    bool has_offset;
    uint32_t offset;
    bool is_memory;
    uint32_t address;
    size_t bytes_differing;
    size_t buffer_bytes;
    size_t byte;
    uint32_t buffer;    /* bus address of its first byte */
    bool is_written;    /* the buffer was watched, and the RTL wrote a byte that differs */
    size_t written;     /* the one of them that it wrote first */
    uint64_t written_at; /* its clock then */
    bool has_values;
    uint64_t expected;
    uint64_t found;
    uint64_t gave_up; /* of a missing interrupt: the RTL's clock when it was given up */
    char what[256]; /* the end of the sentence */
};

struct umakit_cosim_layer {
    bool has_begun; /* the driver has accessed the device in it */
    bool is_checked;
    bool is_detached;
    uint64_t model_cycles; /* while the RTL took part */
    uint64_t rtl_cycles;
    uint64_t layer_model_cycles;
    uint64_t model_access_cycles; /* of these: register accesses of the driver */
    uint64_t rtl_access_cycles;
    uint64_t compared_bytes;
    uint64_t register_writes;
    uint64_t register_reads;
    uint64_t waits;
};

struct umakit_cosim {
    umakit_device outer; /* first: create() is given its address */
    umakit_device rtl;
    umakit_device *model;
    struct umakit_own_simulator table;
    const struct umakit_own_simulator *rtl_table;
    umakit_cosim_trace *trace;
    const char *backend;
    struct umakit_cosim *next;
    struct umakit_cosim_options options;

    bool is_attached;
    bool is_stale;     /* the driver used the model while the RTL was detached */
    bool has_given_up; /* its last wait ended without an interrupt, on both sides */
    bool in_command;   /* a register was written since the last completion */
    bool has_mapped;
    uint64_t model_began;  /* the model's clock when the command began */
    uint64_t writes; /* of the driver to registers of both */
    uint32_t resets; /* of the RTL since it was opened */
    uint64_t bus_errors[2]; /* of the RTL and of the model, before the access */
    uint64_t written_before; /* by the RTL, when memory was compared last */
    bool has_lead;           /* they have agreed, and both have a clock */
    uint64_t lead;           /* clock of the RTL less that of the model, when they agreed last */

    struct umakit_cosim_layer layer;
    struct umakit_cosim_moment moment;
    struct umakit_cosim_suspect suspect;
    struct umakit_cosim_window windows[UMAKIT_SIMULATOR_WINDOW_COUNT];
    struct umakit_simulator_watch watch; /* of the RTL */

    struct umakit_cosim_register *registers;
    size_t register_count;
    size_t register_capacity;
    struct umakit_cosim_access *initial;
    size_t initial_count;
    size_t initial_capacity;

    uint64_t totals[UMAKIT_COSIM_COUNTERS]; /* of the RTL, or of the model without it */
    uint64_t rtl_counters[UMAKIT_COSIM_COUNTERS];
    uint64_t model_counters[UMAKIT_COSIM_COUNTERS];
};

/* Where all pairs are. */
struct umakit_cosim_place {
    uint32_t layer;
    uint64_t inference;
};
extern struct umakit_cosim_place umakit_cosim_place;

/* Whether the device has failed, by a difference or otherwise. */
static inline bool umakit_cosim_has_failed(const struct umakit_cosim *pair)
{
    return pair->outer.failure[0] != '\0';
}

/* ---- umakit_cosim_options.c ---- */

/* Read the environment; a sentence without a full stop if it is wrong, else NULL. The
 * sentence stays valid until the next call. */
const char *umakit_cosim_read_options(struct umakit_cosim_options *options,
                                      const char *backend);
void umakit_cosim_free_options(struct umakit_cosim_options *options);
/* The mask of a number in a list, 0 if it is not in it. */
uint32_t umakit_cosim_listed(const struct umakit_cosim_list *list, uint32_t number);

/* ---- umakit_cosim_counters.c ---- */

/* The counters of an inner device, in the order of struct umakit_own_counters. */
void umakit_cosim_measure(const umakit_device *device,
                          uint64_t counters[UMAKIT_COSIM_COUNTERS]);
uint64_t umakit_cosim_clock(const umakit_device *device);
/* Read or write a register of an inner device, and add the cycles that it took. */
uint32_t umakit_cosim_read_timed(umakit_device *device, uint32_t offset, uint64_t *cycles);
void umakit_cosim_write_timed(umakit_device *device, uint32_t offset, uint32_t value,
                              uint64_t *cycles);
/* Let the model's accesses in the layer take as long as those of the RTL, without one of
 * `left` cycles that is still to come. */
void umakit_cosim_keep_step(struct umakit_cosim *pair, uint64_t left);
/* Count from here. */
void umakit_cosim_start_counting(struct umakit_cosim *pair);
/* Add what was counted since the last call. */
void umakit_cosim_account(struct umakit_cosim *pair);

/* ---- umakit_cosim_memory.c ---- */

/* Give both inner devices the windows of the outer one. */
void umakit_cosim_map(struct umakit_cosim *pair);
/* The RTL leaves: forget its copies. */
void umakit_cosim_forget(struct umakit_cosim *pair);
/* Bytes of the buffers that are mapped for writing by the device. */
uint64_t umakit_cosim_output_bytes(const struct umakit_cosim *pair);
/* Compare at a completion. */
void umakit_cosim_compare(struct umakit_cosim *pair);
/* Compare the window at a bus address, which is about to be unmapped: what the RTL does later
 * does not count. */
void umakit_cosim_compare_at_last(struct umakit_cosim *pair, uint32_t address);
/* Forget the copy of that window. */
void umakit_cosim_leave(struct umakit_cosim *pair, uint32_t address);
/* The RTL stops taking part. */
void umakit_cosim_detach(struct umakit_cosim *pair);
/* The driver has seen that work has ended. */
void umakit_cosim_complete(struct umakit_cosim *pair);

/* ---- umakit_cosim_access.c ---- */

/* Note that the driver reads a register. */
void umakit_cosim_note_read(struct umakit_cosim *pair, uint32_t offset);
/* The RTL was reset and the model was not: find the bits in which registers that the driver
 * reads differ, such as events of earlier layers. */
void umakit_cosim_find_stale(struct umakit_cosim *pair);

/* What the driver has written may have made stale bits equal: from then on they are compared. */
void umakit_cosim_look_at_stale(struct umakit_cosim *pair);
/* After an access to a register: differ if that of the RTL ended in a bus error, and that of the
 * model did not. */
void umakit_cosim_check_bus(struct umakit_cosim *pair, bool is_write, uint32_t offset);
/* Read a register of the RTL, of which the model said `value`, and let who is behind catch
 * up; what the model says then. */
uint32_t umakit_cosim_read(struct umakit_cosim *pair, uint32_t offset, uint32_t value);
/* Note that the driver writes a register. */
void umakit_cosim_note_write(struct umakit_cosim *pair, uint32_t offset, uint32_t value);
/* Wait on both, at most `cycles` cycles; whether the interrupt is raised. */
bool umakit_cosim_wait(struct umakit_cosim *pair, uint64_t cycles);
/* False, and the device fails, if an inner device has failed. */
bool umakit_cosim_check(struct umakit_cosim *pair);

/* ---- umakit_cosim_layers.c ---- */

/* Before each access of the driver; false if the device has failed. */
bool umakit_cosim_begin_access(struct umakit_cosim *pair);
/* Start the waveform if it is asked for after as many resets. */
void umakit_cosim_start_waveform(struct umakit_cosim *pair);

/* ---- umakit_cosim_report.c ---- */

void umakit_cosim_open_report(void);
/* Whether it could be opened, or none is asked for. */
bool umakit_cosim_has_report(void);
void umakit_cosim_close_report(void);
void umakit_cosim_report_layer(const struct umakit_cosim *pair);
/* At most once a second, while the RTL works. */
void umakit_cosim_report_progress(const struct umakit_cosim *pair);
/* Report the difference and let the device fail with its sentence; does nothing if it has. */
void umakit_cosim_differ(struct umakit_cosim *pair,
                         const struct umakit_cosim_difference *difference);

#endif /* UMAKIT_COSIM_INTERNAL_H */
