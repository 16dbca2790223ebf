/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on request: what a driver gets to see of each, that it can tell them
 * apart in bounded time, and that the device works again. */
#include "systolic.h"

/* What a driver does after it started one engine, in bounded time. */
static int diagnose(uint32_t busy, uint32_t done)
{
    const int waited = umakit_device_wait(&array.device, TIMEOUT);
    const uint32_t status = READ(STATUS);
    const uint32_t bytes_left = READ(DMA_BYTES_LEFT);
    const uint32_t cycles_left = READ(ARRAY_CYCLES_LEFT);

    if ((status & BIT(ERROR)) != 0u) {
        return (int)READ(ERROR);
    }
    if (busy == BIT(DMA_BUSY) && bytes_left != 0u) {
        return UMAKIT_DMA_STOPPED;
    }
    if ((status & busy) != 0u) {
        return cycles_left == 0u ? UMAKIT_STUCK_BUSY : UMAKIT_TIMEOUT;
    }
    if ((status & done) == 0u) {
        return UMAKIT_DEVICE_ERROR;
    }
    return waited == UMAKIT_OK ? UMAKIT_OK : UMAKIT_LOST_INTERRUPT;
}

static int run_transfer(void)
{
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(DMA_START));
    return diagnose(BIT(DMA_BUSY), BIT(DMA_DONE));
}

static int run_job(void)
{
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(ARRAY_START));
    return diagnose(BIT(ARRAY_BUSY), BIT(ARRAY_DONE));
}

static void inject(struct umakit_fault fault)
{
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_OK);
}

static void test_bus_error(void)
{
    set_up();
    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_BUS_ERROR, .address = buffer_address + 100u, .bytes = 4u});
    CHECK_EQUAL(run_transfer(), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(READ(ERROR_ADDRESS), buffer_address + 100u);
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 128u);
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x55));
    CHECK_EQUAL(run_transfer(), UMAKIT_BUS_ERROR); /* as long as it is there */

    /* Rows before it are moved, and one beside it is none of its business. */
    WRITE(DMA_ROW_BYTES, 32u);
    WRITE(DMA_ROWS, 4u);
    WRITE(DMA_BUS_ROW_STRIDE, 32u);
    WRITE(DMA_SCRATCHPAD_ROW_STRIDE, 32u);
    CHECK_EQUAL(run_transfer(), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 32u);
    CHECK(bytes_are(scratchpad() + FREE_AT, 96u, 0x11));
    CHECK(bytes_are(scratchpad() + FREE_AT + 96, 32u, 0x55));
    WRITE(DMA_ROWS, 3u);
    CHECK_EQUAL(run_transfer(), UMAKIT_OK);

    umakit_simulator_remove_faults(&array.device);
    expect_recovery();
}

static void test_dma_stops(void)
{
    struct umakit_fault fault = {.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 50u};

    set_up();
    fault.ending = UMAKIT_FAULT_ENDS_BUSY;
    inject(fault);
    CHECK_EQUAL(run_transfer(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(STATUS), BIT(DMA_BUSY));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 78u);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), 0u);
    CHECK(bytes_are(scratchpad() + FREE_AT, 50u, 0x11));
    CHECK(bytes_are(scratchpad() + FREE_AT + 50, 78u, 0x55));
    WRITE(CONTROL, COMMAND(CLEAR)); /* frees the engine; the fault stays */
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    CHECK_EQUAL(run_transfer(), UMAKIT_DMA_STOPPED);
    WRITE(CONTROL, COMMAND(CLEAR));
    WRITE(DMA_ROW_BYTES, 48u); /* too short to be stopped */
    CHECK_EQUAL(run_transfer(), UMAKIT_OK);
    umakit_simulator_remove_faults(&array.device);
    expect_recovery();

    fault.ending = UMAKIT_FAULT_ENDS_IN_ERROR;
    inject(fault);
    CHECK_EQUAL(run_transfer(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    CHECK_EQUAL(READ(DMA_BYTES_LEFT), 78u);
    umakit_simulator_remove_faults(&array.device);
    expect_recovery();

    fault.ending = UMAKIT_FAULT_ENDS_DONE;
    inject(fault);
    CHECK_EQUAL(run_transfer(), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(DMA_DONE));
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(DMA_DONE));
    umakit_simulator_remove_faults(&array.device);
    expect_recovery();
}

static void test_lost_interrupt(void)
{
    set_up();
    /* The second and third. */
    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_LOST_INTERRUPT, .skip = 1u, .count = 2u});
    CHECK_EQUAL(run_transfer(), UMAKIT_OK);
    CHECK_EQUAL(run_transfer(), UMAKIT_LOST_INTERRUPT);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(DMA_DONE));
    CHECK_EQUAL(run_job(), UMAKIT_LOST_INTERRUPT);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ARRAY_DONE));
    CHECK_EQUAL(run_job(), UMAKIT_OK);
    umakit_simulator_remove_faults(&array.device);
    /* All but the first. */
    inject((struct umakit_fault){.kind = UMAKIT_FAULT_LOST_INTERRUPT, .skip = 1u});
    CHECK_EQUAL(run_job(), UMAKIT_OK);
    CHECK_EQUAL(run_job(), UMAKIT_LOST_INTERRUPT);
    CHECK_EQUAL(run_transfer(), UMAKIT_LOST_INTERRUPT);
    umakit_simulator_remove_faults(&array.device);
    expect_recovery();
}

static void test_stuck_busy(void)
{
    set_up();
    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_DMA, .count = 1u});
    CHECK_EQUAL(run_job(), UMAKIT_OK);
    CHECK_EQUAL(run_transfer(), UMAKIT_STUCK_BUSY);
    CHECK_EQUAL(READ(STATUS), BIT(DMA_BUSY));
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(STATUS), BIT(DMA_BUSY)); /* CLEAR does not help */
    CHECK_EQUAL(run_transfer(), UMAKIT_BUSY); /* START is refused */
    CHECK_EQUAL(run_job(), UMAKIT_OK);        /* of the other engine it is not */
    umakit_simulator_remove_faults(&array.device);
    expect_recovery();

    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_ARRAY, .count = 1u});
    CHECK_EQUAL(run_transfer(), UMAKIT_OK);
    CHECK_EQUAL(run_job(), UMAKIT_STUCK_BUSY);
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(STATUS), BIT(ARRAY_BUSY));
    umakit_simulator_remove_faults(&array.device);
    expect_recovery();
}

static void flip(uint32_t offset, uint32_t bit)
{
    inject((struct umakit_fault){
        .kind = UMAKIT_FAULT_SCRATCHPAD_BIT, .address = offset, .bit = bit});
}

static void test_flipped_bit(void)
{
    static const uint32_t operands[] = {IFMAP_AT,          IFMAP_AT + INPUTS - 1u,
                                        WEIGHTS_AT + 5u,   WEIGHTS_AT + WEIGHTS - 1u,
                                        BIAS_AT + 11u,     MULTIPLIERS_AT + 3u,
                                        SHIFTS_AT};
    size_t i;

    for (i = 0u; i < sizeof(operands) / sizeof(operands[0]); ++i) {
        const int8_t before = (set_up(), scratchpad()[operands[i]]);

        flip(operands[i], 3u);
        CHECK_EQUAL(scratchpad()[operands[i]] ^ before, 8);
        CHECK_EQUAL(run_job(), UMAKIT_PARITY_ERROR);
        CHECK_EQUAL(READ(ERROR_ADDRESS), operands[i]);
        CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
        /* Writing the byte heals it. */
        program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, operands[i] & ~3u, 4u);
        CHECK_EQUAL(run_transfer(), UMAKIT_OK);
        expect_recovery();
    }

    /* What nobody reads does no harm, and a result heals what it covers. */
    set_up();
    flip(MULTIPLIERS_AT + 4u, 0u);
    flip(FREE_AT + 9u, 7u);
    flip(OFMAP_AT + 3u, 1u);
    CHECK_EQUAL(run_job(), UMAKIT_OK);
    expect_result();
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT, OFMAP_AT, RESULTS);
    CHECK_EQUAL(run_transfer(), UMAKIT_OK);
    CHECK_EQUAL(memcmp(buffer, scratchpad() + OFMAP_AT, RESULTS), 0);
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT, FREE_AT, 12u);
    CHECK_EQUAL(run_transfer(), UMAKIT_PARITY_ERROR);
    CHECK_EQUAL(READ(ERROR_ADDRESS), FREE_AT + 9u);
    CHECK_EQUAL(memcmp(buffer, scratchpad() + OFMAP_AT, RESULTS), 0);

    /* Bytes between rows and channels are not read. */
    set_up();
    WRITE(INPUT_CHANNELS, 1u);
    flip(IFMAP_AT + 1u, 2u);
    CHECK_EQUAL(run_job(), UMAKIT_OK);
    flip(IFMAP_AT + 2u, 2u);
    CHECK_EQUAL(run_job(), UMAKIT_PARITY_ERROR);
    set_up();
    WRITE(IFMAP_ROW_STRIDE, 16u);
    WRITE(IFMAP_COLUMN_STRIDE, 4u);
    WRITE(IFMAP_CHANNEL_STRIDE, 2u);
    flip(IFMAP_AT + 1u, 2u);
    CHECK_EQUAL(run_job(), UMAKIT_OK);
    flip(IFMAP_AT + 2u, 2u);
    CHECK_EQUAL(run_job(), UMAKIT_PARITY_ERROR);
}

static void test_requests(void)
{
    static struct umakit_systolic_array absent;
    struct umakit_fault fault = {.kind = UMAKIT_FAULT_LOST_INTERRUPT, .skip = 100u};
    uint32_t i;

    set_up();
    CHECK_EQUAL(umakit_simulator_inject(NULL, &fault), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(umakit_simulator_inject(&absent.device, &fault), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(umakit_simulator_inject(&array.device, NULL), UMAKIT_INVALID_ARGUMENT);
    for (i = 0u; i < UMAKIT_FAULT_COUNT; ++i) {
        inject(fault);
    }
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_TABLE_FULL);
    umakit_simulator_remove_faults(NULL);
    umakit_simulator_remove_faults(&array.device);
    inject(fault);

    fault.kind = (enum umakit_fault_kind)0;
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_INVALID_ARGUMENT);
    fault = (struct umakit_fault){.kind = UMAKIT_FAULT_BUS_ERROR};
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_INVALID_ARGUMENT);
    fault.bytes = 2u;
    fault.address = UINT32_MAX;
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_INVALID_ARGUMENT);
    fault = (struct umakit_fault){.kind = UMAKIT_FAULT_SCRATCHPAD_BIT, .bit = 8u};
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_INVALID_ARGUMENT);
    fault.bit = 7u;
    fault.address = SCRATCHPAD_BYTES;
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_OUT_OF_RANGE);
    for (i = 0u; i < UMAKIT_SYSTOLIC_ARRAY_FLIPPED_COUNT; ++i) {
        flip(i, 0u);
    }
    fault.address = 0u;
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_TABLE_FULL);
}

int main(void)
{
    test_bus_error();
    test_dma_stops();
    test_lost_interrupt();
    test_stuck_busy();
    test_flipped_bit();
    test_requests();
    return check_result();
}
