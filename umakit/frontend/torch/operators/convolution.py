# SPDX-License-Identifier: Apache-2.0
"""Convolutions of any rank, transposed ones too."""

from __future__ import annotations

from umakit.frontend.torch.registry import left_to_tvm

left_to_tvm(
    "convolution.default",
    "input weight bias stride padding dilation transposed output_padding groups",
)
