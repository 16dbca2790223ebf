/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: what the job registers ask for. */
#ifndef UMAKIT_SYSTOLIC_JOB_H
#define UMAKIT_SYSTOLIC_JOB_H

#include <stdint.h>

#include "status.h"
#include "systolic_array.h"
#include "systolic_command.h"

/* Check the job registers and make a command of them. On failure *address is
 * what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_prepare_job(const struct umakit_systolic_array *array,
                                                struct umakit_systolic_command *command,
                                                uint32_t *address);

#endif /* UMAKIT_SYSTOLIC_JOB_H */
