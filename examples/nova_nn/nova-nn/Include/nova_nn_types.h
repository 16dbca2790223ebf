/*
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef NOVA_NN_TYPES_H
#define NOVA_NN_TYPES_H

#include <stdint.h>

typedef enum {
    NOVA_SUCCESS = 0,
    NOVA_ARG_ERROR = -1,     /* sizes that do not fit each other */
    NOVA_NO_IMPL_ERROR = -2, /* there is no kernel for these parameters */
    NOVA_SCRATCH_ERROR = -3, /* the scratch buffer is missing or too small */
} nova_status;

/* Working memory of one call. Its content means nothing before and after the call. */
typedef struct {
    void *buf;
    int32_t size; /* bytes */
} nova_context;

/* NHWC; of filters n is the number of output channels, c that of input channels. */
typedef struct {
    int32_t n;
    int32_t h;
    int32_t w;
    int32_t c;
} nova_dims;

typedef struct {
    int32_t w;
    int32_t h;
} nova_tile;

typedef struct {
    int32_t min;
    int32_t max;
} nova_activation;

/* Offsets are added: input_offset is minus the zero point of the input. */
typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    nova_tile stride;
    nova_tile padding;
    nova_tile dilation;
    nova_activation activation;
} nova_conv_params;

typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    int32_t ch_mult; /* output channels for each input channel */
    nova_tile stride;
    nova_tile padding;
    nova_tile dilation;
    nova_activation activation;
} nova_dw_conv_params;

typedef struct {
    int32_t input_offset;
    int32_t output_offset;
    nova_activation activation;
} nova_fc_params;

typedef struct {
    nova_tile stride;
    nova_tile padding;
    nova_activation activation;
} nova_pool_params;

/* shift: positive to the left, negative to the right */
typedef struct {
    const int32_t *multiplier;
    const int32_t *shift;
} nova_per_channel_quant_params;

typedef struct {
    int32_t multiplier;
    int32_t shift;
} nova_per_tensor_quant_params;

#endif /* NOVA_NN_TYPES_H */
