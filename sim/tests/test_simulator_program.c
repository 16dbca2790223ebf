/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run on a simulator that is a program, with a host of two mapped buffers:
 *
 *     test_simulator_program MILLISECONDS PROGRAM [ARGUMENT...]
 *
 * The program is one that adds 1 to bytes. Prints what it answered and exit code 0, or the
 * sentence with which it failed and exit code 3; 4 if a result is wrong, 5 if a failed
 * program leaves a process behind.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "umakit/own_simulator.h"
#include "umakit/simulator_program.h"

#define BYTES 70000u
#define SOURCE 0x10000000u
#define TARGET 0x20000000u

enum { STATUS = 0, FROM = 4, TO = 8, COUNT = 12, START = 16 };

static struct umakit_simulator_program program;
static unsigned char source[BYTES];
static unsigned char target[BYTES];
static char failure[1024];

static bool is_inside(uint32_t address, size_t bytes, uint32_t begin)
{
    return address >= begin && address - begin < BYTES && bytes <= BYTES - (address - begin);
}

int umakit_host_read(umakit_host *host, uint32_t address, size_t bytes, void *to)
{
    (void)host;
    if (!is_inside(address, bytes, SOURCE)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    memcpy(to, source + (address - SOURCE), bytes);
    return UMAKIT_OK;
}

int umakit_host_write(umakit_host *host, uint32_t address, size_t bytes, const void *from)
{
    (void)host;
    if (!is_inside(address, bytes, TARGET)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    memcpy(target + (address - TARGET), from, bytes);
    return UMAKIT_OK;
}

void umakit_host_event(umakit_host *host, const struct umakit_event *event)
{
    (void)host;
    printf("event %s '%s' %llu %llu %llu\n", event->engine, event->label,
           (unsigned long long)event->begin, (unsigned long long)event->end_of_busy,
           (unsigned long long)event->end);
}

void umakit_host_fail(umakit_host *host, const char *sentence)
{
    (void)host;
    if (failure[0] == '\0') {
        (void)snprintf(failure, sizeof failure, "%s", sentence);
    }
}

static void print_counter(const char *name, uint64_t value)
{
    if (value == UMAKIT_UNKNOWN) {
        printf(" %s -", name);
    } else {
        printf(" %s %llu", name, (unsigned long long)value);
    }
}

/* Whether the device added 1 to `bytes` bytes. */
static bool run_job(void *simulator, uint32_t bytes)
{
    uint32_t index;

    for (index = 0u; index < bytes; ++index) {
        source[index] = (unsigned char)((index * 7u + bytes) & 0xFFu);
    }
    memset(target, 0, bytes);
    umakit_simulator_program_write32(simulator, FROM, SOURCE);
    umakit_simulator_program_write32(simulator, TO, TARGET);
    umakit_simulator_program_write32(simulator, COUNT, bytes);
    umakit_simulator_program_write32(simulator, START, 1u);
    if (!umakit_simulator_program_wait(simulator, 1000000u) ||
        umakit_simulator_program_read32(simulator, STATUS) != 1u) {
        return false;
    }
    for (index = 0u; index < bytes; ++index) {
        if (target[index] != (unsigned char)((source[index] + 1u) & 0xFFu)) {
            return false;
        }
    }
    return true;
}

static void print_counters(void *simulator)
{
    struct umakit_own_counters counters;

    memset(&counters, 0xFF, sizeof counters);
    umakit_simulator_program_counters(simulator, &counters);
    if (failure[0] == '\0') {
        print_counter("clock", counters.clock);
        print_counter("busy", counters.busy_cycles);
        print_counter("compute", counters.compute_cycles);
        print_counter("dma", counters.dma_cycles);
        print_counter("macs", counters.macs);
        print_counter("read", counters.bytes_read);
        print_counter("written", counters.bytes_written);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    struct umakit_simulator_program_config config = {"the simulator", ".", NULL, 0u};
    bool is_right;
    void *simulator;

    if (argc < 3) {
        return 2;
    }
    config.timeout_milliseconds = (uint32_t)strtoul(argv[1], NULL, 10);
    config.command = argv + 2;
    simulator = umakit_simulator_program_create(&program, &config, NULL);
    umakit_simulator_program_reset(simulator);
    is_right = run_job(simulator, 5u);
    print_counters(simulator);
    is_right = run_job(simulator, BYTES) && is_right;
    umakit_simulator_program_reset(simulator);
    print_counters(simulator);
    if (failure[0] != '\0') {
        printf("failed: %s\n", failure);
        return waitpid(-1, NULL, WNOHANG) == -1 ? 3 : 5;
    }
    if (!is_right) {
        printf("wrong\n");
        return 4;
    }
    printf("right\n");
    return 0;
}
