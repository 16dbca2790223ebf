/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of the vanilla_accelerator: one convolution.
 *
 * Read it from the bottom: vanilla_accelerator_conv2dnchw is what the compiled network
 * calls, the helpers above it are its steps. To fit it to your hardware, change
 * the registers in program_job and the timeout. All access to the device goes
 * through umakit/device.h, so the same file runs on the simulator and a board.
 */
#include "conv2dnchw.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/mac_array_registers.h"
#include "umakit/static_assert.h"

/* ---- What this driver relies on ---- */

#define SUPPORTED_MAJOR_VERSION 1u

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8 && sizeof(float) == 4u, float_is_float32);
UMAKIT_STATIC_ASSERT(sizeof(int) == 4u && sizeof(size_t) >= 4u, sizes_have_32_bits);
UMAKIT_STATIC_ASSERT(UMAKIT_MAC_ARRAY_VERSION_RESET >>
                             UMAKIT_MAC_ARRAY_VERSION_MAJOR_SHIFT ==
                         SUPPORTED_MAJOR_VERSION,
                     register_map_is_the_one_this_driver_was_written_for);

/* How long a job may take before the driver gives up, in cycles of the device.
 * This is 40 seconds at 100 MHz, more than any layer needs: a limit that stops
 * a healthy job is worse than one that finds a dead device late. */
#ifndef VANILLA_ACCELERATOR_TIMEOUT_CYCLES
#define VANILLA_ACCELERATOR_TIMEOUT_CYCLES 4000000000u
#endif

/* How often the driver sleeps again after wakes without an event: the device has no clock
 * that would say for how long it slept. */
#ifndef VANILLA_ACCELERATOR_WAKES
#define VANILLA_ACCELERATOR_WAKES 400000000u
#endif

/* How often the driver asks whether a device that was told to stop has stopped. It
 * has to end no more than the bus accesses that it began. */
#ifndef VANILLA_ACCELERATOR_STOP_POLLS
#define VANILLA_ACCELERATOR_STOP_POLLS 10000u
#endif

/* ---- Arguments ---- */

struct convolution {
    uint32_t output_channels;
    uint32_t input_width;
    uint32_t input_height;
    uint32_t input_channels;
    uint32_t kernel_height;
    uint32_t kernel_width;
};

/* Bytes of a tensor of floats. The bus has 32 bits, so a larger one is refused.
 * No product overflows: its left factor was checked to be below 2^30 and the
 * right one was an int. */
static int tensor_bytes(uint32_t outer_channels, uint32_t channels, uint32_t rows,
                        uint32_t columns, size_t *bytes)
{
    const uint32_t sizes[4] = {outer_channels, channels, rows, columns};
    uint64_t elements = 1u;
    int i;

    for (i = 0; i < 4; ++i) {
        elements *= sizes[i];
        if (elements > UINT32_MAX / sizeof(float)) {
            return UMAKIT_OUT_OF_RANGE;
        }
    }
    *bytes = (size_t)elements * sizeof(float);
    return UMAKIT_OK;
}

/* ---- The device ---- */

static bool is_busy(umakit_device *device)
{
    return (umakit_device_read32(device, UMAKIT_MAC_ARRAY_STATUS_OFFSET) &
            UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK) != 0u;
}

/* Stop the device, and wait until it did: then no bus access is outstanding, see CLEAR in
 * umakit/mac_array_registers.h. */
static int stop_device(umakit_device *device)
{
    uint32_t asked;

    umakit_device_write32(device, UMAKIT_MAC_ARRAY_CONTROL_OFFSET,
                          UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK);
    umakit_device_barrier(device); /* it has CLEAR before it is asked */
    for (asked = 0u; asked < VANILLA_ACCELERATOR_STOP_POLLS; ++asked) {
        if (!is_busy(device)) {
            return UMAKIT_OK;
        }
    }
    return UMAKIT_STUCK_BUSY;
}

/* Make sure that what answers is the device this driver was written for, before anything is
 * written to it, and that it does nothing any more, whoever had it before: a job of an
 * earlier program is told to stop, and the device is refused until it has stopped. */
static int check_device(umakit_device *device)
{
    uint32_t version;

    if (umakit_device_read32(device, UMAKIT_MAC_ARRAY_ID_OFFSET) !=
        UMAKIT_MAC_ARRAY_ID_RESET) {
        return UMAKIT_NO_DEVICE;
    }
    version = umakit_device_read32(device, UMAKIT_MAC_ARRAY_VERSION_OFFSET);
    if ((version & UMAKIT_MAC_ARRAY_VERSION_MAJOR_MASK) >>
            UMAKIT_MAC_ARRAY_VERSION_MAJOR_SHIFT !=
        SUPPORTED_MAJOR_VERSION) {
        return UMAKIT_NO_DEVICE;
    }
    if (is_busy(device)) {
        umakit_device_write32(device, UMAKIT_MAC_ARRAY_CONTROL_OFFSET,
                              UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK);
        umakit_device_barrier(device); /* it has CLEAR before it is asked */
        return is_busy(device) ? UMAKIT_STUCK_BUSY : UMAKIT_OK;
    }
    return UMAKIT_OK;
}

/* ---- One job ---- */

static void program_job(umakit_device *device, const struct convolution *convolution,
                        uint32_t ifmap_address, uint32_t weights_address,
                        uint32_t result_address)
{
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET, ifmap_address);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET, weights_address);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET, result_address);

    umakit_device_write32(device, UMAKIT_MAC_ARRAY_INPUT_CHANNELS_OFFSET,
                          convolution->input_channels);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_INPUT_HEIGHT_OFFSET,
                          convolution->input_height);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET,
                          convolution->input_width);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_OFFSET,
                          convolution->output_channels);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_OFFSET,
                          convolution->kernel_height);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_KERNEL_WIDTH_OFFSET,
                          convolution->kernel_width);

    /* Of an odd number of padding rows or columns the larger half comes after
     * the image. */
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_PAD_TOP_OFFSET,
                          (convolution->kernel_height - 1u) / 2u);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET,
                          (convolution->kernel_width - 1u) / 2u);
}

/* Sleep until the job has ended, and read STATUS. The processor may wake while the device is
 * at work: interrupt lines are shared, and WFI ends for other reasons too. The driver then
 * sleeps again. */
static int sleep_until_end(umakit_device *device, uint32_t *state)
{
    uint32_t wakes;

    for (wakes = 0u; wakes < VANILLA_ACCELERATOR_WAKES; ++wakes) {
        const int status = umakit_device_wait(device, VANILLA_ACCELERATOR_TIMEOUT_CYCLES);

        umakit_device_barrier(device); /* the host sees the result */
        *state = umakit_device_read32(device, UMAKIT_MAC_ARRAY_STATUS_OFFSET);
        if (status != UMAKIT_OK || (*state & UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK) == 0u ||
            (*state & UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK) != 0u) {
            return status;
        }
    }
    return UMAKIT_TIMEOUT;
}

/* How the job ended, from STATUS and what the wait for its interrupt returned. */
static int job_status(umakit_device *device, int waited, uint32_t status)
{
    if ((status & UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK) != 0u) {
        const uint32_t error = umakit_device_read32(device, UMAKIT_MAC_ARRAY_ERROR_OFFSET);

        /* A failure must not be reported as 0, whatever the register says. */
        return error == 0u || error > INT_MAX ? UMAKIT_DEVICE_ERROR : (int)error;
    }
    if (waited != UMAKIT_OK && waited != UMAKIT_TIMEOUT) {
        return waited;
    }
    if ((status & UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK) != 0u) {
        return UMAKIT_TIMEOUT;
    }
    if ((status & UMAKIT_MAC_ARRAY_STATUS_DONE_MASK) == 0u) {
        return UMAKIT_DEVICE_ERROR; /* neither done nor at it */
    }
    return waited == UMAKIT_OK ? UMAKIT_OK : UMAKIT_LOST_INTERRUPT;
}

static int run_job(umakit_device *device, const struct convolution *convolution,
                   uint32_t ifmap_address, uint32_t weights_address, uint32_t result_address)
{
    uint32_t state = 0u;
    int stopped;
    int status;

    program_job(device, convolution, ifmap_address, weights_address, result_address);

    umakit_device_barrier(device); /* the device sees buffers and registers */
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_CONTROL_OFFSET,
                          UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK | /* old errors */
                              UMAKIT_MAC_ARRAY_CONTROL_START_MASK);
    status = sleep_until_end(device, &state);
    status = job_status(device, status, state);
    /* DONE would keep the interrupt line high; and a job that failed may still run: it is
     * stopped before its buffers are taken away. */
    stopped = stop_device(device);
    return stopped == UMAKIT_OK ? status : stopped;
}

/* ---- The call ---- */

int vanilla_accelerator_conv2dnchw(
    const float *ifmap, const float *weights, float *result,
    int oc, int iw, int ih, int ic, int kh, int kw)
{
    struct convolution convolution;
    umakit_device *device;
    size_t ifmap_bytes;
    size_t weights_bytes;
    size_t result_bytes;
    uint32_t ifmap_address;
    uint32_t weights_address;
    uint32_t result_address;
    int status;

    /* Guards: nothing has happened yet, so each may simply return. */
    if (ifmap == NULL || weights == NULL || result == NULL) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (oc <= 0 || iw <= 0 || ih <= 0 || ic <= 0 || kh <= 0 || kw <= 0) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    convolution.output_channels = (uint32_t)oc;
    convolution.input_width = (uint32_t)iw;
    convolution.input_height = (uint32_t)ih;
    convolution.input_channels = (uint32_t)ic;
    convolution.kernel_height = (uint32_t)kh;
    convolution.kernel_width = (uint32_t)kw;

    status = tensor_bytes(1u, convolution.input_channels, convolution.input_height,
                          convolution.input_width, &ifmap_bytes);
    if (status != UMAKIT_OK) {
        return status;
    }
    status = tensor_bytes(convolution.output_channels, convolution.input_channels,
                          convolution.kernel_height, convolution.kernel_width,
                          &weights_bytes);
    if (status != UMAKIT_OK) {
        return status;
    }
    status = tensor_bytes(1u, convolution.output_channels, convolution.input_height,
                          convolution.input_width, &result_bytes);
    if (status != UMAKIT_OK) {
        return status;
    }

    device = vanilla_accelerator_device();
    if (device == NULL) {
        return UMAKIT_NO_DEVICE;
    }
    status = check_device(device);
    if (status != UMAKIT_OK) {
        return status;
    }

    /* From here on: what was mapped is unmapped, in the opposite order. */
    status = umakit_device_map(device, ifmap, ifmap_bytes, UMAKIT_TO_DEVICE, &ifmap_address);
    if (status != UMAKIT_OK) {
        return status;
    }
    status = umakit_device_map(device, weights, weights_bytes, UMAKIT_TO_DEVICE,
                               &weights_address);
    if (status == UMAKIT_OK) {
        status = umakit_device_map(device, result, result_bytes, UMAKIT_FROM_DEVICE,
                                   &result_address);
        if (status == UMAKIT_OK) {
            status = run_job(device, &convolution, ifmap_address, weights_address,
                             result_address);
            umakit_device_unmap(device, result_address);
        }
        umakit_device_unmap(device, weights_address);
    }
    umakit_device_unmap(device, ifmap_address);
    return status;
}
