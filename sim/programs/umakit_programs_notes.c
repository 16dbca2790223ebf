/* SPDX-License-Identifier: Apache-2.0 */
/* What the model shows at each place of a program, and whether the RTL shows the same. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit_programs_internal.h"

/* Cycles that the RTL may be late by, and for each cycle that the model has taken. */
#define PATIENCE 5000u
#define MORE 8u
#define SLICE 16u

struct umakit_programs_note *umakit_programs_note(struct umakit_programs_run *run,
                                                  enum umakit_programs_kind kind,
                                                  uint32_t address)
{
    struct umakit_programs_notes *const notes = run->notes;
    struct umakit_programs_note *note;

    if (run->is_rtl) {
        note = run->next < notes->count ? &notes->notes[run->next] : NULL;
        if (note == NULL || note->kind != kind || note->address != address) {
            return NULL; /* both run the same accesses, up to the model's last note */
        }
        ++run->next;
        return note;
    }
    if (notes->count == UMAKIT_PROGRAMS_NOTES) {
        return NULL;
    }
    note = &notes->notes[notes->count++];
    *note = (struct umakit_programs_note){.kind = kind,
                                          .access = run->access,
                                          .address = address,
                                          .mask = UINT32_MAX,
                                          .is_at_rest = run->is_at_rest};
    return note;
}

static void differ(struct umakit_programs_run *run, const char *kind, uint32_t address,
                   uint32_t expected, uint32_t found)
{
    run->difference = (struct umakit_programs_difference){.access = run->access,
                                                          .kind = kind,
                                                          .address = address,
                                                          .expected = expected,
                                                          .found = found};
}

static uint64_t patience_of(const struct umakit_programs_run *run)
{
    uint64_t cycles = PATIENCE;
    size_t i;

    for (i = 0u; i < run->next; ++i) {
        cycles += MORE * run->notes->notes[i].cycles;
    }
    return cycles;
}

bool umakit_programs_see_register(struct umakit_programs_run *run, bool is_error, uint32_t offset,
                                  uint32_t mask, uint32_t *value)
{
    struct umakit_programs_note *note;
    uint64_t left;

    *value = umakit_device_read32(run->device, offset) & mask;
    note = umakit_programs_note(
        run, is_error ? UMAKIT_PROGRAMS_ERROR : UMAKIT_PROGRAMS_REGISTER, offset);
    if (note == NULL) {
        return false;
    }
    if (!run->is_rtl) {
        note->value = *value;
        note->mask = mask;
        return true;
    }
    left = run->is_at_rest ? patience_of(run) : 0u;
    while (((*value ^ note->value) & note->mask) != 0u && left >= SLICE) {
        umakit_programs_pass(run, SLICE);
        *value = umakit_device_read32(run->device, offset) & mask;
        left -= SLICE;
    }
    if (((*value ^ note->value) & note->mask) != 0u) {
        differ(run, is_error ? "error" : "register", offset, note->value & note->mask,
               *value & note->mask);
        return false;
    }
    return true;
}

bool umakit_programs_see_memory(struct umakit_programs_run *run, uint32_t slot)
{
    const size_t bytes = run->device->windows[slot].bytes;
    const unsigned char *const found = run->buffers[slot];
    const uint32_t address = (slot + 1u) * UMAKIT_SIMULATOR_WINDOW_BYTES;
    struct umakit_programs_note *const note =
        umakit_programs_note(run, UMAKIT_PROGRAMS_MEMORY, address);
    const unsigned char *expected;
    uint64_t left;
    uint32_t i;

    if (note == NULL) {
        return false;
    }
    if (!run->is_rtl) {
        if (bytes > UMAKIT_PROGRAMS_BYTES - run->notes->used) {
            return false;
        }
        note->value = (uint32_t)bytes;
        note->bytes = run->notes->used;
        memcpy(run->notes->bytes + note->bytes, found, bytes);
        run->notes->used += bytes;
        return true;
    }
    expected = run->notes->bytes + note->bytes;
    left = patience_of(run);
    while (memcmp(found, expected, bytes) != 0 && left >= SLICE) {
        umakit_programs_pass(run, SLICE);
        left -= SLICE;
    }
    for (i = 0u; i < bytes; ++i) {
        if (found[i] != expected[i]) {
            differ(run, "memory", address + i, expected[i], found[i]);
            return false;
        }
    }
    return true;
}

/* An error, memory and interrupts must not depend on time; of registers the bits that do are left
 * out. */
bool umakit_programs_agree(struct umakit_programs_notes *first,
                           const struct umakit_programs_notes *second)
{
    size_t i;

    if (first->count != second->count) {
        return false;
    }
    for (i = 0u; i < first->count; ++i) {
        struct umakit_programs_note *const a = &first->notes[i];
        const struct umakit_programs_note *const b = &second->notes[i];

        if (a->kind != b->kind || a->access != b->access || a->address != b->address) {
            return false;
        }
        if (a->kind == UMAKIT_PROGRAMS_REGISTER) {
            a->mask &= ~(a->value ^ b->value);
        } else if (a->value != b->value || (a->kind == UMAKIT_PROGRAMS_MEMORY &&
                                            memcmp(first->bytes + a->bytes,
                                                          second->bytes + b->bytes, a->value) != 0)) {
            return false;
        }
    }
    return true;
}
