/* SPDX-License-Identifier: Apache-2.0 */
/* A program of this machine, and the pipes to it. */
#define _POSIX_C_SOURCE 200809L /* NOLINT: the name is POSIX's */

#include "umakit/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The program may be gone: that is an answer to send, not the end of this process. */
#ifdef MSG_NOSIGNAL
#define SEND_FLAGS MSG_NOSIGNAL
#else
#define SEND_FLAGS 0 /* the socket has SO_NOSIGPIPE */
#endif

/* Between two looks whether a program has ended: while it is to end, and otherwise. */
#define POLL_MILLISECONDS 5u
#define LOOK_MILLISECONDS 200u
#define LOOKS 8u /* within a limit, at least */
#define LINES_QUOTED 3u

/* Fields of /proc/PROCESS/stat: processor time of it, and of children that ended. */
enum { FIRST_TIME = 14, LAST_TIME = 17 };

#define MOST_DEPTH 8u   /* of children of children */
#define LEAST_WORK 30u  /* milliseconds of processor time that are more than a look around, */
#define LEAST_SHARE 20u /* with this part of the time */

/* ---- Descriptors ---- */

static void close_descriptor(int *descriptor)
{
    if (*descriptor >= 0) {
        (void)close(*descriptor);
    }
    *descriptor = -1;
}

/* Out of the way of the standard streams, and not inherited by other programs, which
 * would keep a pipe open. */
static bool make_private(int *descriptor)
{
    const int moved = fcntl(*descriptor, F_DUPFD_CLOEXEC, 3);

    close_descriptor(descriptor);
    *descriptor = moved;
    return moved >= 0;
}

static bool make_both_private(int ends[2])
{
    const bool is_first_moved = make_private(&ends[0]);
    const bool is_second_moved = make_private(&ends[1]);

    return is_first_moved && is_second_moved;
}

static bool open_pipe(int ends[2])
{
    return pipe(ends) == 0 && make_both_private(ends);
}

/* A socket and not a pipe: only sockets can be written to without a signal if nobody
 * reads any more. */
static bool open_sockets(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || !make_both_private(ends)) {
        return false;
    }
#if !defined(MSG_NOSIGNAL) && defined(SO_NOSIGPIPE)
    {
        const int on = 1;

        if (setsockopt(ends[1], SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) != 0) {
            return false;
        }
    }
#endif
    return true;
}

static bool do_not_block(int descriptor)
{
    const int flags = fcntl(descriptor, F_GETFL);

    return flags >= 0 && fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* ---- Start ---- */

/* Ends of what connects both processes: [0] is read, [1] is written. */
struct connection {
    int input[2];
    int output[2];
    int errors[2];
    int start[2]; /* carries an errno, and closes when the program starts */
    int life[2];  /* carries the program's number, and closes when this process ends */
};

static void close_connection(struct connection *connection)
{
    size_t end;

    for (end = 0u; end < 2u; ++end) {
        close_descriptor(&connection->input[end]);
        close_descriptor(&connection->output[end]);
        close_descriptor(&connection->errors[end]);
        close_descriptor(&connection->start[end]);
        close_descriptor(&connection->life[end]);
    }
}

static bool open_connection(struct connection *connection)
{
    *connection = (struct connection){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    return open_sockets(connection->input) && open_pipe(connection->output) &&
           open_pipe(connection->errors) && open_pipe(connection->start) &&
           open_pipe(connection->life) &&
           do_not_block(connection->input[1]) && do_not_block(connection->output[0]) &&
           do_not_block(connection->errors[0]);
}

/* In the new process, where snprintf may not be called: a number and the end of a line. */
static bool write_line(int descriptor, long number)
{
    char text[24];
    size_t begin = sizeof text;

    text[--begin] = '\n';
    do {
        text[--begin] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    return write(descriptor, text + begin, sizeof text - begin) == (ssize_t)(sizeof text - begin);
}

/* In the new process: becomes the program, or tells why not. */
static void become(const struct connection *connection, const char *folder, char *const *command)
{
    int reason;

    /* A group of its own, so that what it starts is stopped with it. */
    (void)setpgid(0, 0);
    if (write_line(connection->life[1], (long)getpid()) &&
        dup2(connection->input[0], STDIN_FILENO) >= 0 &&
        dup2(connection->output[1], STDOUT_FILENO) >= 0 &&
        dup2(connection->errors[1], STDERR_FILENO) >= 0 && chdir(folder) == 0) {
        (void)execvp(command[0], command);
    }
    reason = errno;
    if (write(connection->start[1], &reason, sizeof reason) < 0) {
        _exit(126);
    }
    _exit(127);
}

/* 0 if the program runs, or why it does not. */
static int wait_for_start(struct connection *connection)
{
    int reason = 0;
    ssize_t count;

    close_descriptor(&connection->start[1]);
    do {
        count = read(connection->start[0], &reason, sizeof reason);
    } while (count < 0 && errno == EINTR);
    if (count == 0) {
        return 0;
    }
    return count == (ssize_t)sizeof reason && reason != 0 ? reason : EIO;
}

static int reap(pid_t process)
{
    int status = 0;
    pid_t ended;

    do {
        ended = waitpid(process, &status, 0);
    } while (ended < 0 && errno == EINTR);
    return ended == process ? status : 0; /* 0: somebody else has waited for it */
}

/*
 * Start a guard, which kills the program when this process ends in whatever way: a
 * program that computes would not notice that its standard input is closed. The guard
 * learns the program's number before the program begins. -1: there is none.
 */
static pid_t start_guard(const struct connection *connection)
{
    static char shell[] = "sh";
    static char option[] = "-c";
    static char script[] = "read process && { read rest; kill -9 \"-$process\"; }";
    char *const command[] = {shell, option, script, NULL};
    const pid_t guard = fork();

    if (guard == 0) {
        /* A group of its own: an interrupt from the keyboard does not end it. */
        (void)setpgid(0, 0);
        if (dup2(connection->life[0], STDIN_FILENO) >= 0) {
            (void)close(STDOUT_FILENO);
            (void)close(STDERR_FILENO);
            (void)execv("/bin/sh", command);
        }
        _exit(127);
    }
    return guard;
}

static void stop_guard(struct umakit_child *child)
{
    if (child->guard > 0) {
        (void)kill((pid_t)child->guard, SIGKILL);
        (void)reap((pid_t)child->guard);
    }
    child->guard = -1;
    close_descriptor(&child->life);
}

/* Start a program on a connection: 0, or why it does not start. */
static int start_on(struct umakit_child *child, struct connection *connection,
                    const char *folder, char *const *command)
{
    pid_t process;
    int reason;

    child->guard = start_guard(connection);
    process = child->guard < 0 ? -1 : fork();
    if (process < 0) {
        return errno;
    }
    if (process == 0) {
        become(connection, folder, command);
    }
    reason = wait_for_start(connection);
    if (reason != 0) {
        (void)reap(process);
        return reason;
    }
    child->process = process;
    return 0;
}

/* Take a descriptor out of a connection that is to be closed. */
static int take(int *descriptor)
{
    const int taken = *descriptor;

    *descriptor = -1;
    return taken;
}

int umakit_child_start(struct umakit_child *child, const char *folder, char *const *command)
{
    struct connection connection;
    int reason;

    *child = (struct umakit_child){
        .owner = getpid(), .guard = -1, .input = -1, .output = -1, .errors = -1, .life = -1};
    reason = open_connection(&connection) ? 0 : errno;
    if (reason == 0) {
        reason = start_on(child, &connection, folder, command);
    }
    if (reason == 0) {
        child->input = take(&connection.input[1]);
        child->output = take(&connection.output[0]);
        child->errors = take(&connection.errors[0]);
        child->life = take(&connection.life[1]);
    } else {
        stop_guard(child);
    }
    close_connection(&connection);
    return reason;
}

/* ---- Transfers ---- */

uint64_t umakit_child_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Empty its standard error, on which a program that writes much would block. */
static void keep_errors(struct umakit_child *child)
{
    unsigned char bytes[256];
    ssize_t count;
    ssize_t index;

    while (child->errors >= 0) {
        count = read(child->errors, bytes, sizeof bytes);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (count <= 0) {
            close_descriptor(&child->errors);
            return;
        }
        for (index = 0; index < count; ++index) {
            child->last_words[child->word_count % UMAKIT_CHILD_LAST_WORDS] = bytes[index];
            ++child->word_count;
        }
    }
}

/* Whether the program has ended; its number stays taken. */
static bool is_over(const struct umakit_child *child)
{
    siginfo_t found = {0};
    int result;

    do {
        result = waitid(P_PID, (id_t)child->process, &found, WEXITED | WNOHANG | WNOWAIT);
    } while (result != 0 && errno == EINTR);
    /* On failure somebody else has waited for it. */
    return result != 0 || found.si_pid == (pid_t)child->process;
}

/* A file of /proc as text; empty if there is none. */
static void read_text(const char *name, char *text, size_t capacity)
{
    const int file = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t count = -1;

    if (file >= 0) {
        do {
            count = read(file, text, capacity - 1u);
        } while (count < 0 && errno == EINTR);
        (void)close(file);
    }
    text[count < 0 ? 0 : count] = '\0';
}

/* What a program and its children have done. */
struct work {
    bool is_known;
    bool is_at_work; /* one runs, could run or waits for a disk */
    uint64_t ticks;  /* of processor time, with those of children that ended */
};

/* Add what a process has done; see proc(5) for its file. */
static void add_work_of(long process, struct work *work)
{
    char name[64];
    char text[1024];
    const char *field;
    int number;

    (void)snprintf(name, sizeof name, "/proc/%ld/stat", process);
    read_text(name, text, sizeof text);
    field = strrchr(text, ')');
    if (field == NULL || strlen(field) < 3u) {
        return;
    }
    work->is_known = true;
    work->is_at_work = work->is_at_work || field[2] == 'R' || field[2] == 'D';
    field += 2;
    for (number = 3; number < LAST_TIME && field != NULL; ++number) {
        field = strchr(field, ' ');
        field = field == NULL ? NULL : field + 1;
        if (field != NULL && number + 1 >= FIRST_TIME) {
            work->ticks += strtoull(field, NULL, 10);
        }
    }
}

/* Add what a process and its children have done, without a heap. */
static void add_work(long process, unsigned int depth, struct work *work)
{
    char name[64];
    char text[512];
    const char *next = text;

    add_work_of(process, work);
    (void)snprintf(name, sizeof name, "/proc/%ld/task/%ld/children", process, process);
    read_text(name, text, sizeof text);
    while (depth != 0u && *next != '\0') {
        char *end;
        const long child = strtol(next, &end, 10);

        if (end == next) {
            break;
        }
        add_work(child, depth - 1u, work);
        next = end;
    }
}

/* Count what the program has used since the last look; whether that is within the limit. */
static bool is_within(const struct umakit_child *child, struct umakit_child_limit *limit)
{
    struct work work = {false, false, 0u};
    const uint64_t now = umakit_child_now();
    uint64_t passed = now - limit->looked;
    uint64_t used;
    const long ticks = sysconf(_SC_CLK_TCK);
    bool is_busy;

    add_work(child->process, MOST_DEPTH, &work);
    used = work.ticks * 1000u / (uint64_t)(ticks > 0 ? ticks : 100);
    is_busy = work.is_at_work && limit->was_at_work;
    limit->was_at_work = work.is_at_work;
    if (limit->looked == 0u) {
        passed = 0u;
        limit->begun = used;
        limit->waited_from = used;
    } else if (passed > 2u * LOOK_MILLISECONDS) {
        passed = 2u * LOOK_MILLISECONDS; /* the machine was suspended, for example */
    }
    limit->looked = now;
    limit->waited += passed;
    /* A program that waits may look around now and then. */
    if (is_busy || used > limit->waited_from + LEAST_WORK + limit->waited / LEAST_SHARE) {
        limit->waited = 0u;
        limit->waited_from = used;
    }
    if (used < limit->begun) { /* children that nobody has waited for have ended */
        limit->begun = used;
        limit->waited_from = used;
    }
    return limit->waited < limit->milliseconds && used - limit->begun < limit->milliseconds;
}

/* Wait until a descriptor can be used, and keep what comes on standard error meanwhile.
 * That the program has ended may not show there: what it started keeps pipes open. */
static enum umakit_child_result wait_until_ready(struct umakit_child *child, int descriptor,
                                                 short events, struct umakit_child_limit *limit)
{
    const uint64_t share = limit->milliseconds / LOOKS;
    const int most = share > LOOK_MILLISECONDS ? (int)LOOK_MILLISECONDS
                     : share < POLL_MILLISECONDS ? (int)POLL_MILLISECONDS
                                                 : (int)share;

    for (;;) {
        struct pollfd polled[2] = {{descriptor, events, 0}, {child->errors, POLLIN, 0}};
        const bool was_over = is_over(child);
        const int ready = poll(polled, 2u, was_over ? 0 : most);

        if (ready > 0 && polled[1].revents != 0) {
            keep_errors(child);
        }
        if (ready > 0 && polled[0].revents != 0) {
            return UMAKIT_CHILD_DONE;
        }
        if (was_over) {
            return UMAKIT_CHILD_CLOSED;
        }
        if (!is_within(child, limit)) {
            return UMAKIT_CHILD_SILENT;
        }
    }
}

static bool is_to_be_repeated(int reason)
{
    return reason == EINTR || reason == EAGAIN || reason == EWOULDBLOCK;
}

enum umakit_child_result umakit_child_send(struct umakit_child *child, const void *bytes,
                                           size_t count, struct umakit_child_limit *limit)
{
    const unsigned char *next = bytes;

    while (count > 0u) {
        const enum umakit_child_result result =
            wait_until_ready(child, child->input, POLLOUT, limit);
        ssize_t sent;

        if (result != UMAKIT_CHILD_DONE) {
            return result;
        }
        sent = send(child->input, next, count, SEND_FLAGS);
        if (sent > 0) {
            next += sent;
            count -= (size_t)sent;
        } else if (sent == 0 || !is_to_be_repeated(errno)) {
            return UMAKIT_CHILD_CLOSED;
        }
    }
    return UMAKIT_CHILD_DONE;
}

enum umakit_child_result umakit_child_receive(struct umakit_child *child, void *bytes,
                                              size_t count, struct umakit_child_limit *limit)
{
    unsigned char *next = bytes;

    while (count > 0u) {
        const enum umakit_child_result result =
            wait_until_ready(child, child->output, POLLIN, limit);
        ssize_t received;

        if (result != UMAKIT_CHILD_DONE) {
            return result;
        }
        received = read(child->output, next, count);
        if (received > 0) {
            next += received;
            count -= (size_t)received;
        } else if (received == 0 || !is_to_be_repeated(errno)) {
            return UMAKIT_CHILD_CLOSED;
        }
    }
    return UMAKIT_CHILD_DONE;
}

/* ---- End ---- */

static void sleep_a_little(void)
{
    const struct timespec pause = {0, (long)POLL_MILLISECONDS * 1000000L};

    (void)nanosleep(&pause, NULL);
}

/* Whether the program ends by itself until a deadline. */
static bool ends_until(struct umakit_child *child, uint64_t deadline)
{
    while (!is_over(child)) {
        keep_errors(child);
        if (umakit_child_now() >= deadline) {
            return false;
        }
        sleep_a_little();
    }
    return true;
}

enum umakit_child_end umakit_child_end(struct umakit_child *child, uint64_t milliseconds,
                                       int *number)
{
    enum umakit_child_end end = UMAKIT_CHILD_STOPPED;
    bool has_ended;
    int status;

    *number = 0;
    if (child->process == 0) {
        return end;
    }
    if (milliseconds == 0u) {
        /* Before its pipes are closed, of which it would complain in its last lines. */
        (void)kill(-(pid_t)child->process, SIGKILL);
    }
    close_descriptor(&child->input);
    close_descriptor(&child->output);
    has_ended = milliseconds != 0u && ends_until(child, umakit_child_now() + milliseconds);
    stop_guard(child);
    (void)kill(-(pid_t)child->process, SIGKILL); /* it, and what it started */
    status = reap((pid_t)child->process);
    if (has_ended && WIFSIGNALED(status)) {
        end = UMAKIT_CHILD_SIGNALLED;
        *number = WTERMSIG(status);
    } else if (has_ended) {
        end = UMAKIT_CHILD_EXITED;
        *number = WEXITSTATUS(status);
    }
    keep_errors(child);
    close_descriptor(&child->errors);
    child->process = 0;
    return end;
}

/* ---- What it said ---- */

static unsigned char last_word(const struct umakit_child *child, uint64_t index)
{
    return child->last_words[index % UMAKIT_CHILD_LAST_WORDS];
}

/* Where the last lines begin, and where they end without the line ends behind them. */
static uint64_t find_lines(const struct umakit_child *child, size_t most, uint64_t *end)
{
    const uint64_t count = child->word_count;
    const uint64_t kept = count < UMAKIT_CHILD_LAST_WORDS ? count : UMAKIT_CHILD_LAST_WORDS;
    const uint64_t oldest = count - kept;
    uint64_t first = count;
    uint32_t lines = 0u;

    while (first > oldest && last_word(child, first - 1u) <= (unsigned char)' ') {
        --first;
    }
    *end = first;
    while (first > oldest && *end - first < most) {
        if (last_word(child, first - 1u) == (unsigned char)'\n' && ++lines == LINES_QUOTED) {
            break;
        }
        --first;
    }
    return first;
}

void umakit_child_quote(const struct umakit_child *child, char *text, size_t capacity)
{
    size_t written = 0u;
    uint64_t end;
    uint64_t index;

    if (capacity == 0u) {
        return;
    }
    for (index = find_lines(child, (capacity - 1u) / 3u, &end); index < end; ++index) {
        const unsigned char byte = last_word(child, index);

        if (byte == (unsigned char)'\n') {
            text[written++] = ' ';
            text[written++] = '|';
            text[written++] = ' ';
        } else {
            text[written++] = byte < (unsigned char)' ' || byte == 127u ? ' ' : (char)byte;
        }
    }
    text[written] = '\0';
}
