/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of the small_chocolate_accelerator. A layer is
 *
 *     begin; bind the tensors in shared memory; configure;
 *     load, compute and store tiles, in any number;
 *     finish
 *
 * Between begin and finish, calls put commands into the device's queue and
 * return at once, or when there is room in it. The device runs commands as if
 * one after the other, and at the same time where they use different banks of
 * the scratchpad; results are in shared memory after finish. Without a queue
 * each call waits for its own end. Places in the scratchpad are byte offsets
 * from its start, chosen by the memory plan, and byte offsets from there.
 *
 * All functions return 0 or a code of umakit/status.h. They return in bounded
 * time whatever the device does. After a failure the layer is over: the device
 * is stopped, nothing is bound any more, and its results are not to be used.
 * The device's interrupts are off after finish and after a failure. A device that
 * stays busy after CLEAR may still access the tensors: the status is UMAKIT_STUCK_BUSY
 * then, whatever went wrong first, and begin tries again to stop it and answers the same
 * as long as it does not. Reset it before you use their memory for something else.
 * begin also stops what runs because only the processor was reset; until then it may
 * access memory of the earlier program: reset the device with the processor.
 *
 *     UMAKIT_INVALID_ARGUMENT  NULL, a size below 1, a tensor that is not bound, a call out
 *                              of order
 *     UMAKIT_OUT_OF_RANGE      beyond the end of a tensor or of the scratchpad
 *     UMAKIT_NO_DEVICE         something else answers, or another version
 *     UMAKIT_UNSUPPORTED       the device lacks what the layer was compiled for
 *     UMAKIT_LOST_INTERRUPT    the device was done and did not say so
 *     UMAKIT_STUCK_BUSY        it is busy with nothing left to do, or did not stop
 *     UMAKIT_DMA_STOPPED       a copy ended before its last byte
 *     UMAKIT_TIMEOUT           it is still at work after the time allowed
 *     others                   as the device reports them: bus error, parity, ...
 *
 * The driver compares ID, VERSION and ARRAY_COLUMNS with what the network was compiled
 * for, for each layer. It does not compare SCRATCHPAD_BYTES, ACCUMULATOR_BYTES,
 * DMA_ALIGNMENT and FEATURES: a device that lacks something refuses the command, and
 * the status is UMAKIT_OUT_OF_RANGE, UMAKIT_MISALIGNED or UMAKIT_UNSUPPORTED.
 */
#ifndef SMALL_CHOCOLATE_ACCELERATOR_H
#define SMALL_CHOCOLATE_ACCELERATOR_H

#include <stdint.h>

#include "umakit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors in shared memory. The last one is the result, the others are operands. */
enum small_chocolate_accelerator_tensor {
    SMALL_CHOCOLATE_ACCELERATOR_DATA,
    SMALL_CHOCOLATE_ACCELERATOR_ADDEND,
    SMALL_CHOCOLATE_ACCELERATOR_WEIGHTS,
    SMALL_CHOCOLATE_ACCELERATOR_BIAS,
    SMALL_CHOCOLATE_ACCELERATOR_MULTIPLIERS,
    SMALL_CHOCOLATE_ACCELERATOR_SHIFTS,
    SMALL_CHOCOLATE_ACCELERATOR_RESULT,
    SMALL_CHOCOLATE_ACCELERATOR_TENSORS
};

/* How the driver learns that the device is done. */
enum small_chocolate_accelerator_completion {
    SMALL_CHOCOLATE_ACCELERATOR_INTERRUPT,
    SMALL_CHOCOLATE_ACCELERATOR_POLLING
};

/* What the array computes; values of its register OPERATION. */
enum small_chocolate_accelerator_operation {
    SMALL_CHOCOLATE_ACCELERATOR_CONVOLUTION,
    SMALL_CHOCOLATE_ACCELERATOR_DEPTHWISE,
    SMALL_CHOCOLATE_ACCELERATOR_MAX_POOL,
    SMALL_CHOCOLATE_ACCELERATOR_AVERAGE_POOL
};

/* What stays in the array while the rest moves; values of its register DATAFLOW. */
enum small_chocolate_accelerator_dataflow {
    SMALL_CHOCOLATE_ACCELERATOR_OUTPUT_STATIONARY,
    SMALL_CHOCOLATE_ACCELERATOR_WEIGHT_STATIONARY,
    SMALL_CHOCOLATE_ACCELERATOR_INPUT_STATIONARY
};

/* Order of an image in memory: height x width x channels, or channels x height x width. */
enum small_chocolate_accelerator_layout {
    SMALL_CHOCOLATE_ACCELERATOR_CHANNELS_LAST,
    SMALL_CHOCOLATE_ACCELERATOR_CHANNELS_FIRST
};

/* How a sum is scaled, see umakit/requantize.h; values of the register ROUNDING. */
enum small_chocolate_accelerator_rounding {
    SMALL_CHOCOLATE_ACCELERATOR_ROUNDING_TFLM,
    SMALL_CHOCOLATE_ACCELERATOR_ROUNDING_ORT
};

/* Open a layer that was compiled for an array of so many columns. */
UMAKIT_MUST_USE int small_chocolate_accelerator_begin(
    int32_t columns, enum small_chocolate_accelerator_completion completion);

/* Give the device access to a tensor until finish. */
UMAKIT_MUST_USE int small_chocolate_accelerator_bind(
    enum small_chocolate_accelerator_tensor tensor, const void *memory, int32_t bytes);

/*
 * What all tiles of the layer have in common. Pools use the window and the limits only.
 * Strides and dilations count elements: rows (y) and columns (x) of the input.
 */
UMAKIT_MUST_USE int small_chocolate_accelerator_configure(
    enum small_chocolate_accelerator_operation operation, enum small_chocolate_accelerator_dataflow dataflow,
    enum small_chocolate_accelerator_layout layout, int32_t kernel_height, int32_t kernel_width,
    int32_t stride_y, int32_t stride_x, int32_t dilation_y, int32_t dilation_x,
    int32_t input_zero_point, int32_t output_zero_point, int32_t lowest, int32_t highest,
    enum small_chocolate_accelerator_rounding rounding);

/*
 * After configure: add a second tensor to the result, as umakit's integer
 * additions do. For the formula see the register ADD in
 * umakit/systolic_array_registers.h; the arguments are the registers
 * ADDEND_ZERO_POINT to SUM_CLIP_HIGHEST there, in their order.
 */
UMAKIT_MUST_USE int small_chocolate_accelerator_configure_add(
    int32_t addend_zero_point, int32_t left_shift, int32_t result_multiplier,
    int32_t result_shift, int32_t addend_multiplier, int32_t addend_shift, int32_t multiplier,
    int32_t shift, int32_t sum_zero_point, int32_t sum_lowest, int32_t sum_highest);

/*
 * Copy planes x rows x row_bytes bytes from a tensor to `place` bytes behind `buffer`
 * in the scratchpad, where they lie close together; and back. In the tensor the first
 * byte lies `offset` bytes from its start. Strides count bytes of the tensor too:
 * `row_stride` from the start of a row to the start of the next one, `plane_stride`
 * from the start of a plane to the start of the next one.
 */
UMAKIT_MUST_USE int small_chocolate_accelerator_load(
    enum small_chocolate_accelerator_tensor tensor, uint32_t buffer, int32_t offset, int32_t place,
    int32_t planes, int32_t rows, int32_t row_bytes, int32_t plane_stride, int32_t row_stride);
UMAKIT_MUST_USE int small_chocolate_accelerator_store(
    enum small_chocolate_accelerator_tensor tensor, uint32_t buffer, int32_t offset, int32_t place,
    int32_t planes, int32_t rows, int32_t row_bytes, int32_t plane_stride, int32_t row_stride);

/*
 * Compute a tile. Operands lie in the scratchpad, each in a buffer and at a place in it,
 * in bytes. Data and result lie close together, the weights in blocks of the array's
 * columns. Pools ignore the buffers of weights and parameters, and weights to shifts.
 *
 *     data_buffer        of the input
 *     weights_buffer     of the weights
 *     parameters_buffer  of bias, multipliers and shifts
 *     result_buffer      of the result
 *     addend_buffer      of the addend, used after configure_add only
 *     data               place of the input in its buffer: int8
 *     weights            place of the weights: int8
 *     bias               place of the bias: int32
 *     multipliers        place of the multipliers of the sums: int32
 *     shifts             place of the shifts of the sums: int8
 *     result             place of the result: int8
 *     addend             place of the addend: int8, in the order of the result
 *     height             rows of the input, without padding
 *     width              columns of the input, without padding
 *     input_channels     channels of the input
 *     output_height      rows of the result
 *     output_width       columns of the result
 *     output_channels    channels of the result
 *     pad_top            rows of padding above the input
 *     pad_left           columns of padding left of the input
 *     scales             number of multipliers and shifts: 1 for all channels, or one each
 *     continues          1: go on from the sums in the accumulator instead of the bias
 *     keeps              1: leave the sums in the accumulator, write no result
 */
UMAKIT_MUST_USE int small_chocolate_accelerator_compute(
    uint32_t data_buffer, uint32_t weights_buffer, uint32_t parameters_buffer,
    uint32_t result_buffer, uint32_t addend_buffer, int32_t data, int32_t weights,
    int32_t bias, int32_t multipliers, int32_t shifts, int32_t result, int32_t addend,
    int32_t height, int32_t width, int32_t input_channels, int32_t output_height,
    int32_t output_width, int32_t output_channels, int32_t pad_top, int32_t pad_left,
    int32_t scales, int32_t continues, int32_t keeps);

/* What went wrong first in the last layer that failed: its status, unless that is
 * UMAKIT_STUCK_BUSY because the device did not stop then either. */
int small_chocolate_accelerator_failure(void);

/* Wait until everything is done, and close the layer. */
UMAKIT_MUST_USE int small_chocolate_accelerator_finish(void);

/* The device that the driver runs on, NULL if there is none. Defined once in a
 * program, next to the driver: on the host by the simulator, on a board by you. */
umakit_device *small_chocolate_accelerator_device(void);

#ifdef __cplusplus
}
#endif

#endif /* SMALL_CHOCOLATE_ACCELERATOR_H */
