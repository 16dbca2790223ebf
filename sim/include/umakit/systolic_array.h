/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulator of a systolic array for int8 networks: the registers of
 * systolic_array_registers.h, a DMA engine between the bus and a scratchpad, and
 * an array with requantize and pooling stage that works on the scratchpad.
 *
 * Results. A transfer moves its bytes and a job reads its operands and writes
 * its result in one go when its last cycle is over, so that one that is stopped
 * or fails leaves the rest as it was. Sums have 32 bits and wrap.
 *
 * Time. Each engine is busy for as long as its job takes, on one clock:
 *
 *   transfer   planes * rows * (ceil(row bytes / burst bytes) * latency
 *                               + ceil(row bytes / bytes per cycle))
 *   job        folds * (cycles of a fold + drain); the requantize stage works
 *              beside the drain and takes no time of its own
 *   pool       output height * output width * kernel height * kernel width
 *              * ceil(channels / pooling lanes)
 *
 * Folds and their cycles are those of systolic_cycles.h. A depthwise
 * convolution has one channel on each column: n = output channels and
 * k = kernel height * kernel width.
 *
 * The scratchpad's banks serve one engine at a time. A job that needs a bank of
 * the other engine's running job waits for its end, so that data are never read
 * half written; engines that use different banks work at the same time.
 */
#ifndef UMAKIT_SYSTOLIC_ARRAY_H
#define UMAKIT_SYSTOLIC_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simulator.h"
#include "systolic_array_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

struct umakit_systolic_array_config {
    uint32_t array_rows;    /* at least 1 */
    uint32_t array_columns; /* at least 1 */
    /* Cycles to move a fold's results out of the array. 0 is an array that
     * drains while it computes; a separate drain takes array_rows. */
    uint32_t drain_cycles_per_fold;
    /* What DATAFLOW may be; at least one. */
    bool output_stationary;
    bool weight_stationary;
    bool input_stationary;
    bool depthwise; /* each column can have an input of its own */
    uint32_t pooling_lanes; /* 0: no pooling stage */
    /* The scratchpad's bytes, at a multiple of 4; the caller's, and the
     * device's alone as long as it is used. */
    void *scratchpad;
    uint32_t scratchpad_bytes;
    uint32_t scratchpad_banks; /* 1 to 32; each has the same multiple of 4 bytes */
    uint32_t dma_bytes_per_cycle; /* at least 1 */
    uint32_t dma_latency_cycles;  /* before the first byte of each burst */
    uint32_t dma_burst_bytes;     /* most bytes of a burst; 0: a row is one burst */
    uint32_t dma_alignment;       /* a power of two, see DMA_ALIGNMENT */
};

/* From here on: the simulator's own. */

#define UMAKIT_SYSTOLIC_ARRAY_REGISTER_COUNT (UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES / 4u)
#define UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT 10u
#define UMAKIT_SYSTOLIC_ARRAY_FLIPPED_COUNT 8u

/* One that is stopped or stuck is busy and gets no further. */
struct umakit_systolic_engine {
    bool is_busy;
    bool is_done;
    bool waits; /* for a bank */
    bool is_stopped; /* until CLEAR */
    bool is_stuck; /* until the fault is removed */
    uint32_t banks; /* a bit for each bank that its job uses */
    uint64_t elapsed;
    uint64_t cycles; /* of its job */
};

struct umakit_systolic_transfer {
    unsigned char *memory; /* behind the bus address */
    uint32_t bytes;
    uint32_t moved;
    uint32_t stops_at; /* bytes; UINT32_MAX: does not stop */
    enum umakit_fault_ending ending;
};

/* Height, width and channels, in this order, wherever there are three. */
struct umakit_systolic_job {
    uint32_t operation;
    uint32_t input[3];
    uint32_t output[3];
    uint32_t kernel[2];
    uint32_t stride[2];
    uint32_t dilation[2];
    uint32_t pad[2];
    uint32_t ifmap_stride[3];
    uint32_t ofmap_stride[3];
    uint32_t columns; /* of the array */
    int32_t input_zero_point;
    int32_t output_zero_point;
    int32_t lowest;
    int32_t highest;
    uint32_t rounding;
    uint32_t scale_count;
    uint64_t folds;
    uint64_t fold_cycles; /* without the drain */
    uint64_t macs;
    uint64_t useful_macs;
};

struct umakit_systolic_array {
    struct umakit_device device; /* first: what drivers get is its address */
    struct umakit_systolic_array_config config;
    uint32_t registers[UMAKIT_SYSTOLIC_ARRAY_REGISTER_COUNT]; /* those that are written */
    struct umakit_systolic_engine dma;
    struct umakit_systolic_engine array;
    struct umakit_systolic_transfer transfer;
    struct umakit_systolic_job job;
    struct umakit_simulator_counters at_reset; /* at the last RESET_COUNTERS */
    uint32_t captured_high[UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT];
    uint32_t pending_interrupts;
    enum umakit_status error;
    uint32_t error_address;
    /* Bytes that lost a bit since they were written. */
    uint32_t flipped[UMAKIT_SYSTOLIC_ARRAY_FLIPPED_COUNT];
    uint32_t flipped_count;
};

/* Bring a device into its reset state, whatever it held before; the scratchpad
 * keeps its content. UMAKIT_INVALID_ARGUMENT: NULL, or a configuration that is
 * not as said above. */
UMAKIT_MUST_USE int umakit_systolic_array_init(
    struct umakit_systolic_array *array, const struct umakit_systolic_array_config *config);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SYSTOLIC_ARRAY_H */
