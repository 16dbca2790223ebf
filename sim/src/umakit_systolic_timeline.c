/* SPDX-License-Identifier: Apache-2.0 */
/* What commands of the systolic array did when. */
#include "umakit/systolic_engines.h"

#include <stddef.h>
#include <stdint.h>

#include "umakit/own_simulator.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"

void umakit_systolic_begin_timeline(struct umakit_systolic_array *array,
                                    struct umakit_systolic_timeline_entry *entries,
                                    size_t capacity)
{
    array->timeline = (struct umakit_systolic_timeline_record){
        .entries = entries,
        .capacity = entries == NULL ? 0u : capacity,
        .first = array->command_number,
    };
}

void umakit_systolic_record(struct umakit_systolic_array *array,
                            const struct umakit_systolic_command *command)
{
    static const char *const engines[] = {"load", "array", "store"};
    struct umakit_systolic_timeline_record *timeline = &array->timeline;
    const struct umakit_event event = {
        .engine = engines[command->stream],
        .begin = command->start,
        .end_of_busy = command->end_of_busy,
        .end = array->now,
    };

    umakit_host_event(&array->device, &event);
    if (timeline->capacity == 0u || command->number < timeline->first) {
        return;
    }
    if (timeline->count < timeline->capacity) {
        timeline->entries[timeline->count] = (struct umakit_systolic_timeline_entry){
            .command = (uint32_t)(command->number - timeline->first),
            .stream = (uint32_t)command->stream,
            .issued = command->issued,
            .start = command->start,
            .end_of_busy = command->end_of_busy,
            .completion = array->now,
        };
    }
    ++timeline->count;
}
