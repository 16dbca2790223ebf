# SPDX-License-Identifier: Apache-2.0
"""The backend of the strawberry_accelerator."""

from .backend import StrawberryAcceleratorBackend

__all__ = ["StrawberryAcceleratorBackend"]
