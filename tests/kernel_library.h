/* SPDX-License-Identifier: Apache-2.0 */
/* A library of kernels for tests, in the shape in which vendors ship them. */
#ifndef KERNEL_LIBRARY_H
#define KERNEL_LIBRARY_H

#include <stdint.h>

typedef enum { LIB_OK = 0, LIB_ARGUMENT_ERROR = -1, LIB_ODD_ERROR = -40000 } lib_status;

typedef struct {
    void *buffer;
    int32_t size;
} lib_context;

typedef struct {
    int32_t n;
    int32_t h;
    int32_t w;
    int32_t c;
} lib_dims;

typedef struct {
    int16_t top;
    int16_t left;
} lib_padding;

typedef struct {
    int32_t input_offset; /* minus the zero point */
    int32_t output_offset;
    int32_t stride_y;
    int32_t stride_x;
    lib_padding padding;
    struct {
        int32_t lowest;
        int32_t highest;
    } clip;
} lib_conv_params;

typedef struct {
    const int32_t *multipliers;
    const int8_t *shifts;
    int32_t scales;
} lib_scales;

lib_status lib_convolve(const lib_context *context, const lib_conv_params *params,
                        const lib_scales *scales, const lib_dims *input_dims, const int8_t *input,
                        const lib_dims *filter_dims, const int8_t *filter, const int32_t *bias,
                        const lib_dims *output_dims, int8_t *output);
int32_t lib_convolve_bytes(const lib_dims *input_dims, const lib_conv_params *params);

/* Returns nothing; works in its context. */
void lib_max_pool(const lib_context *context, int8_t *input, const lib_dims *input_dims,
                  const lib_dims *output_dims, const lib_dims *window, int32_t stride_y,
                  int32_t stride_x, lib_padding padding, int8_t lowest, int8_t highest,
                  int8_t *output);

#endif
