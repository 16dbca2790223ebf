/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: what registers show. */
#ifndef UMAKIT_SYSTOLIC_READ_H
#define UMAKIT_SYSTOLIC_READ_H

#include <stdint.h>

#include "systolic_array.h"

uint32_t umakit_systolic_read(struct umakit_systolic_array *array, uint32_t offset);

#endif /* UMAKIT_SYSTOLIC_READ_H */
