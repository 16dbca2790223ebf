/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: what writing a register does. */
#ifndef UMAKIT_SYSTOLIC_WRITE_H
#define UMAKIT_SYSTOLIC_WRITE_H

#include <stdint.h>

#include "systolic_array.h"

void umakit_systolic_write(struct umakit_systolic_array *array, uint32_t offset,
                           uint32_t value);

#endif /* UMAKIT_SYSTOLIC_WRITE_H */
