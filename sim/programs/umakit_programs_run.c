/* SPDX-License-Identifier: Apache-2.0 */
/* One side runs a program. */
#define _POSIX_C_SOURCE 200809L /* NOLINT: the name is POSIX's */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "umakit_programs_internal.h"

#define PAGE 4096u

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13u;
    *state ^= *state >> 17u;
    *state ^= *state << 5u;
    return *state;
}

static void delay(struct umakit_programs_run *run)
{
    if (run->delay != 0u) {
        const uint32_t cycles =
            run->random == 0u ? run->delay : next_random(&run->random) % (run->delay + 1u);

        umakit_programs_pass(run, cycles);
    }
}

/* ---- Accesses ---- */

static bool see_all(struct umakit_programs_run *run, const struct umakit_programs_list *list)
{
    uint32_t value;
    size_t i;

    for (i = 0u; i < list->count; ++i) {
        if (!umakit_programs_see_register(run, false, list->offsets[i], list->masks[i], &value)) {
            return false;
        }
    }
    return true;
}

/* Come to rest, and look at what shows how it went. */
static enum umakit_programs_end look(struct umakit_programs_run *run,
                                     const struct umakit_programs_access *polled)
{
    const struct umakit_programs_setting *const setting = run->setting;
    const enum umakit_programs_end end = umakit_programs_rest(run, polled);
    uint32_t error = 0u;

    if (end != UMAKIT_PROGRAMS_OK) {
        return end;
    }
    if (setting->has_error && !umakit_programs_see_register(run, true, setting->error,
                                                            setting->error_mask, &error)) {
        return UMAKIT_PROGRAMS_DIFFERS;
    }
    if (error != 0u) {
        return UMAKIT_PROGRAMS_ENDED; /* what it leaves behind is undefined */
    }
    return see_all(run, &setting->at_rest) ? UMAKIT_PROGRAMS_OK : UMAKIT_PROGRAMS_DIFFERS;
}

static bool starts_work(const struct umakit_programs_setting *setting, uint32_t offset)
{
    bool is_listed = setting->starts.count == 0u;
    size_t i;

    for (i = 0u; i < setting->starts.count; ++i) {
        is_listed = is_listed || setting->starts.offsets[i] == offset;
    }
    return is_listed;
}

static enum umakit_programs_end read_register(struct umakit_programs_run *run,
                                              const struct umakit_programs_access *access)
{
    const uint32_t mask = run->is_at_rest ? access->value : access->other;
    uint32_t value;

    if (!umakit_programs_see_register(run, false, access->offset, mask, &value)) {
        return UMAKIT_PROGRAMS_DIFFERS;
    }
    if (!access->has_expected || !run->is_at_rest) {
        return UMAKIT_PROGRAMS_OK;
    }
    if (((value ^ access->expected) & mask) == 0u) {
        return UMAKIT_PROGRAMS_OK;
    }
    if (!run->is_rtl) {
        run->notes->notes[run->notes->count - 1u].mask = 0u; /* it may fail in another way */
    }
    return UMAKIT_PROGRAMS_ENDED;
}

static enum umakit_programs_end map(struct umakit_programs_run *run,
                                    const struct umakit_programs_access *access)
{
    void *memory = NULL;
    uint32_t address = 0u, slot;

    if (posix_memalign(&memory, PAGE, access->value) != 0) {
        return UMAKIT_PROGRAMS_FAILED;
    }
    memcpy(memory, access->data, access->value);
    if (umakit_device_map(run->device, memory, access->value,
                          (enum umakit_direction)access->other, &address) != UMAKIT_OK ||
        address != access->offset) {
        free(memory);
        return UMAKIT_PROGRAMS_FAILED;
    }
    slot = address / UMAKIT_SIMULATOR_WINDOW_BYTES - 1u;
    run->buffers[slot] = memory;
    return UMAKIT_PROGRAMS_OK;
}

static void unmap(struct umakit_programs_run *run, uint32_t slot)
{
    if (slot < UMAKIT_SIMULATOR_WINDOW_COUNT && run->buffers[slot] != NULL) {
        umakit_device_unmap(run->device, (slot + 1u) * UMAKIT_SIMULATOR_WINDOW_BYTES);
        free(run->buffers[slot]);
        run->buffers[slot] = NULL;
    }
}

/* Buffers are compared and unmapped once nothing works on them. */
static enum umakit_programs_end look_and_unmap(struct umakit_programs_run *run, uint32_t first,
                                               uint32_t last)
{
    const enum umakit_programs_end end = look(run, NULL);
    uint32_t slot;

    for (slot = first; end == UMAKIT_PROGRAMS_OK && slot <= last; ++slot) {
        if (slot < UMAKIT_SIMULATOR_WINDOW_COUNT && run->buffers[slot] != NULL) {
            if (!umakit_programs_see_memory(run, slot)) {
                return UMAKIT_PROGRAMS_DIFFERS;
            }
            unmap(run, slot);
        }
    }
    return end;
}

static enum umakit_programs_end do_access(struct umakit_programs_run *run,
                                          const struct umakit_programs_access *access)
{
    const uint32_t slot = access->offset / UMAKIT_SIMULATOR_WINDOW_BYTES - 1u;

    switch (access->kind) {
    case 'w':
        if (starts_work(run->setting, access->offset)) {
            run->is_at_rest = false;
            run->has_ended = false;
        }
        umakit_device_write32(run->device, access->offset, access->value);
        return run->program->rests_at_once && !run->is_at_rest ? look(run, NULL)
                                                               : UMAKIT_PROGRAMS_OK;
    case 'r':
        return read_register(run, access);
    case 'i':
        return umakit_programs_wait(run, access->offset);
    case 'm':
        return map(run, access);
    case 'u':
        return look_and_unmap(run, slot, slot);
    default:
        return look(run, access->has_expected ? access : NULL);
    }
}

static enum umakit_programs_end do_all(struct umakit_programs_run *run)
{
    enum umakit_programs_end end = UMAKIT_PROGRAMS_OK;

    for (run->access = 0u; run->access < run->program->count; ++run->access) {
        end = do_access(run, &run->program->accesses[run->access]);
        if (umakit_programs_has_failed(run)) {
            end = UMAKIT_PROGRAMS_FAILED;
        } else if (!run->is_rtl && umakit_programs_is_too_long(run)) {
            end = UMAKIT_PROGRAMS_LONG;
        }
        if (end != UMAKIT_PROGRAMS_OK) {
            return end;
        }
        delay(run);
    }
    end = look_and_unmap(run, 0u, UMAKIT_SIMULATOR_WINDOW_COUNT - 1u);
    if (end == UMAKIT_PROGRAMS_OK && !see_all(run, &run->setting->at_end)) {
        end = UMAKIT_PROGRAMS_DIFFERS;
    }
    return umakit_programs_has_failed(run) ? UMAKIT_PROGRAMS_FAILED : end;
}

enum umakit_programs_end umakit_programs_run(struct umakit_programs_run *run)
{
    enum umakit_programs_end end;
    uint32_t slot;

    run->is_at_rest = true;
    run->has_ended = true;
    run->next = 0u;
    end = do_all(run);
    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        if (run->buffers[slot] != NULL) {
            run->device->windows[slot].memory = NULL; /* an engine may still be at work */
            free(run->buffers[slot]);
            run->buffers[slot] = NULL;
        }
    }
    return end;
}
