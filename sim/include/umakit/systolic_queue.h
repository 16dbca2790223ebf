/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: how commands are given. */
#ifndef UMAKIT_SYSTOLIC_QUEUE_H
#define UMAKIT_SYSTOLIC_QUEUE_H

#include "faults.h"
#include "systolic_array.h"

/* What START and ENQUEUE do. */
void umakit_systolic_start(struct umakit_systolic_array *array, enum umakit_engine name);
void umakit_systolic_enqueue(struct umakit_systolic_array *array, enum umakit_engine name);

#endif /* UMAKIT_SYSTOLIC_QUEUE_H */
