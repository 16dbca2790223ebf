/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Separates the time of a driver's own code from the time of its device: times the calls of
 * umakit/device.h, which a simulator answers.
 *
 * A part of programs that umakit builds with a profile, never of a library. The functions of
 * umakit_simulator.c are compiled under other names, umakit_untimed_ in place of umakit_device_.
 *
 * Reading the clock of processor time takes longer than many register accesses of a simulator. The
 * system's clock therefore measures each interval. An interval in which other processes ran is
 * long. Processor time corrects long intervals, and the sum at the end of a layer.
 */
#if defined(__unix__) || defined(__APPLE__)
#define HAS_SYSTEM_CLOCK
#define _POSIX_C_SOURCE 200809L /* NOLINT: the name is POSIX's */
#endif

#include "umakit/device.h"
#include "umakit_platform.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef HAS_SYSTEM_CLOCK
#include <time.h>
#endif

enum { NANOSECONDS, INSTRUCTIONS, CLOCKS };

#define LONG_INTERVAL 50000 /* nanoseconds, fewer than another process gets */
#define ROUNDS 8
#define READINGS 32u /* of the clocks, in each round */

/* Of times[4]: nanoseconds and instructions, then those of them in calls of device.h. */
void umakit_device_times(uint64_t *times);

uint32_t umakit_untimed_read32(umakit_device *device, uint32_t offset);
void umakit_untimed_write32(umakit_device *device, uint32_t offset, uint32_t value);
int umakit_untimed_map(umakit_device *device, const void *memory, size_t bytes,
                       enum umakit_direction direction, uint32_t *bus_address);
void umakit_untimed_unmap(umakit_device *device, uint32_t bus_address);
int umakit_untimed_wait(umakit_device *device, uint32_t timeout_cycles);
void umakit_untimed_barrier(umakit_device *device);

static uint64_t last[CLOCKS]; /* when the interval began */
static uint64_t in_calls[CLOCKS];
static uint64_t outside[CLOCKS];
static uint64_t reading[CLOCKS]; /* cost of reading the clocks, which is left out */
static unsigned int depth;       /* a device may call another one */
static bool is_started;

#ifdef HAS_SYSTEM_CLOCK
static uint64_t processor_reading;
static uint64_t compared_processor; /* both clocks, when they were compared */
static uint64_t compared_system;
static uint64_t in_calls_before; /* at the begin of the layer */
#endif

static uint64_t less(uint64_t whole, uint64_t part)
{
    return whole < part ? 0u : whole - part;
}

static void read_clocks(uint64_t now[CLOCKS])
{
#ifdef HAS_SYSTEM_CLOCK
    struct timespec system;

    (void)clock_gettime(CLOCK_MONOTONIC, &system);
    now[NANOSECONDS] = (uint64_t)system.tv_sec * 1000000000u + (uint64_t)system.tv_nsec;
#else
    now[NANOSECONDS] = umakit_platform_nanoseconds();
#endif
    now[INSTRUCTIONS] = umakit_platform_instructions();
}

#ifdef HAS_SYSTEM_CLOCK
/* Return the system's time less the processor time since the clocks were last compared. The result
 * is negative if several threads work. */
static int64_t not_processor_time(uint64_t system)
{
    const uint64_t processor = umakit_platform_nanoseconds();
    const uint64_t worked = less(processor - compared_processor, processor_reading);
    const int64_t waited = (int64_t)(system - compared_system) - (int64_t)worked;

    compared_processor = processor;
    read_clocks(last);
    compared_system = last[NANOSECONDS];
    return waited;
}

static uint64_t corrected(uint64_t nanoseconds, int64_t waited)
{
    return waited < 0 ? nanoseconds + (uint64_t)-waited : less(nanoseconds, (uint64_t)waited);
}
#endif

/* Give an account the interval that ends now. */
static void give(uint64_t account[CLOCKS])
{
    uint64_t now[CLOCKS];
    uint64_t passed[CLOCKS];
    int clock;

    read_clocks(now);
    for (clock = 0; clock < CLOCKS; clock++) {
        passed[clock] = less(now[clock] - last[clock], reading[clock]);
        last[clock] = now[clock];
    }
#ifdef HAS_SYSTEM_CLOCK
    if (passed[NANOSECONDS] >= LONG_INTERVAL) {
        const int64_t waited = not_processor_time(now[NANOSECONDS]);

        passed[NANOSECONDS] = corrected(passed[NANOSECONDS], waited);
    }
#endif
    for (clock = 0; clock < CLOCKS; clock++) {
        account[clock] += passed[clock];
    }
}

static void enter(void)
{
    if (depth == 0u) {
        give(outside);
    }
    depth++;
}

static void leave(void)
{
    depth--;
    if (depth == 0u) {
        give(in_calls);
    }
}

/* The least of several rounds: an interrupt makes a round longer, and nothing makes it shorter. */
static void measure_reading(void)
{
    uint64_t least[CLOCKS] = {0u};
    int round;
    int clock;

    for (round = 0; round < ROUNDS; round++) {
        uint64_t first[CLOCKS];
        uint64_t now[CLOCKS];
        unsigned int count;

        read_clocks(first);
        for (count = 0u; count < READINGS; count += 2u) {
            enter();
            leave();
        }
        read_clocks(now);
        for (clock = 0; clock < CLOCKS; clock++) {
            const uint64_t each = (now[clock] - first[clock]) / READINGS;

            least[clock] = round == 0 || each < least[clock] ? each : least[clock];
        }
    }
    for (clock = 0; clock < CLOCKS; clock++) {
        reading[clock] = least[clock];
        outside[clock] = 0u;
        in_calls[clock] = 0u;
    }
}

#ifdef HAS_SYSTEM_CLOCK
static void measure_processor_reading(void)
{
    int round;

    for (round = 0; round < ROUNDS; round++) {
        const uint64_t first = umakit_platform_nanoseconds();
        uint64_t now = first;
        unsigned int count;

        for (count = 0u; count < READINGS; count++) {
            now = umakit_platform_nanoseconds();
        }
        now = (now - first) / READINGS;
        if (round == 0 || now < processor_reading) {
            processor_reading = now;
        }
    }
}
#endif

static void start(void)
{
    read_clocks(last);
#ifdef HAS_SYSTEM_CLOCK
    measure_processor_reading();
    (void)not_processor_time(last[NANOSECONDS]);
#endif
    measure_reading();
    read_clocks(last);
#ifdef HAS_SYSTEM_CLOCK
    (void)not_processor_time(last[NANOSECONDS]);
#endif
    is_started = true;
}

void umakit_device_times(uint64_t *times)
{
    int clock;

    if (!is_started) {
        start();
    }
    give(outside);
#ifdef HAS_SYSTEM_CLOCK
    {
        const uint64_t called = in_calls[NANOSECONDS] - in_calls_before;
        const int64_t waited = not_processor_time(last[NANOSECONDS]);

        /* Many short waits, such as for a simulator that is a process of its own. */
        in_calls_before += called == 0u ? 0u : corrected(called, waited);
        in_calls[NANOSECONDS] = in_calls_before;
    }
#endif
    for (clock = 0; clock < CLOCKS; clock++) {
        times[clock] = outside[clock] + in_calls[clock];
        times[CLOCKS + clock] = in_calls[clock];
    }
    read_clocks(last); /* leaves out the time of this function */
}

/* ---- The functions of device.h ---- */

uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{
    uint32_t value;

    enter();
    value = umakit_untimed_read32(device, offset);
    leave();
    return value;
}

void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    enter();
    umakit_untimed_write32(device, offset, value);
    leave();
}

int umakit_device_map(umakit_device *device, const void *memory, size_t bytes,
                      enum umakit_direction direction, uint32_t *bus_address)
{
    int status;

    enter();
    status = umakit_untimed_map(device, memory, bytes, direction, bus_address);
    leave();
    return status;
}

void umakit_device_unmap(umakit_device *device, uint32_t bus_address)
{
    enter();
    umakit_untimed_unmap(device, bus_address);
    leave();
}

int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles)
{
    int status;

    enter();
    status = umakit_untimed_wait(device, timeout_cycles);
    leave();
    return status;
}

void umakit_device_barrier(umakit_device *device)
{
    enter();
    umakit_untimed_barrier(device);
    leave();
}
