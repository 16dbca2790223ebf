/* SPDX-License-Identifier: Apache-2.0 */
/* The platform of a machine with a C library and files. */
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L /* NOLINT: the name is POSIX's */
#endif

#include "umakit_platform.h"

#include <stdio.h>
#include <time.h>

static FILE *input_file;
static FILE *output_file;

bool umakit_platform_open(const char *inputs, const char *outputs)
{
    input_file = fopen(inputs, "rb");
    output_file = fopen(outputs, "wb");
    return input_file != NULL && output_file != NULL;
}

bool umakit_platform_read(void *memory, size_t size)
{
    return fread(memory, 1, size, input_file) == size;
}

bool umakit_platform_write(const void *memory, size_t size)
{
    return fwrite(memory, 1, size, output_file) == size;
}

bool umakit_platform_close(void)
{
    bool kept = true;

    if (input_file != NULL) {
        (void)fclose(input_file);
        input_file = NULL;
    }
    if (output_file != NULL) {
        kept = fclose(output_file) == 0;
        output_file = NULL;
    }
    return kept;
}

void umakit_platform_print(const char *text)
{
    (void)fputs(text, stdout);
}

void umakit_platform_print_number(uint64_t number)
{
    /* newlib may be built without PRIu64. */
    printf("%llu", (unsigned long long)number);
}

void umakit_platform_complain(const char *text)
{
    (void)fputs(text, stderr);
}

uint64_t umakit_platform_nanoseconds(void)
{
#ifdef CLOCK_PROCESS_CPUTIME_ID
    struct timespec now;

    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0) {
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    }
#endif
    return (uint64_t)clock() * UINT64_C(1000000000) / (uint64_t)CLOCKS_PER_SEC;
}

uint64_t umakit_platform_instructions(void)
{
    return 0;
}
