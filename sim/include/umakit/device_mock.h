/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict mock of device.h for tests of drivers: it expects calls in their
 * order, answers reads, maps and waits as given, and records the first call that
 * was not expected. Link mock/umakit_device_mock.c in place of the
 * simulator. What it expects may be what the simulator recorded.
 *
 * From the first wrong call on the device answers as one that is gone: reads
 * are all ones, maps and waits fail with UMAKIT_DEVICE_ERROR. So a driver that
 * polls must give up, as it must on hardware.
 *
 * After OpenTitan's mock_mmio (sw/device/lib/base/testing), for C and without
 * heap.
 */
#ifndef UMAKIT_DEVICE_MOCK_H
#define UMAKIT_DEVICE_MOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "device.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Long enough for any message of umakit_mock_verify. */
#define UMAKIT_MOCK_MESSAGE_BYTES 160u

struct umakit_device {
    const struct umakit_trace_entry *expected;
    size_t count;
    size_t next;
    struct umakit_trace_entry unexpected; /* the first wrong call ... */
    bool has_failed;                      /* ... if there was one */
};

/* Expect these calls, in this order and no others. The table stays the
 * caller's and must outlive the test. */
void umakit_mock_expect(struct umakit_device *device,
                        const struct umakit_trace_entry *expected, size_t count);

/* True if exactly the expected calls were made. If not, `message` says which
 * was expected and which came; it is cut off at `bytes`, and may be NULL. */
bool umakit_mock_verify(const struct umakit_device *device, char *message, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_DEVICE_MOCK_H */
