# SPDX-License-Identifier: Apache-2.0
"""Exported programs of PyTorch as input."""
