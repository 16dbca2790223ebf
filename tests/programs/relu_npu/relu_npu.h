/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELU_NPU_H
#define RELU_NPU_H

#include <stdint.h>

#include "umakit/device.h"

umakit_device *relu_npu_device(void);

int32_t relu_npu_relu(const float *data, float *result, int32_t size);

#endif /* RELU_NPU_H */
