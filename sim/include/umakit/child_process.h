/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the adapter of simulators that are programs: a program of this
 * machine, started with pipes to its standard input, output and error. POSIX; no
 * heap. Nothing here waits longer than it is told to.
 */
#ifndef UMAKIT_CHILD_PROCESS_H
#define UMAKIT_CHILD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of standard error that are kept: the last ones. */
#define UMAKIT_CHILD_LAST_WORDS 512u

/* What became of a transfer. */
enum umakit_child_result {
    UMAKIT_CHILD_DONE = 0,
    UMAKIT_CHILD_SILENT = 1, /* nothing moved within the limit */
    UMAKIT_CHILD_CLOSED = 2  /* the program ended or closed its end */
};

/* How long a program may take to answer, and what it has used of that. All in milliseconds. */
struct umakit_child_limit {
    uint64_t milliseconds; /* of processor time, and of idleness */
    uint64_t looked;       /* when it was last looked at; 0: not yet */
    uint64_t begun;        /* processor time that it had used before */
    uint64_t waited;       /* for how long it has been idle */
    uint64_t waited_from;  /* processor time that it had used before it was idle */
    bool was_at_work;      /* at the last look */
};

/* How a program ended. */
enum umakit_child_end {
    UMAKIT_CHILD_STOPPED = 0, /* it had not ended: it was stopped */
    UMAKIT_CHILD_EXITED = 1,  /* `number` is its exit code */
    UMAKIT_CHILD_SIGNALLED = 2 /* `number` is a signal's */
};

struct umakit_child {
    long process; /* its number; 0: not running */
    long owner;   /* number of the process that started it */
    long guard;   /* number of the process that kills it when the owner ends; -1: none */
    int input;    /* where it reads */
    int output;   /* what it writes */
    int errors;   /* what it writes to its standard error; -1: closed */
    int life;     /* the guard waits for its end; -1: no guard */
    unsigned char last_words[UMAKIT_CHILD_LAST_WORDS]; /* a ring */
    uint64_t word_count; /* bytes that it wrote to its standard error */
};

/* Start a program, `command` ends with NULL, in a folder. Answers 0 or an errno,
 * after which nothing is left of it. */
int umakit_child_start(struct umakit_child *child, const char *folder, char *const *command);

/* Milliseconds of a clock that only goes forward. */
uint64_t umakit_child_now(void);

/* Send or receive all bytes within a limit, of which only `milliseconds` is set at first. It
 * counts processor time of the program and its children, and time in which they use none:
 * what else the machine does changes nothing. Without /proc it counts time. */
enum umakit_child_result umakit_child_send(struct umakit_child *child, const void *bytes,
                                           size_t count, struct umakit_child_limit *limit);
enum umakit_child_result umakit_child_receive(struct umakit_child *child, void *bytes,
                                              size_t count, struct umakit_child_limit *limit);

/* Close its standard input and wait for its end, at most some milliseconds; what
 * runs then is killed, with 0 at once. Afterwards there is neither a process nor a descriptor. */
enum umakit_child_end umakit_child_end(struct umakit_child *child, uint64_t milliseconds,
                                       int *number);

/* The last whole lines of its standard error as printable text on one line; the
 * text is empty if it wrote nothing. */
void umakit_child_quote(const struct umakit_child *child, char *text, size_t capacity);

#endif /* UMAKIT_CHILD_PROCESS_H */
