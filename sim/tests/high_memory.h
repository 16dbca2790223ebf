/* SPDX-License-Identifier: Apache-2.0 */
/* Memory at chosen addresses. Included first: it asks for more than C99. */
#ifndef HIGH_MEMORY_H
#define HIGH_MEMORY_H

#define _DEFAULT_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Out of reach of 32 bits, with low bits that no register holds by chance; this
 * far apart, the low bits are the same. */
#define HIGH_ADDRESS UINT64_C(0x700012345000)
#define FOUR_GIB UINT64_C(0x100000000)

/* What tests return that need memory where there is none. */
#define SKIPPED 77

/* Zeroed memory at exactly this address, or NULL. */
static inline void *memory_at(uint64_t address, size_t bytes)
{
    void *const wanted = (void *)(uintptr_t)address;
    void *found;

    if (address > UINTPTR_MAX) {
        return NULL;
    }
    found = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == wanted ? wanted : NULL;
}

#endif /* HIGH_MEMORY_H */
