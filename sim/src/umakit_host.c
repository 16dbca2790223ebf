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

static void note_unresolved(umakit_host *host, int status, uint32_t address)
{
    if (status != UMAKIT_OK) {
        ++host->unresolved;
        host->unresolved_address = address;
    }
}

int umakit_host_read(umakit_host *host, uint32_t address, size_t bytes, void *to)
{
    const void *memory = NULL;
    int status = umakit_simulator_resolve(host, address, bytes, UMAKIT_TO_DEVICE, &memory);

    note_unresolved(host, status, address);
    if (status == UMAKIT_OK && is_refused(host, address, bytes)) {
        status = UMAKIT_BUS_ERROR;
    }
    if (status == UMAKIT_OK && bytes != 0u) {
        memcpy(to, memory, bytes);
    }
    return status;
}

static void note_write(umakit_host *host, const void *memory, size_t bytes)
{
    const struct umakit_simulator_watch *const watch = &host->watch;
    const uintptr_t first = (uintptr_t)watch->memory;
    size_t i;

    if (watch->cycles == NULL) {
        return;
    }
    for (i = 0u; i < bytes; ++i) {
        if ((uintptr_t)memory + i - first < watch->bytes) {
            watch->cycles[(uintptr_t)memory + i - first] = watch->cycle + 1u;
        }
    }
}

void umakit_host_cycle(umakit_host *host, uint64_t cycle)
{
    host->watch.cycle = cycle;
}

int umakit_host_write(umakit_host *host, uint32_t address, size_t bytes, const void *from)
{
    const void *memory = NULL;
    int status = umakit_simulator_resolve(host, address, bytes, UMAKIT_FROM_DEVICE, &memory);

    note_unresolved(host, status, address);
    if (status == UMAKIT_OK && is_refused(host, address, bytes)) {
        status = UMAKIT_BUS_ERROR;
    }
    if (status == UMAKIT_OK && bytes != 0u) {
        /* Mapped for writing, so the caller had a writable buffer. */
        memcpy((void *)(uintptr_t)memory, from, bytes);
        note_write(host, memory, bytes);
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

void umakit_host_bus_error(umakit_host *host, uint32_t offset, bool is_write, const char *response)
{
    ++host->bus_errors.count;
    host->bus_errors.offset = offset;
    host->bus_errors.is_write = is_write;
    copy_text(host->bus_errors.response, sizeof host->bus_errors.response, response);
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

/* Whether two names are the same: arrays that end with zeros. */
static bool are_equal(const char *one, const char *other)
{
    size_t i;

    for (i = 0u; i < UMAKIT_ENGINE_BYTES; ++i) {
        if (one[i] != other[i]) {
            return false;
        }
    }
    return true;
}

/* The counters of a memory, new ones if it has none yet; NULL if all are taken. */
static struct umakit_memory_counters *counters_of(umakit_host *host, const char *name)
{
    char wanted[UMAKIT_ENGINE_BYTES] = "";
    size_t i;

    copy_text(wanted, sizeof(wanted), name == NULL || name[0] == '\0' ? "memory" : name);
    for (i = 0u; i < UMAKIT_MEMORY_COUNT; ++i) {
        struct umakit_memory_counters *counters = &host->memories[i];

        if (counters->name[0] == '\0') {
            memcpy(counters->name, wanted, sizeof(wanted));
        }
        if (are_equal(counters->name, wanted)) {
            return counters;
        }
    }
    return NULL;
}

/* Unknown once is unknown for good. */
static void add_count(uint64_t *sum, uint64_t count)
{
    *sum = *sum == UMAKIT_UNKNOWN || count >= UMAKIT_UNKNOWN - *sum ? UMAKIT_UNKNOWN : *sum + count;
}

void umakit_host_access(umakit_host *host, const struct umakit_memory_access *access)
{
    struct umakit_memory_counters *counters = counters_of(host, access->memory);

    if (counters == NULL) {
        umakit_host_fail(host, "the simulator counts accesses to more than 8 memories");
        return;
    }
    add_count(&counters->reads, access->reads);
    add_count(&counters->read_bytes, access->read_bytes);
    add_count(&counters->writes, access->writes);
    add_count(&counters->written_bytes, access->written_bytes);
}

void umakit_host_fail(umakit_host *host, const char *sentence)
{
    if (host->failure[0] == '\0') {
        copy_text(host->failure, sizeof(host->failure),
                  sentence == NULL || sentence[0] == '\0' ? "the simulator failed" : sentence);
    }
}
