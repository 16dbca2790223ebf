# SPDX-License-Identifier: Apache-2.0
"""Parameters of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from umakit import tvm_api


@dataclass(frozen=True, eq=False)
class Parameter:
    """A pointer parameter of a kernel.

    Attributes:
        variable: TIR buffer.
        dtype: of its elements.
        elements: how many.
        pool: the scratchpad it lies in, by name; the parameter is then a byte offset. Empty for a
            pointer.
    """

    variable: tvm_api.Buffer
    dtype: str
    elements: int
    pool: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elements * tvm_api.element_bytes(self.dtype)
