/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the registers that keep what is written. */
#ifndef UMAKIT_SYSTOLIC_REGISTER_FILE_H
#define UMAKIT_SYSTOLIC_REGISTER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "systolic_array.h"

/* A register that is written, by its offset. */
static inline uint32_t umakit_systolic_register(const struct umakit_systolic_array *array,
                                                uint32_t offset)
{
    return array->registers[offset / 4u];
}

static inline bool umakit_systolic_is_dma_register(uint32_t offset)
{
    return offset % 4u == 0u && offset >= UMAKIT_SYSTOLIC_ARRAY_DMA_BUS_ADDRESS_OFFSET &&
           offset <= UMAKIT_SYSTOLIC_ARRAY_DMA_SCRATCHPAD_PLANE_STRIDE_OFFSET;
}

static inline bool umakit_systolic_is_job_register(uint32_t offset)
{
    return offset % 4u == 0u &&
           ((offset >= UMAKIT_SYSTOLIC_ARRAY_OPERATION_OFFSET &&
             offset <= UMAKIT_SYSTOLIC_ARRAY_SCALE_COUNT_OFFSET) ||
            (offset >= UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_OFFSET &&
             offset <= UMAKIT_SYSTOLIC_ARRAY_ACCUMULATOR_START_OFFSET) ||
            (offset >= UMAKIT_SYSTOLIC_ARRAY_ADD_OFFSET &&
             offset <= UMAKIT_SYSTOLIC_ARRAY_SUM_CLIP_HIGHEST_OFFSET));
}

#endif /* UMAKIT_SYSTOLIC_REGISTER_FILE_H */
