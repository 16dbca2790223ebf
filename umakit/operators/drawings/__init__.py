# SPDX-License-Identifier: Apache-2.0
"""Drawings of families of operators, see `operators.drawing`."""
