/* SPDX-License-Identifier: Apache-2.0 */
/* What simulators call: host memory by bus address, events and failures. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/own_simulator.h"
#include "umakit/simulator.h"
#include "umakit/simulator_faults.h"
#include "umakit/simulator_windows.h"

/* Whether a fault lets the bus refuse the access. Simulators that offer faults
 * themselves know about theirs. */
static bool is_refused(umakit_host *host, uint32_t address, size_t bytes)
{
    uint32_t refused = 0u;

    return bytes != 0u && host->operations != NULL && host->operations->inject == NULL &&
           umakit_simulator_bus_refuses(host, address, bytes, &refused);
}

int umakit_host_read(umakit_host *host, uint32_t address, size_t bytes, void *to)
{
    const void *memory = NULL;
    int status = umakit_simulator_resolve(host, address, bytes, UMAKIT_TO_DEVICE, &memory);

    if (status == UMAKIT_OK && is_refused(host, address, bytes)) {
        status = UMAKIT_BUS_ERROR;
    }
    if (status == UMAKIT_OK && bytes != 0u) {
        memcpy(to, memory, bytes);
    }
    return status;
}

int umakit_host_write(umakit_host *host, uint32_t address, size_t bytes, const void *from)
{
    const void *memory = NULL;
    int status = umakit_simulator_resolve(host, address, bytes, UMAKIT_FROM_DEVICE, &memory);

    if (status == UMAKIT_OK && is_refused(host, address, bytes)) {
        status = UMAKIT_BUS_ERROR;
    }
    if (status == UMAKIT_OK && bytes != 0u) {
        /* Mapped for writing, so the caller had a writable buffer. */
        memcpy((void *)(uintptr_t)memory, from, bytes);
    }
    return status;
}

/* Copy a text that may be longer than `bytes` - 1, in one line; NULL is empty. */
static void copy_text(char *to, size_t bytes, const char *from)
{
    size_t i = 0u;

    for (; from != NULL && from[i] != '\0' && i < bytes - 1u; ++i) {
        to[i] = (unsigned char)from[i] < 32u ? ' ' : from[i];
    }
    to[i] = '\0';
}

void umakit_host_event(umakit_host *host, const struct umakit_event *event)
{
    struct umakit_simulator_event_record *events = &host->events;

    if (events->capacity == 0u || event->begin < events->first_cycle ||
        event->end_of_busy < event->begin || event->end < event->end_of_busy) {
        return;
    }
    if (events->count < events->capacity) {
        struct umakit_event_entry *entry = &events->entries[events->count];

        copy_text(entry->engine, sizeof(entry->engine), event->engine);
        copy_text(entry->label, sizeof(entry->label), event->label);
        entry->begin = event->begin - events->first_cycle;
        entry->end_of_busy = event->end_of_busy - events->first_cycle;
        entry->end = event->end - events->first_cycle;
    }
    ++events->count;
}

void umakit_host_fail(umakit_host *host, const char *sentence)
{
    if (host->failure[0] == '\0') {
        copy_text(host->failure, sizeof(host->failure),
                  sentence == NULL || sentence[0] == '\0' ? "the simulator failed" : sentence);
    }
}
