/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated systolic array as a kind of device, and its reset state. */
#include "umakit/systolic_array.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator_operations.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_commands.h"
#include "umakit/systolic_engines.h"
#include "umakit/systolic_read.h"
#include "umakit/systolic_register_file.h"
#include "umakit/systolic_scratchpad.h"
#include "umakit/systolic_timeline.h"
#include "umakit/systolic_write.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET

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

static struct umakit_systolic_array *array_of(struct umakit_device *device)
{
    return (struct umakit_systolic_array *)(void *)device;
}

static const struct umakit_systolic_array *const_array_of(const struct umakit_device *device)
{
    return (const struct umakit_systolic_array *)(const void *)device;
}

/* ---- A kind of device ---- */

static void write32(struct umakit_device *device, uint32_t offset, uint32_t value)
{
    umakit_systolic_write(array_of(device), offset, value);
}

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
               ? umakit_systolic_flip_bit(array_of(device), fault->address, fault->bit)
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

/* ---- The timeline ---- */

static bool is_systolic_array(const umakit_device *device)
{
    return device != NULL && device->operations == &operations;
}

void umakit_systolic_record_timeline(umakit_device *device,
                                     struct umakit_systolic_timeline_entry *entries,
                                     size_t capacity)
{
    if (is_systolic_array(device)) {
        umakit_systolic_begin_timeline(array_of(device), entries, capacity);
    }
}

size_t umakit_systolic_timeline(const umakit_device *device)
{
    return is_systolic_array(device) ? const_array_of(device)->timeline.count : 0u;
}

/* ---- The reset state ---- */

static bool is_valid(const struct umakit_systolic_array_config *config)
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

    if (array == NULL || config == NULL || !is_valid(config)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *array = (struct umakit_systolic_array){
        /* Buffers at less than the alignment could not be reached. */
        .device = {.operations = &operations, .map_alignment = config->dma_alignment},
        .config = *config, /* the rest is zero */
    };
    for (i = 0u; i < sizeof(ones) / sizeof(ones[0]); ++i) {
        array->registers[ones[i] / 4u] = 1u;
    }
    return UMAKIT_OK;
}
