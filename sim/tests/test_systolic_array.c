/* SPDX-License-Identifier: Apache-2.0 */
/* The systolic array's engines. tests/test_systolic_array.py compares results with
 * NumPy, test_systolic_misuse.c is about wrong registers. */
#include "systolic.h"
#include "umakit/mac_array.h"

static void test_init(void)
{
    struct umakit_systolic_array_config config = good_config();

    CHECK_EQUAL(umakit_systolic_array_init(NULL, &config), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_systolic_array_init(&array, NULL), UMAKIT_INVALID_ARGUMENT);
#define REFUSED(field, value)                                                              \
    do {                                                                                   \
        config = good_config();                                                            \
        config.field = (value);                                                            \
        CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_INVALID_ARGUMENT); \
    } while (0)
    REFUSED(array_rows, 0u);
    REFUSED(array_columns, 0u);
    REFUSED(output_stationary, false);
    REFUSED(scratchpad, NULL);
    REFUSED(scratchpad, scratchpad() + 2);
    REFUSED(scratchpad_bytes, 0u);
    REFUSED(scratchpad_bytes, SCRATCHPAD_BYTES - 4u); /* no whole words for each bank */
    REFUSED(scratchpad_banks, 0u);
    REFUSED(scratchpad_banks, 64u);
    REFUSED(dma_bytes_per_cycle, 0u);
    REFUSED(dma_alignment, 0u);
    REFUSED(dma_alignment, 12u);
    set_up();
    CHECK_EQUAL(umakit_systolic_array_init(&array, &array.config), UMAKIT_OK);
    CHECK_EQUAL(READ(ID), 0x554D4132u);
    CHECK_EQUAL(READ(INTERRUPT_ENABLE), 0u);
}

static void test_job(void)
{
    set_up();
    WRITE(CONTROL, COMMAND(RESET_COUNTERS) | COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY));
    CHECK_EQUAL(READ(ARRAY_CYCLES_LEFT), JOB_CYCLES - 2u);
    CHECK_EQUAL(umakit_device_wait(&array.device, JOB_CYCLES - 3u), UMAKIT_TIMEOUT);
    CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
    CHECK_EQUAL(umakit_device_wait(&array.device, 1u), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_wait(&array.device, 0u), UMAKIT_OK); /* stays until cleared */
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(ARRAY_DONE));
    expect_result();
    CHECK(bytes_are(scratchpad() + OFMAP_AT + RESULTS, FREE_AT - OFMAP_AT - RESULTS, 0x55));
    CHECK_EQUAL(READ(COMPUTE_CYCLES_LOW), JOB_CYCLES);
    CHECK_EQUAL(READ(USEFUL_MACS_LOW), 16u * 3u * 18u);
    CHECK_EQUAL(READ(MACS_LOW), 16u * 4u * 18u);

    WRITE(INTERRUPT_PENDING, EVENT(DMA_DONE));
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(ARRAY_DONE));
    WRITE(INTERRUPT_PENDING, EVENT(ARRAY_DONE));
    CHECK_EQUAL(READ(INTERRUPT_PENDING), 0u);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ARRAY_DONE));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_TIMEOUT);

    /* What is not enabled does not end a wait, and is seen as pending. */
    WRITE(INTERRUPT_ENABLE, EVENT(ERROR));
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_TIMEOUT);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(ARRAY_DONE));
}

/* A wide and small transfer while the array works on other banks. */
static void test_engines_side_by_side(void)
{
    struct umakit_simulator_counters counters;

    set_up();
    WRITE(CONTROL, COMMAND(ARRAY_START) | COMMAND(DMA_START));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_BUSY));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_DONE));
    WRITE(INTERRUPT_PENDING, EVENT(DMA_DONE));
    /* The next transfer may be programmed meanwhile; the job may not. */
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT, FREE_AT, 64u);
    CHECK_EQUAL(READ(ERROR), UMAKIT_OK);
    WRITE(CONTROL, COMMAND(DMA_START));
    WRITE(KERNEL_WIDTH, 7u);
    CHECK_EQUAL(READ(ERROR), UMAKIT_BUSY);
    CHECK_EQUAL(READ(ERROR_ADDRESS), UMAKIT_SYSTOLIC_ARRAY_KERNEL_WIDTH_OFFSET);
    WRITE(DMA_ROWS, 7u);
    CHECK_EQUAL(READ(ERROR_ADDRESS), UMAKIT_SYSTOLIC_ARRAY_KERNEL_WIDTH_OFFSET);
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK); /* the error */
    WRITE(INTERRUPT_PENDING, EVENT(ERROR));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    WRITE(INTERRUPT_PENDING, EVENT(DMA_DONE));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    expect_result(); /* an error of the driver's leaves what runs alone */
    CHECK_EQUAL(READ(KERNEL_WIDTH), 3u);
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.compute_cycles, JOB_CYCLES);
    CHECK_EQUAL(counters.stall_cycles, 0u);
    CHECK_EQUAL(counters.dma_cycles, 4u * 6u + 32u + 2u * 6u + 16u);
    CHECK_EQUAL(counters.clock, counters.compute_cycles + counters.idle_cycles);
}

/* A job that needs a bank that is being filled waits for it, and sees all of it. */
static void test_a_bank_in_use_is_waited_for(void)
{
    struct umakit_simulator_counters counters;
    uint32_t i;

    set_up();
    memset(scratchpad() + IFMAP_AT, 0x77, INPUTS);
    for (i = 0u; i < INPUTS; ++i) {
        ((int8_t *)buffer)[i] = (int8_t)i;
    }
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, IFMAP_AT, INPUTS);
    WRITE(CONTROL, COMMAND(RESET_COUNTERS) | COMMAND(DMA_START) | COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_BUSY));
    CHECK_EQUAL(READ(ARRAY_CYCLES_LEFT), JOB_CYCLES);
    WRITE(INTERRUPT_ENABLE, EVENT(ARRAY_DONE));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    expect_result();
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.stall_cycles, 6u + 8u);
    CHECK_EQUAL(counters.compute_cycles, JOB_CYCLES);

    /* The other way round: what is read is not overwritten before its time. */
    memset(buffer, 0x33, sizeof(buffer));
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(ARRAY_START));
    WRITE(CONTROL, COMMAND(DMA_START));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_BUSY));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(STATUS), BIT(DMA_BUSY) | BIT(ARRAY_DONE));
    expect_result();
}

static void test_clear_stops(void)
{
    struct umakit_simulator_counters counters;

    set_up();
    WRITE(CONTROL, COMMAND(ARRAY_START) | COMMAND(DMA_START));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY) | BIT(DMA_BUSY));
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_BUSY);
    CHECK(READ(DMA_BYTES_LEFT) != 0u);
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 0u);
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_TIMEOUT);
    CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x55));
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.jobs, 0u);
    CHECK_EQUAL(counters.failed_jobs, 2u); /* refused, and stopped */
    CHECK_EQUAL(counters.useful_macs, 0u);
    expect_recovery();
}

static void test_unmapping_a_buffer_in_use(void)
{
    uint32_t other;

    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, buffer, 4u, UMAKIT_TO_DEVICE, &other), 0);
    WRITE(CONTROL, COMMAND(DMA_START));
    umakit_device_unmap(&array.device, other);
    CHECK_EQUAL(READ(STATUS), BIT(DMA_BUSY));
    umakit_device_unmap(&array.device, buffer_address);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    CHECK_EQUAL(READ(ERROR), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(READ(ERROR_ADDRESS), buffer_address);
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x55));
}

/* A transfer of more than a window, and of a buffer mapped the other way. */
static void test_directions(void)
{
    uint32_t address;

    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, buffer, 64u, UMAKIT_FROM_DEVICE, &address), 0);
    WRITE(DMA_BUS_ADDRESS, address);
    WRITE(DMA_ROW_BYTES, 64u);
    WRITE(CONTROL, COMMAND(DMA_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_WRONG_DIRECTION);
    WRITE(DMA_DIRECTION, UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT);
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(DMA_START));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK(bytes_are((int8_t *)buffer, 64u, 0x55));
    CHECK(bytes_are((int8_t *)buffer + 64, 64u, 0x11));
}

static void test_devices_of_two_kinds(void)
{
    static const struct umakit_mac_array_config config = {4u, 4u, 0u};
    static struct umakit_mac_array other;

    set_up();
    CHECK_EQUAL(umakit_mac_array_init(&other, &config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_read32(&other.device, 0u), 0x554D4131u);
    CHECK_EQUAL(umakit_device_read32(&array.device, 0u), 0x554D4132u);
    umakit_device_write32(&other.device, 0u, 0u); /* an error of one is not the other's */
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    expect_recovery();
}

int main(void)
{
    test_init();
    test_job();
    test_engines_side_by_side();
    test_a_bank_in_use_is_waited_for();
    test_clear_stops();
    test_unmapping_a_buffer_in_use();
    test_directions();
    test_devices_of_two_kinds();
    return check_result();
}
