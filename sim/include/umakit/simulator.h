/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulator of a MAC array: the registers of mac_array_registers.h, exact
 * results and the cycle count of an output-stationary systolic array.
 *
 * No heap and no static state: the caller owns the device, several may live
 * side by side. Nothing a driver does crashes the simulator; misuse shows up
 * in the STATUS and ERROR registers.
 *
 * Simulated time: every register access takes a cycle, umakit_device_wait
 * takes what it waits. A job's buffers are read and its result is written in
 * one go when its last cycle is over, so that a job that fails or is stopped
 * leaves the result as it was.
 */
#ifndef UMAKIT_SIMULATOR_H
#define UMAKIT_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers that can be mapped at once, and the bytes each may have. */
#define UMAKIT_SIMULATOR_WINDOW_COUNT 8u
#define UMAKIT_SIMULATOR_WINDOW_BYTES 0x10000000u

/* Slot i starts at bus address (i + 1) * UMAKIT_SIMULATOR_WINDOW_BYTES, so that
 * an address register left at 0 is never valid. */

struct umakit_simulator_config {
    uint32_t array_rows;    /* at least 1 */
    uint32_t array_columns; /* at least 1 */
    /* Cycles to move a fold's results out of the array. 0 is an array that
     * drains while it computes; a separate drain takes array_rows. */
    uint32_t drain_cycles_per_fold;
};

/* Everything since umakit_simulator_init; registers do not reset it. */
struct umakit_simulator_counters {
    uint64_t jobs;           /* ran to their end */
    uint64_t failed_jobs;    /* refused at START, stopped or cut off */
    uint64_t macs;
    uint64_t compute_cycles; /* without the drain */
    uint64_t drain_cycles;
    uint64_t register_reads;
    uint64_t register_writes;
    uint64_t bytes_read;     /* every operand once a job */
    uint64_t bytes_written;  /* every result once a job */
};

/* From here on: the simulator's own. Defined only so that a caller can place a
 * device where it likes. */

struct umakit_simulator_window {
    const void *memory; /* NULL: the slot is free */
    size_t bytes;
    enum umakit_direction direction;
};

/* The registers that a driver writes and reads back. */
struct umakit_simulator_registers {
    uint32_t ifmap_address;
    uint32_t weights_address;
    uint32_t result_address;
    uint32_t input_channels;
    uint32_t input_height;
    uint32_t input_width;
    uint32_t output_channels;
    uint32_t kernel_height;
    uint32_t kernel_width;
    uint32_t pad_top;
    uint32_t pad_left;
};

/* A convolution whose addresses and sizes are known to be sound. */
struct umakit_simulator_convolution {
    const float *ifmap;
    const float *weights;
    float *result;
    size_t input_channels;
    size_t height;
    size_t width;
    size_t output_channels;
    size_t kernel_height;
    size_t kernel_width;
    size_t pad_top;
    size_t pad_left;
};

struct umakit_simulator_job {
    struct umakit_simulator_convolution convolution;
    uint64_t macs;
    uint64_t compute_cycles;
    uint64_t drain_cycles;
    uint64_t remaining_cycles; /* 0: no job is running */
    uint64_t bytes_read;
    uint64_t bytes_written;
};

struct umakit_device {
    struct umakit_simulator_config config; /* array_rows 0: not initialised */
    struct umakit_simulator_counters counters;
    struct umakit_simulator_window windows[UMAKIT_SIMULATOR_WINDOW_COUNT];
    struct umakit_simulator_registers registers;
    struct umakit_simulator_job job;
    uint64_t cycles; /* since RESET_COUNTERS */
    uint64_t macs;
    uint32_t captured_cycles_high;
    uint32_t captured_macs_high;
    enum umakit_status error;
    bool done;
};

/* Bring a device into its reset state, whatever it held before.
 * UMAKIT_INVALID_ARGUMENT: NULL, or an array without rows or columns. */
UMAKIT_MUST_USE int umakit_simulator_init(struct umakit_device *device,
                                          const struct umakit_simulator_config *config);

/* Copy the counters out; all zero if the device is NULL. */
void umakit_simulator_counters(const struct umakit_device *device,
                               struct umakit_simulator_counters *counters);

/*
 * Cycles of an output-stationary array for an m x n result of dot products of
 * length k:
 *
 *     ceil(m / rows) * ceil(n / columns) * (rows + columns + k - 2 + drain)
 *
 * Folds do not overlap and an edge fold costs as much as a full one. A
 * convolution has m = height * width of the result, n = output channels,
 * k = kernel height * kernel width * input channels. 0 if any of m, n, k, rows
 * and columns is 0; UINT64_MAX if the count does not fit 64 bits.
 */
uint64_t umakit_output_stationary_cycles(uint64_t m, uint64_t n, uint64_t k, uint32_t rows,
                                         uint32_t columns, uint32_t drain);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SIMULATOR_H */
