/* SPDX-License-Identifier: Apache-2.0 */
/* The register file of the simulated MAC array. */
#include "umakit/mac_array.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/mac_array_job.h"
#include "umakit/mac_array_registers.h"
#include "umakit/own_simulator.h"
#include "umakit/simulator_faults.h"
#include "umakit/static_assert.h"

UMAKIT_STATIC_ASSERT(UMAKIT_MAC_ARRAY_ID_RESET == 0x554D4131u, id_is_uma1);
UMAKIT_STATIC_ASSERT(UMAKIT_MAC_ARRAY_VERSION_RESET >>
                             UMAKIT_MAC_ARRAY_VERSION_MAJOR_SHIFT ==
                         1u,
                     simulates_version_1);
UMAKIT_STATIC_ASSERT(UMAKIT_MAC_ARRAY_REGISTER_BYTES ==
                         UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET + 4u,
                     every_register_is_simulated);

#define CONTROL_COMMANDS                                                                       \
    (UMAKIT_MAC_ARRAY_CONTROL_START_MASK | UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK |               \
     UMAKIT_MAC_ARRAY_CONTROL_RESET_COUNTERS_MASK)

/* ---- State ---- */

/* Keep the first error since the last CLEAR. */
static void report(struct umakit_mac_array *array, enum umakit_status error)
{
    if (array->error == UMAKIT_OK) {
        array->error = error;
    }
}

/* What a job answered. */
static void report_status(struct umakit_mac_array *array, int status)
{
    if (status != UMAKIT_OK) {
        report(array, (enum umakit_status)status);
    }
}

/* The map has no register for the address. */
static void report_misuse(void *simulator, enum umakit_status error, uint32_t address)
{
    (void)address;
    report((struct umakit_mac_array *)simulator, error);
}

static bool is_busy(const struct umakit_mac_array *array)
{
    return array->job.remaining_cycles != 0u || array->is_stuck;
}

/* ---- Time ---- */

static void advance(struct umakit_mac_array *array, uint64_t cycles)
{
    array->device.counters.clock += cycles;
    report_status(array, umakit_mac_array_advance(array, cycles));
}

/* Cycles until the job ends; UINT64_MAX: none runs. */
static uint64_t next_event(const struct umakit_mac_array *array)
{
    const uint64_t remaining = array->job.remaining_cycles;

    return remaining == 0u ? UINT64_MAX : remaining;
}

static bool interrupt_is_raised(const struct umakit_mac_array *array)
{
    return !is_busy(array) &&
           ((array->done && !array->interrupt_is_lost) || array->error != UMAKIT_OK);
}

/* Goes from event to event, so a long wait costs no more than a short one. */
static bool wait(void *simulator, uint64_t cycles)
{
    struct umakit_mac_array *array = (struct umakit_mac_array *)simulator;
    uint64_t left = cycles;

    while (!interrupt_is_raised(array)) {
        const uint64_t next = next_event(array);
        const uint64_t step = next < left ? next : left;

        if (left == 0u) {
            return false;
        }
        advance(array, step);
        left -= step;
    }
    return true;
}

/* ---- The register file ---- */

/* Where a register that is read and written lives; NULL for any other. */
static uint32_t *find_storage(struct umakit_mac_array_register_file *registers, uint32_t offset)
{
    switch (offset) {
    case UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET:
        return &registers->ifmap_address;
    case UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET:
        return &registers->weights_address;
    case UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET:
        return &registers->result_address;
    case UMAKIT_MAC_ARRAY_INPUT_CHANNELS_OFFSET:
        return &registers->input_channels;
    case UMAKIT_MAC_ARRAY_INPUT_HEIGHT_OFFSET:
        return &registers->input_height;
    case UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET:
        return &registers->input_width;
    case UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_OFFSET:
        return &registers->output_channels;
    case UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_OFFSET:
        return &registers->kernel_height;
    case UMAKIT_MAC_ARRAY_KERNEL_WIDTH_OFFSET:
        return &registers->kernel_width;
    case UMAKIT_MAC_ARRAY_PAD_TOP_OFFSET:
        return &registers->pad_top;
    case UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET:
        return &registers->pad_left;
    default:
        return NULL;
    }
}

static uint32_t read_status(const struct umakit_mac_array *array)
{
    uint32_t status = is_busy(array) ? UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK
                                     : UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK;

    if (array->done) {
        status |= UMAKIT_MAC_ARRAY_STATUS_DONE_MASK;
    }
    if (array->error != UMAKIT_OK) {
        status |= UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK;
    }
    return status;
}

/* The low half of a counter; the high half is kept for the read that follows,
 * because the counter may move on in between. */
static uint32_t read_low_half(uint64_t counter, uint32_t *captured_high)
{
    *captured_high = (uint32_t)(counter >> 32);
    return (uint32_t)(counter & UINT32_MAX);
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    struct umakit_mac_array *array = (struct umakit_mac_array *)simulator;
    const uint32_t *storage;

    advance(array, 1u);
    storage = find_storage(&array->registers, offset);
    if (storage != NULL) {
        return *storage;
    }
    switch (offset) {
    case UMAKIT_MAC_ARRAY_ID_OFFSET:
        return UMAKIT_MAC_ARRAY_ID_RESET;
    case UMAKIT_MAC_ARRAY_VERSION_OFFSET:
        return UMAKIT_MAC_ARRAY_VERSION_RESET;
    case UMAKIT_MAC_ARRAY_STATUS_OFFSET:
        return read_status(array);
    case UMAKIT_MAC_ARRAY_ERROR_OFFSET:
        return (uint32_t)array->error;
    case UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET:
        return read_low_half(array->cycles, &array->captured_cycles_high);
    case UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET:
        return array->captured_cycles_high;
    case UMAKIT_MAC_ARRAY_MACS_LOW_OFFSET:
        return read_low_half(array->macs, &array->captured_macs_high);
    case UMAKIT_MAC_ARRAY_MACS_HIGH_OFFSET:
        return array->captured_macs_high;
    case UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET:
        return array->config.array_rows;
    case UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET:
        return array->config.array_columns;
    default: /* no register, or write only */
        report(array, UMAKIT_INVALID_REGISTER);
        return 0u;
    }
}

static void write_control(struct umakit_mac_array *array, uint32_t commands)
{
    if ((commands & ~CONTROL_COMMANDS) != 0u) {
        report(array, UMAKIT_INVALID_ARGUMENT);
        return;
    }
    if ((commands & UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK) != 0u) {
        umakit_mac_array_abort(array);
        array->done = false;
        array->interrupt_is_lost = false;
        array->error = UMAKIT_OK;
    }
    if (is_busy(array)) {
        report(array, UMAKIT_BUSY);
        return;
    }
    if ((commands & UMAKIT_MAC_ARRAY_CONTROL_RESET_COUNTERS_MASK) != 0u) {
        array->cycles = 0u;
        array->macs = 0u;
        array->captured_cycles_high = 0u;
        array->captured_macs_high = 0u;
    }
    if ((commands & UMAKIT_MAC_ARRAY_CONTROL_START_MASK) != 0u) {
        report_status(array, umakit_mac_array_start(array));
    }
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    struct umakit_mac_array *array = (struct umakit_mac_array *)simulator;
    uint32_t *storage;

    advance(array, 1u);
    if (offset == UMAKIT_MAC_ARRAY_CONTROL_OFFSET) {
        write_control(array, value);
        return;
    }
    storage = find_storage(&array->registers, offset);
    if (storage == NULL) { /* no register, or read only */
        report(array, UMAKIT_INVALID_REGISTER);
    } else if (is_busy(array)) {
        report(array, UMAKIT_BUSY);
    } else {
        *storage = value;
    }
}

/* ---- A kind of device ---- */

static void read_counters(void *simulator, struct umakit_own_counters *counters)
{
    const struct umakit_mac_array *array = (const struct umakit_mac_array *)simulator;
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

/* A running job's addresses are those in the registers, which nobody can write
 * until it ends. */
static void unmapping(void *simulator, uint32_t bus_address, size_t bytes)
{
    struct umakit_mac_array *array = (struct umakit_mac_array *)simulator;
    const uint32_t used[3] = {array->registers.ifmap_address, array->registers.weights_address,
                              array->registers.result_address};
    size_t i;

    for (i = 0u; i < 3u; ++i) {
        if (array->job.remaining_cycles != 0u && used[i] >= bus_address &&
            used[i] - bus_address < bytes) {
            umakit_mac_array_abort(array);
            report(array, UMAKIT_BUS_ERROR);
        }
    }
}

static int inject(void *simulator, const struct umakit_fault *fault)
{
    struct umakit_mac_array *array = (struct umakit_mac_array *)simulator;

    if (fault->kind == UMAKIT_FAULT_DMA_STOPS || fault->kind == UMAKIT_FAULT_SCRATCHPAD_BIT ||
        (fault->kind == UMAKIT_FAULT_STUCK_BUSY && fault->engine == UMAKIT_ENGINE_DMA)) {
        return UMAKIT_UNSUPPORTED;
    }
    return umakit_simulator_add_fault(&array->device, fault);
}

static void remove_faults(void *simulator)
{
    struct umakit_mac_array *array = (struct umakit_mac_array *)simulator;

    umakit_simulator_clear_faults(&array->device);
    array->is_stuck = false;
}

static const struct umakit_own_simulator operations = {
    .version = UMAKIT_OWN_SIMULATOR_VERSION,
    .map_alignment = 4u,
    .read32 = read32,
    .write32 = write32,
    .wait = wait,
    .counters = read_counters,
    .unmapping = unmapping,
    .misuse = report_misuse,
    .inject = inject,
    .remove_faults = remove_faults,
};

int umakit_mac_array_init(struct umakit_mac_array *array,
                          const struct umakit_mac_array_config *config)
{
    if (array == NULL || config == NULL || config->array_rows == 0u ||
        config->array_columns == 0u) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *array = (struct umakit_mac_array){
        .device = {.operations = &operations,
                   .simulator = array,
                   .map_alignment = operations.map_alignment},
        .config = *config, /* the rest is zero */
    };
    return UMAKIT_OK;
}
