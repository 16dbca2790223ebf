/* SPDX-License-Identifier: Apache-2.0 */
/* A systolic array for tests, with a convolution whose result is known. */
#ifndef SYSTOLIC_H
#define SYSTOLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "umakit/device.h"
#include "umakit/systolic_array.h"

#define WRITE(name, value) \
    umakit_device_write32(&array.device, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET, (value))
#define READ(name) umakit_device_read32(&array.device, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET)
#define COMMAND(name) UMAKIT_SYSTOLIC_ARRAY_CONTROL_##name##_MASK
#define BIT(name) UMAKIT_SYSTOLIC_ARRAY_STATUS_##name##_MASK
#define EVENT(name) UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_##name##_MASK

#define SCRATCHPAD_BYTES 1024u
#define BANK_BYTES 256u
#define TIMEOUT 100000u

/* Where the operands of the convolution lie: three banks, the last is free. */
#define IFMAP_AT 0u
#define WEIGHTS_AT 64u
#define BIAS_AT 256u
#define MULTIPLIERS_AT 272u
#define SHIFTS_AT 288u
#define OFMAP_AT 512u
#define FREE_AT 768u

/* 4 x 4 x 2 inputs, three 3 x 3 kernels, padding 1: results of 4 x 4 x 3. */
#define INPUTS 32u
#define WEIGHTS (9u * 2u * 4u)
#define RESULTS 48u
/* Folds of 2 + 4 + 18 - 2 cycles, 8 of them. */
#define JOB_CYCLES 176u

static uint32_t scratchpad_words[SCRATCHPAD_BYTES / 4u];
static struct umakit_systolic_array array;
static uint32_t buffer[64];
static uint32_t buffer_address;

static inline int8_t *scratchpad(void)
{
    return (int8_t *)scratchpad_words;
}

static inline struct umakit_systolic_array_config good_config(void)
{
    const struct umakit_systolic_array_config config = {
        .array_rows = 2u,
        .array_columns = 4u,
        .output_stationary = true,
        .depthwise = true,
        .pooling_lanes = 2u,
        .scratchpad = scratchpad_words,
        .scratchpad_bytes = SCRATCHPAD_BYTES,
        .scratchpad_banks = SCRATCHPAD_BYTES / BANK_BYTES,
        .dma_bytes_per_cycle = 4u,
        .dma_latency_cycles = 6u,
        .dma_burst_bytes = 32u,
        .dma_alignment = 4u,
    };

    return config;
}

/* Input i is i, weights are 1 for channel 0, 2 for 1 and 3 for 2, the factor is
 * 1/16. */
static inline void fill_operands(void)
{
    const int32_t bias[3] = {0, 16, -32};
    const int32_t multiplier = INT32_C(1) << 30;
    int8_t *bytes = scratchpad();
    uint32_t i;

    memset(scratchpad_words, 0x55, sizeof(scratchpad_words));
    for (i = 0u; i < INPUTS; ++i) {
        bytes[IFMAP_AT + i] = (int8_t)i;
    }
    for (i = 0u; i < WEIGHTS; ++i) {
        bytes[WEIGHTS_AT + i] = (int8_t)(i % 4u + 1u);
    }
    memcpy(bytes + BIAS_AT, bias, sizeof(bias));
    memcpy(bytes + MULTIPLIERS_AT, &multiplier, sizeof(multiplier));
    bytes[SHIFTS_AT] = -3;
}

static inline void program_job(void)
{
    WRITE(OPERATION, UMAKIT_SYSTOLIC_ARRAY_OPERATION_CONVOLUTION);
    WRITE(DATAFLOW, UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY);
    WRITE(IFMAP_START, IFMAP_AT);
    WRITE(WEIGHTS_START, WEIGHTS_AT);
    WRITE(BIAS_START, BIAS_AT);
    WRITE(MULTIPLIERS_START, MULTIPLIERS_AT);
    WRITE(SHIFTS_START, SHIFTS_AT);
    WRITE(OFMAP_START, OFMAP_AT);
    WRITE(INPUT_HEIGHT, 4u);
    WRITE(INPUT_WIDTH, 4u);
    WRITE(INPUT_CHANNELS, 2u);
    WRITE(OUTPUT_HEIGHT, 4u);
    WRITE(OUTPUT_WIDTH, 4u);
    WRITE(OUTPUT_CHANNELS, 3u);
    WRITE(KERNEL_HEIGHT, 3u);
    WRITE(KERNEL_WIDTH, 3u);
    WRITE(STRIDE_HEIGHT, 1u);
    WRITE(STRIDE_WIDTH, 1u);
    WRITE(DILATION_HEIGHT, 1u);
    WRITE(DILATION_WIDTH, 1u);
    WRITE(PAD_TOP, 1u);
    WRITE(PAD_LEFT, 1u);
    WRITE(IFMAP_ROW_STRIDE, 8u);
    WRITE(IFMAP_COLUMN_STRIDE, 2u);
    WRITE(IFMAP_CHANNEL_STRIDE, 1u);
    WRITE(OFMAP_ROW_STRIDE, 12u);
    WRITE(OFMAP_COLUMN_STRIDE, 3u);
    WRITE(OFMAP_CHANNEL_STRIDE, 1u);
    WRITE(INPUT_ZERO_POINT, 0u);
    WRITE(OUTPUT_ZERO_POINT, (uint32_t)-5);
    WRITE(CLIP_LOWEST, (uint32_t)-128);
    WRITE(CLIP_HIGHEST, 100u);
    WRITE(ROUNDING, UMAKIT_SYSTOLIC_ARRAY_ROUNDING_TFLM);
    WRITE(SCALE_COUNT, 1u);
}

static inline void program_transfer(uint32_t direction, uint32_t start, uint32_t bytes)
{
    WRITE(DMA_BUS_ADDRESS, buffer_address);
    WRITE(DMA_SCRATCHPAD_START, start);
    WRITE(DMA_DIRECTION, direction);
    WRITE(DMA_ROW_BYTES, bytes);
    WRITE(DMA_ROWS, 1u);
    WRITE(DMA_PLANES, 1u);
}

static inline void set_up_with(struct umakit_systolic_array_config config)
{
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    fill_operands();
    memset(buffer, 0x11, sizeof(buffer));
    CHECK_EQUAL(umakit_device_map(&array.device, buffer, sizeof(buffer), UMAKIT_BIDIRECTIONAL,
                                  &buffer_address),
                UMAKIT_OK);
    WRITE(INTERRUPT_ENABLE, EVENT(DMA_DONE) | EVENT(ARRAY_DONE) | EVENT(ERROR));
    program_job();
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, FREE_AT, 128u);
}

static inline void set_up(void)
{
    set_up_with(good_config());
}

/* The definition, written out. */
static inline int32_t expected_result(int32_t y, int32_t x, int32_t channel)
{
    static const int32_t bias[3] = {0, 16, -32};
    int32_t sum = bias[channel];
    int32_t ky;
    int32_t kx;

    for (ky = y - 1; ky <= y + 1; ++ky) {
        for (kx = x - 1; kx <= x + 1; ++kx) {
            if (ky >= 0 && ky < 4 && kx >= 0 && kx < 4) {
                sum += (channel + 1) * ((ky * 4 + kx) * 2 + (ky * 4 + kx) * 2 + 1);
            }
        }
    }
    /* A sixteenth, first of an eighth and half to nearest, ties up. */
    sum = (sum + 1) >> 1;
    sum = sum < 0 ? -((-sum + 4) >> 3) : (sum + 4) >> 3;
    sum -= 5;
    return sum < -128 ? -128 : sum > 100 ? 100 : sum;
}

static inline void expect_result(void)
{
    uint32_t wrong = 0u;
    int32_t i;

    for (i = 0; i < (int32_t)RESULTS; ++i) {
        wrong += scratchpad()[OFMAP_AT + (uint32_t)i] !=
                         expected_result(i / 12, i / 3 % 4, i % 3)
                     ? 1u
                     : 0u;
    }
    CHECK_EQUAL(wrong, 0u);
}

static inline bool bytes_are(const int8_t *bytes, size_t count, int8_t value)
{
    size_t i;

    for (i = 0u; i < count; ++i) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

/* After CLEAR, and with registers that are right, everything works. */
static inline void expect_recovery(void)
{
    WRITE(CONTROL, COMMAND(CLEAR));
    CHECK_EQUAL(READ(STATUS), BIT(IDLE));
    CHECK_EQUAL(READ(ERROR), UMAKIT_OK);
    CHECK_EQUAL(READ(ERROR_ADDRESS), 0u);
    CHECK_EQUAL(READ(INTERRUPT_PENDING), 0u);
    fill_operands();
    program_job();
    program_transfer(UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, FREE_AT, 128u);
    WRITE(CONTROL, COMMAND(ARRAY_START));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(ARRAY_DONE));
    expect_result();
    WRITE(CONTROL, COMMAND(CLEAR) | COMMAND(DMA_START));
    CHECK_EQUAL(umakit_device_wait(&array.device, TIMEOUT), UMAKIT_OK);
    CHECK_EQUAL(READ(STATUS), BIT(IDLE) | BIT(DMA_DONE));
    CHECK(bytes_are(scratchpad() + FREE_AT, 128u, 0x11));
}

#endif /* SYSTOLIC_H */
