/* SPDX-License-Identifier: Apache-2.0 */
/* Each way to misprogram the systolic array. */
#include "systolic.h"

/* One register of a good job or transfer is wrong. */
struct misuse {
    uint32_t offset;
    uint32_t value;
    enum umakit_status status;
};

#define ROW(name, value, status) {UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET, (value), (status)}

static const struct misuse job_misuses[] = {
    ROW(OPERATION, 4u, UMAKIT_INVALID_ARGUMENT),
    ROW(DATAFLOW, 3u, UMAKIT_INVALID_ARGUMENT),
    ROW(DATAFLOW, 1u, UMAKIT_UNSUPPORTED),
    ROW(DATAFLOW, 2u, UMAKIT_UNSUPPORTED),
    ROW(OPERATION, UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE, UMAKIT_INVALID_ARGUMENT),
    ROW(OPERATION, UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL, UMAKIT_INVALID_ARGUMENT),
    ROW(INPUT_HEIGHT, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(INPUT_WIDTH, UINT32_MAX, UMAKIT_INVALID_ARGUMENT),
    ROW(INPUT_CHANNELS, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(OUTPUT_HEIGHT, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(OUTPUT_WIDTH, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(OUTPUT_CHANNELS, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(OUTPUT_CHANNELS, UINT32_MAX, UMAKIT_INVALID_ARGUMENT),
    ROW(KERNEL_HEIGHT, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(KERNEL_WIDTH, 0x10000u, UMAKIT_INVALID_ARGUMENT),
    ROW(STRIDE_HEIGHT, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(STRIDE_WIDTH, UINT32_MAX, UMAKIT_INVALID_ARGUMENT),
    ROW(DILATION_HEIGHT, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(PAD_TOP, UINT32_MAX, UMAKIT_INVALID_ARGUMENT),
    ROW(INPUT_ZERO_POINT, 128u, UMAKIT_INVALID_ARGUMENT),
    ROW(OUTPUT_ZERO_POINT, (uint32_t)-129, UMAKIT_INVALID_ARGUMENT),
    ROW(CLIP_LOWEST, 101u, UMAKIT_INVALID_ARGUMENT),
    ROW(CLIP_HIGHEST, 128u, UMAKIT_INVALID_ARGUMENT),
    ROW(ROUNDING, 2u, UMAKIT_INVALID_ARGUMENT),
    ROW(SCALE_COUNT, 2u, UMAKIT_INVALID_ARGUMENT),
    ROW(SCALE_COUNT, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(BIAS_START, BIAS_AT + 2u, UMAKIT_MISALIGNED),
    ROW(MULTIPLIERS_START, MULTIPLIERS_AT + 1u, UMAKIT_MISALIGNED),
    ROW(IFMAP_START, SCRATCHPAD_BYTES - INPUTS + 1u, UMAKIT_OUT_OF_RANGE),
    ROW(IFMAP_START, UINT32_MAX, UMAKIT_OUT_OF_RANGE),
    ROW(IFMAP_ROW_STRIDE, 400u, UMAKIT_OUT_OF_RANGE),
    ROW(IFMAP_ROW_STRIDE, UINT32_MAX, UMAKIT_OUT_OF_RANGE),
    ROW(WEIGHTS_START, SCRATCHPAD_BYTES - WEIGHTS + 1u, UMAKIT_OUT_OF_RANGE),
    ROW(BIAS_START, SCRATCHPAD_BYTES - 8u, UMAKIT_OUT_OF_RANGE),
    ROW(MULTIPLIERS_START, SCRATCHPAD_BYTES, UMAKIT_OUT_OF_RANGE),
    ROW(SHIFTS_START, SCRATCHPAD_BYTES, UMAKIT_OUT_OF_RANGE),
    ROW(OFMAP_START, SCRATCHPAD_BYTES - RESULTS + 1u, UMAKIT_OUT_OF_RANGE),
    ROW(OFMAP_CHANNEL_STRIDE, 300u, UMAKIT_OUT_OF_RANGE),
    ROW(KERNEL_HEIGHT, 0xFFFFu, UMAKIT_OUT_OF_RANGE),  /* the weights are */
    ROW(INPUT_CHANNELS, 0xFFFFFFu, UMAKIT_OUT_OF_RANGE),
    ROW(OFMAP_START, IFMAP_AT + INPUTS - 1u, UMAKIT_INVALID_ARGUMENT), /* overlaps */
    ROW(OFMAP_START, BIAS_AT - RESULTS + 1u, UMAKIT_INVALID_ARGUMENT),
    ROW(OFMAP_START, SHIFTS_AT, UMAKIT_INVALID_ARGUMENT),
    ROW(SHIFTS_START, FREE_AT, UMAKIT_INVALID_ARGUMENT), /* 0x55 is no shift */
};

static const struct misuse transfer_misuses[] = {
    ROW(DMA_ROW_BYTES, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(DMA_ROWS, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(DMA_PLANES, 0u, UMAKIT_INVALID_ARGUMENT),
    ROW(DMA_DIRECTION, 2u, UMAKIT_INVALID_ARGUMENT),
    ROW(DMA_PLANES, UINT32_MAX, UMAKIT_OUT_OF_RANGE),
    ROW(DMA_BUS_ADDRESS, 0u, UMAKIT_OUT_OF_RANGE),
    ROW(DMA_BUS_ADDRESS, UINT32_MAX - 3u, UMAKIT_OUT_OF_RANGE),
    ROW(DMA_BUS_ADDRESS, UMAKIT_SIMULATOR_WINDOW_BYTES + 132u, UMAKIT_OUT_OF_RANGE),
    ROW(DMA_BUS_ADDRESS, UMAKIT_SIMULATOR_WINDOW_BYTES + 2u, UMAKIT_MISALIGNED),
    ROW(DMA_SCRATCHPAD_START, FREE_AT + 1u, UMAKIT_MISALIGNED),
    ROW(DMA_SCRATCHPAD_START, SCRATCHPAD_BYTES - 124u, UMAKIT_OUT_OF_RANGE),
    ROW(DMA_SCRATCHPAD_START, SCRATCHPAD_BYTES, UMAKIT_OUT_OF_RANGE),
    ROW(DMA_ROW_BYTES, 257u, UMAKIT_OUT_OF_RANGE),
};

/* The device refuses, says why, and works again after CLEAR. */
static void expect_refusal(const struct misuse *misuse, uint32_t command)
{
    int before = (int)check_failures;

    set_up();
    umakit_device_write32(&array.device, misuse->offset, misuse->value);
    WRITE(CONTROL, command);
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    CHECK_EQUAL(READ(ERROR), misuse->status);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), EVENT(ERROR));
    CHECK(bytes_are(scratchpad() + OFMAP_AT, RESULTS, 0x55));
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x55));
    /* Refused while the error is pending, without hiding it. */
    WRITE(CONTROL, COMMAND(ARRAY_START) | COMMAND(DMA_START));
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ERROR));
    CHECK_EQUAL(READ(ERROR), misuse->status);
    expect_recovery();
    if (before != (int)check_failures) {
        printf("with register 0x%x = 0x%x\n", (unsigned)misuse->offset, (unsigned)misuse->value);
    }
}

static void test_misuse(void)
{
    static const struct misuse strides[] = {
        ROW(DMA_BUS_ROW_STRIDE, 2u, UMAKIT_MISALIGNED),
        ROW(DMA_SCRATCHPAD_ROW_STRIDE, 6u, UMAKIT_MISALIGNED),
        ROW(DMA_SCRATCHPAD_ROW_STRIDE, 132u, UMAKIT_OUT_OF_RANGE),
        ROW(DMA_BUS_ROW_STRIDE, 132u, UMAKIT_OUT_OF_RANGE),
        ROW(DMA_BUS_ROW_STRIDE, 0xFFFFFFFCu, UMAKIT_OUT_OF_RANGE),
    };
    size_t i;

    for (i = 0u; i < sizeof(job_misuses) / sizeof(job_misuses[0]); ++i) {
        expect_refusal(&job_misuses[i], COMMAND(ARRAY_START));
    }
    for (i = 0u; i < sizeof(transfer_misuses) / sizeof(transfer_misuses[0]); ++i) {
        expect_refusal(&transfer_misuses[i], COMMAND(DMA_START));
    }
    for (i = 0u; i < sizeof(strides) / sizeof(strides[0]); ++i) {
        set_up();
        WRITE(DMA_ROWS, 2u);
        WRITE(DMA_BUS_ROW_STRIDE, 128u);
        WRITE(DMA_SCRATCHPAD_ROW_STRIDE, 128u);
        umakit_device_write32(&array.device, strides[i].offset, strides[i].value);
        WRITE(CONTROL, COMMAND(DMA_START));
        CHECK_EQUAL(READ(ERROR), strides[i].status);
        /* A stride that is not used may be anything. */
        WRITE(DMA_ROWS, 1u);
        WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(DMA_START));
        CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
        CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(DMA_DONE));
    }
}

/* Strides of 0 make any size fit; such a job would take for ever. */
static void test_endless_jobs(void)
{
    set_up();
    WRITE(IFMAP_ROW_STRIDE, 0u);
    WRITE(IFMAP_COLUMN_STRIDE, 0u);
    WRITE(INPUT_HEIGHT, 0xFFFFu);
    WRITE(INPUT_WIDTH, 0xFFFFu);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_OUT_OF_RANGE);
    set_up();
    WRITE(OFMAP_ROW_STRIDE, 0u);
    WRITE(OFMAP_COLUMN_STRIDE, 0u);
    WRITE(OUTPUT_HEIGHT, 0xFFFFu);
    WRITE(OUTPUT_WIDTH, 0xFFFFu);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_OUT_OF_RANGE);
}

/* A driver that does not know the addition and the accumulator begins with CLEAR. */
static void test_clear_resets_modes(void)
{
    set_up();
    WRITE(ADD, 1u);
    WRITE(ACCUMULATE, UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_MASK);
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ADD), 0u);
    CHECK_EQUAL(READ(ACCUMULATE), 0u);
    CHECK_EQUAL(READ(OUTPUT_CHANNELS) != 0u, true); /* other registers stay */
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    expect_result();
}

static void test_features_that_are_missing(void)
{
    struct umakit_systolic_array_config config = good_config();

    config.depthwise = false;
    config.pooling_lanes = 0u;
    config.weight_stationary = true;
    set_up_with(config);
    WRITE(INPUT_CHANNELS, 3u);
    WRITE(OPERATION, UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_UNSUPPORTED);
    WRITE(CONTROL, COMMAND(CLEAR));
    WRITE(OPERATION, UMAKIT_SYSTOLIC_ARRAY_OPERATION_AVERAGE_POOL);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(READ(ERROR), UMAKIT_UNSUPPORTED);
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(FEATURES), 3u);
    WRITE(OPERATION, UMAKIT_SYSTOLIC_ARRAY_OPERATION_CONVOLUTION);
    WRITE(INPUT_CHANNELS, 2u);
    WRITE(DATAFLOW, UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    expect_result();
}

/* Random programs: nothing crashes, hangs or leaves an error that is none. */
static void test_random_programs(void)
{
    uint32_t state = 5u;
    uint32_t done = 0u;
    int i;

    for (i = 0; i < 3000; ++i) {
        int waited;
        int j;

        set_up();
        for (j = 0; j < 4; ++j) {
            const uint32_t offset =
                random_number(&state) % UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES & ~3u;
            const uint32_t shift = random_number(&state) % 32u;

            umakit_device_write32(&array.device, offset, random_number(&state) >> shift);
        }
        WRITE(CONTROL, COMMAND(CLEAR) | (random_number(&state) % 4u));
        waited = umakit_device_wait(&array.device, TIMEOUT);
        CHECK(waited == UMAKIT_OK || waited == UMAKIT_TIMEOUT);
        CHECK(READ(ERROR) <= UMAKIT_LAST_STATUS);
        done += (READ(STATUS) & (BIT(ARRAY_DONE) | BIT(DMA_DONE))) != 0u ? 1u : 0u;
        WRITE(CONTROL, COMMAND(CLEAR));
        CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    }
    CHECK(done > 500u); /* many were sound */
}

int main(void)
{
    test_misuse();
    test_endless_jobs();
    test_clear_resets_modes();
    test_features_that_are_missing();
    test_random_programs();
    return check_result();
}
