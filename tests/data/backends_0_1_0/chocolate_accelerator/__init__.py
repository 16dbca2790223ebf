# SPDX-License-Identifier: Apache-2.0
"""The backend of the chocolate_accelerator."""

from .backend import ChocolateAcceleratorBackend

__all__ = ["ChocolateAcceleratorBackend"]
