# SPDX-License-Identifier: Apache-2.0
"""What a hardware team subclasses: `UMABackend`.

Stages know what a backend registers, `umakit.registration`. This class stands above them, so that
its methods may call them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from umakit import tvm_api
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
        merge_compiler_regions: merge neighbouring composite functions into one accelerator
            region (`MergeCompositeFunctions`), as TVM's other BYOC backends do.
    """

    def _register_kernel(
        self,
        pattern: OperatorPattern,
        call: str,
        *,
        scratch: str | Callable[[Any], int] | None = None,
    ) -> None:
        """Offer a pattern together with the C call that computes it, for libraries of kernels.

        `$name` in the text is an operand: the names are those that `patterns.c_declaration` prints.
        A result of the call other than 0 ends the run; `(void)` in front of the call says that it
        has none. What its numbers mean, `[statuses]` of `accel.toml` says.

            self._register_kernel(
                patterns.qadd(),
                "nova_add($left, $right, &(nova_offsets){-$left_zero_point, -$right_zero_point},"
                " &(nova_context){$scratch, $scratch_bytes}, $result, $elements)",
                scratch="nova_add_scratch_size($elements)",
            )

        Args:
            pattern: a pattern of `umakit.patterns`.
            call: C text of the call: any expressions of C may be its arguments.
            scratch: working memory that the call needs, in bytes: `$scratch` is its address, which
                is a multiple of 16 (NULL for no bytes), and `$scratch_bytes` its size. Either a C
                expression of the layer's numbers, which the library's functions compute on this
                machine when a network is compiled and on the target before each call; or a
                function of the layer's parameters, such as `lambda layer: 4 * layer.width`.

        Raises:
            BackendError: the text is not C, or has a name that the layer has not, or no `$result`;
                with file and line.
        """
        kernel = read_kernel(pattern, call, scratch)
        self._register_pattern(*pattern)
        if not self.kernels:
            self._register_tir_pass(PassPhase.TIR_PHASE_0, kernel_pass(self))
        self.kernels[kernel.pattern] = kernel

    @tvm_api.one_at_a_time
    def register(self) -> None:
        """Make the backend known to TVM: its target, its patterns and its in-process codegen.

        Afterwards `tvm.target.Target(target_name)` exists, `FuseOpsByPattern` can use
        `get_patterns_with_prefix(target_name)`, and `RunCodegen` builds its functions. Doing it
        twice is harmless.

        Raises:
            TargetAttributeError: the target's name belongs to TVM or to another backend.
        """
        # Needs all stages, which a backend's class does not.
        from umakit.backend import byoc

        check_target_name(self.target_name)
        if register_target(self.target_name, self.target_attributes, owner=self):
            byoc.register_backend(self)

    @tvm_api.one_at_a_time
    def target(self, **attributes: AttributeValue) -> tvm_api.Target:
        """The TVM target of this backend with some attributes overridden.

        Raises:
            TargetAttributeError: an attribute that is not registered, or of another type.
        """
        self.register()
        return create_target(self.target_name, **attributes)

    @tvm_api.one_at_a_time
    def partition(
        self, mod: tvm_api.IRModule, params: Mapping[str, Any] | None = None
    ) -> tvm_api.IRModule:
        """Partition a Relax module: operators the accelerator takes become `Codegen` functions.

        Args:
            mod: a Relax module with a function `main`.
            params: values of its parameters by name, bound as constants first.

        Returns:
            The partitioned Relax module.
        """
        return partition_module(mod, [self], params)
