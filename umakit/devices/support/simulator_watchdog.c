/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends the program when a function of a linked simulator does not return: its table of functions
 * with a note of the one that runs, and a thread that looks at the note.
 *
 * A part of programs that umakit builds for this machine, never of a library. Compiled once for
 * each simulator, with definitions of UMAKIT_WATCHED, the backend's name, and of
 * UMAKIT_WATCHED_MILLISECONDS, the time limit of a call.
 *
 * A thread, because signals and timers of the process are the simulator's, and a signal would
 * interrupt its system calls.
 */
#define _POSIX_C_SOURCE 200809L /* NOLINT: the name is POSIX's */

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "umakit/own_simulator.h"

#ifndef UMAKIT_WATCHED_MILLISECONDS
#define UMAKIT_WATCHED_MILLISECONDS 60000
#endif

#define EXIT_UNANSWERED 71 /* UNANSWERED of umakit/devices/execution.py */
#define LOOKS 50           /* during the time limit */
#define MOST_MILLISECONDS 250 /* between two looks */
#define LEAST_MILLISECONDS 1
#define LEAST_MICROSECONDS 20 /* of processor time between two looks at a call that works */

#define JOINED(name, rest) name##rest
#define NAME(name, rest) JOINED(name, rest)
#define QUOTED(name) #name
#define TEXT(name) QUOTED(name)

#define OWN_TABLE NAME(UMAKIT_WATCHED, _simulator)
#define WATCHED_TABLE NAME(umakit_watched_, UMAKIT_WATCHED)

const struct umakit_own_simulator *OWN_TABLE(void);
const struct umakit_own_simulator *WATCHED_TABLE(void);

static const struct umakit_own_simulator *own;

/* Written by the driver's thread, read by the one that watches. */
static const char *running; /* a function of the simulator; NULL: none */
static unsigned int calls;  /* tells one call from the next */

static void enter(const char *function)
{
    __atomic_add_fetch(&calls, 1u, __ATOMIC_RELAXED);
    __atomic_store_n(&running, function, __ATOMIC_RELEASE);
}

static void leave(void)
{
    __atomic_store_n(&running, (const char *)NULL, __ATOMIC_RELEASE);
}

static void end_program(const char *function)
{
    char sentence[512];
    const int length =
        snprintf(sentence, sizeof sentence,
                 "\nthe simulator of %.255s did not return from %s within %g s ([simulator] "
                 "timeout in accel.toml)\n",
                 TEXT(UMAKIT_WATCHED), function, UMAKIT_WATCHED_MILLISECONDS / 1000.0);

    if (length > 0 && write(STDERR_FILENO, sentence, (size_t)length) == length) {
        _exit(EXIT_UNANSWERED);
    }
    _exit(EXIT_UNANSWERED + 1);
}

static int pause_milliseconds(void)
{
    const int wanted = UMAKIT_WATCHED_MILLISECONDS / LOOKS;

    if (wanted < LEAST_MILLISECONDS) {
        return LEAST_MILLISECONDS;
    }
    return wanted > MOST_MILLISECONDS ? MOST_MILLISECONDS : wanted;
}

static int64_t microseconds_of(clockid_t clock)
{
    struct timespec now = {0, 0};

    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Processor time of all threads but this one. */
static int64_t used_microseconds(void)
{
    return microseconds_of(CLOCK_PROCESS_CPUTIME_ID) - microseconds_of(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * Counts the processor time of a call, and the looks between which the call used none. Neither
 * count depends on the load of the machine. A program that is stopped for a while does not use up
 * its limit.
 */
static void *watch(void *nothing)
{
    const int milliseconds = pause_milliseconds();
    const int64_t limit = INT64_C(1000) * UMAKIT_WATCHED_MILLISECONDS;
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = milliseconds * 1000000L};
    unsigned int seen = 0u;
    int64_t used = 0;   /* up to the last look */
    int64_t begun = 0;  /* used before the call */
    int64_t waited = 0; /* microseconds of looks during which it used none */

    (void)nothing;
    for (;;) {
        const char *const function = __atomic_load_n(&running, __ATOMIC_ACQUIRE);
        const unsigned int call = __atomic_load_n(&calls, __ATOMIC_RELAXED);
        const int64_t now = used_microseconds();

        if (function == NULL || call != seen) {
            waited = 0;
            begun = now;
        } else if (now - begun >= limit || waited >= limit) {
            end_program(function);
        } else if (now - used < LEAST_MICROSECONDS) {
            waited += INT64_C(1000) * milliseconds;
        } else {
            waited = 0;
        }
        used = now;
        seen = call;
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Without a thread, nothing is watched. All signals stay the simulator's. */
static void start_to_watch(void)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;

    if (sigfillset(&all) != 0 || pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return;
    }
    if (pthread_create(&thread, NULL, watch, NULL) == 0) {
        (void)pthread_detach(thread);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- The table ---- */

static void *watched_create(umakit_host *host)
{
    void *simulator;

    enter("create");
    simulator = own->create(host);
    leave();
    return simulator;
}

static void watched_reset(void *simulator)
{
    enter("reset");
    own->reset(simulator);
    leave();
}

static uint32_t watched_read32(void *simulator, uint32_t offset)
{
    uint32_t value;

    enter("read32");
    value = own->read32(simulator, offset);
    leave();
    return value;
}

static void watched_write32(void *simulator, uint32_t offset, uint32_t value)
{
    enter("write32");
    own->write32(simulator, offset, value);
    leave();
}

static bool watched_wait(void *simulator, uint64_t cycles)
{
    bool is_raised;

    enter("wait");
    is_raised = own->wait(simulator, cycles);
    leave();
    return is_raised;
}

static void watched_counters(void *simulator, struct umakit_own_counters *counters)
{
    enter("counters");
    own->counters(simulator, counters);
    leave();
}

static void watched_unmapping(void *simulator, uint32_t address, size_t bytes)
{
    enter("unmapping");
    own->unmapping(simulator, address, bytes);
    leave();
}

static void watched_misuse(void *simulator, enum umakit_status error, uint32_t address)
{
    enter("misuse");
    own->misuse(simulator, error, address);
    leave();
}

static int watched_inject(void *simulator, const struct umakit_fault *fault)
{
    int status;

    enter("inject");
    status = own->inject(simulator, fault);
    leave();
    return status;
}

static void watched_remove_faults(void *simulator)
{
    enter("remove_faults");
    own->remove_faults(simulator);
    leave();
}

/* What the simulator lacks stays NULL, and what is wrong with its table stays to be seen. */
const struct umakit_own_simulator *WATCHED_TABLE(void)
{
    static struct umakit_own_simulator table;

    start_to_watch();
    enter(TEXT(OWN_TABLE));
    own = OWN_TABLE();
    leave();
    if (own == NULL || own->version != UMAKIT_OWN_SIMULATOR_VERSION) {
        return own;
    }
    table = (struct umakit_own_simulator){
        .version = own->version,
        .map_alignment = own->map_alignment,
        .create = own->create == NULL ? NULL : watched_create,
        .reset = own->reset == NULL ? NULL : watched_reset,
        .read32 = own->read32 == NULL ? NULL : watched_read32,
        .write32 = own->write32 == NULL ? NULL : watched_write32,
        .wait = own->wait == NULL ? NULL : watched_wait,
        .counters = own->counters == NULL ? NULL : watched_counters,
        .unmapping = own->unmapping == NULL ? NULL : watched_unmapping,
        .misuse = own->misuse == NULL ? NULL : watched_misuse,
        .inject = own->inject == NULL ? NULL : watched_inject,
        .remove_faults = own->remove_faults == NULL ? NULL : watched_remove_faults,
    };
    return &table;
}
