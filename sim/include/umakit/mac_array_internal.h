/* SPDX-License-Identifier: Apache-2.0 */
/* What the MAC array's own files share; nobody else includes it. */
#ifndef UMAKIT_MAC_ARRAY_INTERNAL_H
#define UMAKIT_MAC_ARRAY_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "mac_array.h"

bool umakit_mac_array_is_busy(const struct umakit_mac_array *array);

/* Keep the first error since the last CLEAR: later ones are often its echo. */
void umakit_mac_array_report(struct umakit_mac_array *array, enum umakit_status error);

/* Start the job that the registers describe, or report what is wrong with it. */
void umakit_mac_array_start(struct umakit_mac_array *array);

/* Stop the running job, if any, leaving its result as it was. */
void umakit_mac_array_abandon(struct umakit_mac_array *array);

/* Let time pass for the running job, if any. */
void umakit_mac_array_advance(struct umakit_mac_array *array, uint64_t cycles);

#endif /* UMAKIT_MAC_ARRAY_INTERNAL_H */
