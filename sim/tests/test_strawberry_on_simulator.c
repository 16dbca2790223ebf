/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's object on the simulator. What is recorded of a copy is what the
 * mock expects; and buffers whose addresses have the same low 32 bits are not
 * mixed up, as no register holds an address of the host.
 */
#include "high_memory.h"

#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "strawberry_accelerator.h"
#include "strawberry_copy.h"
#include "umakit/systolic_array.h"

#define BUFFERS 3u
#define RECORDED (2u * BUFFERS * COPY_CALLS)

static uint32_t scratchpad[COPY_SCRATCHPAD_BYTES / 4u];
static struct umakit_systolic_array array;
static struct umakit_trace_entry recorded[RECORDED];

umakit_device *strawberry_accelerator_device(void)
{
    return &array.device;
}

static void set_up(void)
{
    static const struct umakit_systolic_array_config config = {
        .array_rows = 1u,
        .array_columns = 1u,
        .output_stationary = true,
        .scratchpad = scratchpad,
        .scratchpad_bytes = COPY_SCRATCHPAD_BYTES,
        .scratchpad_banks = 1u,
        .dma_bytes_per_cycle = 4u,
        .dma_alignment = 1u,
    };

    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    umakit_simulator_record(&array.device, recorded, RECORDED);
}

static void test_copy_is_the_one_that_the_mock_expects(void)
{
    static uint32_t memory[COPY_BYTES / 4u] = {1u, 2u, 3u};
    size_t i;

    set_up();
    CHECK_EQUAL(strawberry_accelerator_dma_in(memory, COPY_START, (int32_t)COPY_BYTES),
                UMAKIT_OK);
    CHECK(memcmp(&scratchpad[COPY_START / 4u], memory, sizeof(memory)) == 0);
    CHECK_EQUAL(umakit_simulator_recorded(&array.device), COPY_CALLS);
    for (i = 0u; i < COPY_CALLS; ++i) {
        CHECK_EQUAL(recorded[i].access, copy_calls[i].access);
        CHECK_EQUAL(recorded[i].offset, copy_calls[i].offset);
        CHECK_EQUAL(recorded[i].value, copy_calls[i].value);
        CHECK_EQUAL(recorded[i].direction, copy_calls[i].direction);
        CHECK_EQUAL(recorded[i].status, copy_calls[i].status);
    }
}

/* Every bus address lies in the device's first window, all of it. */
static void expect_bus_addresses(const unsigned char *const *buffers)
{
    size_t addresses = 0u;
    size_t i;
    size_t j;

    for (i = 0u; i < umakit_simulator_recorded(&array.device); ++i) {
        const struct umakit_trace_entry *entry = &recorded[i];

        if (entry->access == UMAKIT_ACCESS_MAP) {
            CHECK_EQUAL(entry->offset, COPY_WINDOW);
        }
        if (entry->access == UMAKIT_ACCESS_WRITE && entry->offset == OFFSET(DMA_BUS_ADDRESS)) {
            CHECK_EQUAL(entry->value, COPY_WINDOW);
            ++addresses;
        }
        for (j = 0u; j < BUFFERS && entry->access == UMAKIT_ACCESS_WRITE; ++j) {
            CHECK(entry->value != (uint32_t)(uintptr_t)buffers[j]);
        }
    }
    CHECK_EQUAL(addresses, 2u * BUFFERS);
}

static bool test_buffers_beyond_32_bits(void)
{
    unsigned char *buffers[BUFFERS];
    uint32_t i;

    for (i = 0u; i < BUFFERS; ++i) {
        unsigned char *page =
            (unsigned char *)memory_at(HIGH_ADDRESS + i * FOUR_GIB, 2u * COPY_BYTES);

        if (page == NULL) {
            return false;
        }
        buffers[i] = page + COPY_BYTES;
        memset(buffers[i], (int)i + 1, COPY_BYTES);
    }
    set_up();
    for (i = 0u; i < BUFFERS; ++i) {
        CHECK_EQUAL(strawberry_accelerator_dma_in(buffers[i], i * COPY_BYTES,
                                                  (int32_t)COPY_BYTES),
                    UMAKIT_OK);
    }
    for (i = 0u; i < BUFFERS; ++i) {
        /* What came from the first goes to the second, and so on. */
        CHECK_EQUAL(strawberry_accelerator_dma_out(i * COPY_BYTES, buffers[(i + 1u) % BUFFERS],
                                                   (int32_t)COPY_BYTES),
                    UMAKIT_OK);
    }
    for (i = 0u; i < BUFFERS; ++i) {
        const unsigned char *after = buffers[(i + 1u) % BUFFERS];

        CHECK_EQUAL(after[0], i + 1u);
        CHECK_EQUAL(after[COPY_BYTES - 1u], i + 1u);
    }
    expect_bus_addresses((const unsigned char *const *)buffers);
    return true;
}

int main(void)
{
    test_copy_is_the_one_that_the_mock_expects();
    if (!test_buffers_beyond_32_bits()) {
        printf("no memory at %#llx\n", (unsigned long long)HIGH_ADDRESS);
        return check_result() == 0 ? SKIPPED : 1;
    }
    return check_result();
}
