/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of a board: registers at UMAKIT_DEVICE_BASE, an integer constant
 * given when board/umakit_device_memory_mapped.c is compiled. They are the
 * board's if UMAKIT_BOARD_HAS_INTERRUPT is defined there, those of the systolic
 * array if UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY is, else those of the MAC array.
 */
#ifndef UMAKIT_MEMORY_MAPPED_H
#define UMAKIT_MEMORY_MAPPED_H

#include <stdbool.h>
#include <stddef.h>

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The board's one device, never NULL. */
umakit_device *umakit_memory_mapped_device(void);

/* With UMAKIT_BOARD_HAS_INTERRUPT defined the board provides this: whether the
 * device has done what the driver waits for. */
bool umakit_board_interrupt(void);

/* With UMAKIT_BOARD_HAS_CACHE defined the board provides these two. They get
 * the buffer as mapped and round to cache lines themselves. */
void umakit_board_cache_clean(const void *memory, size_t bytes);
void umakit_board_cache_invalidate(const void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_MEMORY_MAPPED_H */
