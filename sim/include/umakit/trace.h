/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a driver did to its device, call by call: the simulator records it, the
 * strict mock of mock/umakit_device_mock.c compares it with what a test expects.
 */
#ifndef UMAKIT_TRACE_H
#define UMAKIT_TRACE_H

#include <stdint.h>

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of device.h. */
enum umakit_access {
    UMAKIT_ACCESS_READ = 1,
    UMAKIT_ACCESS_WRITE = 2,
    UMAKIT_ACCESS_MAP = 3,
    UMAKIT_ACCESS_UNMAP = 4,
    UMAKIT_ACCESS_WAIT = 5,
    UMAKIT_ACCESS_BARRIER = 6
};

/* One call; what its kind does not have is 0. */
struct umakit_trace_entry {
    enum umakit_access access;
    uint32_t offset; /* of a register; the bus address of a map or unmap */
    uint32_t value;  /* of a register; the bytes of a map, the limit of a wait */
    uint32_t direction; /* of a map, as enum umakit_direction */
    int status; /* what a map or wait returned */
};

/* Entries for tables of what is expected. */
#define UMAKIT_TRACE_READ(offset, value) {UMAKIT_ACCESS_READ, (offset), (value), 0u, 0}
#define UMAKIT_TRACE_WRITE(offset, value) {UMAKIT_ACCESS_WRITE, (offset), (value), 0u, 0}
#define UMAKIT_TRACE_MAP(bytes, direction, bus_address) \
    {UMAKIT_ACCESS_MAP, (bus_address), (bytes), (uint32_t)(direction), 0}
#define UMAKIT_TRACE_FAILING_MAP(bytes, direction, status) \
    {UMAKIT_ACCESS_MAP, 0u, (bytes), (uint32_t)(direction), (status)}
#define UMAKIT_TRACE_UNMAP(bus_address) {UMAKIT_ACCESS_UNMAP, (bus_address), 0u, 0u, 0}
#define UMAKIT_TRACE_WAIT(cycles, status) {UMAKIT_ACCESS_WAIT, 0u, (cycles), 0u, (status)}
#define UMAKIT_TRACE_BARRIER {UMAKIT_ACCESS_BARRIER, 0u, 0u, 0u, 0}

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_TRACE_H */
