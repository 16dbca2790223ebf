/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of the lane_npu. A layer is begin, bind for each tensor, configure, any number of
 * copies and computes, and finish. All functions return 0 or a code of umakit/status.h; after
 * one that is not 0 the layer is over.
 */
#ifndef LANE_NPU_H
#define LANE_NPU_H

#include <stdint.h>

#include "umakit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum lane_npu_tensor {
    LANE_NPU_DATA,
    LANE_NPU_ADDEND,
    LANE_NPU_WEIGHTS,
    LANE_NPU_BIAS,
    LANE_NPU_MULTIPLIERS,
    LANE_NPU_SHIFTS,
    LANE_NPU_RESULT,
    LANE_NPU_TENSORS
};

/* Open a layer that was compiled for so many lanes and input channels of a step. */
int lane_npu_begin(int32_t lanes, int32_t step);

/* Give the machine access to a tensor until finish. */
int lane_npu_bind(enum lane_npu_tensor tensor, const void *memory, int32_t bytes);

/* What all tiles have in common; `rounding` is an enum umakit_rounding, 0 or 1. */
int lane_npu_configure(int32_t is_depthwise, int32_t rounding, int32_t kernel_height,
                       int32_t kernel_width, int32_t stride_y, int32_t stride_x, int32_t dilation_y,
                       int32_t dilation_x, int32_t input_zero_point, int32_t output_zero_point,
                       int32_t lowest, int32_t highest);

/* Behind configure: add another tensor to the result. */
int lane_npu_configure_add(int32_t addend_zero_point, int32_t left_shift, int32_t result_multiplier,
                           int32_t result_shift, int32_t addend_multiplier, int32_t addend_shift,
                           int32_t sum_multiplier, int32_t sum_shift, int32_t sum_zero_point,
                           int32_t sum_lowest, int32_t sum_highest);

/* Copy a part of a tensor to `place` bytes behind `buffer`, of the result from there. Lines of
 * `line` bytes begin at rows of the memory, 0: all is one line. With `by_planes` the tensor has
 * channels x positions. */
int lane_npu_copy(enum lane_npu_tensor tensor, int32_t channel, int32_t by_planes, int32_t line,
                  uint32_t buffer, int32_t offset, int32_t place, int32_t planes, int32_t rows,
                  int32_t row_bytes, int32_t plane_stride, int32_t row_stride);

/* Compute a tile: operands lie at places behind buffers. */
int lane_npu_compute(uint32_t data_buffer, uint32_t weights_buffer, uint32_t parameters_buffer,
                     uint32_t result_buffer, uint32_t addend_buffer, int32_t data, int32_t weights,
                     int32_t bias, int32_t multipliers, int32_t shifts, int32_t result,
                     int32_t addend, int32_t height, int32_t width, int32_t input_channels,
                     int32_t output_height, int32_t output_width, int32_t output_channels,
                     int32_t pad_top, int32_t pad_left, int32_t scales, int32_t continues,
                     int32_t keeps);

/* Wait until everything is done, and close the layer. */
int lane_npu_finish(void);

/* What drives it: the simulator on the host, your registers on a board. */
umakit_device *lane_npu_device(void);

#ifdef __cplusplus
}
#endif

#endif
