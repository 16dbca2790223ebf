/* SPDX-License-Identifier: Apache-2.0 */
/* The register file of the simulated systolic array. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator_internal.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_array_internal.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define CONTROL(name) UMAKIT_SYSTOLIC_ARRAY_CONTROL_##name##_MASK
#define INTERRUPT(name) UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_##name##_MASK

#define COMMANDS \
    (CONTROL(DMA_START) | CONTROL(ARRAY_START) | CONTROL(CLEAR) | CONTROL(RESET_COUNTERS))
#define INTERRUPTS (INTERRUPT(DMA_DONE) | INTERRUPT(ARRAY_DONE) | INTERRUPT(ERROR))

/* Those of devices with a queue. */
#define QUEUE_COMMANDS (CONTROL(ENQUEUE_DMA) | CONTROL(ENQUEUE_ARRAY))
#define QUEUE_INTERRUPTS (INTERRUPT(QUEUE_DONE) | INTERRUPT(COMMAND_DONE))

UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_ID_RESET == 0x554D4132u, id_is_uma2);
UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET >>
                             UMAKIT_SYSTOLIC_ARRAY_VERSION_MAJOR_SHIFT ==
                         1u,
                     simulates_version_1);
UMAKIT_STATIC_ASSERT(OFFSET(BYTES_OUT_HIGH) + 4u ==
                         OFFSET(CLOCK_LOW) + 8u * UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT,
                     every_counter_is_simulated);
UMAKIT_STATIC_ASSERT(OFFSET(SUM_CLIP_HIGHEST) + 4u == UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES,
                     every_register_is_simulated);
UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_MASK ==
                             INTERRUPT(DMA_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ARRAY_DONE_MASK ==
                             INTERRUPT(ARRAY_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ERROR_MASK ==
                             INTERRUPT(ERROR) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_QUEUE_DONE_MASK ==
                             INTERRUPT(QUEUE_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_COMMAND_DONE_MASK ==
                             INTERRUPT(COMMAND_DONE),
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
        umakit_systolic_drop_commands(array);
    }
}

/* ---- Writing ---- */

static bool has_queue(const struct umakit_systolic_array *array)
{
    return array->config.command_queue_depth != 0u;
}

static void write_control(struct umakit_systolic_array *array, uint32_t commands)
{
    const uint32_t known = COMMANDS | (has_queue(array) ? QUEUE_COMMANDS : 0u);

    if ((commands & ~known) != 0u) {
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
        umakit_systolic_start(array, UMAKIT_ENGINE_DMA);
    }
    if ((commands & CONTROL(ARRAY_START)) != 0u) {
        umakit_systolic_start(array, UMAKIT_ENGINE_ARRAY);
    }
    if ((commands & CONTROL(ENQUEUE_DMA)) != 0u) {
        umakit_systolic_enqueue(array, UMAKIT_ENGINE_DMA);
    }
    if ((commands & CONTROL(ENQUEUE_ARRAY)) != 0u) {
        umakit_systolic_enqueue(array, UMAKIT_ENGINE_ARRAY);
    }
}

static void write_interrupts(struct umakit_systolic_array *array, uint32_t offset,
                             uint32_t value)
{
    const uint32_t known = INTERRUPTS | (has_queue(array) ? QUEUE_INTERRUPTS : 0u);

    if ((value & ~known) != 0u) {
        umakit_systolic_report(array, UMAKIT_INVALID_ARGUMENT, offset);
    } else if (offset == OFFSET(INTERRUPT_PENDING)) {
        array->pending_interrupts &= ~value;
    } else {
        array->registers[offset / 4u] = value;
    }
}

static bool is_locked(const struct umakit_systolic_array *array, uint32_t offset)
{
    return !has_queue(array) &&
           umakit_systolic_is_busy(array, umakit_systolic_is_dma_register(offset)
                                              ? UMAKIT_ENGINE_DMA
                                              : UMAKIT_ENGINE_ARRAY);
}

static void write32(struct umakit_device *device, uint32_t offset, uint32_t value)
{
    struct umakit_systolic_array *array = array_of(device);

    if (offset == OFFSET(CONTROL)) {
        write_control(array, value);
    } else if (offset == OFFSET(INTERRUPT_ENABLE) || offset == OFFSET(INTERRUPT_PENDING)) {
        write_interrupts(array, offset, value);
    } else if (!umakit_systolic_is_dma_register(offset) &&
               !umakit_systolic_is_job_register(offset)) { /* nothing there, or read only */
        umakit_systolic_report(array, UMAKIT_INVALID_REGISTER, offset);
    } else if (is_locked(array, offset)) {
        umakit_systolic_report(array, UMAKIT_BUSY, offset);
    } else {
        array->registers[offset / 4u] = value;
    }
}

/* ---- A kind of device ---- */

static uint32_t read32(struct umakit_device *device, uint32_t offset)
{
    return umakit_systolic_read(array_of(device), offset);
}

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
    umakit_systolic_unmap(array_of(device), bus_address, bytes);
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

static void free_engines(struct umakit_device *device)
{
    umakit_systolic_free_engine(array_of(device), UMAKIT_ENGINE_DMA);
    umakit_systolic_free_engine(array_of(device), UMAKIT_ENGINE_ARRAY);
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

struct umakit_systolic_array *umakit_systolic_array_of(umakit_device *device)
{
    return device != NULL && device->operations == &operations ? array_of(device) : NULL;
}

const struct umakit_systolic_array *umakit_systolic_const_array_of(const umakit_device *device)
{
    return device != NULL && device->operations == &operations ? const_array_of(device) : NULL;
}

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
           (config->dma_alignment & (config->dma_alignment - 1u)) == 0u &&
           (config->accumulator != NULL) == (config->accumulator_bytes != 0u) &&
           (uintptr_t)config->accumulator % 4u == 0u && config->accumulator_bytes % 4u == 0u &&
           config->command_queue_depth <= UMAKIT_SYSTOLIC_ARRAY_QUEUE_DEPTH;
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
