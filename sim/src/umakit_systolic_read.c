/* SPDX-License-Identifier: Apache-2.0 */
/* What the registers of the simulated systolic array show. */
#include "umakit/systolic_engines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/saturating.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_commands.h"
#include "umakit/systolic_register_file.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define STATUS(name) UMAKIT_SYSTOLIC_ARRAY_STATUS_##name##_MASK
#define FEATURE(name) UMAKIT_SYSTOLIC_ARRAY_FEATURES_##name##_MASK

/* ---- State ---- */

static uint32_t queue_free(const struct umakit_systolic_array *array)
{
    return array->config.command_queue_depth - umakit_systolic_commands_left(array);
}

static uint32_t read_status(const struct umakit_systolic_array *array)
{
    const bool dma_is_busy = umakit_systolic_is_busy(array, UMAKIT_ENGINE_DMA);
    const bool array_is_busy = umakit_systolic_is_busy(array, UMAKIT_ENGINE_ARRAY);
    const bool is_full = array->config.command_queue_depth != 0u && queue_free(array) == 0u;
    uint32_t status = 0u;

    status |= dma_is_busy ? STATUS(DMA_BUSY) : 0u;
    status |= array_is_busy ? STATUS(ARRAY_BUSY) : 0u;
    status |= dma_is_busy || array_is_busy ? 0u : STATUS(IDLE);
    status |= array->dma.is_done ? STATUS(DMA_DONE) : 0u;
    status |= array->array.is_done ? STATUS(ARRAY_DONE) : 0u;
    status |= array->error != UMAKIT_OK ? STATUS(ERROR) : 0u;
    status |= is_full ? STATUS(QUEUE_FULL) : 0u;
    return status;
}

static uint32_t read_features(const struct umakit_systolic_array_config *config)
{
    uint32_t features = 0u;

    features |= config->output_stationary ? FEATURE(OUTPUT_STATIONARY) : 0u;
    features |= config->weight_stationary ? FEATURE(WEIGHT_STATIONARY) : 0u;
    features |= config->input_stationary ? FEATURE(INPUT_STATIONARY) : 0u;
    features |= config->depthwise ? FEATURE(DEPTHWISE) : 0u;
    features |= config->pooling_lanes != 0u ? FEATURE(POOLING) : 0u;
    return features;
}

/* ---- Progress ---- */

/* Bytes that a transfer has not moved at this time. */
static uint32_t bytes_left(const struct umakit_systolic_command *command)
{
    const struct umakit_systolic_transfer *transfer = &command->transfer;
    const uint32_t end =
        transfer->stops_at < transfer->bytes ? transfer->stops_at : transfer->bytes;
    uint64_t cycles = command->busy;
    uint64_t elapsed = command->busy - command->left;

    switch (command->state) {
    case UMAKIT_SYSTOLIC_WAITING:
        return transfer->bytes;
    case UMAKIT_SYSTOLIC_BUSY:
        while (cycles > UINT32_MAX) { /* so that the product fits */
            cycles >>= 1;
            elapsed >>= 1;
        }
        return transfer->bytes - (uint32_t)(end * elapsed / cycles);
    case UMAKIT_SYSTOLIC_TAIL:
        return transfer->bytes - end;
    default:
        return transfer->bytes - transfer->moved;
    }
}

static uint32_t saturated(uint64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Whether a command started, or will as soon as its banks are free. */
static bool has_left_the_queue(const struct umakit_systolic_command *command)
{
    return !command->is_enqueued || command->state != UMAKIT_SYSTOLIC_WAITING;
}

static uint32_t read_bytes_left(const struct umakit_systolic_array *array)
{
    uint64_t left = array->bytes_left;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];

        if (command->stream != UMAKIT_SYSTOLIC_ARRAY && has_left_the_queue(command)) {
            left += bytes_left(command);
        }
    }
    return saturated(left);
}

/* Until the last of what the array runs completes. */
static uint32_t read_cycles_left(const struct umakit_systolic_array *array)
{
    uint64_t longest = 0u;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];
        uint64_t left = 0u;

        if (command->stream != UMAKIT_SYSTOLIC_ARRAY || !has_left_the_queue(command)) {
            continue;
        }
        if (command->state == UMAKIT_SYSTOLIC_WAITING) {
            left = umakit_saturating_sum(command->busy, command->tail);
        } else if (command->state == UMAKIT_SYSTOLIC_BUSY) {
            left = umakit_saturating_sum(command->left, command->tail);
        } else if (command->state == UMAKIT_SYSTOLIC_TAIL) {
            left = command->left;
        }
        longest = left > longest ? left : longest;
    }
    return array->array.is_stuck ? 0u : saturated(longest);
}

/* ---- Counters ---- */

/* In the order of their registers. */
static uint64_t counter_value(const struct umakit_simulator_counters *counters, uint32_t number)
{
    const uint64_t values[UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT] = {
        counters->clock,          counters->compute_cycles, counters->drain_cycles,
        counters->stall_cycles,   counters->idle_cycles,    counters->dma_cycles,
        counters->macs,           counters->useful_macs,    counters->bytes_read,
        counters->bytes_written};

    return values[number];
}

/* The low half keeps the high one for the read that follows, because the
 * counter may move on in between. */
static uint32_t read_counter(struct umakit_systolic_array *array, uint32_t offset)
{
    const uint32_t number = (offset - OFFSET(CLOCK_LOW)) / 8u;
    uint64_t value;

    if ((offset - OFFSET(CLOCK_LOW)) % 8u != 0u) {
        return array->captured_high[number];
    }
    value = counter_value(&array->device.counters, number) -
            counter_value(&array->at_reset, number);
    array->captured_high[number] = (uint32_t)(value >> 32);
    return (uint32_t)(value & UINT32_MAX);
}

static bool is_counter(uint32_t offset)
{
    return offset % 4u == 0u && offset >= OFFSET(CLOCK_LOW) && offset <= OFFSET(BYTES_OUT_HIGH);
}

/* ---- All of them ---- */

/* False if there is no such register that can be read. */
static bool read_constant(const struct umakit_systolic_array_config *config, uint32_t offset,
                          uint32_t *value)
{
    switch (offset) {
    case OFFSET(ID):
        *value = UMAKIT_SYSTOLIC_ARRAY_ID_RESET;
        return true;
    case OFFSET(VERSION):
        *value = UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET;
        return true;
    case OFFSET(QUEUE_DEPTH):
        *value = config->command_queue_depth;
        return true;
    case OFFSET(ACCUMULATOR_BYTES):
        *value = config->accumulator_bytes;
        return true;
    case OFFSET(ARRAY_ROWS):
        *value = config->array_rows;
        return true;
    case OFFSET(ARRAY_COLUMNS):
        *value = config->array_columns;
        return true;
    case OFFSET(SCRATCHPAD_BYTES):
        *value = config->scratchpad_bytes;
        return true;
    case OFFSET(SCRATCHPAD_BANKS):
        *value = config->scratchpad_banks;
        return true;
    case OFFSET(DMA_BYTES_PER_CYCLE):
        *value = config->dma_bytes_per_cycle;
        return true;
    case OFFSET(DMA_ALIGNMENT):
        *value = config->dma_alignment;
        return true;
    case OFFSET(POOLING_LANES):
        *value = config->pooling_lanes;
        return true;
    case OFFSET(FEATURES):
        *value = read_features(config);
        return true;
    default:
        return false;
    }
}

uint32_t umakit_systolic_read(struct umakit_systolic_array *array, uint32_t offset)
{
    uint32_t value = 0u;

    if (umakit_systolic_is_dma_register(offset) || umakit_systolic_is_job_register(offset) ||
        offset == OFFSET(INTERRUPT_ENABLE)) {
        return umakit_systolic_register(array, offset);
    }
    if (is_counter(offset)) {
        return read_counter(array, offset);
    }
    switch (offset) {
    case OFFSET(STATUS):
        return read_status(array);
    case OFFSET(INTERRUPT_PENDING):
        return array->pending_interrupts;
    case OFFSET(ERROR):
        return (uint32_t)array->error;
    case OFFSET(ERROR_ADDRESS):
        return array->error_address;
    case OFFSET(QUEUE_FREE):
        return queue_free(array);
    case OFFSET(COMMANDS_LEFT):
        return umakit_systolic_commands_left(array);
    case OFFSET(DMA_BYTES_LEFT):
        return read_bytes_left(array);
    case OFFSET(ARRAY_CYCLES_LEFT):
        return read_cycles_left(array);
    default:
        if (!read_constant(&array->config, offset, &value)) { /* no register, or write only */
            umakit_systolic_report(array, UMAKIT_INVALID_REGISTER, offset);
        }
        return value;
    }
}
