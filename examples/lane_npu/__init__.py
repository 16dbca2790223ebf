# SPDX-License-Identifier: Apache-2.0
"""The backend of the lane_npu."""

from .backend import LaneNpuBackend

__all__ = ["LaneNpuBackend"]
