/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution to run on a device, register by register, and the reference it
 * is compared with. */
#ifndef JOB_H
#define JOB_H

#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/mac_array_registers.h"

struct job {
    uint32_t input_channels;
    uint32_t height;
    uint32_t width;
    uint32_t output_channels;
    uint32_t kernel_height;
    uint32_t kernel_width;
    uint32_t pad_top;
    uint32_t pad_left;
};

static inline size_t ifmap_count(const struct job *job)
{
    return (size_t)job->input_channels * job->height * job->width;
}

static inline size_t weights_count(const struct job *job)
{
    return (size_t)job->output_channels * job->input_channels * job->kernel_height *
           job->kernel_width;
}

static inline size_t result_count(const struct job *job)
{
    return (size_t)job->output_channels * job->height * job->width;
}

/* The definition, result by result, in double and with the padding spelt out:
 * shares neither the order of loops nor the trimming with the simulator. */
static inline void reference_convolution(const struct job *job, const float *ifmap,
                                         const float *weights, float *result)
{
    long height = (long)job->height;
    long width = (long)job->width;
    uint32_t oc;
    uint32_t ic;
    long y;
    long x;
    long ky;
    long kx;

    for (y = 0; y < height; ++y) {
        for (x = 0; x < width; ++x) {
            for (oc = 0u; oc < job->output_channels; ++oc) {
                double sum = 0.0;

                for (ky = 0; ky < (long)job->kernel_height; ++ky) {
                    for (kx = 0; kx < (long)job->kernel_width; ++kx) {
                        long row = y + ky - (long)job->pad_top;
                        long column = x + kx - (long)job->pad_left;

                        for (ic = 0u; ic < job->input_channels; ++ic) {
                            long channel_row = (long)ic * height + row;
                            long kernel_row =
                                ((long)oc * (long)job->input_channels + (long)ic) *
                                    (long)job->kernel_height + ky;
                            double input = 0.0;

                            if (row >= 0 && row < height && column >= 0 && column < width) {
                                input = (double)ifmap[channel_row * width + column];
                            }
                            sum += input * (double)weights[kernel_row *
                                                               (long)job->kernel_width + kx];
                        }
                    }
                }
                result[((long)oc * height + y) * width + x] = (float)sum;
            }
        }
    }
}

static inline void write_sizes(umakit_device *device, const struct job *job)
{
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_INPUT_CHANNELS_OFFSET, job->input_channels);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_INPUT_HEIGHT_OFFSET, job->height);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET, job->width);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_OFFSET,
                          job->output_channels);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_OFFSET, job->kernel_height);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_KERNEL_WIDTH_OFFSET, job->kernel_width);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_PAD_TOP_OFFSET, job->pad_top);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET, job->pad_left);
}

static inline void write_addresses(umakit_device *device, uint32_t ifmap, uint32_t weights,
                                   uint32_t result)
{
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET, ifmap);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET, weights);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET, result);
}

static inline void write_control(umakit_device *device, uint32_t commands)
{
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_CONTROL_OFFSET, commands);
}

static inline uint32_t read_status(umakit_device *device)
{
    return umakit_device_read32(device, UMAKIT_MAC_ARRAY_STATUS_OFFSET);
}

static inline uint32_t read_error(umakit_device *device)
{
    return umakit_device_read32(device, UMAKIT_MAC_ARRAY_ERROR_OFFSET);
}

#define START UMAKIT_MAC_ARRAY_CONTROL_START_MASK
#define CLEAR UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK
#define RESET_COUNTERS UMAKIT_MAC_ARRAY_CONTROL_RESET_COUNTERS_MASK
#define IDLE UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK
#define BUSY UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK
#define DONE UMAKIT_MAC_ARRAY_STATUS_DONE_MASK
#define ERROR UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK

#endif /* JOB_H */
