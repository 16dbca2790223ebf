/* SPDX-License-Identifier: Apache-2.0 */
/* The vanilla driver with buffers whose addresses have the same low 32 bits: its
 * device gets bus addresses, which have no more. */
#include "high_memory.h"

#include <string.h>

#include "check.h"
#include "conv2dnchw.h"
#include "job.h"
#include "umakit/mac_array.h"

#define BUFFERS 3u
#define VALUES 64u
#define RECORDED 64u

static struct umakit_mac_array array;
static struct umakit_trace_entry recorded[RECORDED];

umakit_device *vanilla_accelerator_device(void)
{
    return &array.device;
}

static void expect_bus_addresses(void)
{
    static const uint32_t registers[BUFFERS] = {UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET,
                                                UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET,
                                                UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET};
    const size_t calls = umakit_simulator_recorded(&array.device);
    uint32_t found = 0u;
    size_t i;
    uint32_t j;

    CHECK(calls <= RECORDED);
    for (i = 0u; i < calls; ++i) {
        for (j = 0u; j < BUFFERS; ++j) {
            if (recorded[i].access == UMAKIT_ACCESS_WRITE &&
                recorded[i].offset == registers[j]) {
                CHECK_EQUAL(recorded[i].value, (j + 1u) * UMAKIT_SIMULATOR_WINDOW_BYTES);
                ++found;
            }
        }
        CHECK(recorded[i].value != (uint32_t)(HIGH_ADDRESS % FOUR_GIB));
    }
    CHECK_EQUAL(found, BUFFERS);
}

int main(void)
{
    static const struct umakit_mac_array_config config = {8u, 8u, 0u};
    static const struct job job = {1, 3, 4, 1, 3, 3, 1, 1};
    float expected[VALUES];
    float *buffers[BUFFERS];
    uint32_t state = 3u;
    uint32_t i;

    for (i = 0u; i < BUFFERS; ++i) {
        buffers[i] =
            (float *)memory_at(HIGH_ADDRESS + i * FOUR_GIB, VALUES * sizeof(float));
        if (buffers[i] == NULL) {
            printf("no memory at %#llx\n", (unsigned long long)HIGH_ADDRESS);
            return SKIPPED;
        }
    }
    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    umakit_simulator_record(&array.device, recorded, RECORDED);
    fill_random(buffers[0], ifmap_count(&job), &state);
    fill_random(buffers[1], weights_count(&job), &state);
    reference_convolution(&job, buffers[0], buffers[1], expected);
    CHECK_EQUAL(vanilla_accelerator_conv2dnchw(buffers[0], buffers[1], buffers[2], 1, 4, 3, 1,
                                               3, 3),
                UMAKIT_OK);
    CHECK(memcmp(buffers[2], expected, result_count(&job) * sizeof(float)) == 0);
    expect_bus_addresses();
    return check_result();
}
