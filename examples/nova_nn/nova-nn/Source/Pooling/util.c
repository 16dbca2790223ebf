/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "util.h"

#include "internal/nova_nn_support.h"

nova_span nova_span_within(int32_t begin, int32_t length, int32_t limit)
{
    const nova_span span = {NOVA_MAX(begin, 0), NOVA_MIN(begin + length, limit)};

    return span;
}
