/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulator that is a program: functions for a table of umakit/own_simulator.h that
 * start it and exchange frames with it, as docs/simulator-protocol.md says. POSIX; for
 * the host only. No heap: the caller owns what is below.
 *
 * Whatever the program does, these functions return: within the time limit of a request,
 * and without a signal. A program that ends, is silent or sends something else than
 * frames is reported by umakit_host_fail. It is ended with this process, at the latest.
 */
#ifndef UMAKIT_SIMULATOR_PROGRAM_H
#define UMAKIT_SIMULATOR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/child_process.h"
#include "umakit/own_simulator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UMAKIT_PROTOCOL_VERSION 1u
#define UMAKIT_PROTOCOL_HEADER_BYTES 12u
#define UMAKIT_PROTOCOL_MOST_DATA 65536u                           /* of LOAD and STOR */
#define UMAKIT_PROTOCOL_MOST_PAYLOAD (UMAKIT_PROTOCOL_MOST_DATA + 8u) /* of a frame */

struct umakit_simulator_program_config {
    const char *title;             /* its name in messages */
    const char *folder;            /* where it is started */
    char *const *command;          /* program and arguments, then NULL */
    uint32_t timeout_milliseconds; /* how long it may take to answer a request */
};

/* Its fields are the adapter's. */
struct umakit_simulator_program {
    const struct umakit_simulator_program_config *config;
    umakit_host *host;
    struct umakit_simulator_program *next; /* of those that are to be ended */
    struct umakit_child child;
    bool has_failed;
    uint32_t number;     /* of the request */
    const char *request; /* its name, for messages */
    struct umakit_child_limit limit; /* of its answer */
    unsigned char frame[UMAKIT_PROTOCOL_HEADER_BYTES + UMAKIT_PROTOCOL_MOST_PAYLOAD];
};

/* Start the program. Never NULL: that it does not start is reported to the host. */
void *umakit_simulator_program_create(struct umakit_simulator_program *program,
                                      const struct umakit_simulator_program_config *config,
                                      umakit_host *host);

/* As in struct umakit_own_simulator; `simulator` is what `create` returned. */
void umakit_simulator_program_reset(void *simulator);
uint32_t umakit_simulator_program_read32(void *simulator, uint32_t offset);
void umakit_simulator_program_write32(void *simulator, uint32_t offset, uint32_t value);
bool umakit_simulator_program_wait(void *simulator, uint64_t cycles);
void umakit_simulator_program_counters(void *simulator, struct umakit_own_counters *counters);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SIMULATOR_PROGRAM_H */
