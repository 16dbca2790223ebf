/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated systolic array as a kind of device, and its reset state. */
#include "umakit/systolic_array.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/own_simulator.h"
#include "umakit/simulator_faults.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_commands.h"
#include "umakit/systolic_engines.h"
#include "umakit/systolic_register_file.h"
#include "umakit/systolic_scratchpad.h"

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

/* ---- Time ---- */

static void advance(struct umakit_systolic_array *array, uint64_t cycles)
{
    array->device.counters.clock += cycles;
    umakit_systolic_advance(array, cycles);
}

static bool interrupt_is_raised(const struct umakit_systolic_array *array)
{
    return (array->pending_interrupts &
            umakit_systolic_register(array, OFFSET(INTERRUPT_ENABLE))) != 0u;
}

/* ---- A kind of device ---- */

static uint32_t read32(void *simulator, uint32_t offset)
{
    struct umakit_systolic_array *array = (struct umakit_systolic_array *)simulator;

    advance(array, 1u);
    return umakit_systolic_read(array, offset);
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    struct umakit_systolic_array *array = (struct umakit_systolic_array *)simulator;

    advance(array, 1u);
    umakit_systolic_write(array, offset, value);
}

/* Goes from event to event, so a long wait costs no more than a short one. */
static bool wait(void *simulator, uint64_t cycles)
{
    struct umakit_systolic_array *array = (struct umakit_systolic_array *)simulator;
    uint64_t left = cycles;

    while (!interrupt_is_raised(array)) {
        const uint64_t next = umakit_systolic_next_event(array);
        const uint64_t step = next < left ? next : left;

        if (left == 0u) {
            return false;
        }
        advance(array, step);
        left -= step;
    }
    return true;
}

static void read_counters(void *simulator, struct umakit_own_counters *counters)
{
    const struct umakit_systolic_array *array =
        (const struct umakit_systolic_array *)simulator;
    const struct umakit_simulator_counters *counted = &array->device.counters;

    *counters = (struct umakit_own_counters){
        .clock = counted->clock,
        .busy_cycles =
            counted->compute_cycles + counted->drain_cycles + counted->stall_cycles,
        .compute_cycles = counted->compute_cycles + counted->drain_cycles,
        .dma_cycles = counted->dma_cycles,
        .macs = counted->useful_macs,
        .bytes_read = counted->bytes_read,
        .bytes_written = counted->bytes_written,
    };
}

static void unmapping(void *simulator, uint32_t bus_address, size_t bytes)
{
    umakit_systolic_unmap((struct umakit_systolic_array *)simulator, bus_address, bytes);
}

static void report_misuse(void *simulator, enum umakit_status error, uint32_t address)
{
    umakit_systolic_report((struct umakit_systolic_array *)simulator, error, address);
}

static int inject(void *simulator, const struct umakit_fault *fault)
{
    struct umakit_systolic_array *array = (struct umakit_systolic_array *)simulator;

    return fault->kind == UMAKIT_FAULT_SCRATCHPAD_BIT
               ? umakit_systolic_flip_bit(array, fault->address, fault->bit)
               : umakit_simulator_add_fault(&array->device, fault);
}

static void remove_faults(void *simulator)
{
    struct umakit_systolic_array *array = (struct umakit_systolic_array *)simulator;

    umakit_simulator_clear_faults(&array->device);
    umakit_systolic_free_engine(array, UMAKIT_ENGINE_DMA);
    umakit_systolic_free_engine(array, UMAKIT_ENGINE_ARRAY);
}

static const struct umakit_own_simulator operations = {
    .version = UMAKIT_OWN_SIMULATOR_VERSION,
    .read32 = read32,
    .write32 = write32,
    .wait = wait,
    .counters = read_counters,
    .unmapping = unmapping,
    .misuse = report_misuse,
    .inject = inject,
    .remove_faults = remove_faults,
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
        umakit_systolic_begin_timeline((struct umakit_systolic_array *)device->simulator, entries,
                                       capacity);
    }
}

size_t umakit_systolic_timeline(const umakit_device *device)
{
    return is_systolic_array(device)
               ? ((const struct umakit_systolic_array *)device->simulator)->timeline.count
               : 0u;
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
        .device = {.operations = &operations,
                   .simulator = array,
                   .map_alignment = config->dma_alignment},
        .config = *config, /* the rest is zero */
    };
    for (i = 0u; i < sizeof(ones) / sizeof(ones[0]); ++i) {
        array->registers[ones[i] / 4u] = 1u;
    }
    umakit_systolic_name_memories(array);
    return UMAKIT_OK;
}
