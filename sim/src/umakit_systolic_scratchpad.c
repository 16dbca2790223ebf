/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds, banks and parity of the scratchpad.
 *
 * Parity is one bit a byte. It fails for a byte exactly if a fault flipped one
 * of its bits since it was written, so the model keeps a list of those bytes in
 * place of the bits, and reads and writes cost nothing while it is empty.
 */
#include "umakit/systolic_scratchpad.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"

uint64_t umakit_systolic_extent(const struct umakit_systolic_region *region)
{
    uint64_t last = 0u;
    size_t i;

    for (i = 0u; i < 3u; ++i) {
        const uint64_t distance = (uint64_t)(region->sizes[i] - 1u) * region->strides[i];

        if (distance > UINT64_MAX - 1u - last) {
            return UINT64_MAX;
        }
        last += distance;
    }
    return last + 1u;
}

bool umakit_systolic_is_in_scratchpad(const struct umakit_systolic_array *array,
                                      const struct umakit_systolic_region *region)
{
    const uint32_t bytes = array->config.scratchpad_bytes;

    return region->start < bytes && umakit_systolic_extent(region) <= bytes - region->start;
}

bool umakit_systolic_ranges_overlap(const struct umakit_systolic_region *left,
                                    const struct umakit_systolic_region *right)
{
    return left->start < right->start
               ? right->start - left->start < umakit_systolic_extent(left)
               : left->start - right->start < umakit_systolic_extent(right);
}

uint32_t umakit_systolic_banks(const struct umakit_systolic_array *array,
                               const struct umakit_systolic_region *region)
{
    const uint32_t bank_bytes =
        array->config.scratchpad_bytes / array->config.scratchpad_banks;
    const uint32_t first = region->start / bank_bytes;
    const uint64_t last =
        (region->start + (umakit_systolic_extent(region) - 1u)) / bank_bytes;
    uint32_t banks = 0u;
    uint32_t bank;

    for (bank = first; bank <= last; ++bank) {
        banks |= UINT32_C(1) << bank;
    }
    return banks;
}

/* Whether a byte is one of the region's and not between them. */
static bool contains(const struct umakit_systolic_region *region, uint32_t offset)
{
    uint32_t y;
    uint32_t x;

    for (y = 0u; y < region->sizes[0]; ++y) {
        for (x = 0u; x < region->sizes[1]; ++x) {
            const uint64_t start = region->start + (uint64_t)y * region->strides[0] +
                                   (uint64_t)x * region->strides[1];
            const uint64_t distance = offset - start; /* wraps if it lies before */
            const uint32_t stride = region->strides[2];

            if (offset < start) {
                continue;
            }
            if (distance == 0u || (stride != 0u && distance % stride == 0u &&
                                   distance / stride < region->sizes[2])) {
                return true;
            }
        }
    }
    return false;
}

bool umakit_systolic_parity_holds(const struct umakit_systolic_array *array,
                                  const struct umakit_systolic_region *region,
                                  uint32_t *offset)
{
    uint32_t i;

    for (i = 0u; i < array->flipped_count; ++i) {
        if (contains(region, array->flipped[i])) {
            *offset = array->flipped[i];
            return false;
        }
    }
    return true;
}

void umakit_systolic_set_parity(struct umakit_systolic_array *array,
                          const struct umakit_systolic_region *region)
{
    uint32_t i = 0u;

    while (i < array->flipped_count) {
        if (contains(region, array->flipped[i])) {
            --array->flipped_count;
            array->flipped[i] = array->flipped[array->flipped_count];
        } else {
            ++i;
        }
    }
}

int umakit_systolic_flip_bit(struct umakit_systolic_array *array, uint32_t offset,
                             uint32_t bit)
{
    unsigned char *bytes = (unsigned char *)array->config.scratchpad;

    if (offset >= array->config.scratchpad_bytes) {
        return UMAKIT_OUT_OF_RANGE;
    }
    if (array->flipped_count == UMAKIT_SYSTOLIC_ARRAY_FLIPPED_COUNT) {
        return UMAKIT_TABLE_FULL;
    }
    bytes[offset] = (unsigned char)(bytes[offset] ^ (1u << bit));
    array->flipped[array->flipped_count] = offset;
    ++array->flipped_count;
    return UMAKIT_OK;
}
