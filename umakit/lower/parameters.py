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
        dtype: dtype of the elements.
        elements: number of elements.
        pool: name of the scratchpad if the parameter is a byte offset; empty for a pointer.
    """

    variable: tvm_api.Buffer
    dtype: str
    elements: int
    pool: str = ""

    @property
    def own_name(self) -> str:
        """Name in a kernel that keeps names, for example `weights`."""
        # FuseTIR names the last result of a fused function an intermediate.
        return str(self.variable.name).removesuffix("_intermediate")

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.elements * tvm_api.element_bytes(self.dtype)
