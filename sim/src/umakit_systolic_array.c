/* SPDX-License-Identifier: Apache-2.0 */
/* The register file of the simulated systolic array. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator_internal.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_array_internal.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define STATUS(name) UMAKIT_SYSTOLIC_ARRAY_STATUS_##name##_MASK
#define CONTROL(name) UMAKIT_SYSTOLIC_ARRAY_CONTROL_##name##_MASK
#define INTERRUPT(name) UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_##name##_MASK

#define ALL_COMMANDS \
    (CONTROL(DMA_START) | CONTROL(ARRAY_START) | CONTROL(CLEAR) | CONTROL(RESET_COUNTERS))
#define ALL_INTERRUPTS (INTERRUPT(DMA_DONE) | INTERRUPT(ARRAY_DONE) | INTERRUPT(ERROR))

UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_ID_RESET == 0x554D4132u, id_is_uma2);
UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET >>
                             UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_SHIFT ==
                         1u,
                     simulates_version_1);
UMAKIT_STATIC_ASSERT(OFFSET(CLOCK_LOW) + 8u * UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT ==
                         UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES,
                     counters_are_the_last_registers);
UMAKIT_STATIC_ASSERT(OFFSET(BYTES_OUT_HIGH) + 4u == UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES,
                     every_counter_is_simulated);
UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_MASK ==
                             INTERRUPT(DMA_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ARRAY_DONE_MASK ==
                             INTERRUPT(ARRAY_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ERROR_MASK ==
                             INTERRUPT(ERROR),
                     enable_and_pending_have_the_same_bits);

static struct umakit_systolic_array *array_of(struct umakit_device *device)
{
    return (struct umakit_systolic_array *)(void *)device;
}

static const struct umakit_systolic_array *const_array_of(const struct umakit_device *device)
{
    return (const struct umakit_systolic_array *)(const void *)device;
}

uint32_t umakit_systolic_register(const struct umakit_systolic_array *array, uint32_t offset)
{
    return array->registers[offset / 4u];
}

void umakit_systolic_report(struct umakit_systolic_array *array, enum umakit_status error,
                            uint32_t address)
{
    if (array->error == UMAKIT_OK) {
        array->error = error;
        array->error_address = address;
        array->pending_interrupts |= INTERRUPT(ERROR);
    }
}

/* ---- Reading ---- */

static bool is_dma_register(uint32_t offset)
{
    return offset >= OFFSET(DMA_BUS_ADDRESS) && offset <= OFFSET(DMA_SCRATCHPAD_PLANE_STRIDE);
}

static bool is_job_register(uint32_t offset)
{
    return offset >= OFFSET(OPERATION) && offset <= OFFSET(SCALE_COUNT);
}

static bool is_stored(uint32_t offset)
{
    return offset % 4u == 0u && (offset == OFFSET(INTERRUPT_ENABLE) ||
                                 is_dma_register(offset) || is_job_register(offset));
}

static uint32_t read_status(const struct umakit_systolic_array *array)
{
    uint32_t status = 0u;

    status |= array->dma.is_busy ? STATUS(DMA_BUSY) : 0u;
    status |= array->array.is_busy ? STATUS(ARRAY_BUSY) : 0u;
    status |= array->dma.is_busy || array->array.is_busy ? 0u : STATUS(IDLE);
    status |= array->dma.is_done ? STATUS(DMA_DONE) : 0u;
    status |= array->array.is_done ? STATUS(ARRAY_DONE) : 0u;
    status |= array->error != UMAKIT_OK ? STATUS(ERROR) : 0u;
    return status;
}

static uint32_t read_features(const struct umakit_systolic_array_config *config)
{
    uint32_t features = 0u;

    features |= config->output_stationary
                    ? UMAKIT_SYSTOLIC_ARRAY_FEATURES_OUTPUT_STATIONARY_MASK
                    : 0u;
    features |= config->weight_stationary
                    ? UMAKIT_SYSTOLIC_ARRAY_FEATURES_WEIGHT_STATIONARY_MASK
                    : 0u;
    features |= config->input_stationary
                    ? UMAKIT_SYSTOLIC_ARRAY_FEATURES_INPUT_STATIONARY_MASK
                    : 0u;
    features |= config->depthwise ? UMAKIT_SYSTOLIC_ARRAY_FEATURES_DEPTHWISE_MASK : 0u;
    features |= config->pooling_lanes != 0u ? UMAKIT_SYSTOLIC_ARRAY_FEATURES_POOLING_MASK : 0u;
    return features;
}

/* Bytes of the last transfer that were not moved; while it runs, as far as
 * time has gone. */
static uint32_t read_bytes_left(const struct umakit_systolic_array *array)
{
    const struct umakit_systolic_transfer *transfer = &array->transfer;
    uint64_t cycles = array->dma.cycles;
    uint64_t elapsed = array->dma.elapsed;
    uint32_t moved = transfer->moved;

    if (array->dma.is_busy && !array->dma.is_stopped && !array->dma.is_stuck) {
        const uint32_t end =
            transfer->stops_at < transfer->bytes ? transfer->stops_at : transfer->bytes;

        while (cycles > UINT32_MAX) { /* so that the product fits */
            cycles >>= 1;
            elapsed >>= 1;
        }
        moved = (uint32_t)(end * elapsed / cycles);
    }
    return transfer->bytes - moved;
}

static uint32_t read_cycles_left(const struct umakit_systolic_array *array)
{
    const uint64_t left =
        array->array.is_busy ? array->array.cycles - array->array.elapsed : 0u;

    return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

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

static uint32_t read32(struct umakit_device *device, uint32_t offset)
{
    struct umakit_systolic_array *array = array_of(device);
    const struct umakit_systolic_array_config *config = &array->config;

    if (is_stored(offset)) {
        return umakit_systolic_register(array, offset);
    }
    if (is_counter(offset)) {
        return read_counter(array, offset);
    }
    switch (offset) {
    case OFFSET(ID):
        return UMAKIT_SYSTOLIC_ARRAY_ID_RESET;
    case OFFSET(VERSION):
        return UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET;
    case OFFSET(STATUS):
        return read_status(array);
    case OFFSET(INTERRUPT_PENDING):
        return array->pending_interrupts;
    case OFFSET(ERROR):
        return (uint32_t)array->error;
    case OFFSET(ERROR_ADDRESS):
        return array->error_address;
    case OFFSET(ARRAY_ROWS):
        return config->array_rows;
    case OFFSET(ARRAY_COLUMNS):
        return config->array_columns;
    case OFFSET(SCRATCHPAD_BYTES):
        return config->scratchpad_bytes;
    case OFFSET(SCRATCHPAD_BANKS):
        return config->scratchpad_banks;
    case OFFSET(DMA_BYTES_PER_CYCLE):
        return config->dma_bytes_per_cycle;
    case OFFSET(DMA_ALIGNMENT):
        return config->dma_alignment;
    case OFFSET(POOLING_LANES):
        return config->pooling_lanes;
    case OFFSET(FEATURES):
        return read_features(config);
    case OFFSET(DMA_BYTES_LEFT):
        return read_bytes_left(array);
    case OFFSET(ARRAY_CYCLES_LEFT):
        return read_cycles_left(array);
    default: /* nothing there, or write only */
        umakit_systolic_report(array, UMAKIT_INVALID_REGISTER, offset);
        return 0u;
    }
}

/* ---- Writing ---- */

static void write_control(struct umakit_systolic_array *array, uint32_t commands)
{
    if ((commands & ~ALL_COMMANDS) != 0u) {
        umakit_systolic_report(array, UMAKIT_INVALID_ARGUMENT, OFFSET(CONTROL));
        return;
    }
    if ((commands & CONTROL(CLEAR)) != 0u) {
        umakit_systolic_stop(array);
        array->pending_interrupts = 0u;
        array->error = UMAKIT_OK;
        array->error_address = 0u;
    }
    if ((commands & CONTROL(RESET_COUNTERS)) != 0u) {
        size_t i;

        array->at_reset = array->device.counters;
        for (i = 0u; i < UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT; ++i) {
            array->captured_high[i] = 0u;
        }
    }
    if ((commands & CONTROL(DMA_START)) != 0u) {
        umakit_systolic_start_dma(array);
    }
    if ((commands & CONTROL(ARRAY_START)) != 0u) {
        umakit_systolic_start_array(array);
    }
}

static void write_interrupts(struct umakit_systolic_array *array, uint32_t offset,
                             uint32_t value)
{
    if ((value & ~ALL_INTERRUPTS) != 0u) {
        umakit_systolic_report(array, UMAKIT_INVALID_ARGUMENT, offset);
    } else if (offset == OFFSET(INTERRUPT_PENDING)) {
        array->pending_interrupts &= ~value;
    } else {
        array->registers[offset / 4u] = value;
    }
}

static void write32(struct umakit_device *device, uint32_t offset, uint32_t value)
{
    struct umakit_systolic_array *array = array_of(device);

    if (offset == OFFSET(CONTROL)) {
        write_control(array, value);
    } else if (offset == OFFSET(INTERRUPT_ENABLE) || offset == OFFSET(INTERRUPT_PENDING)) {
        write_interrupts(array, offset, value);
    } else if (!is_stored(offset)) { /* nothing there, or read only */
        umakit_systolic_report(array, UMAKIT_INVALID_REGISTER, offset);
    } else if (is_dma_register(offset) ? array->dma.is_busy : array->array.is_busy) {
        umakit_systolic_report(array, UMAKIT_BUSY, offset);
    } else {
        array->registers[offset / 4u] = value;
    }
}

/* ---- A kind of device ---- */

static void advance(struct umakit_device *device, uint64_t cycles)
{
    umakit_systolic_advance(array_of(device), cycles);
}

static uint64_t next_event(const struct umakit_device *device)
{
    return umakit_systolic_next_event(const_array_of(device));
}

static bool interrupt_is_raised(const struct umakit_device *device)
{
    const struct umakit_systolic_array *array = const_array_of(device);

    return (array->pending_interrupts &
            umakit_systolic_register(array, OFFSET(INTERRUPT_ENABLE))) != 0u;
}

static void unmapping(struct umakit_device *device, uint32_t bus_address, size_t bytes)
{
    struct umakit_systolic_array *array = array_of(device);
    const uint32_t used = umakit_systolic_register(array, OFFSET(DMA_BUS_ADDRESS));

    if (array->dma.is_busy && !array->dma.is_stuck && used >= bus_address &&
        used - bus_address < bytes) {
        umakit_systolic_stop_dma(array);
        umakit_systolic_report(array, UMAKIT_BUS_ERROR, used);
    }
}

static void report(struct umakit_device *device, enum umakit_status error, uint32_t address)
{
    umakit_systolic_report(array_of(device), error, address);
}

static int inject(struct umakit_device *device, const struct umakit_fault *fault)
{
    return fault->kind == UMAKIT_FAULT_SCRATCHPAD_BIT
               ? umakit_systolic_flip(array_of(device), fault->address, fault->bit)
               : UMAKIT_OK;
}

/* Free an engine that a fault kept busy. */
static void free_engine(struct umakit_systolic_engine *engine)
{
    if (engine->is_stuck) {
        engine->is_stuck = false;
        engine->is_busy = false;
    }
}

static void free_engines(struct umakit_device *device)
{
    free_engine(&array_of(device)->dma);
    free_engine(&array_of(device)->array);
}

static const struct umakit_simulator_operations operations = {
    .read32 = read32,
    .write32 = write32,
    .advance = advance,
    .next_event = next_event,
    .interrupt_is_raised = interrupt_is_raised,
    .unmapping = unmapping,
    .report = report,
    .inject = inject,
    .free_engines = free_engines,
};

static bool is_sound(const struct umakit_systolic_array_config *config)
{
    const uint32_t banks = config->scratchpad_banks;

    return config->array_rows != 0u && config->array_columns != 0u &&
           (config->output_stationary || config->weight_stationary ||
            config->input_stationary) &&
           config->scratchpad != NULL && (uintptr_t)config->scratchpad % 4u == 0u &&
           config->scratchpad_bytes != 0u && banks >= 1u && banks <= 32u &&
           config->scratchpad_bytes % (4u * banks) == 0u &&
           config->dma_bytes_per_cycle != 0u && config->dma_alignment != 0u &&
           (config->dma_alignment & (config->dma_alignment - 1u)) == 0u;
}

int umakit_systolic_array_init(struct umakit_systolic_array *array,
                               const struct umakit_systolic_array_config *config)
{
    static const uint32_t ones[] = {
        OFFSET(DMA_ROWS),        OFFSET(DMA_PLANES),     OFFSET(STRIDE_HEIGHT),
        OFFSET(STRIDE_WIDTH),    OFFSET(DILATION_HEIGHT), OFFSET(DILATION_WIDTH),
        OFFSET(SCALE_COUNT)};
    size_t i;

    if (array == NULL || config == NULL || !is_sound(config)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *array = (struct umakit_systolic_array){.config = *config}; /* the rest is zero */
    for (i = 0u; i < sizeof(ones) / sizeof(ones[0]); ++i) {
        array->registers[ones[i] / 4u] = 1u;
    }
    /* Buffers at less than the alignment could not be reached. */
    umakit_simulator_reset(&array->device, &operations, config->dma_alignment);
    return UMAKIT_OK;
}
