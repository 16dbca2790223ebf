/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of both sides: the model has what the driver mapped, the RTL a copy of it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "umakit/simulator_windows.h"
#include "umakit_cosim_internal.h"

static uintptr_t begin_of(const struct umakit_simulator_window *window)
{
    return (uintptr_t)window->memory;
}

static uintptr_t end_of(const struct umakit_simulator_window *window)
{
    return (uintptr_t)window->memory + window->bytes;
}

static bool overlaps(const struct umakit_simulator_window *window, uintptr_t begin,
                     uintptr_t end)
{
    return window->memory != NULL && begin_of(window) < end && end_of(window) > begin;
}

static void release(struct umakit_cosim_copy *copy)
{
    if (copy != NULL && --copy->users == 0u) {
        free(copy->bytes);
        free(copy);
    }
}

static void leave(struct umakit_cosim_window *window)
{
    release(window->copy);
    window->copy = NULL;
    window->shadow = NULL;
    window->mapped.memory = NULL;
}

static struct umakit_cosim_copy *new_copy(const struct umakit_simulator_window *window,
                                          uintptr_t begin, size_t bytes)
{
    struct umakit_cosim_copy *copy = malloc(sizeof(*copy));
    const unsigned char *memory =
        (const unsigned char *)window->memory - (begin_of(window) - begin);

    if (copy == NULL) {
        return NULL;
    }
    copy->users = 0u;
    copy->bytes = malloc(bytes);
    if (copy->bytes == NULL) {
        free(copy);
        return NULL;
    }
    memcpy(copy->bytes, memory, bytes);
    return copy;
}

/* Move a window to another copy, with what the RTL has written. */
static void move(struct umakit_cosim_window *window, struct umakit_cosim_copy *copy,
                 size_t offset)
{
    if (window->shadow != NULL) {
        memcpy(copy->bytes + offset, window->shadow, window->mapped.bytes);
    }
    release(window->copy);
    ++copy->users;
    window->copy = copy;
    window->shadow = copy->bytes + offset;
}

/* Windows may overlap, such as an operator's input and output that share memory: they share
 * a copy, too, which holds all that hang together. */
static bool enter(struct umakit_cosim *pair, uint32_t slot)
{
    struct umakit_cosim_window *window = &pair->windows[slot];
    uintptr_t begin;
    uintptr_t end;
    struct umakit_cosim_copy *copy;
    bool is_larger = true;
    uint32_t i;

    window->mapped = pair->outer.windows[slot];
    begin = begin_of(&window->mapped);
    end = end_of(&window->mapped);
    while (is_larger) {
        is_larger = false;
        for (i = 0u; i < UMAKIT_SIMULATOR_WINDOW_COUNT; ++i) {
            const struct umakit_simulator_window *other = &pair->windows[i].mapped;

            if (overlaps(other, begin, end) && (begin_of(other) < begin || end_of(other) > end)) {
                begin = begin_of(other) < begin ? begin_of(other) : begin;
                end = end_of(other) > end ? end_of(other) : end;
                is_larger = true;
            }
        }
    }
    copy = new_copy(&window->mapped, begin, end - begin);
    if (copy == NULL) {
        window->mapped.memory = NULL;
        return false;
    }
    for (i = 0u; i < UMAKIT_SIMULATOR_WINDOW_COUNT; ++i) {
        if (overlaps(&pair->windows[i].mapped, begin, end)) {
            move(&pair->windows[i], copy, begin_of(&pair->windows[i].mapped) - begin);
        }
    }
    return true;
}

static uint32_t watched_slot(const struct umakit_cosim *pair)
{
    const struct umakit_cosim_options *const options = &pair->options;
    const uint32_t slot = options->watch / UMAKIT_SIMULATOR_WINDOW_BYTES - 1u;

    return options->watch_layer == umakit_cosim_place.layer && slot < UMAKIT_SIMULATOR_WINDOW_COUNT
               ? slot
               : UINT32_MAX;
}

/* Let the RTL note when it writes the buffer that is watched. */
static void watch(struct umakit_cosim *pair)
{
    const uint32_t slot = watched_slot(pair);
    const struct umakit_cosim_window *const window =
        slot == UINT32_MAX ? NULL : &pair->windows[slot];

    pair->rtl.watch = (struct umakit_simulator_watch){.memory = NULL};
    if (window == NULL || window->shadow == NULL) {
        return;
    }
    if (pair->watch.bytes != window->mapped.bytes) {
        free(pair->watch.cycles);
        pair->watch.bytes = window->mapped.bytes;
        pair->watch.cycles = calloc(window->mapped.bytes, sizeof(*pair->watch.cycles));
    }
    pair->watch.memory = window->shadow;
    pair->rtl.watch = pair->watch;
}

void umakit_cosim_map(struct umakit_cosim *pair)
{
    uint32_t slot;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        const struct umakit_simulator_window *window = &pair->outer.windows[slot];

        pair->model->windows[slot] = *window;
        pair->has_mapped = pair->has_mapped || window->memory != NULL;
        if (pair->is_attached) {
            if (window->memory != NULL && pair->windows[slot].mapped.memory == NULL &&
                !enter(pair, slot)) {
                umakit_host_fail(&pair->outer, "there is no memory for a copy of a buffer, on "
                                               "which the RTL works");
                return;
            }
        }
    }
    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT && pair->is_attached; ++slot) {
        pair->rtl.windows[slot] = pair->windows[slot].mapped;
        pair->rtl.windows[slot].memory = pair->windows[slot].shadow;
    }
    watch(pair);
}

void umakit_cosim_forget(struct umakit_cosim *pair)
{
    uint32_t slot;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        leave(&pair->windows[slot]);
        pair->rtl.windows[slot].memory = NULL;
    }
    pair->suspect.is_set = false;
    pair->has_lead = false;
}

/* ---- Comparing ---- */

static bool is_output(const struct umakit_cosim_window *window)
{
    return window->mapped.memory != NULL &&
           ((unsigned int)window->mapped.direction & (unsigned int)UMAKIT_FROM_DEVICE) != 0u;
}

static const unsigned char *expected_of(const struct umakit_cosim_window *window)
{
    return window->mapped.memory;
}

/* Make a byte of the model's output wrong, if the options ask for it from this layer on: one
 * whose result stays in the device has none. */
static void corrupt(const struct umakit_cosim *pair, const struct umakit_cosim_window *window)
{
    const size_t byte = window->mapped.bytes / 2u;

    if (umakit_cosim_place.layer >= pair->options.corrupt) {
        /* Mapped for writing, so the caller had a writable buffer. */
        ((unsigned char *)(uintptr_t)window->mapped.memory)[byte] =
            (unsigned char)(window->shadow[byte] ^ 0xffu);
    }
}

/* The first byte that differs; the number of bytes if none does. */
static size_t first_difference(const struct umakit_cosim_window *window)
{
    const unsigned char *expected = expected_of(window);
    size_t byte = 0u;

    if (memcmp(expected, window->shadow, window->mapped.bytes) == 0) {
        return window->mapped.bytes;
    }
    while (expected[byte] == window->shadow[byte]) {
        ++byte;
    }
    return byte;
}

static size_t count_differences(const struct umakit_cosim_window *window)
{
    const unsigned char *expected = expected_of(window);
    size_t count = 0u;
    size_t byte;

    for (byte = 0u; byte < window->mapped.bytes; ++byte) {
        count += expected[byte] != window->shadow[byte] ? 1u : 0u;
    }
    return count;
}

uint64_t umakit_cosim_output_bytes(const struct umakit_cosim *pair)
{
    uint64_t bytes = 0u;
    uint32_t slot;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        bytes += is_output(&pair->windows[slot]) ? pair->windows[slot].mapped.bytes : 0u;
    }
    return bytes;
}

/* Which of the bytes that differ the RTL wrote first. */
static void find_first_write(const struct umakit_cosim *pair,
                             const struct umakit_cosim_window *window,
                             struct umakit_cosim_difference *difference)
{
    const uint64_t *const cycles = pair->watch.cycles;
    size_t byte;

    for (byte = 0u; cycles != NULL && byte < window->mapped.bytes; ++byte) {
        if (cycles[byte] != 0u && expected_of(window)[byte] != window->shadow[byte] &&
            (!difference->is_written || cycles[byte] - 1u < difference->written_at)) {
            difference->is_written = true;
            difference->written = byte;
            difference->written_at = cycles[byte] - 1u;
        }
    }
}

static void differ(struct umakit_cosim *pair, uint32_t slot, size_t byte,
                   const struct umakit_cosim_moment *moment)
{
    const struct umakit_cosim_window *window = &pair->windows[slot];
    struct umakit_cosim_difference difference = {
        .kind = "memory",
        .moment = moment,
        .is_memory = true,
        .address = umakit_simulator_window_address(&pair->outer, slot) + (uint32_t)byte,
        .bytes_differing = count_differences(window),
        .buffer_bytes = window->mapped.bytes,
        .byte = byte,
        .buffer = umakit_simulator_window_address(&pair->outer, slot),
        .has_values = true,
        .expected = expected_of(window)[byte],
        .found = window->shadow[byte]};

    (void)snprintf(difference.what, sizeof(difference.what),
                   "byte %zu of the buffer of %zu bytes, at bus address 0x%08x, is 0x%02x, "
                   "expected 0x%02x; %zu bytes of it differ",
                   byte, window->mapped.bytes, (unsigned int)difference.address,
                   (unsigned int)difference.found, (unsigned int)difference.expected,
                   difference.bytes_differing);
    if (slot == watched_slot(pair)) {
        find_first_write(pair, window, &difference);
    }
    umakit_cosim_differ(pair, &difference);
}

/* Whether the byte that differed earlier still does; it is a difference once both sides
 * have left it as it was for long enough. */
static bool is_still_suspect(struct umakit_cosim *pair)
{
    struct umakit_cosim_suspect *suspect = &pair->suspect;
    const struct umakit_cosim_window *window = &pair->windows[suspect->slot];
    unsigned char expected;
    unsigned char found;

    if (!suspect->is_set || window->mapped.memory == NULL) {
        return false;
    }
    expected = expected_of(window)[suspect->byte];
    found = window->shadow[suspect->byte];
    if (expected == found) {
        return false;
    }
    if (expected != suspect->expected || found != suspect->found) {
        suspect->expected = expected;
        suspect->found = found;
        suspect->patience = UMAKIT_COSIM_PATIENCE;
    } else if (--suspect->patience == 0u) {
        differ(pair, suspect->slot, suspect->byte, &suspect->moment);
    }
    return true;
}

void umakit_cosim_compare(struct umakit_cosim *pair)
{
    struct umakit_cosim_suspect *suspect = &pair->suspect;
    bool is_corrupted = false;
    uint32_t slot;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT && !is_corrupted; ++slot) {
        if (is_output(&pair->windows[slot])) {
            corrupt(pair, &pair->windows[slot]);
            is_corrupted = true;
        }
    }
    if (is_still_suspect(pair)) {
        return;
    }
    suspect->is_set = false;
    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT && !suspect->is_set; ++slot) {
        const struct umakit_cosim_window *window = &pair->windows[slot];
        const size_t byte = is_output(window) ? first_difference(window) : window->mapped.bytes;

        if (window->mapped.memory != NULL && byte < window->mapped.bytes) {
            *suspect = (struct umakit_cosim_suspect){.is_set = true,
                                                     .slot = slot,
                                                     .byte = byte,
                                                     .expected = expected_of(window)[byte],
                                                     .found = window->shadow[byte],
                                                     .patience = UMAKIT_COSIM_PATIENCE,
                                                     .moment = pair->moment};
        }
    }
}

void umakit_cosim_compare_at_last(struct umakit_cosim *pair, uint32_t address)
{
    const uint32_t slot = address / UMAKIT_SIMULATOR_WINDOW_BYTES - 1u;
    const struct umakit_cosim_window *window = &pair->windows[slot];
    const struct umakit_cosim_suspect *suspect = &pair->suspect;
    size_t byte;

    if (!is_output(window) || pair->has_given_up) {
        return;
    }
    corrupt(pair, window);
    pair->layer.compared_bytes += window->mapped.bytes;
    byte = first_difference(window);
    if (byte == window->mapped.bytes) {
        return;
    }
    if (suspect->is_set && suspect->slot == slot &&
        expected_of(window)[suspect->byte] != window->shadow[suspect->byte]) {
        differ(pair, slot, suspect->byte, &suspect->moment);
    } else {
        differ(pair, slot, byte, &pair->moment);
    }
}

void umakit_cosim_leave(struct umakit_cosim *pair, uint32_t address)
{
    const uint32_t slot = address / UMAKIT_SIMULATOR_WINDOW_BYTES - 1u;

    if (pair->suspect.slot == slot) {
        pair->suspect.is_set = false;
    }
    if (slot == watched_slot(pair) && pair->watch.cycles != NULL) {
        memset(pair->watch.cycles, 0, pair->watch.bytes * sizeof(*pair->watch.cycles));
    }
    leave(&pair->windows[slot]);
}

/* ---- The end of a tile ---- */

void umakit_cosim_detach(struct umakit_cosim *pair)
{
    umakit_cosim_account(pair);
    umakit_cosim_forget(pair);
    pair->is_attached = false;
}

void umakit_cosim_complete(struct umakit_cosim *pair)
{
    uint64_t rtl[UMAKIT_COSIM_COUNTERS];
    uint64_t written;

    umakit_cosim_measure(&pair->rtl, rtl);
    written = rtl[UMAKIT_COSIM_BYTES_WRITTEN];
    pair->has_given_up = false;
    pair->in_command = false;
    if (written == pair->written_before && written != UMAKIT_UNKNOWN) {
        return;
    }
    pair->written_before = written;
    umakit_cosim_compare(pair);
    ++pair->moment.tile;
    if (pair->moment.tile >= pair->options.tiles && !pair->suspect.is_set &&
        !umakit_cosim_has_failed(pair)) {
        pair->layer.compared_bytes += umakit_cosim_output_bytes(pair);
        umakit_cosim_detach(pair);
        pair->layer.is_detached = true;
    }
}
