/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all simulated devices have in common: mapped buffers, a clock, counters,
 * a trace and faults. Which device it is says the struct that holds it:
 *
 *     mac_array.h         float32 convolutions, works on mapped buffers
 *     systolic_array.h    int8 networks, with DMA engine and scratchpad
 *
 * No heap and no static state: the caller owns the devices, several of one or
 * of different kinds may live side by side. Nothing a driver does crashes the
 * simulator; misuse shows up in the STATUS and ERROR registers.
 *
 * Simulated time: every register access takes a cycle, umakit_device_wait
 * takes as long as it waits.
 */
#ifndef UMAKIT_SIMULATOR_H
#define UMAKIT_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "faults.h"
#include "status.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers that can be mapped at once, and the bytes each may have. */
#define UMAKIT_SIMULATOR_WINDOW_COUNT 8u
#define UMAKIT_SIMULATOR_WINDOW_BYTES 0x10000000u

/* Slot i starts at bus address (i + 1) * UMAKIT_SIMULATOR_WINDOW_BYTES, so that
 * an address register left at 0 is never valid. */

/* Everything since the device was initialised; registers do not reset it. */
struct umakit_simulator_counters {
    uint64_t clock;          /* cycles */
    uint64_t jobs;           /* of the array, ran to their end */
    uint64_t failed_jobs;    /* of the array, refused, stopped or cut off */
    uint64_t macs;           /* that folds had room for */
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

/* Copy the counters out; all zero if the device is NULL. */
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

/* From here on: the simulator's own. Defined only so that a caller can place a
 * device where it likes. */

struct umakit_simulator_window {
    const void *memory; /* NULL: the slot is free */
    size_t bytes;
    enum umakit_direction direction;
};

struct umakit_simulator_trace {
    struct umakit_trace_entry *entries;
    size_t capacity;
    size_t count;
};

struct umakit_simulator_operations; /* what a kind of device does its own way */

struct umakit_device {
    const struct umakit_simulator_operations *operations; /* NULL: not initialised */
    struct umakit_simulator_counters counters;
    struct umakit_simulator_window windows[UMAKIT_SIMULATOR_WINDOW_COUNT];
    uint32_t map_alignment; /* what mapped memory is a multiple of */
    struct umakit_fault_slot faults[UMAKIT_FAULT_COUNT];
    struct umakit_simulator_trace trace;
};

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SIMULATOR_H */
