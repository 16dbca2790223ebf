/* SPDX-License-Identifier: Apache-2.0 */
/* The board's device with plain memory in place of its registers. */
#include <stddef.h>
#include <stdint.h>

#include "check.h"

/* Enough for each register map. */
static volatile uint32_t registers[256];

#define UMAKIT_DEVICE_BASE registers
#define UMAKIT_BOARD_HAS_CACHE
#include "../board/umakit_device_memory_mapped.c"

/* The interrupt line is low, and high, twice over. */
#ifdef UMAKIT_BOARD_HAS_INTERRUPT
#define SOME_OFFSET 36u
#define ID 0x4E50551u
#define EVENTS 1020u
#define LOW_1 0u
#define LOW_2 2u
#define HIGH_1 1u
#define HIGH_2 3u

bool umakit_board_interrupt(void)
{
    return (registers[EVENTS / 4u] & 1u) != 0u;
}
#elif defined(UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY)
#define SOME_OFFSET UMAKIT_SYSTOLIC_ARRAY_PAD_LEFT_OFFSET
#define ID UMAKIT_SYSTOLIC_ARRAY_ID_RESET
#define EVENTS UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_OFFSET
#define LOW_1 UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_DMA_DONE_MASK /* not enabled */
#define LOW_2 0u
#define HIGH_1 UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ARRAY_DONE_MASK
#define HIGH_2 UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ERROR_MASK
#else
#define SOME_OFFSET UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET
#define ID UMAKIT_MAC_ARRAY_ID_RESET
#define EVENTS UMAKIT_MAC_ARRAY_STATUS_OFFSET
#define LOW_1 UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK
#define LOW_2 (UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK | UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK)
#define HIGH_1 (UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK | UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK)
#define HIGH_2 (UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK | UMAKIT_MAC_ARRAY_STATUS_DONE_MASK)
#endif

static unsigned int cleaned;
static unsigned int invalidated;

void umakit_board_cache_clean(const void *memory, size_t bytes)
{
    CHECK(memory != NULL && bytes == 64u);
    ++cleaned;
}

void umakit_board_cache_invalidate(const void *memory, size_t bytes)
{
    CHECK(memory != NULL && bytes == 64u);
    ++invalidated;
}

/* An address is all that map needs: nothing is read through it. */
static const void *at(uintptr_t address)
{
    return (const void *)address;
}

static void test_registers(umakit_device *device)
{
    umakit_device_write32(device, SOME_OFFSET, 123u);
    CHECK_EQUAL(registers[SOME_OFFSET / 4u], 123u);
    registers[0] = ID;
    CHECK_EQUAL(umakit_device_read32(device, 0u), ID);
    umakit_device_barrier(device);
    umakit_device_write32(NULL, 0u, 0u);
    CHECK_EQUAL(umakit_device_read32(NULL, 0u), UINT32_MAX);
}

static void test_map(umakit_device *device)
{
    uint32_t address = 42u;
    uint32_t i;

    CHECK_EQUAL(umakit_device_map(NULL, at(0x1000u), 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_NO_DEVICE);
    CHECK_EQUAL(umakit_device_map(device, NULL, 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(device, at(0x1000u), 0u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(device, at(0x1000u), 64u, UMAKIT_TO_DEVICE, NULL),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(device, at(0x1000u), 64u, (enum umakit_direction)0,
                                  &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(device, at(0x1001u), 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_MISALIGNED);
    CHECK_EQUAL(umakit_device_map(device, at(0xFFFFFFC4u), 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_OUT_OF_RANGE);
#if UINTPTR_MAX > UINT32_MAX
    CHECK_EQUAL(umakit_device_map(device, at((uintptr_t)1u << 32), 64u, UMAKIT_TO_DEVICE,
                                  &address),
                UMAKIT_OUT_OF_RANGE);
#endif
    CHECK_EQUAL(address, 42u);
    CHECK_EQUAL(cleaned, 0u);

    CHECK_EQUAL(umakit_device_map(device, at(0xFFFFFFC0u), 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_OK);
    CHECK_EQUAL(address, 0xFFFFFFC0u);
    CHECK_EQUAL(cleaned, 1u);
    umakit_device_unmap(device, address);
    CHECK_EQUAL(invalidated, 0u); /* the device wrote nothing */
    CHECK_EQUAL(umakit_device_map(device, at(0x1000u), 64u, UMAKIT_FROM_DEVICE, &address),
                UMAKIT_OK);
    CHECK_EQUAL(cleaned, 2u);
    umakit_device_unmap(device, address);
    CHECK_EQUAL(invalidated, 1u);
    umakit_device_unmap(device, address); /* a second time: nothing to do */
    umakit_device_unmap(NULL, address);
    CHECK_EQUAL(invalidated, 1u);

    for (i = 0u; i < MAPPING_COUNT; ++i) {
        CHECK_EQUAL(umakit_device_map(device, at(0x1000u + 64u * (uintptr_t)i), 64u,
                                      UMAKIT_BIDIRECTIONAL, &address),
                    UMAKIT_OK);
    }
    CHECK_EQUAL(umakit_device_map(device, at(0x8000u), 64u, UMAKIT_BIDIRECTIONAL, &address),
                UMAKIT_TABLE_FULL);
}

static void test_wait(umakit_device *device)
{
    volatile uint32_t *events = &registers[EVENTS / 4u];

#ifdef UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY
    registers[UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET / 4u] = HIGH_1 | HIGH_2;
#endif
    CHECK_EQUAL(umakit_device_wait(NULL, 10u), UMAKIT_NO_DEVICE);
    *events = LOW_1;
    CHECK_EQUAL(umakit_device_wait(device, 10u), UMAKIT_TIMEOUT);
    *events = LOW_2;
    CHECK_EQUAL(umakit_device_wait(device, 0u), UMAKIT_TIMEOUT);
    *events = HIGH_1;
    CHECK_EQUAL(umakit_device_wait(device, 0u), UMAKIT_OK);
    *events = HIGH_2;
    CHECK_EQUAL(umakit_device_wait(device, 0u), UMAKIT_OK);
}

int main(void)
{
    umakit_device *device = umakit_memory_mapped_device();

    CHECK(device != NULL);
    test_registers(device);
    test_map(device);
    test_wait(device);
    return check_result();
}
