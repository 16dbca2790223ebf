/* SPDX-License-Identifier: Apache-2.0 */
/* The register file of the simulated MAC array and the life of a job. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/mac_array_registers.h"
#include "umakit/simulator.h"
#include "umakit/simulator_internal.h"
#include "umakit/static_assert.h"

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8 && sizeof(float) == 4u, float_is_float32);
UMAKIT_STATIC_ASSERT(sizeof(size_t) >= 4u, size_t_holds_a_window);
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

bool umakit_simulator_is_present(const struct umakit_device *device)
{
    return device != NULL && device->config.array_rows != 0u;
}

void umakit_simulator_report(struct umakit_device *device, enum umakit_status error)
{
    if (device->error == UMAKIT_OK) {
        device->error = error;
    }
}

static bool is_busy(const struct umakit_device *device)
{
    return device->job.remaining_cycles != 0u;
}

void umakit_simulator_abandon_job(struct umakit_device *device)
{
    if (is_busy(device)) {
        device->job.remaining_cycles = 0u;
        ++device->counters.failed_jobs;
    }
}

int umakit_simulator_init(struct umakit_device *device,
                          const struct umakit_simulator_config *config)
{
    if (device == NULL || config == NULL || config->array_rows == 0u ||
        config->array_columns == 0u) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *device = (struct umakit_device){.config = *config}; /* the rest is zero */
    return UMAKIT_OK;
}

void umakit_simulator_counters(const struct umakit_device *device,
                               struct umakit_simulator_counters *counters)
{
    if (counters == NULL) {
        return;
    }
    if (umakit_simulator_is_present(device)) {
        *counters = device->counters;
    } else {
        *counters = (struct umakit_simulator_counters){.jobs = 0u};
    }
}

/* ---- The life of a job ---- */

/* Bytes of a float32 tensor, at most what fits a window, so that no product of
 * sizes overflows; UINT64_MAX if it is more. */
static uint64_t tensor_bytes(const uint32_t sizes[4])
{
    const uint64_t limit = UMAKIT_SIMULATOR_WINDOW_BYTES / 4u;
    uint64_t elements = 1u;
    size_t i;

    for (i = 0u; i < 4u; ++i) {
        elements *= sizes[i]; /* below 2^26 times below 2^32 */
        if (elements > limit) {
            return UINT64_MAX;
        }
    }
    return elements * 4u;
}

static bool sizes_are_valid(const struct umakit_simulator_registers *registers)
{
    return registers->input_channels != 0u && registers->input_height != 0u &&
           registers->input_width != 0u && registers->output_channels != 0u &&
           registers->kernel_height != 0u && registers->kernel_width != 0u &&
           registers->pad_top < registers->kernel_height &&
           registers->pad_left < registers->kernel_width;
}

static bool overlap(const void *left, uint64_t left_bytes, const void *right,
                    uint64_t right_bytes)
{
    const uintptr_t left_start = (uintptr_t)left;
    const uintptr_t right_start = (uintptr_t)right;

    return left_start < right_start ? right_start - left_start < left_bytes
                                    : left_start - right_start < right_bytes;
}

/* Turn the registers into a job, or say what is wrong with them. */
static int prepare_job(const struct umakit_device *device, struct umakit_simulator_job *job)
{
    const struct umakit_simulator_registers *registers = &device->registers;
    const struct umakit_simulator_config *config = &device->config;
    const uint32_t ifmap_sizes[4] = {1u, registers->input_channels, registers->input_height,
                                     registers->input_width};
    const uint32_t weights_sizes[4] = {registers->output_channels, registers->input_channels,
                                       registers->kernel_height, registers->kernel_width};
    const uint32_t result_sizes[4] = {1u, registers->output_channels, registers->input_height,
                                      registers->input_width};
    const uint64_t ifmap_bytes = tensor_bytes(ifmap_sizes);
    const uint64_t weights_bytes = tensor_bytes(weights_sizes);
    const uint64_t result_bytes = tensor_bytes(result_sizes);
    struct umakit_simulator_convolution *convolution = &job->convolution;
    const void *ifmap = NULL;
    const void *weights = NULL;
    const void *result = NULL;
    uint64_t m;
    uint64_t n;
    uint64_t k;
    uint64_t all_cycles;
    int status;

    if (!sizes_are_valid(registers)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    status = umakit_simulator_resolve(device, registers->ifmap_address, ifmap_bytes,
                                      UMAKIT_TO_DEVICE, &ifmap);
    if (status != UMAKIT_OK) {
        return status;
    }
    status = umakit_simulator_resolve(device, registers->weights_address, weights_bytes,
                                      UMAKIT_TO_DEVICE, &weights);
    if (status != UMAKIT_OK) {
        return status;
    }
    status = umakit_simulator_resolve(device, registers->result_address, result_bytes,
                                      UMAKIT_FROM_DEVICE, &result);
    if (status != UMAKIT_OK) {
        return status;
    }
    /* The host's addresses count: one buffer may be mapped twice. */
    if (overlap(result, result_bytes, ifmap, ifmap_bytes) ||
        overlap(result, result_bytes, weights, weights_bytes)) {
        return UMAKIT_INVALID_ARGUMENT;
    }

    convolution->ifmap = (const float *)ifmap;
    convolution->weights = (const float *)weights;
    /* Mapped for writing, so the caller had a writable buffer. */
    convolution->result = (float *)(uintptr_t)result;
    convolution->input_channels = registers->input_channels;
    convolution->height = registers->input_height;
    convolution->width = registers->input_width;
    convolution->output_channels = registers->output_channels;
    convolution->kernel_height = registers->kernel_height;
    convolution->kernel_width = registers->kernel_width;
    convolution->pad_top = registers->pad_top;
    convolution->pad_left = registers->pad_left;

    /* Each tensor has at most 2^26 elements: none of these products overflows. */
    m = (uint64_t)registers->input_height * registers->input_width;
    n = registers->output_channels;
    k = (uint64_t)registers->kernel_height * registers->kernel_width *
        registers->input_channels;
    job->macs = m * n * k;
    all_cycles = umakit_output_stationary_cycles(
        m, n, k, config->array_rows, config->array_columns, config->drain_cycles_per_fold);
    job->compute_cycles = umakit_output_stationary_cycles(m, n, k, config->array_rows,
                                                          config->array_columns, 0u);
    job->drain_cycles = all_cycles - job->compute_cycles;
    job->remaining_cycles = all_cycles;
    job->bytes_read = ifmap_bytes + weights_bytes;
    job->bytes_written = result_bytes;
    return UMAKIT_OK;
}

static void start_job(struct umakit_device *device)
{
    struct umakit_simulator_job job;
    int status;

    device->done = false;
    if (device->error != UMAKIT_OK) {
        /* What went wrong before may have spoiled the registers. */
        ++device->counters.failed_jobs;
        return;
    }
    status = prepare_job(device, &job);
    if (status != UMAKIT_OK) {
        ++device->counters.failed_jobs;
        umakit_simulator_report(device, (enum umakit_status)status);
        return;
    }
    device->job = job;
}

static void finish_job(struct umakit_device *device)
{
    struct umakit_simulator_job *job = &device->job;
    struct umakit_simulator_counters *counters = &device->counters;

    umakit_simulator_convolve(&job->convolution);
    job->remaining_cycles = 0u;
    device->done = true;
    device->cycles += job->compute_cycles + job->drain_cycles;
    device->macs += job->macs;
    ++counters->jobs;
    counters->macs += job->macs;
    counters->compute_cycles += job->compute_cycles;
    counters->drain_cycles += job->drain_cycles;
    counters->bytes_read += job->bytes_read;
    counters->bytes_written += job->bytes_written;
}

static void let_time_pass(struct umakit_device *device, uint64_t cycles)
{
    if (!is_busy(device)) {
        return;
    }
    if (cycles < device->job.remaining_cycles) {
        device->job.remaining_cycles -= cycles;
    } else {
        finish_job(device);
    }
}

int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles)
{
    if (!umakit_simulator_is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    let_time_pass(device, timeout_cycles);
    if (is_busy(device)) {
        return UMAKIT_TIMEOUT;
    }
    /* Without a job there is no interrupt to come, however long the wait. */
    return device->done || device->error != UMAKIT_OK ? UMAKIT_OK : UMAKIT_TIMEOUT;
}

void umakit_device_barrier(umakit_device *device)
{
    (void)device; /* the simulator runs in the thread that calls it */
}

/* ---- The register file ---- */

/* Where a register that is read and written lives; NULL for any other. */
static uint32_t *find_storage(struct umakit_simulator_registers *registers, uint32_t offset)
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

static uint32_t read_status(const struct umakit_device *device)
{
    uint32_t status = is_busy(device) ? UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK
                                      : UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK;

    if (device->done) {
        status |= UMAKIT_MAC_ARRAY_STATUS_DONE_MASK;
    }
    if (device->error != UMAKIT_OK) {
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

uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{
    const uint32_t *storage;

    if (!umakit_simulator_is_present(device)) {
        return UINT32_MAX;
    }
    ++device->counters.register_reads;
    let_time_pass(device, 1u);
    storage = find_storage(&device->registers, offset);
    if (storage != NULL) {
        return *storage;
    }
    switch (offset) {
    case UMAKIT_MAC_ARRAY_ID_OFFSET:
        return UMAKIT_MAC_ARRAY_ID_RESET;
    case UMAKIT_MAC_ARRAY_VERSION_OFFSET:
        return UMAKIT_MAC_ARRAY_VERSION_RESET;
    case UMAKIT_MAC_ARRAY_STATUS_OFFSET:
        return read_status(device);
    case UMAKIT_MAC_ARRAY_ERROR_OFFSET:
        return (uint32_t)device->error;
    case UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET:
        return read_low_half(device->cycles, &device->captured_cycles_high);
    case UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET:
        return device->captured_cycles_high;
    case UMAKIT_MAC_ARRAY_MACS_LOW_OFFSET:
        return read_low_half(device->macs, &device->captured_macs_high);
    case UMAKIT_MAC_ARRAY_MACS_HIGH_OFFSET:
        return device->captured_macs_high;
    case UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET:
        return device->config.array_rows;
    case UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET:
        return device->config.array_columns;
    default: /* nothing there, or write only */
        umakit_simulator_report(device, UMAKIT_INVALID_REGISTER);
        return 0u;
    }
}

static void write_control(struct umakit_device *device, uint32_t commands)
{
    if ((commands & ~CONTROL_COMMANDS) != 0u) {
        umakit_simulator_report(device, UMAKIT_INVALID_ARGUMENT);
        return;
    }
    if ((commands & UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK) != 0u) {
        umakit_simulator_abandon_job(device);
        device->done = false;
        device->error = UMAKIT_OK;
    }
    if (is_busy(device)) {
        umakit_simulator_report(device, UMAKIT_BUSY);
        return;
    }
    if ((commands & UMAKIT_MAC_ARRAY_CONTROL_RESET_COUNTERS_MASK) != 0u) {
        device->cycles = 0u;
        device->macs = 0u;
        device->captured_cycles_high = 0u;
        device->captured_macs_high = 0u;
    }
    if ((commands & UMAKIT_MAC_ARRAY_CONTROL_START_MASK) != 0u) {
        start_job(device);
    }
}

void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    uint32_t *storage;

    if (!umakit_simulator_is_present(device)) {
        return;
    }
    ++device->counters.register_writes;
    let_time_pass(device, 1u);
    if (offset == UMAKIT_MAC_ARRAY_CONTROL_OFFSET) {
        write_control(device, value);
        return;
    }
    storage = find_storage(&device->registers, offset);
    if (storage == NULL) { /* nothing there, or read only */
        umakit_simulator_report(device, UMAKIT_INVALID_REGISTER);
    } else if (is_busy(device)) {
        umakit_simulator_report(device, UMAKIT_BUSY);
    } else {
        *storage = value;
    }
}
