/* SPDX-License-Identifier: Apache-2.0 */
/* What a RISC-V program says when it ends in a trap. */
#include "bare_metal.h"

extern char __stack_bottom[];

void umakit_trap(uintptr_t cause, uintptr_t address, uintptr_t value, uintptr_t stack)
    __attribute__((noreturn));

static const char *const causes[] = {
    "misaligned jump",
    "instruction access fault",
    "illegal instruction",
    "breakpoint",
    "misaligned load",
    "load access fault",
    "misaligned store",
    "store access fault",
};

void umakit_trap(uintptr_t cause, uintptr_t address, uintptr_t value, uintptr_t stack)
{
    const struct umakit_fact facts[] = {{"at", address}, {"accessing", value}, {"mcause", cause}};
    const char *what = cause < sizeof causes / sizeof causes[0] ? causes[cause] : "trap";

    if (stack < (uintptr_t)__stack_bottom) {
        what = "stack overflow";
    }
    umakit_stop(what, facts, sizeof facts / sizeof facts[0]);
}
