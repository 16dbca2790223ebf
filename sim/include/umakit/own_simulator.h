/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulator of your own behind umakit/device.h: one table of functions, in C99 or
 * C++. With `simulator = "own"` in accel.toml, a backend NAME defines
 *
 *     const struct umakit_own_simulator *NAME_simulator(void);     (C++: extern "C")
 *
 * The kit counts and records the driver's calls of device.h, maps its buffers and
 * calls the table for the rest; the simulator calls the functions umakit_host_...
 * below. Everything happens in one thread: the driver's. Nothing may throw through
 * these functions.
 *
 * Time is the simulator's: a register access takes as many cycles as it adds to its
 * own clock, and so does a wait. A simulator without a clock leaves the counters
 * unknown; umakit shows what is unknown as null or "-", never as 0.
 */
#ifndef UMAKIT_OWN_SIMULATOR_H
#define UMAKIT_OWN_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "faults.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What `version` of a table is. It changes when a table of before would be wrong. */
#define UMAKIT_OWN_SIMULATOR_VERSION 1u

/* A counter that the simulator does not have. */
#define UMAKIT_UNKNOWN UINT64_MAX

/* What the simulator is told about its side of the bus; its fields are the kit's. */
typedef struct umakit_device umakit_host;

/* Totals since the last reset. Each may be UMAKIT_UNKNOWN; one that was unknown once, or
 * went back, counts as unknown for the whole run. An engine works from the start of a
 * command until the command is complete: `busy` and `tail` of a [machine] in accel.toml.
 * Cycles in which several engines work count once. */
struct umakit_own_counters {
    uint64_t clock;          /* cycles of the device's clock */
    uint64_t busy_cycles;    /* in which any engine works */
    uint64_t compute_cycles; /* in which an engine that computes works */
    uint64_t dma_cycles;     /* in which an engine that moves data works */
    uint64_t macs;           /* multiply-accumulates that were computed */
    uint64_t bytes_read;     /* over the bus by the device */
    uint64_t bytes_written;  /* over the bus by the device */
};

/* The functions of a simulator. `simulator` is what `create` returned. */
struct umakit_own_simulator {
    uint32_t version; /* UMAKIT_OWN_SIMULATOR_VERSION */

    /* What the address and the size of a mapped buffer are a multiple of: a power of
     * two, or 0 for 1. Only the address is checked. */
    uint32_t map_alignment;

    /* A simulator, whose memory stays valid to the end of the program; NULL if there
     * can be none. Called once. */
    void *(*create)(umakit_host *host);

    /* Bring it into the state after power-on: registers, memories, clock, counters.
     * Called after `create` and by umakit_simulator_reset. */
    void (*reset)(void *simulator);

    /* A register access of the driver, at a multiple of 4 bytes from the first one. */
    uint32_t (*read32)(void *simulator, uint32_t offset);
    void (*write32)(void *simulator, uint32_t offset, uint32_t value);

    /* Let time pass until the interrupt is raised, at most `cycles` cycles; whether it
     * is raised. One that is raised already takes no time. Without a clock: whether
     * it is raised once all that was started has ended. */
    bool (*wait)(void *simulator, uint64_t cycles);

    /* Fill in the counters that it has; all are UMAKIT_UNKNOWN before. NULL: none. */
    void (*counters)(void *simulator, struct umakit_own_counters *counters);

    /* The buffer at `address` is about to be unmapped: stop what uses it. NULL: accesses
     * to it fail from then on, which is enough for most. */
    void (*unmapping)(void *simulator, uint32_t address, size_t bytes);

    /* The driver did something wrong that no register access shows: it unmapped what
     * was not mapped. NULL: ignored. */
    void (*misuse)(void *simulator, enum umakit_status error, uint32_t address);

    /* Let a fault happen (umakit/faults.h), or say that it cannot:
     * UMAKIT_UNSUPPORTED, UMAKIT_OUT_OF_RANGE or UMAKIT_TABLE_FULL. NULL: the kit
     * offers bus errors, of umakit_host_read and umakit_host_write, and lost
     * interrupts, of `wait`. */
    int (*inject)(void *simulator, const struct umakit_fault *fault);

    /* End all faults; engines that were stuck are free. NULL: there are none of its own. */
    void (*remove_faults)(void *simulator);
};

/* ---- What the kit offers to a simulator ---- */

/*
 * Copy `bytes` bytes of host memory that the driver mapped, from or to a bus address.
 *
 * UMAKIT_OUT_OF_RANGE      not all of it is mapped, in one buffer
 * UMAKIT_WRONG_DIRECTION   mapped, but not for reading (or writing) by the device
 * UMAKIT_BUS_ERROR         a test injected it (umakit/faults.h)
 *
 * On failure nothing is copied.
 */
UMAKIT_MUST_USE int umakit_host_read(umakit_host *host, uint32_t address, size_t bytes,
                                     void *to);
UMAKIT_MUST_USE int umakit_host_write(umakit_host *host, uint32_t address, size_t bytes,
                                      const void *from);

/* Something that an engine did, for the timeline of `uma report`. Times are those of the
 * counter `clock`. Texts are copied; longer ones are cut off. */
struct umakit_event {
    const char *engine; /* its name, such as "dma", at most 23 bytes */
    const char *label;  /* what it did, such as "load weights", at most 31 bytes; may be NULL */
    uint64_t begin;       /* its first cycle */
    uint64_t end_of_busy; /* the engine takes the next one; `end` if it is not pipelined */
    uint64_t end;         /* the cycle from which its effect is visible */
};

/* Report an event that has ended; it is dropped while nothing is recorded. */
void umakit_host_event(umakit_host *host, const struct umakit_event *event);

/* Accesses to a memory of the device. Each figure may be UMAKIT_UNKNOWN. */
struct umakit_memory_access {
    const char *memory;     /* its name in accel.toml, at most 23 bytes */
    uint64_t reads;         /* accesses, each of at most the memory's width */
    uint64_t read_bytes;    /* of these, the bytes that were asked for */
    uint64_t writes;
    uint64_t written_bytes;
};

/* Report accesses, which are added to those of the memory that were reported before. At most 8
 * memories have names; accesses to one that is never named are unknown. All may be 0, which says
 * that the memory is counted. */
void umakit_host_access(umakit_host *host, const struct umakit_memory_access *access);

/* The register access that is being made ends in a bus error: `response` is its name, such as
 * "SLVERR", of at most 15 bytes. Co-simulation and checks of registers say so; a read returns all
 * ones, as on a board. */
void umakit_host_bus_error(umakit_host *host, uint32_t offset, bool is_write,
                           const char *response);

/* The writes that follow are in this cycle of the simulator's clock. Co-simulation then names the
 * cycle of a wrong write. */
void umakit_host_cycle(umakit_host *host, uint64_t cycle);

/* The simulator itself cannot go on: say why in one sentence without a full stop, of at
 * most 511 bytes. The first one counts. From then on registers read as all ones, waits
 * fail with UMAKIT_DEVICE_ERROR, the table's functions are not called any more, and `uma run`
 * ends with the sentence. */
void umakit_host_fail(umakit_host *host, const char *sentence);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_OWN_SIMULATOR_H */
