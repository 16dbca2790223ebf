/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulator of a MAC array: the registers of mac_array_registers.h, exact
 * results and the cycle count of an output-stationary systolic array.
 *
 * A job's buffers are read and its result is written in one go when its last
 * cycle is over, so that a job that fails or is stopped leaves the result as it
 * was.
 */
#ifndef UMAKIT_MAC_ARRAY_H
#define UMAKIT_MAC_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A convolution of float32 tensors in NCHW and OIHW, stride 1; addresses and
 * sizes are valid. */
struct umakit_mac_array_convolution {
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

/* Compute a convolution. The result overlaps neither operand. */
void umakit_mac_array_convolve(const struct umakit_mac_array_convolution *convolution);

struct umakit_mac_array_config {
    uint32_t array_rows;    /* at least 1 */
    uint32_t array_columns; /* at least 1 */
    /* Cycles to move a fold's results out of the array. 0 is an array that
     * drains while it computes; a separate drain takes array_rows. */
    uint32_t drain_cycles_per_fold;
};

/* From here on: the simulator's own. */

/* The registers that a driver writes and reads back. */
struct umakit_mac_array_register_file {
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

struct umakit_mac_array_job {
    struct umakit_mac_array_convolution convolution;
    uint64_t macs;
    uint64_t slots; /* multiply-accumulates that its folds have room for */
    uint64_t compute_cycles;
    uint64_t drain_cycles;
    uint64_t remaining_cycles; /* 0: no job is running */
    uint64_t ifmap_bytes;
    uint64_t weights_bytes;
    uint64_t result_bytes;
};

struct umakit_mac_array {
    struct umakit_device device; /* first: what drivers get is its address */
    struct umakit_mac_array_config config;
    struct umakit_mac_array_register_file registers;
    struct umakit_mac_array_job job;
    uint64_t cycles; /* since RESET_COUNTERS */
    uint64_t macs;
    uint32_t captured_cycles_high;
    uint32_t captured_macs_high;
    enum umakit_status error;
    bool done;
    bool interrupt_is_lost;
    bool is_stuck;
};

/* Bring a device into its reset state, whatever it held before.
 * UMAKIT_INVALID_ARGUMENT: NULL, or an array without rows or columns. */
UMAKIT_MUST_USE int umakit_mac_array_init(struct umakit_mac_array *array,
                                          const struct umakit_mac_array_config *config);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_MAC_ARRAY_H */
