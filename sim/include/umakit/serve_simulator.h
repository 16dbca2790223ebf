/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a simulator in C or C++ that is a program: the program's side of
 * docs/simulator-protocol.md for a table of umakit/own_simulator.h. Include it in one
 * file of the program, which defines
 *
 *     int main(void) { return umakit_serve_simulator(NAME_simulator()); }
 *
 * so that the same simulator can be linked or started. It defines the functions
 * umakit_host_... that the table calls. What the simulator prints to standard output
 * goes to standard error. POSIX; no heap.
 */
#ifndef UMAKIT_SERVE_SIMULATOR_H
#define UMAKIT_SERVE_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "umakit/own_simulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Serve the kit until it closes standard input, which ends the program. Returns an exit
 * code if that cannot be done. */
int umakit_serve_simulator(const struct umakit_own_simulator *table);

#define UMAKIT_SERVE_MOST_DATA 65536u
#define UMAKIT_SERVE_HEADER 12u
#define UMAKIT_SERVE_COUNTERS 7u

/* The connection to the kit. */
struct umakit_device {
    int output;      /* where frames are written */
    uint32_t number; /* of the request that is served */
    unsigned char frame[UMAKIT_SERVE_HEADER + 8u + UMAKIT_SERVE_MOST_DATA];
};

static void umakit_serve_put(unsigned char *bytes, uint64_t value, size_t count)
{
    size_t index;

    for (index = 0u; index < count; ++index) {
        bytes[index] = (unsigned char)((value >> (8u * index)) & 0xFFu);
    }
}

static uint64_t umakit_serve_get(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0u;
    size_t index;

    for (index = 0u; index < count; ++index) {
        value |= (uint64_t)bytes[index] << (8u * index);
    }
    return value;
}

/* Send what is in the buffer behind the header. The kit is gone if that fails. */
static void umakit_serve_send(struct umakit_device *host, const char *type, size_t length)
{
    size_t sent = 0u;

    umakit_serve_put(host->frame, length, 4u);
    memcpy(host->frame + 4, type, 4u);
    umakit_serve_put(host->frame + 8, host->number, 4u);
    while (sent < UMAKIT_SERVE_HEADER + length) {
        const ssize_t written =
            write(host->output, host->frame + sent, UMAKIT_SERVE_HEADER + length - sent);

        if (written <= 0) {
            exit(1);
        }
        sent += (size_t)written;
    }
}

/* The end of standard input is the end of the program. */
static void umakit_serve_read(unsigned char *bytes, size_t count)
{
    while (count > 0u) {
        const ssize_t received = read(STDIN_FILENO, bytes, count);

        if (received <= 0) {
            exit(0);
        }
        bytes += received;
        count -= (size_t)received;
    }
}

/* Receive a frame: its type in `type`, its payload in the buffer. */
static void umakit_serve_receive(struct umakit_device *host, char type[5])
{
    uint64_t length;

    umakit_serve_read(host->frame, UMAKIT_SERVE_HEADER);
    length = umakit_serve_get(host->frame, 4u);
    memcpy(type, host->frame + 4, 4u);
    type[4] = '\0';
    host->number = (uint32_t)umakit_serve_get(host->frame + 8, 4u);
    if (length > sizeof host->frame - UMAKIT_SERVE_HEADER) {
        exit(1);
    }
    umakit_serve_read(host->frame + UMAKIT_SERVE_HEADER, (size_t)length);
}

/* Send LOAD or STOR and return the status that the kit answers. */
static int umakit_serve_ask(struct umakit_device *host, const char *type, uint32_t address,
                            size_t bytes, size_t length)
{
    unsigned char *const payload = host->frame + UMAKIT_SERVE_HEADER;
    char answer[5];

    umakit_serve_put(payload, address, 4u);
    umakit_serve_put(payload + 4, bytes, 4u);
    umakit_serve_send(host, type, length);
    umakit_serve_receive(host, answer);
    return (int)umakit_serve_get(payload, 4u);
}

/* More than fits a frame goes in parts: if one is refused, those before it were copied. */
int umakit_host_read(umakit_host *host, uint32_t address, size_t bytes, void *to)
{
    size_t done = 0u;

    while (done < bytes) {
        const size_t left = bytes - done;
        const size_t part = left < UMAKIT_SERVE_MOST_DATA ? left : UMAKIT_SERVE_MOST_DATA;
        const int status =
            umakit_serve_ask(host, "LOAD", address + (uint32_t)done, part, 8u);

        if (status != UMAKIT_OK) {
            return status;
        }
        memcpy((unsigned char *)to + done, host->frame + UMAKIT_SERVE_HEADER + 4, part);
        done += part;
    }
    return UMAKIT_OK;
}

int umakit_host_write(umakit_host *host, uint32_t address, size_t bytes, const void *from)
{
    size_t done = 0u;

    while (done < bytes) {
        const size_t left = bytes - done;
        const size_t part = left < UMAKIT_SERVE_MOST_DATA ? left : UMAKIT_SERVE_MOST_DATA;
        int status;

        memcpy(host->frame + UMAKIT_SERVE_HEADER + 8, (const unsigned char *)from + done, part);
        status = umakit_serve_ask(host, "STOR", address + (uint32_t)done, part, 8u + part);
        if (status != UMAKIT_OK) {
            return status;
        }
        done += part;
    }
    return UMAKIT_OK;
}

void umakit_host_event(umakit_host *host, const struct umakit_event *event)
{
    unsigned char *const payload = host->frame + UMAKIT_SERVE_HEADER;
    const char *const label = event->label == NULL ? "" : event->label;
    const size_t engine_bytes = strlen(event->engine) < 64u ? strlen(event->engine) : 64u;
    const size_t label_bytes = strlen(label) < 64u ? strlen(label) : 64u;

    umakit_serve_put(payload, event->begin, 8u);
    umakit_serve_put(payload + 8, event->end_of_busy, 8u);
    umakit_serve_put(payload + 16, event->end, 8u);
    umakit_serve_put(payload + 24, engine_bytes, 4u);
    umakit_serve_put(payload + 28, label_bytes, 4u);
    memcpy(payload + 32, event->engine, engine_bytes);
    memcpy(payload + 32 + engine_bytes, label, label_bytes);
    umakit_serve_send(host, "NOTE", 32u + engine_bytes + label_bytes);
}

void umakit_host_fail(umakit_host *host, const char *sentence)
{
    const size_t length = strlen(sentence) < 512u ? strlen(sentence) : 512u;

    memcpy(host->frame + UMAKIT_SERVE_HEADER, sentence, length);
    umakit_serve_send(host, "FAIL", length);
    exit(1);
}

static void umakit_serve_counters(struct umakit_device *host,
                                  const struct umakit_own_simulator *table, void *simulator)
{
    struct umakit_own_counters counters;
    uint64_t values[UMAKIT_SERVE_COUNTERS];
    size_t index;

    memset(&counters, 0xFF, sizeof counters); /* UMAKIT_UNKNOWN */
    if (table->counters != NULL) {
        table->counters(simulator, &counters);
    }
    values[0] = counters.clock;
    values[1] = counters.busy_cycles;
    values[2] = counters.compute_cycles;
    values[3] = counters.dma_cycles;
    values[4] = counters.macs;
    values[5] = counters.bytes_read;
    values[6] = counters.bytes_written;
    for (index = 0u; index < UMAKIT_SERVE_COUNTERS; ++index) {
        umakit_serve_put(host->frame + UMAKIT_SERVE_HEADER + 8u * index, values[index], 8u);
    }
    umakit_serve_send(host, "cntr", 8u * UMAKIT_SERVE_COUNTERS);
}

/* Answer one request. False: it is none of this version of the protocol. The simulator
 * may send frames of its own, so the answer is put into the buffer after its work. */
static bool umakit_serve_request(struct umakit_device *host,
                                 const struct umakit_own_simulator *table, void **created)
{
    unsigned char *const payload = host->frame + UMAKIT_SERVE_HEADER;
    void *simulator = *created;
    uint32_t value;
    char type[5];

    umakit_serve_receive(host, type);
    if (strcmp(type, "HELO") == 0) {
        *created = table->create(host);
        if (*created == NULL) {
            umakit_host_fail(host, "the simulator cannot be created");
        }
        umakit_serve_put(payload, 1u, 4u);
        umakit_serve_send(host, "helo", 4u);
    } else if (strcmp(type, "RSET") == 0) {
        table->reset(simulator);
        umakit_serve_send(host, "rset", 0u);
    } else if (strcmp(type, "READ") == 0) {
        value = table->read32(simulator, (uint32_t)umakit_serve_get(payload, 4u));
        umakit_serve_put(payload, value, 4u);
        umakit_serve_send(host, "read", 4u);
    } else if (strcmp(type, "WRIT") == 0) {
        table->write32(simulator, (uint32_t)umakit_serve_get(payload, 4u),
                       (uint32_t)umakit_serve_get(payload + 4, 4u));
        umakit_serve_send(host, "writ", 0u);
    } else if (strcmp(type, "WAIT") == 0) {
        value = table->wait(simulator, umakit_serve_get(payload, 8u)) ? 1u : 0u;
        umakit_serve_put(payload, value, 4u);
        umakit_serve_send(host, "wait", 4u);
    } else if (strcmp(type, "CNTR") == 0) {
        umakit_serve_counters(host, table, simulator);
    } else {
        return false;
    }
    return true;
}

int umakit_serve_simulator(const struct umakit_own_simulator *table)
{
    static struct umakit_device host;
    void *simulator = NULL;

    host.output = dup(STDOUT_FILENO);
    if (host.output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return 1;
    }
    while (umakit_serve_request(&host, table, &simulator)) {
        /* One after the other. */
    }
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SERVE_SIMULATOR_H */
