/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: transfers between the bus and the scratchpad. */
#ifndef UMAKIT_SYSTOLIC_DMA_H
#define UMAKIT_SYSTOLIC_DMA_H

#include <stdint.h>

#include "status.h"
#include "systolic_array.h"
#include "systolic_command.h"

/* Check the DMA registers and make a command of them. On failure *address is
 * what the status is about. */
UMAKIT_MUST_USE int umakit_systolic_prepare_dma(struct umakit_systolic_array *array,
                                                struct umakit_systolic_command *command,
                                                uint32_t *address);

/* Move the transfer's bytes up to where it stops. */
UMAKIT_MUST_USE int umakit_systolic_move(struct umakit_systolic_array *array,
                                         struct umakit_systolic_transfer *transfer,
                                         uint32_t *address);

#endif /* UMAKIT_SYSTOLIC_DMA_H */
