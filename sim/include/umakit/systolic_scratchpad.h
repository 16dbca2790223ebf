/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: bounds, banks and parity of the scratchpad. */
#ifndef UMAKIT_SYSTOLIC_SCRATCHPAD_H
#define UMAKIT_SYSTOLIC_SCRATCHPAD_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"
#include "systolic_array.h"
#include "systolic_command.h"

/* From the first byte to the last; UINT64_MAX if it does not fit 64 bits. */
uint64_t umakit_systolic_extent(const struct umakit_systolic_region *region);

/* Whether they share a byte, counting those between their own. */
bool umakit_systolic_ranges_overlap(const struct umakit_systolic_region *left,
                                    const struct umakit_systolic_region *right);

bool umakit_systolic_is_in_scratchpad(const struct umakit_systolic_array *array,
                                      const struct umakit_systolic_region *region);

/* A bit for each bank between the first and the last byte. */
uint32_t umakit_systolic_banks(const struct umakit_systolic_array *array,
                               const struct umakit_systolic_region *region);

/* Reading: whether parity holds, and if not the first byte found where it does
 * not. Writing sets it again. */
bool umakit_systolic_parity_holds(const struct umakit_systolic_array *array,
                                  const struct umakit_systolic_region *region,
                                  uint32_t *offset);
void umakit_systolic_set_parity(struct umakit_systolic_array *array,
                                const struct umakit_systolic_region *region);

/* UMAKIT_OUT_OF_RANGE, or UMAKIT_TABLE_FULL. */
UMAKIT_MUST_USE int umakit_systolic_flip_bit(struct umakit_systolic_array *array,
                                             uint32_t offset, uint32_t bit);

#endif /* UMAKIT_SYSTOLIC_SCRATCHPAD_H */
