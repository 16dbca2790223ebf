/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that fill all of their scratch with a pattern and compute from a copy in it. */
#include "kernel_library.h"

#include <stddef.h>
#include <string.h>

#include "integer_driver.h"

#ifndef LIB_EXTRA
#define LIB_EXTRA 3 /* bytes of scratch, which depend on the core */
#endif
#ifdef LIB_HALVES
#define EXTRA_BYTES (LIB_EXTRA / 2)
#else
#define EXTRA_BYTES LIB_EXTRA
#endif
#ifndef LIB_STATUS
#define LIB_STATUS LIB_OK
#endif

static int32_t bytes_of(const lib_dims *dims)
{
    return dims->n * dims->h * dims->w * dims->c;
}

#ifdef LIB_MORE
int32_t LIB_MORE(int32_t bytes);
#else
#define LIB_MORE(bytes) (bytes)
#endif

int32_t lib_convolve_bytes(const lib_dims *input_dims, const lib_conv_params *params)
{
    /* A window of one element needs no copy. */
    return params->padding.top != 0 ? LIB_MORE(bytes_of(input_dims)) + EXTRA_BYTES : 0;
}

/* Fills a context; returns a copy of the input in it, or the input if it is too small for one. */
static const int8_t *copied(const lib_context *context, const int8_t *input, const lib_dims *dims)
{
    if (context->size == 0) {
        return input;
    }
    memset(context->buffer, 0x5a, (size_t)context->size);
    memcpy(context->buffer, input, (size_t)bytes_of(dims));
    return context->buffer;
}

lib_status lib_convolve(const lib_context *context, const lib_conv_params *params,
                        const lib_scales *scales, const lib_dims *input_dims, const int8_t *input,
                        const lib_dims *filter_dims, const int8_t *filter, const int32_t *bias,
                        const lib_dims *output_dims, int8_t *output)
{
    if (LIB_STATUS != LIB_OK) {
        return LIB_STATUS;
    }
    if (context->size < lib_convolve_bytes(input_dims, params) ||
        (context->buffer == NULL) != (context->size == 0) ||
        (uintptr_t)context->buffer % 16 != 0) {
        return LIB_ARGUMENT_ERROR;
    }
    input = copied(context, input, input_dims);
    return (lib_status)npu_qconv2d(
        input, filter, bias, scales->multipliers, scales->shifts, output, input_dims->n,
        input_dims->h, input_dims->w, input_dims->c, output_dims->h, output_dims->w,
        output_dims->c, filter_dims->h, filter_dims->w, params->stride_y, params->stride_x,
        params->padding.top, params->padding.left, params->padding.top, params->padding.left, 1, 1,
        1, scales->scales, -params->input_offset, params->output_offset, params->clip.lowest,
        params->clip.highest, 0);
}

void lib_max_pool(const lib_context *context, int8_t *input, const lib_dims *input_dims,
                  const lib_dims *output_dims, const lib_dims *window, int32_t stride_y,
                  int32_t stride_x, lib_padding padding, int8_t lowest, int8_t highest,
                  int8_t *output)
{
    (void)npu_qmax_pool2d(copied(context, input, input_dims), output, input_dims->n,
                          input_dims->h, input_dims->w, input_dims->c, output_dims->h,
                          output_dims->w, window->h, window->w, stride_y, stride_x, padding.top,
                          padding.left, padding.top, padding.left, 0, lowest, highest, 0);
}
