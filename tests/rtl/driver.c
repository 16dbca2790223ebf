/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls a simulated device as a script on the standard input says, a command a line, and prints
 * an answer to each:
 *
 *     map DIRECTION HEX     a buffer with these bytes: its bus address
 *     unmap ADDRESS         the bytes that it has now
 *     read OFFSET           a register
 *     write OFFSET VALUE    -
 *     wait CYCLES           the status
 *     counters              clock, bytes read, bytes written
 *     fault KIND SKIP COUNT ADDRESS BYTES     the status
 *     faultless             -
 *     randomize SEED SEED   -
 *     window FILE FIRST LAST
 *     reset                 the status
 *     record                events are recorded from here on
 *     events                "engine label begin end" for each, with ;
 *     failure               the sentence
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "umakit/simulator.h"

const struct umakit_own_simulator *NAME_simulator(void);
void NAME_randomize(uint32_t state_seed, uint32_t pause_seed);
int NAME_trace_window(const char *file, uint64_t first_cycle, uint64_t last_cycle);

#define MOST_BYTES 200000u

static struct umakit_device device;
static struct {
    uint32_t address;
    size_t bytes;
    unsigned char *memory;
} buffers[UMAKIT_SIMULATOR_WINDOW_COUNT];
static struct umakit_event_entry events[1000];

static void map(const char *direction, const char *hex)
{
    const size_t bytes = strlen(hex) / 2u;
    uint32_t address = 0u;
    size_t i, slot = 0u;
    unsigned char *memory = malloc(bytes);

    for (i = 0u; i < bytes; ++i) {
        const char digits[3] = {hex[2u * i], hex[2u * i + 1u], '\0'};

        memory[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    if (umakit_device_map(&device, memory, bytes, (enum umakit_direction)atoi(direction),
                          &address) != UMAKIT_OK) {
        puts("not mapped");
        free(memory);
        return;
    }
    while (buffers[slot].memory != NULL) {
        ++slot;
    }
    buffers[slot].address = address;
    buffers[slot].bytes = bytes;
    buffers[slot].memory = memory;
    printf("%" PRIu32 "\n", address);
}

static void unmap(uint32_t address)
{
    size_t slot, i;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        if (buffers[slot].memory != NULL && buffers[slot].address == address) {
            umakit_device_unmap(&device, address);
            for (i = 0u; i < buffers[slot].bytes; ++i) {
                printf("%02x", buffers[slot].memory[i]);
            }
            free(buffers[slot].memory);
            buffers[slot].memory = NULL;
        }
    }
    puts("");
}

/* Of buffers the device knows nothing after a reset. */
static void forget(void)
{
    size_t slot;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        free(buffers[slot].memory);
        buffers[slot].memory = NULL;
    }
}

static void print_counters(void)
{
    struct umakit_own_counters counters;

    umakit_simulator_measure(&device, &counters);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", counters.clock, counters.bytes_read,
           counters.bytes_written);
}

static void print_events(void)
{
    struct umakit_own_counters counters;
    size_t i;

    umakit_simulator_measure(&device, &counters);
    for (i = 0u; i < umakit_simulator_events(&device); ++i) {
        printf("%s, %s, %" PRIu64 " to %" PRIu64 ";", events[i].engine, events[i].label,
               events[i].begin, events[i].end);
    }
    puts("");
}

static void call(char **words)
{
    const char *command = words[0];
    uint32_t n[5];
    int i;

    for (i = 0; i < 5; ++i) {
        n[i] = words[i + 1] == NULL ? 0u : (uint32_t)strtoul(words[i + 1], NULL, 0);
    }
    if (strcmp(command, "map") == 0) {
        map(words[1], words[2]);
    } else if (strcmp(command, "unmap") == 0) {
        unmap(n[0]);
    } else if (strcmp(command, "read") == 0) {
        printf("%" PRIu32 "\n", umakit_device_read32(&device, n[0]));
    } else if (strcmp(command, "write") == 0) {
        umakit_device_write32(&device, n[0], n[1]);
        puts("-");
    } else if (strcmp(command, "wait") == 0) {
        printf("%d\n", umakit_device_wait(&device, n[0]));
    } else if (strcmp(command, "counters") == 0) {
        print_counters();
    } else if (strcmp(command, "fault") == 0) {
        const struct umakit_fault fault = {.kind = (enum umakit_fault_kind)n[0],
                                           .skip = n[1],
                                           .count = n[2],
                                           .address = n[3],
                                           .bytes = n[4]};

        printf("%d\n", umakit_simulator_inject(&device, &fault));
    } else if (strcmp(command, "faultless") == 0) {
        umakit_simulator_remove_faults(&device);
        puts("-");
    } else if (strcmp(command, "randomize") == 0) {
        NAME_randomize(n[0], n[1]);
        puts("-");
#ifdef UMAKIT_RTL_TRACE
    } else if (strcmp(command, "window") == 0) {
        printf("%d\n", NAME_trace_window(words[1], n[1], n[2]));
#endif
    } else if (strcmp(command, "reset") == 0) {
        forget();
        printf("%d\n", umakit_simulator_reset(&device));
    } else if (strcmp(command, "record") == 0) {
        umakit_simulator_record_events(&device, events, sizeof events / sizeof events[0]);
        puts("-");
    } else if (strcmp(command, "events") == 0) {
        print_events();
    } else if (strcmp(command, "failure") == 0) {
        puts(umakit_simulator_failure(&device));
    } else {
        printf("no command %s\n", command);
    }
}

int main(void)
{
    static char line[2u * MOST_BYTES + 100u];

    umakit_simulator_open(&device, NAME_simulator());
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[8] = {NULL};
        char *word = strtok(line, " \n");
        size_t i;

        for (i = 0u; i < 7u && word != NULL; ++i) {
            words[i] = word;
            word = strtok(NULL, " \n");
        }
        if (words[0] != NULL) {
            call(words);
            fflush(stdout);
        }
    }
    forget();
    return 0;
}
