/* SPDX-License-Identifier: Apache-2.0 */
/* The kit's side of docs/simulator-protocol.md. */
#define _POSIX_C_SOURCE 200809L /* NOLINT: the name is POSIX's */

#include "umakit/simulator_program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "umakit/child_process.h"
#include "umakit/own_simulator.h"

#define TYPE_BYTES 4u
#define COUNTERS 7u
#define NOTE_BYTES 32u             /* of a NOTE before its texts */
#define MOST_TEXT 64u              /* of a NOTE, and the end of a string */
#define MILLISECONDS_TO_EXIT 500u  /* after it closed its standard output or gave up */
#define MILLISECONDS_TO_END 5000u  /* after the end of its standard input */

enum { AT_TYPE = 4, AT_NUMBER = 8 };

/* A frame that was received; its payload is in the buffer of the program. */
struct frame {
    char type[TYPE_BYTES + 1u];
    uint32_t length;
};

/* ---- Bytes ---- */

static void put32(unsigned char *bytes, uint32_t value)
{
    bytes[0] = (unsigned char)(value & 0xFFu);
    bytes[1] = (unsigned char)((value >> 8) & 0xFFu);
    bytes[2] = (unsigned char)((value >> 16) & 0xFFu);
    bytes[3] = (unsigned char)((value >> 24) & 0xFFu);
}

static void put64(unsigned char *bytes, uint64_t value)
{
    put32(bytes, (uint32_t)(value & UINT32_MAX));
    put32(bytes + 4, (uint32_t)(value >> 32));
}

static uint32_t get32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | ((uint32_t)bytes[1] << 8) | ((uint32_t)bytes[2] << 16) |
           ((uint32_t)bytes[3] << 24);
}

static uint64_t get64(const unsigned char *bytes)
{
    return (uint64_t)get32(bytes) | ((uint64_t)get32(bytes + 4) << 32);
}

static unsigned char *payload_of(struct umakit_simulator_program *program)
{
    return program->frame + UMAKIT_PROTOCOL_HEADER_BYTES;
}

/* ---- Failures ---- */

/* End the program and report what it did, with its last lines. */
static void fail(struct umakit_simulator_program *program, const char *what)
{
    char quoted[UMAKIT_CHILD_LAST_WORDS];
    char sentence[1024];
    int number;

    if (program->has_failed) {
        return;
    }
    program->has_failed = true;
    (void)umakit_child_end(&program->child, 0u, &number);
    umakit_child_quote(&program->child, quoted, sizeof quoted);
    (void)snprintf(sentence, sizeof sentence, "%.100s %.200s%s%s", program->config->title, what,
                   quoted[0] == '\0' ? "" : "; its last lines: ", quoted);
    umakit_host_fail(program->host, sentence);
}

static void fail_with_number(struct umakit_simulator_program *program, const char *form,
                             unsigned long number)
{
    char what[200];
    int written = snprintf(what, sizeof what, "%s %lu", form, number);

    if (written > 0 && (size_t)written < sizeof what && program->request != NULL) {
        (void)snprintf(what + written, sizeof what - (size_t)written, " instead of answering %s",
                       program->request);
    }
    fail(program, what);
}

static void fail_with_request(struct umakit_simulator_program *program, const char *form)
{
    char what[200];

    (void)snprintf(what, sizeof what, "%s %s", form, program->request);
    fail(program, what);
}

static void fail_silent(struct umakit_simulator_program *program)
{
    char what[200];

    (void)snprintf(what, sizeof what,
                   "did not answer %s within %g s ([simulator] timeout in accel.toml) and was "
                   "stopped",
                   program->request, (double)program->config->timeout_milliseconds / 1000.0);
    fail(program, what);
}

/* Nothing can be sent or received any more: how did it end? */
static void fail_closed(struct umakit_simulator_program *program)
{
    int number;

    switch (umakit_child_end(&program->child, MILLISECONDS_TO_EXIT, &number)) {
    case UMAKIT_CHILD_EXITED:
        fail_with_number(program, "ended with exit code", (unsigned long)number);
        break;
    case UMAKIT_CHILD_SIGNALLED:
        fail_with_number(program, "was ended by signal", (unsigned long)number);
        break;
    case UMAKIT_CHILD_STOPPED:
    default:
        fail_with_request(program, "closed its standard input or output instead of answering");
        break;
    }
}

/* What was received is no frame: quote its beginning. */
static void fail_rubbish(struct umakit_simulator_program *program)
{
    char what[200];
    char begin[UMAKIT_PROTOCOL_HEADER_BYTES + 1u];
    size_t index;

    for (index = 0u; index < UMAKIT_PROTOCOL_HEADER_BYTES; ++index) {
        const unsigned char byte = program->frame[index];

        begin[index] = byte >= (unsigned char)' ' && byte < 127u ? (char)byte : '.';
    }
    begin[UMAKIT_PROTOCOL_HEADER_BYTES] = '\0';
    (void)snprintf(what, sizeof what,
                   "sent \"%s\" instead of answering %s, which is no frame of the protocol; is it "
                   "printed to standard output?",
                   begin, program->request);
    fail(program, what);
}

static bool is_done(struct umakit_simulator_program *program, enum umakit_child_result result)
{
    switch (result) {
    case UMAKIT_CHILD_DONE:
        return true;
    case UMAKIT_CHILD_SILENT:
        fail_silent(program);
        return false;
    case UMAKIT_CHILD_CLOSED:
    default:
        fail_closed(program);
        return false;
    }
}

/* ---- Frames ---- */

/* Send a frame whose payload is in the buffer. That nobody reads it shows when an answer
 * is received: what the program wrote before it ended says more. */
static bool send_frame(struct umakit_simulator_program *program, const char *type,
                       uint32_t length)
{
    enum umakit_child_result result;

    put32(program->frame, length);
    memcpy(program->frame + AT_TYPE, type, TYPE_BYTES);
    put32(program->frame + AT_NUMBER, program->number);
    result = umakit_child_send(&program->child, program->frame,
                               UMAKIT_PROTOCOL_HEADER_BYTES + (size_t)length,
                               &program->limit);
    return result == UMAKIT_CHILD_CLOSED || is_done(program, result);
}

static bool is_known(const char *type)
{
    static const char known[][TYPE_BYTES + 1u] = {"helo", "rset", "read", "writ", "wait",
                                                  "cntr", "LOAD", "STOR", "NOTE", "FAIL"};
    size_t index;

    for (index = 0u; index < sizeof known / sizeof known[0]; ++index) {
        if (strcmp(type, known[index]) == 0) {
            return true;
        }
    }
    return false;
}

static bool receive_frame(struct umakit_simulator_program *program, struct frame *frame)
{
    if (!is_done(program, umakit_child_receive(&program->child, program->frame,
                                               UMAKIT_PROTOCOL_HEADER_BYTES,
                                               &program->limit))) {
        return false;
    }
    frame->length = get32(program->frame);
    memcpy(frame->type, program->frame + AT_TYPE, TYPE_BYTES);
    frame->type[TYPE_BYTES] = '\0';
    if (frame->length > UMAKIT_PROTOCOL_MOST_PAYLOAD || !is_known(frame->type)) {
        fail_rubbish(program);
        return false;
    }
    if (get32(program->frame + AT_NUMBER) != program->number) {
        fail_with_request(program, "sent a frame with the number of another request than");
        return false;
    }
    return is_done(program, umakit_child_receive(&program->child, payload_of(program),
                                                 frame->length, &program->limit));
}

static bool fail_frame(struct umakit_simulator_program *program, const struct frame *frame)
{
    char what[200];

    (void)snprintf(what, sizeof what,
                   "sent a frame %s of %lu bytes, which it must not, instead of answering %s",
                   frame->type, (unsigned long)frame->length, program->request);
    fail(program, what);
    return false;
}

/* ---- What the program wants ---- */

static bool serve_load(struct umakit_simulator_program *program, const struct frame *frame)
{
    unsigned char *const payload = payload_of(program);
    uint32_t address;
    uint32_t bytes;
    int status;

    if (frame->length != 8u) {
        return fail_frame(program, frame);
    }
    address = get32(payload);
    bytes = get32(payload + 4);
    if (bytes == 0u || bytes > UMAKIT_PROTOCOL_MOST_DATA) {
        return fail_frame(program, frame);
    }
    status = umakit_host_read(program->host, address, bytes, payload + 4);
    put32(payload, (uint32_t)status);
    return send_frame(program, "load", status == UMAKIT_OK ? 4u + bytes : 4u);
}

static bool serve_store(struct umakit_simulator_program *program, const struct frame *frame)
{
    unsigned char *const payload = payload_of(program);
    uint32_t bytes;

    if (frame->length < 8u) {
        return fail_frame(program, frame);
    }
    bytes = get32(payload + 4);
    if (bytes == 0u || bytes > UMAKIT_PROTOCOL_MOST_DATA || frame->length - 8u != bytes) {
        return fail_frame(program, frame);
    }
    put32(payload,
          (uint32_t)umakit_host_write(program->host, get32(payload), bytes, payload + 8));
    return send_frame(program, "stor", 4u);
}

/* A text of the frame without the bytes that a C string cannot hold; too long: cut off. */
static void copy_text(char *to, size_t capacity, const unsigned char *from, size_t length)
{
    size_t index;

    for (index = 0u; index < length && index < capacity - 1u; ++index) {
        to[index] = from[index] == 0u ? ' ' : (char)from[index];
    }
    to[index] = '\0';
}

/* begin, end of busy, end; bytes of the engine's name and of the label; both texts */
static bool serve_note(struct umakit_simulator_program *program, const struct frame *frame)
{
    const unsigned char *const payload = payload_of(program);
    char engine[MOST_TEXT];
    char label[MOST_TEXT];
    struct umakit_event event;
    uint64_t engine_bytes;
    uint64_t label_bytes;

    if (frame->length < NOTE_BYTES) {
        return fail_frame(program, frame);
    }
    event.begin = get64(payload);
    event.end_of_busy = get64(payload + 8);
    event.end = get64(payload + 16);
    engine_bytes = get32(payload + 24);
    label_bytes = get32(payload + 28);
    if (engine_bytes == 0u || engine_bytes + label_bytes != frame->length - NOTE_BYTES ||
        event.begin > event.end_of_busy || event.end_of_busy > event.end) {
        return fail_frame(program, frame);
    }
    copy_text(engine, sizeof engine, payload + NOTE_BYTES, (size_t)engine_bytes);
    copy_text(label, sizeof label, payload + NOTE_BYTES + engine_bytes, (size_t)label_bytes);
    event.engine = engine;
    event.label = label;
    umakit_host_event(program->host, &event);
    return true;
}

static bool serve_fail(struct umakit_simulator_program *program, const struct frame *frame)
{
    char what[200];
    const int length = frame->length < 120u ? (int)frame->length : 120;
    int number;
    size_t index;

    (void)snprintf(what, sizeof what, "gave up at %s: %.*s", program->request, length,
                   (const char *)payload_of(program));
    for (index = 0u; what[index] != '\0'; ++index) {
        if ((unsigned char)what[index] < (unsigned char)' ') {
            what[index] = ' ';
        }
    }
    (void)umakit_child_end(&program->child, MILLISECONDS_TO_EXIT, &number);
    fail(program, what);
    return false;
}

static bool serve(struct umakit_simulator_program *program, const struct frame *frame)
{
    if (strcmp(frame->type, "LOAD") == 0) {
        return serve_load(program, frame);
    }
    if (strcmp(frame->type, "STOR") == 0) {
        return serve_store(program, frame);
    }
    if (strcmp(frame->type, "NOTE") == 0) {
        return serve_note(program, frame);
    }
    if (strcmp(frame->type, "FAIL") == 0) {
        return serve_fail(program, frame);
    }
    return fail_frame(program, frame);
}

/* ---- Requests ---- */

/* A request and the name of its answer. */
struct request {
    const char *name;
    const char *answer;
};

static bool is_answer(struct umakit_simulator_program *program, struct request request,
                      uint32_t length, uint32_t wanted)
{
    if (length != wanted) {
        char what[200];

        (void)snprintf(what, sizeof what, "answered %s with %lu bytes instead of %lu",
                       request.name, (unsigned long)length, (unsigned long)wanted);
        fail(program, what);
        return false;
    }
    return true;
}

/* Send a request whose payload is in the buffer, and serve the program until it
 * answers with a payload of `answer_length`, which is in the buffer then. */
static bool ask(struct umakit_simulator_program *program, struct request request,
                uint32_t request_length, uint32_t answer_length)
{
    struct frame frame;

    if (program->has_failed) {
        return false;
    }
    program->request = request.name;
    program->limit = (struct umakit_child_limit){
        .milliseconds = program->config->timeout_milliseconds};
    ++program->number;
    if (program->child.owner != (long)getpid()) {
        fail(program, "was started by another process, of which this one is a copy");
        return false;
    }
    if (!send_frame(program, request.name, request_length)) {
        return false;
    }
    while (receive_frame(program, &frame)) {
        if (strcmp(frame.type, request.answer) == 0) {
            return is_answer(program, request, frame.length, answer_length);
        }
        if (!serve(program, &frame)) {
            return false;
        }
    }
    return false;
}

/* ---- Begin and end ---- */

static struct umakit_simulator_program *first_program;

/* Programs do not outlive this process. */
static void end_programs(void)
{
    struct umakit_simulator_program *program;
    int number;

    for (program = first_program; program != NULL; program = program->next) {
        if (program->child.owner == (long)getpid()) {
            (void)umakit_child_end(&program->child, MILLISECONDS_TO_END, &number);
        }
    }
    first_program = NULL;
}

static void end_with_this_process(struct umakit_simulator_program *program)
{
    static bool is_registered = false;

    program->next = first_program;
    first_program = program;
    if (!is_registered) {
        is_registered = atexit(end_programs) == 0;
    }
}

void *umakit_simulator_program_create(struct umakit_simulator_program *program,
                                      const struct umakit_simulator_program_config *config,
                                      umakit_host *host)
{
    int reason;

    program->config = config;
    program->host = host;
    program->has_failed = false;
    program->number = 0u;
    program->request = NULL;
    reason = umakit_child_start(&program->child, config->folder, config->command);
    if (reason != 0) {
        char what[200];

        (void)snprintf(what, sizeof what, "cannot be started in %.90s: %.80s", config->folder,
                       strerror(reason));
        fail(program, what);
        return program;
    }
    end_with_this_process(program);
    put32(payload_of(program), UMAKIT_PROTOCOL_VERSION);
    if (ask(program, (struct request){"HELO", "helo"}, 4u, 4u)) {
        const uint32_t version = get32(payload_of(program));

        if (version != UMAKIT_PROTOCOL_VERSION) {
            program->request = NULL;
            fail_with_number(program, "speaks a version of the protocol that is not 1 but", version);
        }
    }
    return program;
}

/* ---- The table ---- */

void umakit_simulator_program_reset(void *simulator)
{
    (void)ask(simulator, (struct request){"RSET", "rset"}, 0u, 0u);
}

uint32_t umakit_simulator_program_read32(void *simulator, uint32_t offset)
{
    struct umakit_simulator_program *const program = simulator;

    put32(payload_of(program), offset);
    if (!ask(program, (struct request){"READ", "read"}, 4u, 4u)) {
        return UINT32_MAX;
    }
    return get32(payload_of(program));
}

void umakit_simulator_program_write32(void *simulator, uint32_t offset, uint32_t value)
{
    struct umakit_simulator_program *const program = simulator;

    put32(payload_of(program), offset);
    put32(payload_of(program) + 4, value);
    (void)ask(program, (struct request){"WRIT", "writ"}, 8u, 0u);
}

bool umakit_simulator_program_wait(void *simulator, uint64_t cycles)
{
    struct umakit_simulator_program *const program = simulator;
    uint32_t answer;

    put64(payload_of(program), cycles);
    if (!ask(program, (struct request){"WAIT", "wait"}, 8u, 4u)) {
        return false;
    }
    answer = get32(payload_of(program));
    if (answer > 1u) {
        program->request = NULL;
        fail_with_number(program, "answered WAIT not with 0 or 1 but with", answer);
        return false;
    }
    return answer == 1u;
}

void umakit_simulator_program_counters(void *simulator, struct umakit_own_counters *counters)
{
    struct umakit_simulator_program *const program = simulator;
    uint64_t *const fields[COUNTERS] = {
        &counters->clock, &counters->busy_cycles, &counters->compute_cycles,
        &counters->dma_cycles, &counters->macs, &counters->bytes_read,
        &counters->bytes_written,
    };
    size_t index;

    if (!ask(program, (struct request){"CNTR", "cntr"}, 0u, 8u * COUNTERS)) {
        return;
    }
    for (index = 0u; index < COUNTERS; ++index) {
        *fields[index] = get64(payload_of(program) + 8u * index);
    }
}
