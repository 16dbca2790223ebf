/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: where the operands of a job lie. */
#ifndef UMAKIT_SYSTOLIC_OPERANDS_H
#define UMAKIT_SYSTOLIC_OPERANDS_H

#include <stdint.h>

#include "status.h"
#include "systolic_array.h"
#include "systolic_command.h"

/* Find them, from the registers' addresses. */
void umakit_systolic_find_operands(const struct umakit_systolic_array *array,
                                   struct umakit_systolic_job *job);

/* Whether they may lie there; if not, *address is what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_check_operands(const struct umakit_systolic_array *array,
                                                   const struct umakit_systolic_job *job,
                                                   uint32_t *address);

#endif /* UMAKIT_SYSTOLIC_OPERANDS_H */
