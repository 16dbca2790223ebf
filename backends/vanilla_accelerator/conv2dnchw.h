/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VANILLA_ACCELERATOR_CONV2DNCHW_H
#define VANILLA_ACCELERATOR_CONV2DNCHW_H

#include "umakit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Compute a 2-D convolution on the accelerator: stride 1, batch 1, float32.
 *
 *     ifmap    ic x ih x iw        input
 *     weights  oc x ic x kh x kw
 *     result   oc x ih x iw        overlaps neither of the others
 *
 * The result is as large as the input ("same" padding): (kh - 1) / 2 rows of
 * zeros above and (kw - 1) / 2 columns left of it, the rest of kh - 1 and
 * kw - 1 below and right. For even kernels that is ONNX's SAME_UPPER.
 *
 * Returns 0, or a code of umakit/status.h; after a failure the content of
 * result is not to be used. It returns in bounded time whatever the device does, and
 * leaves it idle and its interrupt line low. UMAKIT_STUCK_BUSY, whatever went wrong first:
 * the device did not stop, and may access memory until it is reset. What runs because only
 * the processor was reset is told to stop, and calls return UMAKIT_STUCK_BUSY until it has;
 * it may access memory of the earlier program: reset the device with the processor.
 */
UMAKIT_MUST_USE int vanilla_accelerator_conv2dnchw(
    const float *ifmap, const float *weights, float *result,
    int oc, int iw, int ih, int ic, int kh, int kw);

/* The device that the driver runs on, NULL if there is none. Defined once in a
 * program, next to the driver: on the host by the simulator, on a board by you. */
umakit_device *vanilla_accelerator_device(void);

#ifdef __cplusplus
}
#endif

#endif /* VANILLA_ACCELERATOR_CONV2DNCHW_H */
