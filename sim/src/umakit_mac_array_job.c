/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a job of the simulated MAC array. */
#include "umakit/mac_array_job.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/mac_array.h"
#include "umakit/simulator_faults.h"
#include "umakit/simulator_windows.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_cycles.h"

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8 && sizeof(float) == 4u, float_is_float32);

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

static bool sizes_are_valid(const struct umakit_mac_array_register_file *registers)
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

/* Find a buffer and the bytes of the tensor in it. */
static int resolve(const struct umakit_mac_array *array, uint32_t bus_address, uint64_t bytes,
                   enum umakit_direction direction, const void **memory)
{
    if (bus_address % 4u != 0u) {
        return UMAKIT_MISALIGNED;
    }
    return umakit_simulator_resolve(&array->device, bus_address, bytes, direction, memory);
}

/* Find the job's buffers. */
static int find_buffers(const struct umakit_mac_array *array, struct umakit_mac_array_job *job)
{
    const struct umakit_mac_array_register_file *registers = &array->registers;
    const void *ifmap = NULL;
    const void *weights = NULL;
    const void *result = NULL;
    int status = resolve(array, registers->ifmap_address, job->ifmap_bytes, UMAKIT_TO_DEVICE,
                         &ifmap);

    if (status == UMAKIT_OK) {
        status = resolve(array, registers->weights_address, job->weights_bytes,
                         UMAKIT_TO_DEVICE, &weights);
    }
    if (status == UMAKIT_OK) {
        status = resolve(array, registers->result_address, job->result_bytes,
                         UMAKIT_FROM_DEVICE, &result);
    }
    if (status != UMAKIT_OK) {
        return status;
    }
    /* The host's addresses count: one buffer may be mapped twice. */
    if (overlap(result, job->result_bytes, ifmap, job->ifmap_bytes) ||
        overlap(result, job->result_bytes, weights, job->weights_bytes)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    job->convolution.ifmap = (const float *)ifmap;
    job->convolution.weights = (const float *)weights;
    /* Mapped for writing, so the caller had a writable buffer. */
    job->convolution.result = (float *)(uintptr_t)result;
    return UMAKIT_OK;
}

static void set_sizes(const struct umakit_mac_array_register_file *registers,
                      struct umakit_mac_array_job *job)
{
    const uint32_t ifmap[4] = {1u, registers->input_channels, registers->input_height,
                               registers->input_width};
    const uint32_t weights[4] = {registers->output_channels, registers->input_channels,
                                 registers->kernel_height, registers->kernel_width};
    const uint32_t result[4] = {1u, registers->output_channels, registers->input_height,
                                registers->input_width};

    *job = (struct umakit_mac_array_job){
        .convolution = {.input_channels = registers->input_channels,
                        .height = registers->input_height,
                        .width = registers->input_width,
                        .output_channels = registers->output_channels,
                        .kernel_height = registers->kernel_height,
                        .kernel_width = registers->kernel_width,
                        .pad_top = registers->pad_top,
                        .pad_left = registers->pad_left},
        .ifmap_bytes = tensor_bytes(ifmap),
        .weights_bytes = tensor_bytes(weights),
        .result_bytes = tensor_bytes(result),
    };
}

/* Each tensor has at most 2^26 elements: none of these products overflows. */
static void set_cycles(const struct umakit_mac_array *array, struct umakit_mac_array_job *job)
{
    const struct umakit_mac_array_register_file *registers = &array->registers;
    const struct umakit_product_size size = {
        (uint64_t)registers->input_height * registers->input_width, registers->output_channels,
        (uint64_t)registers->kernel_height * registers->kernel_width *
            registers->input_channels};
    const struct umakit_product_cycles cycles = umakit_systolic_cycles(
        UMAKIT_OUTPUT_STATIONARY, size,
        (struct umakit_array_size){array->config.array_rows, array->config.array_columns,
                                   array->config.drain_cycles_per_fold});

    job->macs = size.m * size.n * size.k;
    job->slots = cycles.slots;
    job->compute_cycles = cycles.compute;
    job->drain_cycles = cycles.drain;
    job->remaining_cycles = cycles.compute + cycles.drain;
}

/* Turn the registers into a job, or say what is wrong with them. */
static int prepare_job(const struct umakit_mac_array *array, struct umakit_mac_array_job *job)
{
    int status;

    if (!sizes_are_valid(&array->registers)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    set_sizes(&array->registers, job);
    status = find_buffers(array, job);
    if (status == UMAKIT_OK) {
        set_cycles(array, job);
    }
    return status;
}

int umakit_mac_array_start(struct umakit_mac_array *array)
{
    struct umakit_mac_array_job job;
    int status;

    array->done = false;
    array->interrupt_is_lost = false;
    if (array->error != UMAKIT_OK) {
        /* The registers may be wrong after an earlier error. */
        ++array->device.counters.failed_jobs;
        return UMAKIT_OK;
    }
    status = prepare_job(array, &job);
    if (status != UMAKIT_OK) {
        ++array->device.counters.failed_jobs;
        return status;
    }
    array->job = job;
    return UMAKIT_OK;
}

void umakit_mac_array_abort(struct umakit_mac_array *array)
{
    if (array->job.remaining_cycles != 0u) {
        array->job.remaining_cycles = 0u;
        ++array->device.counters.failed_jobs;
    }
}

static bool bus_refuses_job(struct umakit_mac_array *array)
{
    const struct umakit_mac_array_register_file *registers = &array->registers;
    const struct umakit_mac_array_job *job = &array->job;
    uint32_t address;

    return umakit_simulator_bus_refuses(&array->device, registers->ifmap_address,
                                        job->ifmap_bytes, &address) ||
           umakit_simulator_bus_refuses(&array->device, registers->weights_address,
                                        job->weights_bytes, &address) ||
           umakit_simulator_bus_refuses(&array->device, registers->result_address,
                                        job->result_bytes, &address);
}

static void count_job(struct umakit_mac_array *array)
{
    const struct umakit_mac_array_job *job = &array->job;
    struct umakit_simulator_counters *counters = &array->device.counters;

    array->cycles += job->compute_cycles + job->drain_cycles;
    array->macs += job->macs;
    ++counters->jobs;
    counters->macs += job->slots;
    counters->useful_macs += job->macs;
    counters->compute_cycles += job->compute_cycles;
    counters->drain_cycles += job->drain_cycles;
    counters->bytes_read += job->ifmap_bytes + job->weights_bytes;
    counters->bytes_written += job->result_bytes;
}

static int finish_job(struct umakit_mac_array *array)
{
    struct umakit_device *device = &array->device;

    if (bus_refuses_job(array)) {
        umakit_mac_array_abort(array);
        return UMAKIT_BUS_ERROR;
    }
    umakit_mac_array_convolve(&array->job.convolution);
    array->job.remaining_cycles = 0u;
    count_job(array);
    if (umakit_simulator_trigger_fault(device, UMAKIT_FAULT_STUCK_BUSY, UMAKIT_ENGINE_ARRAY) !=
        NULL) {
        array->is_stuck = true;
        return UMAKIT_OK;
    }
    array->done = true;
    array->interrupt_is_lost =
        umakit_simulator_trigger_fault(device, UMAKIT_FAULT_LOST_INTERRUPT,
                                       UMAKIT_ENGINE_ARRAY) != NULL;
    return UMAKIT_OK;
}

int umakit_mac_array_advance(struct umakit_mac_array *array, uint64_t cycles)
{
    const uint64_t remaining = array->job.remaining_cycles;

    if (cycles < remaining) {
        array->job.remaining_cycles -= cycles;
        return UMAKIT_OK;
    }
    array->device.counters.idle_cycles += cycles - remaining;
    return remaining != 0u ? finish_job(array) : UMAKIT_OK;
}
