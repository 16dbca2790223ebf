/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: what precedes and follows the sums of products. */
#ifndef UMAKIT_SYSTOLIC_OUTPUT_H
#define UMAKIT_SYSTOLIC_OUTPUT_H

#include <stdint.h>

#include "systolic_command.h"

/* Of channels `channel` to `channel + count - 1` at one position: what their
 * accumulators start from, ... */
void umakit_systolic_load_accumulators(const struct umakit_systolic_job *job,
                                       const struct umakit_systolic_operands *operands,
                                       uint32_t position, uint32_t channel, uint32_t count,
                                       uint32_t *accumulators);

/* ... and where they go: to the accumulator memory, or requantized to the ofmap. */
void umakit_systolic_store_accumulators(const struct umakit_systolic_job *job,
                                        const struct umakit_systolic_operands *operands,
                                        uint32_t position, uint32_t channel, uint32_t count,
                                        const uint32_t *accumulators);

#endif /* UMAKIT_SYSTOLIC_OUTPUT_H */
