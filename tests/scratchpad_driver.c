/* SPDX-License-Identifier: Apache-2.0 */
/* A scratchpad beside integer_driver.c: operands get there by copies, which are counted. */
#include "scratchpad_driver.h"

#include <string.h>

#define OUT_OF_BOUNDS 21

uint8_t scratchpad_memory[SCRATCHPAD_BYTES] __attribute__((aligned(16)));
int64_t scratchpad_copied;

static int outside(uint32_t offset, int32_t bytes)
{
    return bytes < 0 || offset > SCRATCHPAD_BYTES ||
           (uint32_t)bytes > SCRATCHPAD_BYTES - offset;
}

int32_t scratchpad_load(const void *source, uint32_t offset, int32_t bytes)
{
    if (outside(offset, bytes)) {
        return OUT_OF_BOUNDS;
    }
    memcpy(scratchpad_memory + offset, source, (size_t)bytes);
    scratchpad_copied += bytes;
    return 0;
}

int32_t scratchpad_store(uint32_t offset, void *destination, int32_t bytes)
{
    if (outside(offset, bytes)) {
        return OUT_OF_BOUNDS;
    }
    memcpy(destination, scratchpad_memory + offset, (size_t)bytes);
    scratchpad_copied += bytes;
    return 0;
}
