# SPDX-License-Identifier: Apache-2.0
"""The base class of backends: `UMABackend`.

The stages use only its base class in `umakit.registration`. The methods of `UMABackend` call the
stages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from umakit import tvm_api
from umakit.errors import BackendError, short_path
from umakit.partition.partitioner import partition_module
from umakit.patterns import OperatorPattern
from umakit.registration.backend import Backend
from umakit.registration.kernel_pass import kernel_pass
from umakit.registration.kernels import read_kernel
from umakit.registration.registered import PassPhase
from umakit.registration.target import (
    AttributeValue,
    check_target_name,
    create_target,
    register_target,
)


class UMABackend(Backend):
    """Base class of a backend.

    Args:
        merge_compiler_regions: merge neighbouring composite functions into one accelerator region
            (`MergeCompositeFunctions`), as TVM's other BYOC backends do.
    """

    def _register_kernel(
        self,
        pattern: OperatorPattern,
        call: str,
        *,
        scratch: str | Callable[[Any], int] | None = None,
    ) -> None:
        """Register a pattern with the C call of a kernel library that computes it.

        `$name` in the text is an operand; `patterns.c_declaration` prints the names. A nonzero
        status of the call ends the run. `(void)` in front marks a call without a status.
        `[statuses]` of `accel.toml` gives the meaning of each status.

            self._register_kernel(
                patterns.qadd(),
                "nova_add($left, $right, &(nova_offsets){-$left_zero_point, -$right_zero_point},"
                " &(nova_context){$scratch, $scratch_bytes}, $result, $elements)",
                scratch="nova_add_scratch_size($elements)",
            )

        Args:
            pattern: a pattern of `umakit.patterns`.
            call: C text of the call. Its arguments may be any C expressions.
            scratch: scratch memory of the call, in bytes. `$scratch` is its address, a multiple of
                16 (NULL for 0 bytes), and `$scratch_bytes` its size. Either a C expression of the
                layer's numbers, evaluated on this machine during compilation and on the target
                before each call; or a function of the layer's parameters, such as `lambda layer: 4
                * layer.width`.

        Raises:
            BackendError: the text is not C, uses an unknown name, or lacks `$result`. The message
                has file and line.
        """
        kernel = read_kernel(pattern, call, scratch)
        self._register_pattern(*pattern)
        if not self.kernels:
            self._register_tir_pass(PassPhase.TIR_PHASE_0, kernel_pass(self))
        self.kernels[kernel.pattern] = kernel

    @tvm_api.one_at_a_time
    def register(self) -> None:
        """Register the backend's target, patterns and in-process codegen with TVM.

        Afterwards `tvm.target.Target(target_name)` exists, `FuseOpsByPattern` can use
        `get_patterns_with_prefix(target_name)`, and `RunCodegen` builds the backend's functions. A
        second call has no effect.

        Raises:
            TargetAttributeError: the target's name belongs to TVM or to another backend.
        """
        # byoc imports all stages, which a backend class does not need.
        from umakit.backend import byoc

        check_target_name(self.target_name)
        if register_target(self.target_name, self.target_attributes, owner=self):
            byoc.register_backend(self)

    @tvm_api.one_at_a_time
    def target(self, **attributes: AttributeValue) -> tvm_api.Target:
        """Return the TVM target of this backend with some attributes overridden.

        Raises:
            TargetAttributeError: an attribute is not registered or has the wrong type.
        """
        self.register()
        return create_target(self.target_name, **attributes)

    @tvm_api.one_at_a_time
    def partition(
        self, mod: tvm_api.IRModule, params: Mapping[str, Any] | None = None
    ) -> tvm_api.IRModule:
        """Partition a Relax module: `Codegen` functions hold the operators of the accelerator.

        Args:
            mod: a Relax module with a function `main`.
            params: parameter values by name, bound as constants first.

        Returns:
            The partitioned Relax module.
        """
        return partition_module(mod, [self], params)


def undecided(decision: str) -> NoReturn:
    """Raise an error for a decision that the backend's author has not made yet.

    Args:
        decision: missing decision, the end of the sentence "decide ...".

    Raises:
        BackendError: always; names the file and line of the caller.
    """
    frame = sys._getframe(1)
    raise BackendError(
        "this skeleton is not filled in",
        where=f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}",
        fix=f"decide {decision}",
    )
