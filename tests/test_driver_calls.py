# SPDX-License-Identifier: Apache-2.0
"""Driver calls are nodes of kernels, with operands that have names, however a pass orders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_overlap import Branches

from umakit import tir, tvm_api
from umakit.backend import UMABackend
from umakit.backend.registry import find_backend
from umakit.codegen.kernel_source import print_kernel
from umakit.frontend import import_model
from umakit.lower import Kernel, lower
from umakit.lower.driver_calls import DriverCallKind
from umakit.lower.kernels import make_kernel
from umakit.lower.phases import lower_prim_func
from umakit.partition.partitioner import partition
from umakit.quantized import quantize_to_integers

LOAD, STORE, FINISH, OTHER = (
    DriverCallKind.LOAD,
    DriverCallKind.STORE,
    DriverCallKind.FINISH,
    DriverCallKind.OTHER,
)


def kernel_of(backend: str, folder: Path) -> Kernel:
    """The kernel of the only layer of a network, a convolution."""
    path = folder / "network.onnx"
    Branches(0).save(["c"], path)
    backends = [find_backend(backend)]
    lowered = lower(partition(quantize_to_integers(import_model(path)).module, backends), backends)
    (kernel,) = {k.name: k for k in lowered.kernels.values() if k.target == backend}.values()
    return kernel


def test_a_layer_of_loads_a_job_and_a_store_is_nothing_but_nodes(tmp_path: Path) -> None:
    kernel = kernel_of("strawberry_accelerator", tmp_path)
    assert kernel.statements == ()
    calls = kernel.driver_calls
    assert [call.kind for call in calls] == [*[LOAD] * 5, OTHER, STORE]
    places = kernel.scratch
    for call, tensor, place in zip(calls[:5], kernel.inputs, places[:5], strict=True):
        assert call.operands[:2] == (tensor, place)
        assert call.moved_bytes == tensor.size
    assert calls[5].operands[: len(places)] == places
    assert calls[6].operands[:2] == (places[-1], kernel.outputs[0])
    assert [t.node for t in kernel.transfers()] == [*calls[:5], calls[6]]


def test_loops_around_driver_calls_stay_loops(tmp_path: Path) -> None:
    kernel = kernel_of("chocolate_accelerator", tmp_path)
    prefix = "chocolate_accelerator_"
    functions = [call.function.removeprefix(prefix) for call in kernel.driver_calls]
    assert {*functions[:-1]} >= {"begin", "bind"}
    assert (functions[-1], kernel.driver_calls[-1].kind) == ("finish", FINISH)
    called = {name.removeprefix(prefix) for name in kernel.called_functions()}
    assert called >= {"begin", "bind", "load", "compute", "store", "finish"}
    assert kernel.transfers() == []


class Npu(UMABackend):
    """What registers transfers and a completion, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._register_transfers("npu_load", "npu_store")
        self._register_completion("npu_finish")

    @property
    def target_name(self) -> str:
        return "npu"


def made_of(statements: list[str]) -> Kernel:
    """A kernel of one input and one output, from a word for each statement."""
    x, y = (tvm_api.tirx.decl_buffer([4], "int8", name) for name in "xy")
    place, kept = (tir.scratchpad_buffer(name, 4, "int8", "pad") for name in ("place", "kept"))
    zero = tvm_api.tirx.IntImm("int32", 0)
    made: dict[str, Any] = {
        "load": tir.driver_call("npu_load", [tir.pointer(x), tir.pointer(place), 4]),
        "part": tir.driver_call("npu_load", [tir.pointer(x), tir.pointer(kept), 2]),
        "run": tir.driver_call("npu_run", [tir.pointer(place), tir.pointer(kept)]),
        "store": tir.driver_call("npu_store", [tir.pointer(kept), tir.pointer(y), 4]),
        "finish": tir.driver_call("npu_finish", []),
        "read": tvm_api.tirx.BufferStore(y, x[zero], [zero]),
        "maybe": tir.only_if([x[zero] == 0], tir.driver_call("npu_run", [0, 0])),
    }
    body = tir.allocate([place, kept], tir.sequence([made[word] for word in statements]))
    function = tvm_api.PrimFunc([x, y], body)
    return make_kernel("kernel", "npu", lower_prim_func("kernel", function, None), 1, Npu())


@given(st.lists(st.sampled_from(["load", "part", "run", "store", "read", "maybe"]), min_size=1))
def test_nodes_are_found_wherever_they_stand(words: list[str]) -> None:
    kernel = made_of([*words, "run", "finish"])
    functions = {"load": "npu_load", "part": "npu_load", "run": "npu_run", "store": "npu_store"}
    calls = [functions[word] for word in words if word in functions]
    assert [c.function for c in kernel.driver_calls] == [*calls, "npu_run", "npu_finish"]
    # A copy may be dropped if the kernel makes no other use of the tensor in shared memory.
    uses_of_x = sum(word in ("load", "part", "read", "maybe") for word in words)
    uses_of_y = sum(word in ("store", "read") for word in words)
    droppable = [
        *(["npu_load"] if uses_of_x == 1 and "load" in words else []),
        *(["npu_store"] if uses_of_y == 1 and "store" in words else []),
    ]
    transfers = kernel.transfers()
    assert sorted(t.node.function for t in transfers) == droppable
    shorter = kernel.without([t.node for t in transfers], "shorter")
    assert len(shorter.inputs) == 1 - ("npu_load" in droppable)
    assert len(shorter.outputs) == 1 - ("npu_store" in droppable)
    before, after = (print_kernel(each).body for each in (kernel, shorter))
    for function in ("npu_load", "npu_store", "npu_run", "npu_finish"):
        dropped = droppable.count(function)
        assert after.count(f"{function}(") == before.count(f"{function}(") - dropped
    # Each call has its status checked, the last one by the caller.
    assert after.endswith("    return npu_finish();\n")
    assert after.count("npu_") - 1 == after.count("    status = npu_")
    assert after.count("npu_") - 1 == after.count("return status;")
    assert ("int32_t status;" in after) == ("status = " in after)


@pytest.mark.parametrize("count", [1, 2])
def test_a_sequence_may_have_one_driver_call(count: int) -> None:
    body = tir.driver_calls([("npu_run", [])] * count)
    assert len(tvm_api.flatten_statements(body)) == count
