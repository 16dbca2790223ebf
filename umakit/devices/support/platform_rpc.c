/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform of a program that TVM's RPC server runs: a shared object with packed functions, whose
 * `main` is called umakit_main.
 *
 *     umakit_program(words, inputs, milliseconds)    runs it; 0 or a number of errno
 *     umakit_ending(which)                           0: how it ended, 1: with which number
 *     umakit_size(stream)                            bytes that it wrote to a stream
 *     umakit_fetch(stream, tensor)                   copies them
 *
 * Words are the arguments of `main`, each with a null character behind it; words, inputs and what
 * is fetched are tensors of bytes. Streams are outputs, report and messages.
 *
 * The program runs in a process of its own: a crash does not end the server, which would serve
 * nobody afterwards. That process ends when its time is up and when the connection is lost. No
 * function of TVM is called, so that the object can be linked without TVM's library.
 */
#define _GNU_SOURCE
#include "umakit_platform.h"

#include <tvm/ffi/c_api.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 3
#define OUTPUTS 0
#define REPORT 1
#define MESSAGES 2
#define PIECE 65536
#define MOST_SOCKETS 64
#define MOST_DESCRIPTORS 1024
#define MOST_WORDS 16

enum { ENDED, SIGNALLED, LATE, LOST };

struct stream {
    unsigned char *data;
    size_t size;
    size_t room;
};

int umakit_main(int argc, char **argv);

static struct stream streams[STREAMS];
static const unsigned char *inputs_data;
static size_t inputs_left;
static int outputs_descriptor = -1;
static int64_t ending[2];

/* --- the platform, in the process of the program --------------------------------------------- */

bool umakit_platform_open(const char *inputs, const char *outputs)
{
    (void)inputs;
    (void)outputs;
    return true;
}

bool umakit_platform_read(void *memory, size_t size)
{
    if (size > inputs_left) {
        return false;
    }
    memcpy(memory, inputs_data, size);
    inputs_data += size;
    inputs_left -= size;
    return true;
}

bool umakit_platform_write(const void *memory, size_t size)
{
    const unsigned char *data = memory;

    while (size > 0u) {
        const ssize_t written = write(outputs_descriptor, data, size);

        if (written < 0 && errno != EINTR) {
            return false;
        }
        data += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0u;
    }
    return true;
}

bool umakit_platform_close(void)
{
    return true;
}

void umakit_platform_print(const char *text)
{
    (void)fputs(text, stdout);
}

void umakit_platform_print_number(uint64_t number)
{
    printf("%llu", (unsigned long long)number);
}

void umakit_platform_complain(const char *text)
{
    (void)fputs(text, stderr);
}

uint64_t umakit_platform_nanoseconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t umakit_platform_instructions(void)
{
    return 0;
}

/* --- the process of the server ---------------------------------------------------------------- */

static void run_program(char *words, size_t size, int writing[STREAMS])
{
    char *argv[MOST_WORDS + 2];
    int argc = 1;
    size_t start = 0;
    int code;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    argv[0] = "main";
    while (start < size && argc <= MOST_WORDS) {
        argv[argc++] = words + start;
        start += strlen(words + start) + 1u;
    }
    argv[argc] = NULL;
    outputs_descriptor = writing[OUTPUTS];
    (void)dup2(writing[REPORT], STDOUT_FILENO);
    (void)dup2(writing[MESSAGES], STDERR_FILENO);
    code = umakit_main(argc, argv);
    (void)fflush(stdout);
    (void)fflush(stderr);
    _exit(code);
}

/* Sockets with another side: one of them is the connection. */
static int find_sockets(struct pollfd *found)
{
    int count = 0;
    int descriptor;

    for (descriptor = 0; descriptor < MOST_DESCRIPTORS && count < MOST_SOCKETS; descriptor++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;

        if (getpeername(descriptor, (struct sockaddr *)&peer, &size) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
            found[count].fd = descriptor;
            found[count].events = POLLRDHUP;
            found[count].revents = 0;
            count++;
        }
    }
    return count;
}

static int64_t milliseconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Read what there is; false at the end of the stream. */
static bool take(struct stream *stream, int descriptor)
{
    ssize_t count;

    if (stream->room - stream->size < PIECE) {
        const size_t room = 2u * stream->room + PIECE;
        unsigned char *data = realloc(stream->data, room);

        if (data == NULL) {
            return false;
        }
        stream->data = data;
        stream->room = room;
    }
    count = read(descriptor, stream->data + stream->size, PIECE);
    if (count < 0) {
        return errno == EINTR;
    }
    stream->size += (size_t)count;
    return count > 0;
}

/* Collect what a program writes until it ends, its time is up or the connection is lost. */
static int collect(const int reading[STREAMS], int64_t limit)
{
    struct pollfd watched[STREAMS + MOST_SOCKETS];
    const int64_t until = milliseconds_now() + limit;
    const int sockets = find_sockets(watched + STREAMS);
    int open = STREAMS;
    int index;

    for (index = 0; index < STREAMS; index++) {
        watched[index].fd = reading[index];
        watched[index].events = POLLIN;
        watched[index].revents = 0;
    }
    while (open > 0) {
        const int64_t left = until - milliseconds_now();

        if (left <= 0) {
            return LATE;
        }
        if (poll(watched, (nfds_t)(STREAMS + sockets), left > 1000 ? 1000 : (int)left) < 0 &&
            errno != EINTR) {
            return LOST;
        }
        for (index = 0; index < STREAMS; index++) {
            if (watched[index].fd >= 0 && watched[index].revents != 0 &&
                !take(&streams[index], watched[index].fd)) {
                watched[index].fd = -1; /* poll leaves it out */
                open--;
            }
        }
        for (index = STREAMS; index < STREAMS + sockets; index++) {
            if ((watched[index].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
                return LOST;
            }
        }
    }
    return ENDED;
}

static int run(char *words, size_t size, int64_t limit)
{
    int reading[STREAMS];
    int writing[STREAMS];
    int index;
    int status = 0;
    pid_t child;

    for (index = 0; index < STREAMS; index++) {
        int both[2];

        if (pipe(both) != 0) {
            return errno;
        }
        reading[index] = both[0];
        writing[index] = both[1];
        streams[index].size = 0;
    }
    (void)fflush(NULL);
    child = fork();
    if (child < 0) {
        return errno;
    }
    if (child == 0) {
        run_program(words, size, writing);
    }
    for (index = 0; index < STREAMS; index++) {
        (void)close(writing[index]);
    }
    ending[0] = collect(reading, limit);
    if (ending[0] != ENDED) {
        (void)kill(child, SIGKILL);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    for (index = 0; index < STREAMS; index++) {
        (void)close(reading[index]);
    }
    ending[1] = WEXITSTATUS(status);
    if (ending[0] == ENDED && WIFSIGNALED(status)) {
        ending[0] = SIGNALLED;
        ending[1] = WTERMSIG(status);
    }
    return 0;
}

/* --- packed functions ------------------------------------------------------------------------- */

static const DLTensor *tensor_of(const TVMFFIAny *argument)
{
    if (argument->type_index == kTVMFFIDLTensorPtr) {
        return argument->v_ptr;
    }
    if (argument->type_index == kTVMFFITensor) {
        /* The header has this as TVMFFITensorGetDLTensorPtr, for C++ only. */
        return (const DLTensor *)(const void *)((const char *)argument->v_obj +
                                                sizeof(TVMFFIObject));
    }
    return NULL;
}

static unsigned char *bytes_of(const DLTensor *tensor)
{
    return (unsigned char *)tensor->data + tensor->byte_offset;
}

/* The head of a packed function, behind its declaration. */
#define PACKED(name)                                                                       \
    TVM_FFI_DLL_EXPORT int name(void *self, const TVMFFIAny *arguments, int32_t count,     \
                                TVMFFIAny *result);                                        \
    TVM_FFI_DLL_EXPORT int name(void *self, const TVMFFIAny *arguments, int32_t count,     \
                                TVMFFIAny *result)

static int give(TVMFFIAny *result, int64_t value)
{
    result->type_index = kTVMFFIInt;
    result->zero_padding = 0;
    result->v_int64 = value;
    return 0;
}

static struct stream *stream_of(const TVMFFIAny *argument)
{
    const bool is_one = argument->type_index == kTVMFFIInt && argument->v_int64 >= 0 &&
                        argument->v_int64 < STREAMS;

    return is_one ? &streams[argument->v_int64] : NULL;
}

PACKED(__tvm_ffi_umakit_program)
{
    const DLTensor *words = count == 3 ? tensor_of(&arguments[0]) : NULL;
    const DLTensor *inputs = count == 3 ? tensor_of(&arguments[1]) : NULL;

    (void)self;
    if (words == NULL || inputs == NULL || arguments[2].type_index != kTVMFFIInt) {
        return give(result, EINVAL);
    }
    inputs_data = bytes_of(inputs);
    inputs_left = (size_t)inputs->shape[0];
    return give(result,
                run((char *)bytes_of(words), (size_t)words->shape[0], arguments[2].v_int64));
}

PACKED(__tvm_ffi_umakit_ending)
{
    (void)self;
    return give(result, count == 1 ? ending[arguments[0].v_int64 != 0] : -1);
}

PACKED(__tvm_ffi_umakit_size)
{
    const struct stream *stream = count == 1 ? stream_of(&arguments[0]) : NULL;

    (void)self;
    return give(result, stream == NULL ? -1 : (int64_t)stream->size);
}

PACKED(__tvm_ffi_umakit_fetch)
{
    const struct stream *stream = count == 2 ? stream_of(&arguments[0]) : NULL;
    const DLTensor *tensor = count == 2 ? tensor_of(&arguments[1]) : NULL;

    (void)self;
    if (stream == NULL || tensor == NULL || (size_t)tensor->shape[0] > stream->size) {
        return give(result, EINVAL);
    }
    memcpy(bytes_of(tensor), stream->data, (size_t)tensor->shape[0]);
    return give(result, 0);
}
