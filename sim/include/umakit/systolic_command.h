/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the simulator: the commands of a systolic array. A command is a
 * transfer or a job: a convolution, a depthwise convolution or a pool.
 */
#ifndef UMAKIT_SYSTOLIC_COMMAND_H
#define UMAKIT_SYSTOLIC_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "faults.h"
#include "systolic_array_registers.h"

/* Commands of a stream start in their order. */
enum umakit_systolic_stream {
    UMAKIT_SYSTOLIC_LOAD = 0,
    UMAKIT_SYSTOLIC_ARRAY = 1,
    UMAKIT_SYSTOLIC_STORE = 2
};

/* What a job reads, and last what it writes. */
enum umakit_systolic_operand {
    UMAKIT_SYSTOLIC_IFMAP,
    UMAKIT_SYSTOLIC_WEIGHTS,
    UMAKIT_SYSTOLIC_BIAS,
    UMAKIT_SYSTOLIC_MULTIPLIERS,
    UMAKIT_SYSTOLIC_SHIFTS,
    UMAKIT_SYSTOLIC_ADDEND,
    UMAKIT_SYSTOLIC_OFMAP,
    UMAKIT_SYSTOLIC_OPERAND_COUNT
};

/* Bytes of the scratchpad or on the bus: along each dimension `sizes` of them,
 * `strides` apart. Sizes are at least 1. */
struct umakit_systolic_region {
    uint32_t start;
    uint32_t sizes[3];
    uint32_t strides[3];
};

struct umakit_systolic_transfer {
    struct umakit_systolic_region bus; /* planes, rows, bytes */
    struct umakit_systolic_region scratchpad;
    bool is_out;
    unsigned char *memory; /* at the bus address */
    uint32_t bytes;
    uint32_t moved;
    uint32_t stops_at; /* bytes; UINT32_MAX: does not stop */
    enum umakit_fault_ending ending;
};

/* Of a scale, see requantize.h. */
#define UMAKIT_SYSTOLIC_MAX_SHIFT_LEFT 30
#define UMAKIT_SYSTOLIC_MAX_SHIFT_RIGHT 31

struct umakit_systolic_scale {
    int32_t multiplier;
    int32_t shift;
};

/* The fused addition. */
struct umakit_systolic_addition {
    uint32_t is_used;
    uint32_t left_shift;
    int32_t addend_zero_point;
    struct umakit_systolic_scale result;
    struct umakit_systolic_scale addend;
    struct umakit_systolic_scale sum;
    int32_t zero_point;
    int32_t lowest;
    int32_t highest;
};

/* Height, width and channels, in this order, wherever there are three. */
struct umakit_systolic_job {
    uint32_t operation;
    uint32_t dataflow;
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
    uint32_t accumulate; /* bits of ACCUMULATE */
    uint32_t accumulator_start;
    struct umakit_systolic_addition add;
    bool is_used[UMAKIT_SYSTOLIC_OPERAND_COUNT];
    struct umakit_systolic_region region[UMAKIT_SYSTOLIC_OPERAND_COUNT];
    uint64_t folds;
    uint64_t fold_cycles; /* without the drain */
    uint64_t macs;
    uint64_t useful_macs;
};

enum umakit_systolic_state {
    UMAKIT_SYSTOLIC_WAITING = 0,
    UMAKIT_SYSTOLIC_BUSY,
    UMAKIT_SYSTOLIC_TAIL,
    UMAKIT_SYSTOLIC_STOPPED /* or stuck: its engine does not progress */
};

/* A job or a transfer, of a START or an ENQUEUE. */
struct umakit_systolic_command {
    enum umakit_systolic_stream stream;
    enum umakit_systolic_state state;
    bool is_enqueued;
    uint32_t reads; /* a bit for each bank that it reads */
    uint32_t writes;
    uint64_t busy;  /* cycles */
    uint64_t setup; /* of those of a job, the ones before its first fold */
    uint64_t tail;
    uint64_t left; /* cycles of its state, BUSY or TAIL */
    uint64_t number; /* since the device was initialised */
    uint64_t issued; /* these on the device's clock */
    uint64_t start;  /* of those on an engine each is different */
    uint64_t end_of_busy;
    struct umakit_systolic_transfer transfer;
    struct umakit_systolic_job job;
};

/* A job's operands in the scratchpad, all valid; NULL where the job has none. */
struct umakit_systolic_operands {
    const int8_t *ifmap;
    const int8_t *weights;
    const unsigned char *bias;        /* int32 */
    const unsigned char *multipliers; /* int32 */
    const int8_t *shifts;
    const int8_t *addend; /* may be the result's place */
    int8_t *ofmap;
    uint32_t *accumulators; /* those of the job, in the accumulator memory */
};

static inline bool umakit_systolic_is_pool(const struct umakit_systolic_job *job)
{
    return job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL ||
           job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_AVERAGE_POOL;
}

/* Whether accumulators begin with what the job before left in them. */
static inline bool umakit_systolic_continues(const struct umakit_systolic_job *job)
{
    return (job->accumulate & UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_CONTINUE_MASK) != 0u;
}

/* Whether accumulators stay where they are, for the job after. */
static inline bool umakit_systolic_keeps(const struct umakit_systolic_job *job)
{
    return (job->accumulate & UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_MASK) != 0u;
}

/* UMAKIT_ENGINE_ARRAY or UMAKIT_ENGINE_DMA. */
static inline enum umakit_engine umakit_systolic_engine_of(
    const struct umakit_systolic_command *command)
{
    return command->stream == UMAKIT_SYSTOLIC_ARRAY ? UMAKIT_ENGINE_ARRAY : UMAKIT_ENGINE_DMA;
}

#endif /* UMAKIT_SYSTOLIC_COMMAND_H */
