# SPDX-License-Identifier: Apache-2.0
"""The library nova-nn: which layers its functions take, and how they are called."""

from typing import Any

from umakit import UMABackend, patterns

SCRATCH = "&(nova_context){$scratch, $scratch_bytes}"
DATA = "&(nova_dims){$batch, $height, $width, $input_channels}"
FILTER = "&(nova_dims){$output_channels, $kernel_height, $kernel_width, $input_channels / $groups}"
RESULT = "&(nova_dims){$batch, $output_height, $output_width, $output_channels}"
WINDOW = "{$stride_x, $stride_y}, {$pad_left, $pad_top}, {$dilation_x, $dilation_y}"
CLIP = "{$lowest, $highest}"
CONVOLUTION = f"&(nova_conv_params){{-$input_zero_point, $output_zero_point, {WINDOW}, {CLIP}}}"
DEPTHWISE = (
    "&(nova_dw_conv_params){-$input_zero_point, $output_zero_point,"
    f" $output_channels / $input_channels, {WINDOW}, {CLIP}}}"
)
FACTORS = "&(nova_per_channel_quant_params){$multipliers, $shifts}"
ROWS = "&(nova_dims){$rows, 1, 1, $inputs}"
MATRIX = "&(nova_dims){$outputs, 1, 1, $inputs}"
POOL = "&(nova_pool_params){{$stride_x, $stride_y}, {$pad_left, $pad_top}, {$lowest, $highest}}"
POOLED = "&(nova_dims){$batch, $height, $width, $channels}"
POOL_WINDOW = "&(nova_dims){1, $window_height, $window_width, 1}"
POOL_RESULT = "&(nova_dims){$batch, $output_height, $output_width, $channels}"

WEIGHTED: dict[str, Any] = {"expand_scales": True, "shift_dtype": "int32"}
IMAGES: dict[str, Any] = {"batch": None, "dilation": None}


class NovaNnBackend(UMABackend):
    """Kernels of 8-bit networks with the arithmetic of TensorFlow Lite Micro."""

    def __init__(self) -> None:
        super().__init__()
        self._register_kernel(
            patterns.qconv2d(groups=None, **WEIGHTED, **IMAGES),
            f"nova_convolve_wrapper_s8({SCRATCH}, {CONVOLUTION}, {FACTORS}, {DATA}, $data,"
            f" {FILTER}, $weights, $bias, {RESULT}, $result)",
            scratch=f"nova_convolve_wrapper_s8_get_buffer_size({CONVOLUTION}, {DATA}, {FILTER},"
            f" {RESULT})",
        )
        self._register_kernel(
            patterns.qdepthwise(multipliers=None, weight_layout="HWIO", **WEIGHTED, **IMAGES),
            f"nova_depthwise_conv_s8({SCRATCH}, {DEPTHWISE}, {FACTORS}, {DATA}, $data,"
            f" {FILTER}, $weights, $bias, {RESULT}, $result)",
            scratch=f"nova_depthwise_conv_s8_get_buffer_size({RESULT})",
        )
        self._register_kernel(
            patterns.qdense(per_channel=False, weight_sums=True, shift_dtype="int32"),
            f"nova_fully_connected_s8(&(nova_fc_params){{-$input_zero_point, $output_zero_point,"
            f" {CLIP}}}, &(nova_per_tensor_quant_params){{$multipliers[0], $shifts[0]}},"
            f" {ROWS}, $data, {MATRIX}, $weights, $weight_sums, $bias, $result)",
        )
        self._register_kernel(  # with a scale for each output, as a convolution of one pixel
            patterns.qdense(name="qdense_per_channel", **WEIGHTED),
            "nova_convolve_1x1_s8(&(nova_conv_params){-$input_zero_point, $output_zero_point,"
            f" {{1, 1}}, {{0, 0}}, {{1, 1}}, {CLIP}}}, {FACTORS}, {ROWS}, $data, {MATRIX},"
            " $weights, $bias, &(nova_dims){$rows, 1, 1, $outputs}, $result)",
        )
        self._register_kernel(
            patterns.qavg_pool2d(batch=None),
            f"nova_avgpool_s8({SCRATCH}, {POOL}, {POOLED}, $data, {POOL_WINDOW}, {POOL_RESULT},"
            " $result)",
            scratch=f"nova_avgpool_s8_get_buffer_size({POOL_RESULT})",
        )
        self._register_kernel(
            patterns.qmax_pool2d(batch=None),
            f"nova_max_pool_s8({POOL}, {POOLED}, $data, {POOL_WINDOW}, {POOL_RESULT}, $result)",
        )
        self._register_kernel(
            patterns.qsoftmax(),
            "nova_softmax_s8($data, $rows, $length, $multiplier, $shift, $diff_min, $result)",
        )
        self._register_kernel(
            patterns.qadd(),
            "nova_elementwise_add_s8($left, $right, -$left_zero_point, $left_multiplier,"
            " $left_multiplier_shift, -$right_zero_point, $right_multiplier,"
            " $right_multiplier_shift, $left_shift, $result, $output_zero_point, $multiplier,"
            " $shift, $lowest, $highest, $elements)",
        )
        self._register_kernel(
            patterns.qmultiply(),
            "nova_elementwise_mul_s8($left, $right, -$left_zero_point, -$right_zero_point,"
            " $result, $output_zero_point, $multiplier, $shift, $lowest, $highest, $elements)",
        )

    @property
    def target_name(self) -> str:
        """The name that users give to --backend."""
        return "nova_nn"
