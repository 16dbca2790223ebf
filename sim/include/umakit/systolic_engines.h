/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the DMA engine and the array on one clock. */
#ifndef UMAKIT_SYSTOLIC_ENGINES_H
#define UMAKIT_SYSTOLIC_ENGINES_H

#include <stdint.h>

#include "faults.h"
#include "systolic_array.h"

/* Advance by `cycles`. */
void umakit_systolic_advance(struct umakit_systolic_array *array, uint64_t cycles);

/* Cycles until a command changes its state or completes; UINT64_MAX: none runs. */
uint64_t umakit_systolic_next_event(const struct umakit_systolic_array *array);

/* Free an engine that a fault kept busy. */
void umakit_systolic_free_engine(struct umakit_systolic_array *array, enum umakit_engine name);

#endif /* UMAKIT_SYSTOLIC_ENGINES_H */
