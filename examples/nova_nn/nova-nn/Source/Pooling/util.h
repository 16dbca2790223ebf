/*
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef NOVA_POOLING_UTIL_H
#define NOVA_POOLING_UTIL_H

#include "nova_nn_types.h"

typedef struct {
    int32_t begin, end;
} nova_span;

/* The part of a window that lies within the input. */
nova_span nova_span_within(int32_t begin, int32_t length, int32_t limit);

#endif
