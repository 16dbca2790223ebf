/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: busy and tail of commands, as systolic_array.h says. */
#ifndef UMAKIT_SYSTOLIC_COSTS_H
#define UMAKIT_SYSTOLIC_COSTS_H

#include "systolic_array.h"
#include "systolic_command.h"

/* Of a transfer whose regions are set. */
void umakit_systolic_set_transfer_cycles(const struct umakit_systolic_array_config *config,
                                         struct umakit_systolic_command *command);

/* Of a job that is valid; its folds and multiply-accumulates too. */
void umakit_systolic_set_job_cycles(const struct umakit_systolic_array_config *config,
                                    struct umakit_systolic_command *command);

#endif /* UMAKIT_SYSTOLIC_COSTS_H */
