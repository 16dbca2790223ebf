/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs jobs on a simulator that `uma new --kind layer` wrote, over registers alone. Each line of the
 * standard input is a job: pairs OFFSET=VALUE of registers, written in this order after a reset. For
 * each it prints what register ERROR holds then, and the bytes that the job stored.
 *
 * All of the bus is memory of 64 KiB, filled with 1: data, biases, multipliers and shifts too.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include SIMULATOR

static uint8_t memory[1u << 16];
static unsigned long stored;

int umakit_host_read(umakit_host *host, uint32_t address, size_t bytes, void *to)
{
    (void)host;
    if (address > sizeof memory || bytes > sizeof memory - address) {
        return UMAKIT_BUS_ERROR;
    }
    memcpy(to, memory + address, bytes);
    return UMAKIT_OK;
}

int umakit_host_write(umakit_host *host, uint32_t address, size_t bytes, const void *from)
{
    size_t i;
    volatile uint8_t sum = 0u; /* reads every byte */

    (void)host;
    for (i = 0u; i < bytes; ++i) {
        sum = (uint8_t)(sum + ((const uint8_t *)from)[i]);
    }
    stored += bytes;
    return address <= sizeof memory && bytes <= sizeof memory - address ? UMAKIT_OK
                                                                         : UMAKIT_BUS_ERROR;
}

void umakit_host_event(umakit_host *host, const struct umakit_event *event)
{
    (void)host;
    (void)event;
}

void umakit_host_fail(umakit_host *host, const char *sentence)
{
    (void)host;
    printf("%s ", sentence);
}

int main(void)
{
    static char line[4096];
    char *const nothing = NULL;
    void *const machine = create((umakit_host *)(void *)nothing);

    memset(memory, 1, sizeof memory);
    memset(memory + 0x7f00, 0x7f, 0x100); /* shifts that no factor has */
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned long offset, value;
        char *word = strtok(line, " \n");

        reset(machine);
        stored = 0u;
        for (; word != NULL; word = strtok(NULL, " \n")) {
            if (sscanf(word, "%lx=%lx", &offset, &value) == 2) {
                write32(machine, (uint32_t)offset, (uint32_t)value);
            }
        }
        printf("%lu %lu\n", (unsigned long)read32(machine, ERROR_OFFSET), stored);
    }
    return 0;
}
