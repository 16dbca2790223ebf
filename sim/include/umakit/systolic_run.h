/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: running a job on the bytes of its operands. */
#ifndef UMAKIT_SYSTOLIC_RUN_H
#define UMAKIT_SYSTOLIC_RUN_H

#include <stdint.h>

#include "status.h"
#include "systolic_array.h"
#include "systolic_command.h"

/* Check the operands' bytes, compute, and write the result. */
UMAKIT_MUST_USE int umakit_systolic_run_job(struct umakit_systolic_array *array,
                                            const struct umakit_systolic_job *job,
                                            uint32_t *address);

#endif /* UMAKIT_SYSTOLIC_RUN_H */
