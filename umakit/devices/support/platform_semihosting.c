/* SPDX-License-Identifier: Apache-2.0 */
/* The platform of a bare machine that a debugger or an emulator watches. */
#include "bare_metal.h"
#include "semihosting.h"
#include "umakit_platform.h"

#include <string.h>

/* Not among the codes of the runner's own: 0, 1 and 2. */
#define EXIT_STOPPED 70
#define MOST_WORDS 16

struct console {
    unsigned mode; /* of ":tt": 4 is the standard output, 8 the error output */
    bool is_open;
    intptr_t handle;
    size_t used;
    char line[256];
};

static struct console report = {UMAKIT_SEMIHOSTING_WRITE, false, -1, 0, ""};
static struct console messages = {UMAKIT_SEMIHOSTING_APPEND, false, -1, 0, ""};
static intptr_t input_file = -1;
static intptr_t output_file = -1;

int main(int argc, char **argv);

static void flush(struct console *console)
{
    if (!console->is_open) {
        console->handle = umakit_semihosting_open(UMAKIT_SEMIHOSTING_CONSOLE, console->mode);
        console->is_open = true;
    }
    (void)umakit_semihosting_write(console->handle, console->line, console->used);
    console->used = 0;
}

static void print(struct console *console, const char *text)
{
    for (; *text != '\0'; text++) {
        console->line[console->used++] = *text;
        if (*text == '\n' || console->used == sizeof console->line) {
            flush(console);
        }
    }
}

static void print_number(struct console *console, uint64_t number, unsigned base)
{
    char digits[21];
    size_t start = sizeof digits - 1;

    digits[start] = '\0';
    do {
        digits[--start] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0);
    print(console, digits + start);
}

void umakit_start(void)
{
    static char line[1024];
    static char *words[MOST_WORDS + 1];
    int count = 0;
    int code;
    char *next = line;

    if (!umakit_semihosting_command_line(line, sizeof line)) {
        line[0] = '\0';
    }
    while (count < MOST_WORDS) {
        next += strspn(next, " ");
        if (*next == '\0') {
            break;
        }
        words[count++] = next;
        next += strcspn(next, " ");
        if (*next != '\0') {
            *next++ = '\0';
        }
    }
    code = main(count, words);
    flush(&report);
    flush(&messages);
    umakit_semihosting_exit(code);
}

void umakit_stop(const char *what, const struct umakit_fact *facts, unsigned count)
{
    unsigned index;

    flush(&report);
    print(&messages, what);
    for (index = 0; index < count; index++) {
        print(&messages, index == 0 ? " (" : ", ");
        print(&messages, facts[index].name);
        print(&messages, " 0x");
        print_number(&messages, facts[index].value, 16);
    }
    print(&messages, count == 0 ? "\n" : ")\n");
    umakit_semihosting_exit(EXIT_STOPPED);
}

bool umakit_platform_open(const char *inputs, const char *outputs)
{
    input_file = umakit_semihosting_open(inputs, UMAKIT_SEMIHOSTING_READ_BINARY);
    output_file = umakit_semihosting_open(outputs, UMAKIT_SEMIHOSTING_WRITE_BINARY);
    return input_file != -1 && output_file != -1;
}

bool umakit_platform_read(void *memory, size_t size)
{
    return umakit_semihosting_read(input_file, memory, size);
}

bool umakit_platform_write(const void *memory, size_t size)
{
    return umakit_semihosting_write(output_file, memory, size);
}

bool umakit_platform_close(void)
{
    bool kept = true;

    if (input_file != -1) {
        (void)umakit_semihosting_close(input_file);
        input_file = -1;
    }
    if (output_file != -1) {
        kept = umakit_semihosting_close(output_file);
        output_file = -1;
    }
    return kept;
}

void umakit_platform_print(const char *text)
{
    print(&report, text);
}

void umakit_platform_print_number(uint64_t number)
{
    print_number(&report, number, 10);
}

void umakit_platform_complain(const char *text)
{
    print(&messages, text);
}

#ifndef UMAKIT_BOARD_HAS_TIME /* which a file of the board then has */
uint64_t umakit_platform_nanoseconds(void)
{
    return 0; /* An emulator's time is not the processor's. */
}
#endif
