/* SPDX-License-Identifier: Apache-2.0 */
/* The platform of a board on a serial line; serial.h has the protocol. */
#include "bare_metal.h"
#include "serial.h"
#include "umakit_platform.h"

#include <string.h>

#define EXIT_DAMAGED 2 /* as of inputs that are too short */

/* Not among the codes of the runner's own: 0, 1 and 2. */
#define EXIT_STOPPED 70
#define MOST_WORDS 16
#define VERSION 1u

#define CRC_START 0xFFFFFFFFu
#define CRC_POLYNOMIAL 0xEDB88320u

static const uint8_t mark[4] = {0xA5u, 'u', 'm', 'k'};

/* Text that is sent as one frame. */
struct console {
    uint8_t type;
    size_t used;
    char line[UMAKIT_SERIAL_CHUNK];
};

static struct console report = {'P', 0, ""};
static struct console messages = {'C', 0, ""};
static uint8_t received[UMAKIT_SERIAL_CHUNK + 1u]; /* payload of a frame, and a 0 behind words */
static uint8_t sent;                               /* number of the next frame */
static uint32_t checksum;

int main(int argc, char **argv);

/* ---- Frames ---- */

static void add_to_checksum(uint8_t byte)
{
    unsigned bit;

    checksum ^= byte;
    for (bit = 0; bit < 8u; bit++) {
        checksum = (checksum >> 1) ^ ((checksum & 1u) != 0u ? CRC_POLYNOMIAL : 0u);
    }
}

static void put(uint8_t byte)
{
    add_to_checksum(byte);
    umakit_serial_put(byte);
}

static uint8_t get(void)
{
    const uint8_t byte = umakit_serial_get();

    add_to_checksum(byte);
    return byte;
}

static void store_number(uint8_t bytes[4], uint32_t number)
{
    unsigned index;

    for (index = 0; index < 4u; index++) {
        bytes[index] = (uint8_t)(number >> (8u * index));
    }
}

/* Send one frame; `size` is at most UMAKIT_SERIAL_CHUNK. */
static void send(uint8_t type, const void *payload, size_t size)
{
    const uint8_t *const bytes = (const uint8_t *)payload;
    uint8_t crc[4];
    size_t index;

    for (index = 0; index < sizeof mark; index++) {
        umakit_serial_put(mark[index]);
    }
    checksum = CRC_START;
    put(type);
    put(sent++);
    put((uint8_t)size);
    put((uint8_t)(size >> 8));
    for (index = 0; index < size; index++) {
        put(bytes[index]);
    }
    store_number(crc, ~checksum);
    for (index = 0; index < sizeof crc; index++) {
        umakit_serial_put(crc[index]);
    }
}

static void send_number(uint8_t type, uint32_t number)
{
    uint8_t bytes[4];

    store_number(bytes, number);
    send(type, bytes, sizeof bytes);
}

static void wait_for_mark(void)
{
    size_t matched = 0;

    while (matched < sizeof mark) {
        const uint8_t byte = umakit_serial_get();

        if (byte == mark[matched]) {
            matched++;
        } else {
            matched = byte == mark[0] ? 1u : 0u;
        }
    }
}

/* Receive a frame, whatever its type; false if it is damaged. */
static bool receive_any(uint8_t *type, uint8_t *number, size_t *size)
{
    uint8_t crc[4];
    size_t index;

    wait_for_mark();
    checksum = CRC_START;
    *type = get();
    *number = get();
    *size = get();
    *size |= (size_t)get() << 8;
    if (*size > UMAKIT_SERIAL_CHUNK) {
        return false;
    }
    for (index = 0; index < *size; index++) {
        received[index] = get();
    }
    store_number(crc, ~checksum);
    for (index = 0; index < sizeof crc; index++) {
        if (umakit_serial_get() != crc[index]) {
            return false;
        }
    }
    return true;
}

static size_t receive_words(void)
{
    uint8_t type;
    uint8_t number;
    size_t size;

    while (!receive_any(&type, &number, &size) || type != 'A') {
        /* The host sends them again. */
    }
    return size;
}

/* ---- Text ---- */

static void flush(struct console *console)
{
    if (console->used > 0u) {
        send(console->type, console->line, console->used);
        console->used = 0;
    }
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

/* ---- Start and end ---- */

static void end(uint32_t code) __attribute__((noreturn));

static void end(uint32_t code)
{
    flush(&report);
    flush(&messages);
    send_number('X', code);
    for (;;) {
    }
}

/* Receive the answer to the last frame that was sent. */
static size_t receive_answer(void)
{
    uint8_t type;
    uint8_t number;
    size_t size;

    do { /* words for main may come more than once */
        if (!receive_any(&type, &number, &size)) {
            print(&messages, "a frame of the host arrived damaged\n");
            end(EXIT_DAMAGED);
        }
    } while (type != 'D' || number != (uint8_t)(sent - 1u));
    return size;
}

void umakit_start(void)
{
    static char line[sizeof received];
    static char *words[MOST_WORDS + 1];
    const uint8_t version = VERSION;
    size_t size;
    size_t index = 0;
    int count = 0;

    send('S', &version, sizeof version);
    size = receive_words();
    memcpy(line, received, size);
    line[size] = '\0';
    while (count < MOST_WORDS && index < size) {
        words[count++] = &line[index];
        index += strlen(&line[index]) + 1u;
    }
    end((uint32_t)main(count, words));
}

void umakit_stop(const char *what, const struct umakit_fact *facts, unsigned count)
{
    unsigned index;

    print(&messages, what);
    for (index = 0; index < count; index++) {
        print(&messages, index == 0 ? " (" : ", ");
        print(&messages, facts[index].name);
        print(&messages, " 0x");
        print_number(&messages, facts[index].value, 16);
    }
    print(&messages, count == 0 ? "\n" : ")\n");
    end(EXIT_STOPPED);
}

/* ---- The platform ---- */

bool umakit_platform_open(const char *inputs, const char *outputs)
{
    char names[UMAKIT_SERIAL_CHUNK];
    const size_t first = strlen(inputs) + 1u;
    const size_t second = strlen(outputs) + 1u;

    if (first > sizeof names || second > sizeof names - first) {
        return false;
    }
    memcpy(names, inputs, first);
    memcpy(names + first, outputs, second);
    send('O', names, first + second);
    return true;
}

bool umakit_platform_read(void *memory, size_t size)
{
    uint8_t *next = (uint8_t *)memory;

    while (size > 0u) {
        const size_t wanted = size < UMAKIT_SERIAL_CHUNK ? size : UMAKIT_SERIAL_CHUNK;

        send_number('R', (uint32_t)wanted);
        if (receive_answer() != wanted) {
            return false;
        }
        memcpy(next, received, wanted);
        next += wanted;
        size -= wanted;
    }
    return true;
}

bool umakit_platform_write(const void *memory, size_t size)
{
    const uint8_t *next = (const uint8_t *)memory;

    while (size > 0u) {
        const size_t part = size < UMAKIT_SERIAL_CHUNK ? size : UMAKIT_SERIAL_CHUNK;

        send('W', next, part);
        next += part;
        size -= part;
    }
    return true;
}

bool umakit_platform_close(void)
{
    return true;
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

#ifndef UMAKIT_BOARD_HAS_TIME
uint64_t umakit_platform_nanoseconds(void)
{
    return 0;
}
#endif
