/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device as an export gets it, with an 8 x 16 array. */
#include <stddef.h>

#include "check.h"
#include "conv2dnchw.h"
#include "umakit/mac_array_registers.h"
#include "vanilla_accelerator_device.h"

int main(void)
{
    static const float ifmap[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    static const float weight = 2.0f;
    float result[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    struct umakit_simulator_counters counters;
    umakit_device *device;

    vanilla_accelerator_counters(&counters); /* before anything else is called */
    CHECK_EQUAL(counters.jobs, 0u);
    CHECK_EQUAL(vanilla_accelerator_conv2dnchw(ifmap, &weight, result, 1, 2, 2, 1, 1, 1),
                UMAKIT_OK);
    CHECK(result[0] >= 2.0f && result[0] <= 2.0f && result[3] >= 8.0f && result[3] <= 8.0f);
    vanilla_accelerator_counters(&counters);
    CHECK_EQUAL(counters.jobs, 1u);
    CHECK_EQUAL(counters.macs, 8u * 16u);
    CHECK_EQUAL(counters.useful_macs, 4u);
    CHECK_EQUAL(counters.compute_cycles, 8u + 16u + 1u - 2u);

    device = vanilla_accelerator_device();
    CHECK(device != NULL && device == vanilla_accelerator_device());
    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET), 8u);
    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET), 16u);
    return check_result();
}
