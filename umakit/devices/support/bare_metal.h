/* SPDX-License-Identifier: Apache-2.0 */
/* What the start-up code of a processor and the platform on semihosting know of each other. */
#ifndef UMAKIT_BARE_METAL_H
#define UMAKIT_BARE_METAL_H

#include <stdint.h>

/* Called once memory holds what C promises: calls main with the words of the command line and
 * ends the program with what it returns. */
void umakit_start(void) __attribute__((noreturn));

/* A number to print with the message of a fault. */
struct umakit_fact {
    const char *name;
    uintptr_t value;
};

/* End the program with a message on the console. */
void umakit_stop(const char *what, const struct umakit_fact *facts, unsigned count)
    __attribute__((noreturn));

#endif /* UMAKIT_BARE_METAL_H */
