/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of integer_driver.c on operands in a scratchpad, which are offsets. */
#ifndef SCRATCHPAD_DRIVER_H
#define SCRATCHPAD_DRIVER_H

#include <stdint.h>

#include "integer_driver.h"
#include "scratchpad_size.h"

extern uint8_t scratchpad_memory[SCRATCHPAD_BYTES];
extern int64_t scratchpad_copied;

int32_t scratchpad_load(const void *source, uint32_t offset, int32_t bytes);
int32_t scratchpad_store(uint32_t offset, void *destination, int32_t bytes);

#define IN_SCRATCHPAD(type, offset) ((type *)(void *)(scratchpad_memory + (offset)))
#define WITH_WEIGHTS(function, data, weights, bias, multipliers, shifts, result, ...)           \
    function(IN_SCRATCHPAD(int8_t, data), IN_SCRATCHPAD(int8_t, weights),                       \
             IN_SCRATCHPAD(int32_t, bias), IN_SCRATCHPAD(int32_t, multipliers),                 \
             IN_SCRATCHPAD(int8_t, shifts), IN_SCRATCHPAD(int8_t, result), __VA_ARGS__)

#define scratchpad_qconv2d(...) WITH_WEIGHTS(npu_qconv2d, __VA_ARGS__)
#define scratchpad_qdepthwise(...) WITH_WEIGHTS(npu_qdepthwise, __VA_ARGS__)
#define scratchpad_qdense(...) WITH_WEIGHTS(npu_qdense, __VA_ARGS__)
#define scratchpad_qconv2d_add(data, addend, weights, bias, multipliers, shifts, result, ...)   \
    npu_qconv2d_add(IN_SCRATCHPAD(int8_t, data), IN_SCRATCHPAD(int8_t, addend),                 \
                    IN_SCRATCHPAD(int8_t, weights), IN_SCRATCHPAD(int32_t, bias),               \
                    IN_SCRATCHPAD(int32_t, multipliers), IN_SCRATCHPAD(int8_t, shifts),         \
                    IN_SCRATCHPAD(int8_t, result), __VA_ARGS__)
#define scratchpad_qadd(left, right, result, ...)                                               \
    npu_qadd(IN_SCRATCHPAD(int8_t, left), IN_SCRATCHPAD(int8_t, right),                         \
             IN_SCRATCHPAD(int8_t, result), __VA_ARGS__)

#endif
