/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: sums of products. */
#ifndef UMAKIT_SYSTOLIC_COMPUTE_H
#define UMAKIT_SYSTOLIC_COMPUTE_H

#include "systolic_command.h"

void umakit_systolic_convolve(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands);

#endif /* UMAKIT_SYSTOLIC_COMPUTE_H */
