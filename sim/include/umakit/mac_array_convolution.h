/* SPDX-License-Identifier: Apache-2.0 */
/* The function of the MAC array. */
#ifndef UMAKIT_MAC_ARRAY_CONVOLUTION_H
#define UMAKIT_MAC_ARRAY_CONVOLUTION_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A convolution of float32 tensors in NCHW and OIHW, stride 1; addresses and
 * sizes are valid. */
struct umakit_mac_array_convolution {
    const float *ifmap;
    const float *weights;
    float *result;
    size_t input_channels;
    size_t height;
    size_t width;
    size_t output_channels;
    size_t kernel_height;
    size_t kernel_width;
    size_t pad_top;
    size_t pad_left;
};

/* Compute a convolution. The result overlaps neither operand. */
void umakit_mac_array_convolve(const struct umakit_mac_array_convolution *convolution);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_MAC_ARRAY_CONVOLUTION_H */
