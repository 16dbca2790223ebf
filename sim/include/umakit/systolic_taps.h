/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: which positions of a kernel meet an input. */
#ifndef UMAKIT_SYSTOLIC_TAPS_H
#define UMAKIT_SYSTOLIC_TAPS_H

#include <stdint.h>

#include "systolic_command.h"

/* Positions [first, end) of a kernel meet an input; the first of them meets
 * `input`. */
struct umakit_systolic_taps {
    uint32_t first;
    uint32_t end;
    uint32_t input;
};

/* Along `axis`, 0 for rows and 1 for columns, for one output. */
static inline struct umakit_systolic_taps umakit_systolic_taps_of(
    const struct umakit_systolic_job *job, int axis, uint32_t output)
{
    const int64_t dilation = job->dilation[axis];
    const int64_t size = job->input[axis];
    const int64_t start = (int64_t)output * job->stride[axis] - (int64_t)job->pad[axis];
    struct umakit_systolic_taps taps = {0u, 0u, 0u};
    int64_t first = 0;
    int64_t end;

    if (start < 0) {
        first = (-start + dilation - 1) / dilation;
    }
    if (start >= size || first >= (int64_t)job->kernel[axis]) {
        return taps;
    }
    end = (size - start + dilation - 1) / dilation;
    if (end > (int64_t)job->kernel[axis]) {
        end = (int64_t)job->kernel[axis];
    }
    if (end <= first) {
        return taps;
    }
    taps.first = (uint32_t)first;
    taps.end = (uint32_t)end;
    taps.input = (uint32_t)(start + first * dilation);
    return taps;
}

#endif /* UMAKIT_SYSTOLIC_TAPS_H */
