/* SPDX-License-Identifier: Apache-2.0 */
/* Faults as they come. */
#ifndef RANDOM_FAULT_H
#define RANDOM_FAULT_H

#include <stdint.h>

#include "check.h"
#include "umakit/faults.h"

/* Of any kind, at one of the first events; buffers lie in the first windows. */
static inline struct umakit_fault random_fault(uint32_t *state, uint32_t scratchpad_bytes)
{
    struct umakit_fault fault = {
        .kind = (enum umakit_fault_kind)random_size(state, 5u),
        .skip = random_size(state, 8u) - 1u,
        .count = random_size(state, 3u) - 1u,
        .address = random_size(state, 3u) << 28,
        .bytes = random_size(state, 200u),
        .bit = random_size(state, 8u) - 1u,
        .engine = (enum umakit_engine)(random_size(state, 2u) - 1u),
        .ending = (enum umakit_fault_ending)(random_size(state, 3u) - 1u),
    };

    if (fault.kind == UMAKIT_FAULT_SCRATCHPAD_BIT && scratchpad_bytes > 0u) {
        fault.address = random_size(state, scratchpad_bytes) - 1u;
    }
    return fault;
}

#endif /* RANDOM_FAULT_H */
