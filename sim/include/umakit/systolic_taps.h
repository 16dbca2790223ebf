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
struct umakit_systolic_taps umakit_systolic_taps_of(const struct umakit_systolic_job *job,
                                                    int axis, uint32_t output);

#endif /* UMAKIT_SYSTOLIC_TAPS_H */
