/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a driver did to its device, call by call: the simulator records it, the
 * strict mock of mock/umakit_device_mock.c compares it with what a test expects.
 */
#ifndef UMAKIT_TRACE_H
#define UMAKIT_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of device.h. */
enum umakit_access {
    UMAKIT_ACCESS_READ = 1,    /* offset; value is what was read */
    UMAKIT_ACCESS_WRITE = 2,   /* offset; value is what was written */
    UMAKIT_ACCESS_MAP = 3,     /* offset is the bus address, value the bytes; status */
    UMAKIT_ACCESS_UNMAP = 4,   /* offset is the bus address */
    UMAKIT_ACCESS_WAIT = 5,    /* value is the limit in cycles; status */
    UMAKIT_ACCESS_BARRIER = 6
};

/* One call; what its kind does not name is 0. */
struct umakit_trace_entry {
    enum umakit_access access;
    uint32_t offset;
    uint32_t value;
    int status;
};

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_TRACE_H */
