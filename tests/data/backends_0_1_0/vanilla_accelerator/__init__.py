# SPDX-License-Identifier: Apache-2.0
"""The backend of the vanilla_accelerator."""

from .backend import VanillaAcceleratorBackend

__all__ = ["VanillaAcceleratorBackend"]
