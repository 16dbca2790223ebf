/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_npu.h"

#include "isa/lane_npu_isa.h"

#define MOST_CYCLES 0xFFFFFFFFu
#define MOST_WAKES 1000 /* a processor wakes for other reasons too */

static struct {
    uint32_t addresses[LANE_NPU_TENSORS]; /* on the bus, 0: not bound */
    int is_bound[LANE_NPU_TENSORS];
} layer;

/* Stop the machine after a failure, and take its access to memory away. */
static int closed(int status)
{
    umakit_device *const device = lane_npu_device();
    int tensor;

    if (status != UMAKIT_OK && device != NULL) {
        umakit_device_write32(device, LANE_NPU_CLEAR, 1u);
        umakit_device_barrier(device);
    }
    for (tensor = 0; tensor < LANE_NPU_TENSORS; ++tensor) {
        if (layer.is_bound[tensor]) {
            umakit_device_unmap(device, layer.addresses[tensor]);
            layer.is_bound[tensor] = 0;
        }
    }
    return status;
}

static int issue(const uint32_t *words, size_t count)
{
    umakit_device *const device = lane_npu_device();
    size_t word;

    for (word = 0u; word < count; ++word) {
        umakit_device_write32(device, LANE_NPU_INSTRUCTION, words[word]);
    }
    return UMAKIT_OK;
}

/* An instruction of these words. */
#define ISSUE(...)                                                                                 \
    issue((const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4u)

static uint32_t pair(int32_t height, int32_t width)
{
    return (uint32_t)height | (uint32_t)width << 16;
}

static uint32_t flag(int32_t is_set, uint32_t bit)
{
    return is_set ? bit : 0u;
}

int lane_npu_begin(int32_t lanes, int32_t step)
{
    umakit_device *const device = lane_npu_device();

    if (umakit_device_read32(device, LANE_NPU_ID) != LANE_NPU_IS) {
        return UMAKIT_NO_DEVICE;
    }
    if (umakit_device_read32(device, LANE_NPU_SHAPE) != pair(lanes, step)) {
        return UMAKIT_UNSUPPORTED;
    }
    umakit_device_write32(device, LANE_NPU_CLEAR, 1u);
    return UMAKIT_OK;
}

int lane_npu_bind(enum lane_npu_tensor tensor, const void *memory, int32_t bytes)
{
    const enum umakit_direction direction =
        tensor == LANE_NPU_RESULT ? UMAKIT_FROM_DEVICE : UMAKIT_TO_DEVICE;
    const int status = umakit_device_map(lane_npu_device(), memory, (size_t)bytes, direction,
                                         &layer.addresses[tensor]);

    layer.is_bound[tensor] = status == UMAKIT_OK;
    return status == UMAKIT_OK ? status : closed(status);
}

int lane_npu_configure(int32_t is_depthwise, int32_t rounding, int32_t kernel_height,
                       int32_t kernel_width, int32_t stride_y, int32_t stride_x, int32_t dilation_y,
                       int32_t dilation_x, int32_t input_zero_point, int32_t output_zero_point,
                       int32_t lowest, int32_t highest)
{
    umakit_device_barrier(lane_npu_device());
    return ISSUE(LANE_NPU_CONFIGURE | flag(is_depthwise, LANE_NPU_DEPTHWISE) |
                     flag(rounding, LANE_NPU_FLOAT),
                 pair(kernel_height, kernel_width), pair(stride_y, stride_x),
                 pair(dilation_y, dilation_x), (uint32_t)input_zero_point,
                 (uint32_t)output_zero_point, (uint32_t)lowest, (uint32_t)highest);
}

int lane_npu_configure_add(int32_t addend_zero_point, int32_t left_shift, int32_t result_multiplier,
                           int32_t result_shift, int32_t addend_multiplier, int32_t addend_shift,
                           int32_t sum_multiplier, int32_t sum_shift, int32_t sum_zero_point,
                           int32_t sum_lowest, int32_t sum_highest)
{
    return ISSUE(LANE_NPU_ADD, (uint32_t)addend_zero_point, (uint32_t)left_shift,
                 (uint32_t)result_multiplier, (uint32_t)result_shift, (uint32_t)addend_multiplier,
                 (uint32_t)addend_shift, (uint32_t)sum_multiplier, (uint32_t)sum_shift,
                 (uint32_t)sum_zero_point, (uint32_t)sum_lowest, (uint32_t)sum_highest);
}

int lane_npu_copy(enum lane_npu_tensor tensor, int32_t channel, int32_t by_planes, int32_t line,
                  uint32_t buffer, int32_t offset, int32_t place, int32_t planes, int32_t rows,
                  int32_t row_bytes, int32_t plane_stride, int32_t row_stride)
{
    const int is_weights = tensor >= LANE_NPU_WEIGHTS && tensor <= LANE_NPU_SHIFTS;
    return ISSUE((tensor == LANE_NPU_RESULT ? LANE_NPU_STORE : LANE_NPU_LOAD) |
                     flag(is_weights, LANE_NPU_OF_WEIGHTS) | flag(by_planes, LANE_NPU_BY_PLANES) |
                     (uint32_t)channel << LANE_NPU_CHANNEL_SHIFT,
                 layer.addresses[tensor] + (uint32_t)offset, buffer + (uint32_t)place,
                 (uint32_t)planes, (uint32_t)rows, (uint32_t)row_bytes, (uint32_t)plane_stride,
                 (uint32_t)row_stride, (uint32_t)line);
}

int lane_npu_compute(uint32_t data_buffer, uint32_t weights_buffer, uint32_t parameters_buffer,
                     uint32_t result_buffer, uint32_t addend_buffer, int32_t data, int32_t weights,
                     int32_t bias, int32_t multipliers, int32_t shifts, int32_t result,
                     int32_t addend, int32_t height, int32_t width, int32_t input_channels,
                     int32_t output_height, int32_t output_width, int32_t output_channels,
                     int32_t pad_top, int32_t pad_left, int32_t scales, int32_t continues,
                     int32_t keeps)
{
    (void)scales; /* one for each channel, by expand_scales */
    return ISSUE(LANE_NPU_JOB | flag(continues, LANE_NPU_CONTINUES) | flag(keeps, LANE_NPU_KEEPS),
                 data_buffer + (uint32_t)data, weights_buffer + (uint32_t)weights,
                 parameters_buffer + (uint32_t)bias, parameters_buffer + (uint32_t)multipliers,
                 parameters_buffer + (uint32_t)shifts, result_buffer + (uint32_t)result,
                 addend_buffer + (uint32_t)addend, pair(height, width), (uint32_t)input_channels,
                 pair(output_height, output_width), (uint32_t)output_channels,
                 pair(pad_top, pad_left));
}

int lane_npu_finish(void)
{
    umakit_device *const device = lane_npu_device();
    int status = (int)LANE_NPU_BUSY;
    int wakes;

    for (wakes = 0; status == (int)LANE_NPU_BUSY && wakes < MOST_WAKES; ++wakes) {
        status = umakit_device_wait(device, MOST_CYCLES);
        if (status == UMAKIT_OK) {
            status = (int)umakit_device_read32(device, LANE_NPU_STATUS);
        }
    }
    umakit_device_barrier(device);
    return closed(status == (int)LANE_NPU_BUSY ? UMAKIT_STUCK_BUSY : status);
}
