/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program that runs a network needs of the machine it runs on. One of these is linked:
 *
 *     umakit_platform_hosted.c         stdio and clock()
 *     platform_semihosting.c           bare metal with a debugger or an emulator that answers
 *     a file of your own               whatever your board has
 *
 * There is one stream of inputs and one of outputs.
 */
#ifndef UMAKIT_PLATFORM_H
#define UMAKIT_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open both streams; false when one cannot be opened. */
bool umakit_platform_open(const char *inputs, const char *outputs);

/* Read exactly `size` bytes; false when there are fewer. */
bool umakit_platform_read(void *memory, size_t size);

/* Write exactly `size` bytes; false when they do not fit. */
bool umakit_platform_write(const void *memory, size_t size);

/* Close what is open; false when something written is lost. */
bool umakit_platform_close(void);

/* Print a part of the report. */
void umakit_platform_print(const char *text);
void umakit_platform_print_number(uint64_t number);

/* Print a message for the person who started the program. */
void umakit_platform_complain(const char *text);

/* Time of the processor, from any start; always 0 where there is no clock. */
uint64_t umakit_platform_nanoseconds(void);

/* Instructions that the processor has executed, from any start; always 0 where none are counted. */
uint64_t umakit_platform_instructions(void);

#endif /* UMAKIT_PLATFORM_H */
