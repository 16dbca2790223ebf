/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all simulated devices have in common: mapped buffers, a clock, counters,
 * a trace and faults. Which device it is says the struct that holds it:
 *
 *     mac_array.h         float32 convolutions, works on mapped buffers
 *     systolic_array.h    int8 networks, with DMA engine and scratchpad
 *     own_simulator.h     a simulator of your own, behind a table of functions
 *
 * The first two are such tables too.
 *
 * No heap and no static state: the caller owns the devices, several of one or
 * of different kinds may live side by side. Nothing a driver does crashes the
 * simulator; misuse shows up in the STATUS and ERROR registers.
 *
 * Simulated time of the first two: every register access takes a cycle,
 * umakit_device_wait takes as long as it waits.
 */
#ifndef UMAKIT_SIMULATOR_H
#define UMAKIT_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "faults.h"
#include "own_simulator.h"
#include "status.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers that can be mapped at once, and the bytes each may have. */
#define UMAKIT_SIMULATOR_WINDOW_COUNT 8u
#define UMAKIT_SIMULATOR_WINDOW_BYTES 0x10000000u

/* Slot i starts at bus address (i + 1) * UMAKIT_SIMULATOR_WINDOW_BYTES, so that
 * an address register left at 0 is never valid. Buffers begin there, or less than
 * UMAKIT_SIMULATOR_PAGE_BYTES behind it: see umakit_simulator_scatter. */
#define UMAKIT_SIMULATOR_PAGE_BYTES 0x1000u

/* Everything since the device was initialised; registers do not reset it. */
struct umakit_simulator_counters {
    uint64_t clock;          /* cycles */
    uint64_t jobs;           /* of the array, ran to their end */
    uint64_t failed_jobs;    /* of the array, refused, stopped or cut off */
    uint64_t macs;           /* that folds had room for; 0 of a simulator of your own */
    uint64_t useful_macs;    /* without those that only fill up folds */
    uint64_t compute_cycles; /* the array or the pooling stage works */
    uint64_t drain_cycles;   /* results move out of the array */
    uint64_t stall_cycles;   /* the DMA engine works, the array does not */
    uint64_t idle_cycles;    /* no engine works */
    uint64_t dma_cycles;     /* the DMA engine works, whether the array does or not */
    uint64_t bytes_read;     /* over the bus by the device */
    uint64_t bytes_written;  /* over the bus by the device */
    uint64_t register_reads;
    uint64_t register_writes;
};

/* Copy the counters out; all zero if the device is NULL. Of a simulator of your own
 * these are its accesses to registers only: see umakit_simulator_measure. */
void umakit_simulator_read_counters(const umakit_device *device,
                                    struct umakit_simulator_counters *counters);

/*
 * Record the calls of device.h from now on, in their order, until `capacity`
 * entries are full. NULL or 0 ends the recording. The entries stay the
 * caller's; umakit_simulator_recorded is how many calls there were, which may
 * be more than were kept.
 */
void umakit_simulator_record(umakit_device *device, struct umakit_trace_entry *entries,
                             size_t capacity);
size_t umakit_simulator_recorded(const umakit_device *device);

/* Counters of a device of any kind; what it does not know, or if it is NULL or has failed,
 * is UMAKIT_UNKNOWN. */
void umakit_simulator_measure(const umakit_device *device,
                              struct umakit_own_counters *counters);

/* Texts of an event, with the 0 at their end. */
#define UMAKIT_ENGINE_BYTES 24u
#define UMAKIT_LABEL_BYTES 32u

/* An event as it is recorded; see umakit_event. Times are cycles of the clock since the
 * recording began. */
struct umakit_event_entry {
    char engine[UMAKIT_ENGINE_BYTES];
    char label[UMAKIT_LABEL_BYTES];
    uint64_t begin;
    uint64_t end_of_busy;
    uint64_t end;
};

/*
 * Record the events that begin from now on, as they end, until `capacity` entries are
 * full. NULL or 0 ends the recording. The entries stay the caller's;
 * umakit_simulator_events is how many there were, which may be more than were kept.
 * Without a clock nothing is recorded.
 */
void umakit_simulator_record_events(umakit_device *device, struct umakit_event_entry *entries,
                                    size_t capacity);
size_t umakit_simulator_events(const umakit_device *device);

/* Memories whose accesses are counted. */
#define UMAKIT_MEMORY_COUNT 8u

/* Accesses to a memory since the last reset, see umakit_memory_access; what is not known is
 * UMAKIT_UNKNOWN. */
struct umakit_memory_counters {
    char name[UMAKIT_ENGINE_BYTES]; /* empty: not used */
    uint64_t reads;
    uint64_t read_bytes;
    uint64_t writes;
    uint64_t written_bytes;
};

/* Copy out the counters of all memories in the order in which they were named first, and what
 * follows them empty. Of a device that is NULL or has failed all are empty. */
void umakit_simulator_memories(const umakit_device *device,
                               struct umakit_memory_counters counters[UMAKIT_MEMORY_COUNT]);

/* Create a simulator of your own and bring it into its state after power-on. If that fails,
 * the device answers as one that has failed, and umakit_simulator_failure says why. */
void umakit_simulator_open(umakit_device *device, const struct umakit_own_simulator *table);

/* Bring an opened device into its state after power-on, as if nothing had been mapped,
 * counted or recorded. UMAKIT_NO_DEVICE: NULL or not initialised; UMAKIT_UNSUPPORTED: it has no
 * `reset`; UMAKIT_DEVICE_ERROR: it has failed, which stays so. */
UMAKIT_MUST_USE int umakit_simulator_reset(umakit_device *device);

/* Let the bus addresses of buffers that are mapped from now on begin anywhere in a page, aligned as
 * the device needs it, as memory of a system does; the seed chooses where. 0: at begins of pages,
 * as after umakit_simulator_open. Nothing may be mapped. */
void umakit_simulator_scatter(umakit_device *device, uint32_t seed);

/* Why the simulator itself failed, by umakit_host_fail; empty: it did not. */
const char *umakit_simulator_failure(const umakit_device *device);

/* From here on: the simulator's own. Defined only so that a caller can place a
 * device where it likes. */

struct umakit_simulator_window {
    const void *memory; /* NULL: the slot is free */
    size_t bytes;
    uint32_t place; /* of the first byte, in the slot */
    enum umakit_direction direction;
};

struct umakit_simulator_trace {
    struct umakit_trace_entry *entries;
    size_t capacity;
    size_t count;
};

struct umakit_simulator_event_record {
    struct umakit_event_entry *entries;
    size_t capacity;
    size_t count;
    uint64_t first_cycle;
};

#define UMAKIT_FAILURE_BYTES 512u
#define UMAKIT_RESPONSE_BYTES 16u

/* Register accesses that ended in a bus error, and the last one of them. */
struct umakit_simulator_bus_errors {
    uint64_t count;
    uint32_t offset;
    bool is_write;
    char response[UMAKIT_RESPONSE_BYTES];
};

/* Memory of which it is noted when the simulator writes it; `cycles` is NULL if of none. */
struct umakit_simulator_watch {
    const unsigned char *memory;
    size_t bytes;
    uint64_t *cycles; /* of each byte: 1 more than the cycle of its last write; 0: it never was */
    uint64_t cycle; /* of the next write, as `umakit_host_cycle` says */
};

struct umakit_device {
    const struct umakit_own_simulator *operations; /* NULL: not initialised, or failed */
    void *simulator; /* first argument of its functions */
    struct umakit_simulator_counters counters;
    struct umakit_simulator_window windows[UMAKIT_SIMULATOR_WINDOW_COUNT];
    uint64_t unresolved; /* accesses of the simulator that no window has, or of another direction */
    uint32_t unresolved_address; /* that of the last of them */
    struct umakit_simulator_bus_errors bus_errors;
    struct umakit_simulator_watch watch;
    uint32_t map_alignment; /* what mapped memory is a multiple of */
    uint32_t scatter; /* seed of the places of buffers in their slots; 0: at the begin */
    struct umakit_fault_slot faults[UMAKIT_FAULT_COUNT];
    struct umakit_simulator_trace trace;
    struct umakit_simulator_event_record events;
    struct umakit_memory_counters memories[UMAKIT_MEMORY_COUNT];
    char failure[UMAKIT_FAILURE_BYTES]; /* empty: it did not fail */
};

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SIMULATOR_H */
