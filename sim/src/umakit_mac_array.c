/* SPDX-License-Identifier: Apache-2.0 */
/* The register file of the simulated MAC array. */
#include "umakit/mac_array.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/mac_array_job.h"
#include "umakit/mac_array_registers.h"
#include "umakit/simulator_operations.h"
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

static struct umakit_mac_array *array_of(struct umakit_device *device)
{
    return (struct umakit_mac_array *)(void *)device;
}

static const struct umakit_mac_array *const_array_of(const struct umakit_device *device)
{
    return (const struct umakit_mac_array *)(const void *)device;
}

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
static void report_at(struct umakit_device *device, enum umakit_status error, uint32_t address)
{
    (void)address;
    report(array_of(device), error);
}

static bool is_busy(const struct umakit_mac_array *array)
{
    return array->job.remaining_cycles != 0u || array->is_stuck;
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

static uint32_t read32(struct umakit_device *device, uint32_t offset)
{
    struct umakit_mac_array *array = array_of(device);
    const uint32_t *storage;

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

static void write32(struct umakit_device *device, uint32_t offset, uint32_t value)
{
    struct umakit_mac_array *array = array_of(device);
    uint32_t *storage;

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

static void advance(struct umakit_device *device, uint64_t cycles)
{
    struct umakit_mac_array *array = array_of(device);

    report_status(array, umakit_mac_array_advance(array, cycles));
}

static uint64_t next_event(const struct umakit_device *device)
{
    const uint64_t remaining = const_array_of(device)->job.remaining_cycles;

    return remaining == 0u ? UINT64_MAX : remaining;
}

static bool interrupt_is_raised(const struct umakit_device *device)
{
    const struct umakit_mac_array *array = const_array_of(device);

    return !is_busy(array) &&
           ((array->done && !array->interrupt_is_lost) || array->error != UMAKIT_OK);
}

/* A running job's addresses are those in the registers, which nobody can write
 * until it ends. */
static void unmapping(struct umakit_device *device, uint32_t bus_address, size_t bytes)
{
    struct umakit_mac_array *array = array_of(device);
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

static int inject(struct umakit_device *device, const struct umakit_fault *fault)
{
    (void)device;
    if (fault->kind == UMAKIT_FAULT_DMA_STOPS || fault->kind == UMAKIT_FAULT_SCRATCHPAD_BIT ||
        (fault->kind == UMAKIT_FAULT_STUCK_BUSY && fault->engine == UMAKIT_ENGINE_DMA)) {
        return UMAKIT_UNSUPPORTED;
    }
    return UMAKIT_OK;
}

static void free_engines(struct umakit_device *device)
{
    array_of(device)->is_stuck = false;
}

static const struct umakit_simulator_operations operations = {
    .read32 = read32,
    .write32 = write32,
    .advance = advance,
    .next_event = next_event,
    .interrupt_is_raised = interrupt_is_raised,
    .unmapping = unmapping,
    .report = report_at,
    .inject = inject,
    .free_engines = free_engines,
};

int umakit_mac_array_init(struct umakit_mac_array *array,
                          const struct umakit_mac_array_config *config)
{
    if (array == NULL || config == NULL || config->array_rows == 0u ||
        config->array_columns == 0u) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *array = (struct umakit_mac_array){
        .device = {.operations = &operations, .map_alignment = 4u},
        .config = *config, /* the rest is zero */
    };
    return UMAKIT_OK;
}
