/* SPDX-License-Identifier: Apache-2.0 */
/* A device that expects each call of a driver, see umakit/device_mock.h. */
#include "umakit/device_mock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void umakit_mock_expect(struct umakit_device *device,
                        const struct umakit_trace_entry *expected, size_t count)
{
    *device = (struct umakit_device){.expected = expected, .count = count};
}

/* ---- Calls ---- */

static bool is_expected(const struct umakit_trace_entry *expected,
                        const struct umakit_trace_entry *call)
{
    if (expected->access != call->access) {
        return false;
    }
    switch (call->access) {
    case UMAKIT_ACCESS_READ:
    case UMAKIT_ACCESS_UNMAP:
        return expected->offset == call->offset;
    case UMAKIT_ACCESS_WRITE:
        return expected->offset == call->offset && expected->value == call->value;
    case UMAKIT_ACCESS_MAP:
        return expected->value == call->value && expected->direction == call->direction;
    case UMAKIT_ACCESS_WAIT:
        return expected->value == call->value;
    default:
        return true;
    }
}

/* The answer to a call, or NULL if it should not have been made. */
static const struct umakit_trace_entry *take(struct umakit_device *device,
                                             struct umakit_trace_entry call)
{
    if (device == NULL || device->has_failed) {
        return NULL;
    }
    if (device->next == device->count || !is_expected(&device->expected[device->next], &call)) {
        device->has_failed = true;
        device->unexpected = call;
        return NULL;
    }
    return &device->expected[device->next++];
}

uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{
    const struct umakit_trace_entry *answer =
        take(device, (struct umakit_trace_entry)UMAKIT_TRACE_READ(offset, 0u));

    return answer == NULL ? UINT32_MAX : answer->value;
}

void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    (void)take(device, (struct umakit_trace_entry)UMAKIT_TRACE_WRITE(offset, value));
}

int umakit_device_map(umakit_device *device, const void *memory, size_t bytes,
                      enum umakit_direction direction, uint32_t *bus_address)
{
    const uint32_t size = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
    const struct umakit_trace_entry *answer;

    if (memory == NULL || bus_address == NULL) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    answer = take(device, (struct umakit_trace_entry)UMAKIT_TRACE_MAP(size, direction, 0u));
    if (answer == NULL) {
        return UMAKIT_DEVICE_ERROR;
    }
    if (answer->status == UMAKIT_OK) {
        *bus_address = answer->offset;
    }
    return answer->status;
}

void umakit_device_unmap(umakit_device *device, uint32_t bus_address)
{
    (void)take(device, (struct umakit_trace_entry)UMAKIT_TRACE_UNMAP(bus_address));
}

int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles)
{
    const struct umakit_trace_entry *answer =
        take(device, (struct umakit_trace_entry)UMAKIT_TRACE_WAIT(timeout_cycles, 0));

    return answer == NULL ? UMAKIT_DEVICE_ERROR : answer->status;
}

void umakit_device_barrier(umakit_device *device)
{
    (void)take(device, (struct umakit_trace_entry)UMAKIT_TRACE_BARRIER);
}

/* ---- What went wrong ---- */

struct text {
    char *bytes;
    size_t length;
    size_t capacity; /* without the 0 at the end */
};

static void add(struct text *text, const char *part)
{
    for (; *part != '\0' && text->length < text->capacity; ++part) {
        text->bytes[text->length] = *part;
        ++text->length;
    }
}

static void add_number(struct text *text, uint64_t number, uint32_t base)
{
    char digits[21];
    size_t i = sizeof(digits) - 1u;

    digits[i] = '\0';
    do {
        --i;
        digits[i] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0u);
    add(text, base == 16u ? "0x" : "");
    add(text, &digits[i]);
}

static void add_call(struct text *text, const struct umakit_trace_entry *call)
{
    static const char *const names[] = {"no call", "read", "write", "map", "unmap", "wait",
                                        "barrier"};

    add(text, names[call->access]);
    switch (call->access) {
    case UMAKIT_ACCESS_READ:
    case UMAKIT_ACCESS_UNMAP:
        add(text, " ");
        add_number(text, call->offset, 16u);
        break;
    case UMAKIT_ACCESS_WRITE:
        add(text, " ");
        add_number(text, call->offset, 16u);
        add(text, " = ");
        add_number(text, call->value, 16u);
        break;
    case UMAKIT_ACCESS_MAP:
        add(text, " of ");
        add_number(text, call->value, 10u);
        add(text, " bytes, direction ");
        add_number(text, call->direction, 10u);
        break;
    case UMAKIT_ACCESS_WAIT:
        add(text, " of ");
        add_number(text, call->value, 10u);
        add(text, " cycles");
        break;
    default:
        break;
    }
}

bool umakit_mock_verify(const struct umakit_device *device, char *message, size_t bytes)
{
    static const struct umakit_trace_entry nothing = {(enum umakit_access)0, 0u, 0u, 0u, 0};
    const bool is_right = !device->has_failed && device->next == device->count;
    struct text text = {message, 0u, 0u};

    if (message == NULL || bytes == 0u) {
        return is_right;
    }
    text.capacity = bytes - 1u;
    if (!is_right) {
        add(&text, "call ");
        add_number(&text, device->next + 1u, 10u);
        add(&text, ": expected ");
        add_call(&text, device->next < device->count ? &device->expected[device->next]
                                                     : &nothing);
        add(&text, ", got ");
        add_call(&text, device->has_failed ? &device->unexpected : &nothing);
    }
    message[text.length] = '\0';
    return is_right;
}
