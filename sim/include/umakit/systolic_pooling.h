/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the pooling stage. */
#ifndef UMAKIT_SYSTOLIC_POOLING_H
#define UMAKIT_SYSTOLIC_POOLING_H

#include "systolic_command.h"

void umakit_systolic_pool(const struct umakit_systolic_job *job,
                          const struct umakit_systolic_operands *operands);

#endif /* UMAKIT_SYSTOLIC_POOLING_H */
