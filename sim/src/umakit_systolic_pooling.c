/* SPDX-License-Identifier: Apache-2.0 */
/* The pooling stage of the systolic array. Padding is not included. */
#include "umakit/systolic_jobs.h"

#include <stddef.h>
#include <stdint.h>

#include "umakit/systolic_command.h"
#include "umakit/systolic_taps.h"

/* One channel of a window, from its first input on. */
struct window {
    const int8_t *inputs;
    size_t row_stride;
    size_t column_stride;
    uint32_t rows;
    uint32_t columns;
};

static int32_t largest(const struct window *window)
{
    int32_t result = INT8_MIN;
    uint32_t row;
    uint32_t column;

    for (row = 0u; row < window->rows; ++row) {
        for (column = 0u; column < window->columns; ++column) {
            const int32_t input = window->inputs[row * window->row_stride +
                                                 column * window->column_stride];

            result = input > result ? input : result;
        }
    }
    return result;
}

/* Ties away from zero, as TensorFlow Lite Micro (AveragePool of
 * kernels/internal/reference/integer_ops/pooling.h). */
static int32_t mean(const struct window *window)
{
    const int64_t count = (int64_t)window->rows * window->columns;
    int64_t sum = 0;
    uint32_t row;
    uint32_t column;

    for (row = 0u; row < window->rows; ++row) {
        for (column = 0u; column < window->columns; ++column) {
            sum += window->inputs[row * window->row_stride + column * window->column_stride];
        }
    }
    return (int32_t)((sum > 0 ? sum + count / 2 : sum - count / 2) / count);
}

static int8_t clip(const struct umakit_systolic_job *job, int32_t value)
{
    if (value < job->lowest) {
        return (int8_t)job->lowest;
    }
    return (int8_t)(value > job->highest ? job->highest : value);
}

static void pool_position(const struct umakit_systolic_job *job, struct window *window,
                          int8_t *result)
{
    const int8_t *inputs = window->inputs;
    uint32_t channel;

    for (channel = 0u; channel < job->output[2]; ++channel) {
        window->inputs = inputs + (size_t)channel * job->ifmap_stride[2];
        result[(size_t)channel * job->ofmap_stride[2]] =
            clip(job, job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL
                          ? largest(window)
                          : mean(window));
    }
}

void umakit_systolic_pool(const struct umakit_systolic_job *job,
                          const struct umakit_systolic_operands *operands)
{
    uint32_t y;
    uint32_t x;

    for (y = 0u; y < job->output[0]; ++y) {
        const struct umakit_systolic_taps rows = umakit_systolic_taps_of(job, 0, y);

        for (x = 0u; x < job->output[1]; ++x) {
            const struct umakit_systolic_taps columns = umakit_systolic_taps_of(job, 1, x);
            struct window window = {
                operands->ifmap + (size_t)rows.input * job->ifmap_stride[0] +
                    (size_t)columns.input * job->ifmap_stride[1],
                (size_t)job->dilation[0] * job->ifmap_stride[0],
                (size_t)job->dilation[1] * job->ifmap_stride[1],
                rows.end - rows.first,
                columns.end - columns.first,
            };

            pool_position(job, &window,
                          operands->ofmap + (size_t)y * job->ofmap_stride[0] +
                              (size_t)x * job->ofmap_stride[1]);
        }
    }
}
