# SPDX-License-Identifier: Apache-2.0
"""The backend of the small_chocolate_accelerator."""

from .backend import SmallChocolateAcceleratorBackend

__all__ = ["SmallChocolateAcceleratorBackend"]
