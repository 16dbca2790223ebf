/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the commands that have not ended. */
#ifndef UMAKIT_SYSTOLIC_COMMANDS_H
#define UMAKIT_SYSTOLIC_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "faults.h"
#include "status.h"
#include "systolic_array.h"

struct umakit_systolic_engine *umakit_systolic_engine_at(struct umakit_systolic_array *array,
                                                         enum umakit_engine name);

/* How many were enqueued. */
uint32_t umakit_systolic_commands_left(const struct umakit_systolic_array *array);

/* Whether one is an engine's, of a START or an ENQUEUE. */
bool umakit_systolic_has_commands(const struct umakit_systolic_array *array,
                                  enum umakit_engine name);

/* Whether an engine runs, is to run a START, or is kept busy. */
bool umakit_systolic_is_busy(const struct umakit_systolic_array *array,
                             enum umakit_engine name);

/* Let every command start that can. */
void umakit_systolic_start_ready(struct umakit_systolic_array *array);

/* Take a command out of the list; a transfer's bytes that were not moved are
 * left. */
void umakit_systolic_remove(struct umakit_systolic_array *array, uint32_t index);

/* Stop both engines and empty the queue, as CLEAR does. */
void umakit_systolic_stop(struct umakit_systolic_array *array);

/* Keep the first error since the last CLEAR, raise its interrupt and drop the
 * commands of the queue. */
void umakit_systolic_report(struct umakit_systolic_array *array, enum umakit_status error,
                            uint32_t address);

/* Stop transfers from and to this range of the bus, and report it. */
void umakit_systolic_unmap(struct umakit_systolic_array *array, uint32_t bus_address,
                           size_t bytes);

#endif /* UMAKIT_SYSTOLIC_COMMANDS_H */
