# SPDX-License-Identifier: Apache-2.0
"""What a hardware team subclasses: `UMABackend`.

Stages know what a backend registers, `umakit.registration`. This class stands above them, so that
its methods may call them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umakit import tvm_api
from umakit.partition.partitioner import partition_module
from umakit.registration.backend import Backend
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
