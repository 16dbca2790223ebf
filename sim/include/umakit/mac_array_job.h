/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the job of a MAC array. */
#ifndef UMAKIT_MAC_ARRAY_JOB_H
#define UMAKIT_MAC_ARRAY_JOB_H

#include <stdint.h>

#include "mac_array.h"
#include "status.h"

/* Start the job that the registers describe, unless an error is pending. What is
 * wrong with the registers is the status. */
UMAKIT_MUST_USE int umakit_mac_array_start(struct umakit_mac_array *array);

/* Stop the running job, if any, leaving its result as it was. */
void umakit_mac_array_abort(struct umakit_mac_array *array);

/* Let time pass for the running job, if any. What goes wrong at its end is the
 * status. */
UMAKIT_MUST_USE int umakit_mac_array_advance(struct umakit_mac_array *array, uint64_t cycles);

#endif /* UMAKIT_MAC_ARRAY_JOB_H */
