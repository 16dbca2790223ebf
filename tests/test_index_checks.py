# SPDX-License-Identifier: Apache-2.0
"""Indices that are computed at run time: NumPy says what is read and written, sanitizers that it
is nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import LINKER, examples
from execution import vanilla
from hypothesis import given
from hypothesis import strategies as st
from networks import Array, Graph, save
from onnx import TensorProto
from strict import WARNINGS
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.devices.build import compile_c, library_sources
from umakit.devices.unpacked import run_unpacked
from umakit.errors import DeviceError, ModelError
from umakit.lower.index_checks import check_indices
from umakit.pipeline import ExportOptions

EXAMPLES = examples(3)
SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *LINKER]
DTYPES = {"int32": TensorProto.INT32, "int64": TensorProto.INT64}
OUTSIDE = (2**31, 2**32, 2**32 + 1, -(2**31) - 1, -(2**32), 2**63 - 1, -(2**63), -(2**63) + 1)
"""Indices beyond 32 bits; cast to 32 bits, some are inside of every tensor."""

PROGRAM = """
#include "tvmgen_net.h"
#include <stdio.h>

{arrays}
int main(void)
{{
    const struct tvmgen_net_inputs inputs = {{{inputs}}};
    const struct tvmgen_net_outputs outputs = {{{outputs}}};

    while ({read}) {{
        const int32_t status = tvmgen_net_run(&inputs, &outputs);

        printf("%d %s\\n", (int)status, tvmgen_net_status_string(status));
        if (status == 0) {{
            {write}
        }}
    }}
    return 0;
}}
"""
"""Runs what it reads from its input; results go to the error stream, which holds nothing else."""


@dataclass(frozen=True)
class Case:
    """One operator in a network of several.

    Attributes:
        name: of the node and, with a suffix, of its inputs.
        operator: of ONNX.
        shapes: of data, indices and, where there are any, updates.
        dtype: of the indices.
        attributes: of the node.
        sizes: what an index is for: least and end of its range, along the indices' last axis.
        oracle: from data, indices and updates to the result.
    """

    name: str
    operator: str
    shapes: Sequence[tuple[int, ...]]
    dtype: str
    sizes: Sequence[int]
    oracle: Callable[..., Array]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        return [f"{self.name}_{part}" for part in ("data", "index", "update")[: len(self.shapes)]]

    def right(self, random: np.random.Generator) -> list[Array]:
        """Inputs whose indices are all inside, some of them negative."""
        ends = np.broadcast_to(np.array(self.sizes), self.shapes[1])
        arrays = [random.standard_normal(shape).astype("float32") for shape in self.shapes]
        arrays[1] = random.integers(-ends, ends).astype(self.dtype)
        return arrays

    def expected(self, arrays: Sequence[Array]) -> Array:
        return self.oracle(*arrays, **self.attributes)


REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def gather_nd(data: Array, indices: Array, batch_dims: int) -> Array:
    result = [
        data[(*place[:batch_dims], *indices[place])] for place in np.ndindex(*indices.shape[:-1])
    ]
    return np.array(result).reshape(
        *indices.shape[:-1], *data.shape[batch_dims + indices.shape[-1] :]
    )


def gather_elements(data: Array, indices: Array, axis: int) -> Array:
    result = np.empty(indices.shape, data.dtype)
    for place in np.ndindex(*indices.shape):
        result[place] = data[(*place[:axis], indices[place], *place[axis + 1 :])]
    return result


def scatter_elements(
    data: Array, indices: Array, updates: Array, axis: int, reduction: str
) -> Array:
    result = data.copy()
    for place in np.ndindex(*indices.shape):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        result[target] = REDUCTIONS[reduction](result[target], updates[place])
    return result


def scatter_nd(data: Array, indices: Array, updates: Array, reduction: str) -> Array:
    result = data.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        target = tuple(indices[place])
        for inner in np.ndindex(*result[target].shape):
            old, new = result[(*target, *inner)], updates[(*place, *inner)]
            result[(*target, *inner)] = REDUCTIONS[reduction](old, new)
    return result


@st.composite
def networks(draw: st.DrawFn) -> list[Case]:
    """One case of each operator, with tensors of up to three dimensions."""

    def extents(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(1, 4), min_size=low, max_size=high)))

    def dtype() -> str:
        return draw(st.sampled_from(sorted(DTYPES)))

    reduction = st.sampled_from(sorted(REDUCTIONS))
    data, axis = extents(1, 3), 0
    axis = draw(st.integers(0, len(data) - 1))
    cases = [
        Case("gather", "Gather", (data, extents(1, 2)), dtype(), [data[axis]],
             lambda x, i, axis: np.take(x, i, axis=axis), {"axis": axis}),
    ]  # fmt: skip
    for name, operator in (("elements", "GatherElements"), ("scatter", "ScatterElements")):
        data = extents(1, 3)
        axis = draw(st.integers(0, len(data) - 1))
        index = tuple(draw(st.integers(1, 4 if d == axis else n)) for d, n in enumerate(data))
        if operator == "GatherElements":
            cases.append(Case(name, operator, (data, index), dtype(), [data[axis]],
                              gather_elements, {"axis": axis}))  # fmt: skip
        else:
            attributes = {"axis": axis, "reduction": draw(reduction)}
            cases.append(Case(name, operator, (data, index, index), dtype(), [data[axis]],
                              scatter_elements, attributes))  # fmt: skip
    data = extents(2, 3)
    batch = draw(st.integers(0, len(data) - 1))
    depth = draw(st.integers(1, len(data) - batch))
    index = (*data[:batch], *extents(1, 1), depth)
    cases.append(Case("nd", "GatherND", (data, index), "int64", data[batch : batch + depth],
                      gather_nd, {"batch_dims": batch}))  # fmt: skip
    data = extents(1, 3)
    depth = draw(st.integers(1, len(data)))
    outer = extents(1, 2)
    shapes = (data, (*outer, depth), (*outer, *data[depth:]))
    cases.append(
        Case("write", "ScatterND", shapes, "int64", data[:depth], scatter_nd,
             {"reduction": draw(reduction)})
    )  # fmt: skip
    return cases


def network(cases: Sequence[Case]) -> Any:
    """All cases in one network."""
    graph = Graph()
    for case in cases:
        dtypes = [TensorProto.FLOAT, DTYPES[case.dtype], TensorProto.FLOAT]
        for name, shape, dtype in zip(case.inputs, case.shapes, dtypes, strict=False):
            graph.input(name, *shape, dtype=dtype)
        graph.output(graph.node(case.operator, *case.inputs, name=case.name, **case.attributes))
    return graph.model(opset=18)


def build(library: Path, metadata: dict[str, Any]) -> Path:
    """The library with a program around it, under sanitizers."""
    inputs, outputs = ([item["c_name"] for item in metadata[k]] for k in ("inputs", "outputs"))
    types = {"float32": "float", "int32": "int32_t", "int64": "int64_t"}
    arrays = [
        f"static {types[item['dtype']]} {item['c_name']}[{int(np.prod(item['shape']))}];"
        for item in (*metadata["inputs"], *metadata["outputs"])
    ]
    source = library / "program.c"
    source.write_text(
        PROGRAM.format(
            arrays="\n".join(arrays),
            inputs=", ".join(inputs),
            outputs=", ".join(outputs),
            read=" && ".join(f"fread({n}, sizeof {n}, 1, stdin) == 1" for n in inputs),
            write=" ".join(f"(void)fwrite({n}, sizeof {n}, 1, stderr);" for n in outputs),
        )
    )
    include = f"-I{library / 'codegen' / 'host' / 'include'}"
    program = library / "program"
    compile_c([source, *library_sources(library)], program, [*WARNINGS, *SANITIZERS, include])
    return program


def runs(program: Path, inferences: Sequence[Sequence[Array]]) -> tuple[list[str], bytes]:
    """Lines `STATUS TEXT`, and the results of the inferences with status 0."""
    data = b"".join(array.tobytes() for arrays in inferences for array in arrays)
    ended = subprocess.run([program], input=data, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr[:4000]
    return ended.stdout.decode().splitlines(), ended.stderr


@EXAMPLES
@given(networks(), st.integers(0, 2**16))
def test_every_index_is_inside_or_named(
    tmp_path_factory: pytest.TempPathFactory, cases: list[Case], seed: int
) -> None:
    random, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("indices")
    path = save(network(cases), folder)
    library = umakit.compile_model(path, [], folder / "library", name="net")
    program = build(library.path, library.metadata["umakit"])
    good = [case.right(random) for case in cases]
    inferences, wrong = [[array for arrays in good for array in arrays]], []
    for number, case in enumerate(cases):
        indices = good[number][1]
        for _ in range(6):
            place = tuple(random.integers(0, indices.shape))
            size = case.sizes[place[-1] % len(case.sizes)]
            limits = np.iinfo(case.dtype)
            beyond = [
                v for v in (*OUTSIDE, limits.max, limits.min) if limits.min <= v <= limits.max
            ]
            values = [size, size + 1, -size - 1, -size - 2, int(random.choice(beyond))]
            bad = indices.copy()
            bad[place] = values[random.integers(0, len(values))]
            arrays = [
                *good[:number],
                [good[number][0], bad, *good[number][2:]],
                *good[number + 1 :],
            ]
            inferences.append([array for each in arrays for array in each])
            wrong.append(case.name)
    lines, results = runs(program, [*inferences, inferences[0]])
    assert lines[0] == lines[-1] == "0 ok"
    for line, name in zip(lines[1:-1], wrong, strict=True):
        assert re.search(rf", {name}( #\d+)? \(", line) and line.endswith(
            "an index is out of range"
        ), (line, name)
    expected = [
        case.expected(arrays).astype("float32") for case, arrays in zip(cases, good, strict=True)
    ]
    data = np.frombuffer(results, "float32")
    np.testing.assert_allclose(
        data, np.tile(np.concatenate([e.reshape(-1) for e in expected]), 2), rtol=1e-6
    )


def gather(indices: Array | None = None, *, name: str = "rows", accelerated: bool = False) -> Any:
    """A Gather of four rows, behind a convolution if there is to be an accelerator."""
    graph = Graph()
    data = graph.input("data", 1, 4, 4, 3)
    if accelerated:
        data = graph.conv(data, 4, name="conv")
    rows = graph.input("rows_in", 2, dtype=TensorProto.INT64) if indices is None else None
    index = rows or graph.constant(indices, "int64")
    graph.output(graph.node("Gather", data, index, name=name, axis=2))
    return graph.model()


DATA = np.random.default_rng(0).standard_normal((1, 4, 4, 3)).astype("float32")


@pytest.mark.parametrize("index", [4, -5, 2**31, 2**32, -(2**63)])
def test_constant_index_out_of_range_is_refused(tmp_path: Path, index: int) -> None:
    path = save(gather(np.array([0, index])), tmp_path)
    with pytest.raises(ModelError) as error:
        umakit.import_model(path)
    text = f"operator Gather of node 'rows' has the index {index}, which is out of range for axis 2"
    assert text in str(error.value) and str(path) in str(error.value)


def test_constant_indices_need_no_check(tmp_path: Path) -> None:
    path = save(gather(np.array([-4, 3])), tmp_path)
    library = umakit.compile_model(path, [], tmp_path / "library")
    source = (library.path / "codegen/host/src/tvmgen_network.c").read_text()
    assert "INDEX_OUT_OF_RANGE" not in source
    result = umakit.run_library(library.path, {"data": DATA}).outputs["rows"]
    np.testing.assert_array_equal(result, DATA[:, :, [-4, 3]])


def test_interfaces_and_commands_name_the_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = 'a"b\\c\n*/'
    model = gather(name="rows")
    model.graph.node[0].name = hostile
    path = save(model, tmp_path)
    library = umakit.compile_model(path, [], tmp_path / "library")
    wrong = {"data": DATA, "rows_in": np.array([0, 4])}
    with pytest.raises(DeviceError, match=r"(?s)layer \d+, a.*: an index is out of range"):
        run_unpacked(library.path, wrong)
    np.savez(tmp_path / "in.npz", **wrong)
    command = [str(library.path), "--inputs", str(tmp_path / "in.npz")]
    assert run_command(["run", *command, "--outputs", str(tmp_path / "out.npz")]) == 1
    assert "an index is out of range" in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()
    assert run_command(["diff", str(path), "--inputs", str(tmp_path / "in.npz")]) == 1
    assert "an index is out of range" in capsys.readouterr().err
    assert run_command(["diff", str(path)]) == 0, "random indices are inside"


def test_checks_can_be_left_out(tmp_path: Path) -> None:
    path = save(gather(), tmp_path)
    for checks in (True, False):
        folder = tmp_path / str(checks)
        library = umakit.compile_model(path, [], folder, options=ExportOptions(index_checks=checks))
        assert library.metadata["umakit"]["index_checks"] is checks
        assert ("--no-index-checks" in (folder / "README.md").read_text()) is not checks
        source = (folder / "codegen/host/src/tvmgen_network.c").read_text()
        assert ("INDEX_OUT_OF_RANGE" in source) is checks
        right = {"data": DATA, "rows_in": np.array([-4, 2])}
        result = umakit.run_library(library.path, right).outputs["rows"]
        np.testing.assert_array_equal(result, DATA[:, :, [-4, 2]])


@pytest.mark.parametrize("device", ["host", "qemu-cortex-m3"])
def test_beside_an_accelerator_and_without_an_operating_system(tmp_path: Path, device: str) -> None:
    if device != "host" and shutil.which("qemu-system-arm") is None:
        pytest.skip("needs qemu-system-arm")
    path = save(gather(accelerated=True), tmp_path)
    library = umakit.compile_model(path, [vanilla()], tmp_path / "library")
    assert library.report.offloaded
    inputs = {"data": DATA, "rows_in": np.array([-4, 2])}
    umakit.run_library(library.path, inputs, device=device)
    inputs["rows_in"] = np.array([0, 2**32])
    with pytest.raises(DeviceError, match=r"rows( #\d)? \(take\): an index is out of range"):
        umakit.run_library(library.path, inputs, device=device)


def loops(index: Callable[[Any, Any], Any], *, condition: Any = None) -> Any:
    """A prim func that reads `data` (4 elements) at a position made of `i[n]` (int32)."""
    tirx = tvm_api.tirx
    data, i, result = (
        tirx.decl_buffer([4], dtype, name)
        for name, dtype in (("data", "float32"), ("i", "int32"), ("result", "float32"))
    )
    n = tirx.Var("n", "int32")
    store: Any = tirx.BufferStore(result, data[index(i[n], n)], [n])
    if condition is not None:
        store = tirx.IfThenElse(condition(i[n]), store, None)
    zero, four = (tirx.IntImm("int32", value) for value in (0, 4))
    body = tirx.For(n, zero, four, tirx.ForKind.SERIAL, store)
    return tirx.PrimFunc([data, i, result], body)


def test_what_is_proven_gets_no_check() -> None:
    tirx = tvm_api.tirx
    proven = [
        loops(lambda i, n: tirx.max(tirx.min(i, 3), 0)),
        loops(lambda i, n: i & 3),
        loops(lambda i, n: tirx.floormod(i, 4)),
        loops(lambda i, n: tirx.truncmod(tirx.max(i, 0), 4)),
        loops(lambda i, n: i, condition=lambda i: tirx.all(i >= 0, i < 4)),
        loops(lambda i, n: tirx.Select(tirx.all(i >= 0, i < 4), i, 0)),
    ]
    for function in proven:
        assert check_indices(function, [], "kernel") is function
    unproven = [
        loops(lambda i, n: i),
        loops(lambda i, n: tirx.min(i, 3)),
        loops(lambda i, n: i & 7),
        # The sum wraps around, whatever TVM's own analyzer believes.
        loops(lambda i, n: tirx.min(tirx.max(i, 0) + 1, 3)),
        loops(lambda i, n: i, condition=lambda i: i < 4),
    ]
    for function in unproven:
        checked = check_indices(function, [], "kernel")
        assert len(tvm_api.collect(checked.body, tvm_api.tirx.Return)) == 1
