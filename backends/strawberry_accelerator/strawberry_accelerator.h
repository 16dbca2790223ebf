/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of the strawberry_accelerator. Operands get into the scratchpad and results out of
 * it by DMA; the array calculates on the scratchpad alone. Places in it are byte
 * offsets from its start, chosen by the memory plan.
 *
 * All functions return 0 or a code of umakit/status.h. They check their
 * arguments before they touch the device, return in bounded time whatever the
 * device does, and leave it idle and its interrupts off, except with UMAKIT_STUCK_BUSY.
 * After a failure the destination of a copy and the result of a calculation are not to
 * be used. They first stop what runs because only the processor was reset; until then it
 * may access memory of the earlier program: reset the device with the processor.
 *
 *     UMAKIT_INVALID_ARGUMENT  NULL, a size below 1, a clip range upside down
 *     UMAKIT_OUT_OF_RANGE      more than the scratchpad holds
 *     UMAKIT_NO_DEVICE         something else answers, or another version
 *     UMAKIT_LOST_INTERRUPT    the device was done and did not say so
 *     UMAKIT_UNSUPPORTED       an array of other columns than the weights were laid out for
 *     UMAKIT_STUCK_BUSY        it is busy with nothing left to do, or did not stop, whatever went
 *                              wrong first: it may still access memory until it is reset
 *     UMAKIT_DMA_STOPPED       a copy ended before its last byte
 *     UMAKIT_TIMEOUT           it is still at work after the time allowed
 *     others                   as the device reports them: bus error, parity, ...
 *
 * The driver compares ID, VERSION and ARRAY_COLUMNS with what the network was compiled
 * for, for each calculation. It does not compare SCRATCHPAD_BYTES, ACCUMULATOR_BYTES,
 * DMA_ALIGNMENT and FEATURES: a device that lacks something refuses the command, and
 * the status is UMAKIT_OUT_OF_RANGE, UMAKIT_MISALIGNED or UMAKIT_UNSUPPORTED.
 */
#ifndef STRAWBERRY_ACCELERATOR_H
#define STRAWBERRY_ACCELERATOR_H

#include <stdint.h>

#include "umakit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the array computes: all input channels into each output channel, or each by itself. */
enum strawberry_accelerator_operation {
    STRAWBERRY_ACCELERATOR_CONVOLUTION,
    STRAWBERRY_ACCELERATOR_DEPTHWISE
};

/* What stays in the array while the rest moves; values of its register DATAFLOW. */
enum strawberry_accelerator_dataflow {
    STRAWBERRY_ACCELERATOR_OUTPUT_STATIONARY,
    STRAWBERRY_ACCELERATOR_WEIGHT_STATIONARY,
    STRAWBERRY_ACCELERATOR_INPUT_STATIONARY
};

/* Order of an image in memory: height x width x channels, or channels x height x width. */
enum strawberry_accelerator_layout {
    STRAWBERRY_ACCELERATOR_CHANNELS_LAST,
    STRAWBERRY_ACCELERATOR_CHANNELS_FIRST
};

/* How a sum is scaled, see umakit/requantize.h; values of the register ROUNDING. */
enum strawberry_accelerator_rounding {
    STRAWBERRY_ACCELERATOR_ROUNDING_TFLM,
    STRAWBERRY_ACCELERATOR_ROUNDING_ORT
};

/* Copy `bytes` bytes of shared memory into the scratchpad. */
UMAKIT_MUST_USE int strawberry_accelerator_dma_in(const void *source, uint32_t scratchpad_offset,
                                      int32_t bytes);

/* Copy `bytes` bytes of the scratchpad to shared memory. */
UMAKIT_MUST_USE int strawberry_accelerator_dma_out(uint32_t scratchpad_offset, void *destination,
                                       int32_t bytes);

/*
 * Calculate a convolution with bias, requantization and clip:
 *
 *     ifmap        input: height x width x input_channels, int8, or
 *                  input_channels x height x width, as the layout says
 *     weights      int8, in blocks of `columns` output channels, as many as the
 *                  array has columns: blocks x kernel_height x kernel_width x
 *                  input_channels x columns; depthwise: kernel_height x
 *                  kernel_width x output_channels
 *     bias         int32, one for each output channel
 *     multipliers  int32, `scales` of them: 1, or one for each output channel
 *     shifts       int8, likewise
 *     ofmap        result, laid out like the input
 *
 * All of them are scratchpad offsets. Strides, dilations and padding count rows (y, top)
 * and columns (x, left) of the input. Padding stands for the input's zero point.
 */
UMAKIT_MUST_USE int strawberry_accelerator_calculate(
    uint32_t ifmap, uint32_t weights, uint32_t bias, uint32_t multipliers, uint32_t shifts,
    uint32_t ofmap, int32_t columns, enum strawberry_accelerator_dataflow dataflow,
    enum strawberry_accelerator_operation operation, enum strawberry_accelerator_layout layout,
    int32_t height, int32_t width, int32_t input_channels, int32_t output_height,
    int32_t output_width, int32_t output_channels, int32_t kernel_height, int32_t kernel_width,
    int32_t stride_y, int32_t stride_x, int32_t pad_top, int32_t pad_left, int32_t dilation_y,
    int32_t dilation_x, int32_t scales, int32_t input_zero_point, int32_t output_zero_point,
    int32_t lowest, int32_t highest, enum strawberry_accelerator_rounding rounding);

/* What the device did wrong first in the last copy or calculation that failed: its status, unless
 * that is UMAKIT_STUCK_BUSY because the device did not stop then either. */
int strawberry_accelerator_failure(void);

/* The device that the driver runs on, NULL if there is none. Defined once in a
 * program, next to the driver: on the host by the simulator, on a board by you. */
umakit_device *strawberry_accelerator_device(void);

#ifdef __cplusplus
}
#endif

#endif /* STRAWBERRY_ACCELERATOR_H */
