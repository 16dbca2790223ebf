/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: what commands did when. */
#ifndef UMAKIT_SYSTOLIC_TIMELINE_H
#define UMAKIT_SYSTOLIC_TIMELINE_H

#include <stddef.h>

#include "systolic_array.h"

/* Record the commands that come from now on, until `capacity` entries are full. */
void umakit_systolic_begin_timeline(struct umakit_systolic_array *array,
                                    struct umakit_systolic_timeline_entry *entries,
                                    size_t capacity);

/* A command completes now. */
void umakit_systolic_record(struct umakit_systolic_array *array,
                            const struct umakit_systolic_command *command);

#endif /* UMAKIT_SYSTOLIC_TIMELINE_H */
