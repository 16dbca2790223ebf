/* SPDX-License-Identifier: Apache-2.0 */
#include "semihosting.h"

#include <string.h>

#define SYS_OPEN 0x01u
#define SYS_CLOSE 0x02u
#define SYS_WRITE 0x05u
#define SYS_READ 0x06u
#define SYS_GET_CMDLINE 0x15u
#define SYS_EXIT_EXTENDED 0x20u

#define STOPPED_APPLICATION_EXIT 0x20026u

intptr_t umakit_semihosting_open(const char *path, unsigned mode)
{
    const uintptr_t arguments[] = {(uintptr_t)path, mode, strlen(path)};

    return umakit_semihosting_call(SYS_OPEN, arguments);
}

bool umakit_semihosting_close(intptr_t handle)
{
    const uintptr_t arguments[] = {(uintptr_t)handle};

    return umakit_semihosting_call(SYS_CLOSE, arguments) == 0;
}

/* Both answer with the number of bytes that are left, and may do a part at a time. */
static bool transfer(uintptr_t operation, intptr_t handle, uintptr_t address, size_t size)
{
    while (size > 0) {
        const uintptr_t arguments[] = {(uintptr_t)handle, address, size};
        const size_t left = (size_t)umakit_semihosting_call(operation, arguments);

        if (left >= size) { /* nothing was done, or -1 */
            return false;
        }
        address += size - left;
        size = left;
    }
    return true;
}

bool umakit_semihosting_read(intptr_t handle, void *memory, size_t size)
{
    return transfer(SYS_READ, handle, (uintptr_t)memory, size);
}

bool umakit_semihosting_write(intptr_t handle, const void *memory, size_t size)
{
    return transfer(SYS_WRITE, handle, (uintptr_t)memory, size);
}

bool umakit_semihosting_command_line(char *memory, size_t size)
{
    const uintptr_t arguments[] = {(uintptr_t)memory, size};

    return umakit_semihosting_call(SYS_GET_CMDLINE, arguments) == 0;
}

void umakit_semihosting_exit(int code)
{
    const uintptr_t arguments[] = {STOPPED_APPLICATION_EXIT, (uintptr_t)code};

    for (;;) {
        (void)umakit_semihosting_call(SYS_EXIT_EXTENDED, arguments);
    }
}
