/* SPDX-License-Identifier: Apache-2.0 */
#include "relu_npu.h"

enum { STATUS = 0, SOURCE = 4, TARGET = 8, BYTES = 12, START = 16 };

static int run(umakit_device *device, uint32_t source, uint32_t target, uint32_t bytes)
{
    int status;

    umakit_device_write32(device, SOURCE, source);
    umakit_device_write32(device, TARGET, target);
    umakit_device_write32(device, BYTES, bytes);
    umakit_device_write32(device, START, 1u);
    status = umakit_device_wait(device, 1000000000u);
    if (status != UMAKIT_OK) {
        return status;
    }
    return umakit_device_read32(device, STATUS) == 1u ? UMAKIT_OK : UMAKIT_DEVICE_ERROR;
}

int32_t relu_npu_relu(const float *data, float *result, int32_t size)
{
    umakit_device *const device = relu_npu_device();
    const size_t bytes = (size_t)size * sizeof(float);
    uint32_t source;
    uint32_t target;
    int status = umakit_device_map(device, data, bytes, UMAKIT_TO_DEVICE, &source);

    if (status != UMAKIT_OK) {
        return status;
    }
    status = umakit_device_map(device, result, bytes, UMAKIT_FROM_DEVICE, &target);
    if (status == UMAKIT_OK) {
        status = run(device, source, target, (uint32_t)bytes);
        umakit_device_unmap(device, target);
    }
    umakit_device_unmap(device, source);
    return status;
}
