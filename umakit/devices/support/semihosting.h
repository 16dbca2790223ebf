/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Semihosting: a program without an operating system asks the debugger or emulator that watches
 * it to read and write files of the host. The calls are those of "Semihosting for AArch32 and
 * AArch64" (Arm) and "RISC-V Semihosting"; only the instruction that asks differs.
 */
#ifndef UMAKIT_SEMIHOSTING_H
#define UMAKIT_SEMIHOSTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a file is opened: an index into fopen's modes. The console has the name ":tt". */
#define UMAKIT_SEMIHOSTING_READ_BINARY 1u
#define UMAKIT_SEMIHOSTING_WRITE 4u
#define UMAKIT_SEMIHOSTING_WRITE_BINARY 5u
#define UMAKIT_SEMIHOSTING_APPEND 8u
#define UMAKIT_SEMIHOSTING_CONSOLE ":tt"

/* A handle, or -1. */
intptr_t umakit_semihosting_open(const char *path, unsigned mode);

bool umakit_semihosting_close(intptr_t handle);

/* All bytes or false. */
bool umakit_semihosting_read(intptr_t handle, void *memory, size_t size);
bool umakit_semihosting_write(intptr_t handle, const void *memory, size_t size);

/* The words that the program was started with, zero terminated; false when they do not fit. */
bool umakit_semihosting_command_line(char *memory, size_t size);

/* End the program and the emulator with this exit code. */
void umakit_semihosting_exit(int code) __attribute__((noreturn));

/* The trap itself, in assembly language: `arguments` is a block of words of register size. */
intptr_t umakit_semihosting_call(uintptr_t operation, const uintptr_t *arguments);

#endif /* UMAKIT_SEMIHOSTING_H */
