/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulator of a systolic array for int8 networks: the registers of
 * systolic_array_registers.h, a DMA engine between the bus and a scratchpad, and
 * an array with requantize and pooling stage that works on the scratchpad.
 *
 * Results. A transfer moves its bytes and a job reads its operands and writes
 * its result in one go when it completes, so that one that is stopped or fails
 * leaves the rest as it was. Accumulators have 32 bits and wrap.
 *
 * Jobs. A START runs a job or a transfer, one at a time on each engine. An
 * ENQUEUE appends a command, with the registers as they are then, to the queue;
 * results are as if commands ran one after the other. What does not depend on
 * data is checked when a command is enqueued.
 *
 * Order. Loads, array jobs and stores are three streams, each in order. A
 * command starts as soon as
 *
 *   - it is the oldest of its stream that has not started,
 *   - its engine can take it: loads and stores share the DMA engine, and where
 *     both could start, the older one does,
 *   - no older command that has not completed conflicts with it.
 *
 * Two commands conflict if they share a bank of the scratchpad and one is a
 * transfer and the other a job, or one of them reads what the other writes (two
 * that write do so in their order); and a load and a store also if their ranges
 * on the bus overlap, from first to last byte. Jobs of a START are ordered as
 * commands are.
 *
 * Time. A command occupies its engine for `busy` cycles and completes `tail`
 * cycles after that, but not before the one that its engine took before it. An
 * engine takes a command when the one before is no longer busy and the one
 * before that has completed. All engines have one clock:
 *
 *   transfer   busy = planes * rows * (ceil(row bytes / burst bytes) * latency
 *                                      + ceil(row bytes / bytes per cycle))
 *   job        busy = folds * (cycles of a fold + drain)
 *   pool       busy = output height * output width * kernel height * kernel width
 *                     * ceil(channels / pooling lanes)
 *
 * and tail = 0, here and below with dma_setup_cycles more for a transfer and
 * array_setup_cycles more for a job or a pool, at its beginning. The requantize stage and the fused addition work during
 * the drain and take no time of their own. With `dma_outstanding` requests are sent
 * ahead of the answers, and latency is paid once:
 *
 *   transfer   busy = planes * rows * ceil(row bytes / bytes per cycle)
 *              tail = latency
 *
 * With `preload` what stays for the next fold is loaded and what left the last
 * fold drains while a fold computes, so that filling and draining the array of R
 * rows and C columns is paid once:
 *
 *   output stationary   busy = folds * k           tail = R + C - 2 + drain
 *   weight stationary   busy = folds * max(m, P)   tail = R + C - 2 + drain + P
 *   input stationary    busy = folds * max(n, P)   tail = R + C - 2 + drain + P
 *
 * where P = ceil(R / preload_rows) cycles bring in what stays.
 *
 * Folds and their cycles are those of systolic_cycles.h. A depthwise
 * convolution has one channel on each column: n = output channels and
 * k = kernel height * kernel width. With `pack_columns` the last block of output
 * channels, if it fills at most half of the columns, is computed for several
 * groups of positions at a time (output stationary only): with rest = n mod C
 * channels in it, floor(C / rest) groups and ceil(m / (R * groups)) folds.
 *
 * Counters. A cycle is a compute cycle while a job is busy, setup included, apart
 * from its drains without `preload`; else a drain cycle while one is in its tail; else a
 * stall cycle while the DMA engine has a transfer, busy or in its tail; else
 * idle.
 *
 * What goes wrong with commands. An error drops all commands, those that run
 * too, so that nothing is busy but what a fault keeps busy; COMMANDS_LEFT is 0,
 * QUEUE_DONE is not raised, and ERROR says which. Without an error a driver that
 * waited for longer than its commands can take finds
 *
 *   COMMANDS_LEFT 0                    everything ended, an interrupt was lost;
 *                                      DMA_BYTES_LEFT above 0: a transfer
 *                                      stopped before its end and said DONE
 *   DMA_BUSY, DMA_BYTES_LEFT above 0   a transfer stopped (or still runs)
 *   DMA_BUSY, DMA_BYTES_LEFT 0         the DMA engine is stuck
 *   ARRAY_BUSY, ARRAY_CYCLES_LEFT 0    the array is stuck
 *
 * A command that stopped or is stuck has not ended: COMMANDS_LEFT stays above 0
 * until CLEAR. One that is stuck has had its effect and holds no bank; what its
 * engine had taken after it waits again.
 */
#ifndef UMAKIT_SYSTOLIC_ARRAY_H
#define UMAKIT_SYSTOLIC_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simulator.h"
#include "systolic_array_registers.h"
#include "systolic_command.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest queue, in commands. */
#define UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH 32u

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
    bool preload;   /* see above; false: each fold fills and drains the array */
    uint32_t preload_rows; /* of what stays, that enter in a cycle; 0 is 1 */
    bool pack_columns;
    uint32_t array_setup_cycles; /* of a job before its first fold, such as checks */
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
    bool dma_outstanding;         /* see above; false: each burst waits for the last */
    uint32_t dma_setup_cycles;    /* of a transfer before its first burst */
    /* Memory for the accumulators of jobs that are continued. The caller's, as the
     * scratchpad is, at a multiple of 4; with 0 bytes NULL. With it, jobs that are
     * weight or input stationary have to fit the accumulators of a block of columns
     * into it. */
    void *accumulator;
    uint32_t accumulator_bytes;   /* a multiple of 4 */
    uint32_t command_queue_depth; /* 0: no queue; to UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH */

    /* Of the scratchpad's accesses (umakit_simulator_memories), valid to the end of the
     * program; NULL: scratchpad. */
    const char *scratchpad_name;
};

/* What a transfer or a job that ended did when; times are those of `clock` of
 * umakit_simulator_counters. It was busy in the cycles from `start` to
 * `end_of_busy` - 1, and in its tail until `completion`. */
struct umakit_systolic_timeline_entry {
    uint32_t command; /* 0 is the first that came since the recording began */
    uint32_t stream;  /* as enum umakit_systolic_stream */
    uint64_t issued;  /* enqueued or started by the driver */
    uint64_t start;
    uint64_t end_of_busy;
    uint64_t completion;
};

/*
 * Record what comes from now on, of a START or an ENQUEUE, as it ends, until
 * `capacity` entries are full; what fails or is dropped is omitted. NULL or 0
 * ends the recording. The entries stay the caller's; umakit_systolic_timeline is
 * how many ended, which may be more than were kept. Of a device that is no
 * systolic array nothing is recorded.
 */
void umakit_systolic_record_timeline(umakit_device *device,
                                     struct umakit_systolic_timeline_entry *entries,
                                     size_t capacity);
size_t umakit_systolic_timeline(const umakit_device *device);

/* From here on: the simulator's own. */

#define UMAKIT_SYSTOLIC_ARRAY_REGISTER_COUNT (UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES / 4u)
#define UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT 10u
#define UMAKIT_SYSTOLIC_ARRAY_FLIPPED_COUNT 8u

/* The queue, and a job of a START on each engine. */
#define UMAKIT_SYSTOLIC_ARRAY_COMMAND_COUNT (UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH + 2u)

struct umakit_systolic_timeline_record {
    struct umakit_systolic_timeline_entry *entries;
    size_t capacity;
    size_t count;
    uint64_t first; /* number of its first command */
};

struct umakit_systolic_engine {
    bool is_done; /* with the job of the last START */
    bool is_stopped; /* until CLEAR */
    bool is_stuck; /* until the fault is removed */
};

struct umakit_systolic_array {
    struct umakit_device device; /* first: what drivers get is its address */
    struct umakit_systolic_array_config config;
    uint32_t registers[UMAKIT_SYSTOLIC_ARRAY_REGISTER_COUNT]; /* those that are written */
    struct umakit_systolic_engine dma;
    struct umakit_systolic_engine array;
    /* Those that have not ended, oldest first. */
    struct umakit_systolic_command commands[UMAKIT_SYSTOLIC_ARRAY_COMMAND_COUNT];
    uint32_t command_count;
    uint64_t command_number; /* of the next one */
    struct umakit_systolic_timeline_record timeline;
    uint64_t now; /* the device's clock, as far as commands got */
    uint32_t bytes_left; /* of transfers that ended or were dropped */
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
