# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic: multipliers in fixed point, and float32 computed in integers."""
