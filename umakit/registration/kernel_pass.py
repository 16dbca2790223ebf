# SPDX-License-Identifier: Apache-2.0
"""The TIR pass of backends that register kernels."""

from __future__ import annotations

from umakit import tvm_api
from umakit.registration.backend import Backend
from umakit.registration.kernels import kernel_calls
from umakit.registration.scratch_sizes import scratch_bytes


def kernel_pass(backend: Backend) -> tvm_api.Pass:
    """Return the pass that turns composites into calls of the backend's kernels."""
    return kernel_calls(
        backend.kernels, lambda kernel, layer: scratch_bytes(backend, kernel, layer)
    )
