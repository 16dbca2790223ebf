# SPDX-License-Identifier: Apache-2.0
"""A backend whose TIR pass puts an instruction in the place of loops by TVM's `tensorize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umakit
from umakit import PassPhase, UMABackend, tir, tvm_api
from umakit.errors import BackendError

relax = tvm_api.relax
te = tvm_api.te

NAME = "gemm_npu"
ROWS, COLUMNS, DEPTH = 4, 4, 8

HEADER = """\
#pragma once
#include <stdint.h>
int gemm_npu_tile(const int8_t *a, int64_t a_stride, const int8_t *b, int64_t b_stride,
                  int32_t *c, int64_t c_stride);
"""
DRIVER = """\
#include "gemm_npu.h"

int gemm_npu_tile(const int8_t *a, int64_t a_stride, const int8_t *b, int64_t b_stride,
                  int32_t *c, int64_t c_stride)
{
    int i, j, k;

    if (a_stride <= 0 || b_stride <= 0 || c_stride <= 0) {
        return 1;
    }
    for (i = 0; i < 4; ++i) {
        for (j = 0; j < 4; ++j) {
            for (k = 0; k < 8; ++k) {
                c[i * c_stride + j] += a[i * a_stride + k] * b[k * b_stride + j];
            }
        }
    }
    return 0;
}
"""


def product(rows: int, columns: int, depth: int) -> Any:
    """The loops of int8 [rows, depth] x [depth, columns] to int32."""
    a = tir.placeholder((rows, depth), "int8", "a")
    b = tir.placeholder((depth, columns), "int8", "b")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute(
        (rows, columns),
        lambda i, j: te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k),
        name="c",
    )
    return tir.reference_loops(a, b, c)


def call(parts: Any) -> Any:
    arguments = [value for part in parts for value in (part.pointer, part.strides[0])]
    return tir.driver_call("gemm_npu_tile", arguments)


def tiled(function: Any) -> Any:
    """The prim func of a product, as loops over tiles of one instruction each."""
    if tir.composite_name(function) != f"{NAME}.matmul":
        return function
    instruction = tir.tensor_intrinsic("gemm_npu_4x4x8", product(ROWS, COLUMNS, DEPTH), call)
    schedule = tir.schedule(function)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    loops = zip(schedule.get_loops(block), (ROWS, COLUMNS, DEPTH), strict=True)
    (i, i_in), (j, j_in), (k, k_in) = (schedule.split(loop, [None, s]) for loop, s in loops)
    schedule.reorder(i, j, k, i_in, j_in, k_in)
    schedule.decompose_reduction(block, k)
    schedule.tensorize(i_in, instruction)
    return tir.with_body(function, schedule.mod["main"].body)


def fits(context: Any) -> bool | str:
    root = context.matched_expr
    a, b = (tvm_api.static_shape(argument) for argument in root.args)
    if a is None or b is None or len(a) != 2 or tvm_api.dtype_of(root) != "int32":
        return "not a product of int8 matrices to int32"
    if a[0] % ROWS or b[1] % COLUMNS or a[1] % DEPTH:
        return f"sizes are not multiples of {ROWS}, {COLUMNS}, {DEPTH}"
    return True


class GemmNpu(UMABackend):
    """An accelerator with one instruction, a product of tiles."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "gemm_npu.c").write_text(DRIVER)
        (folder / "gemm_npu.h").write_text(HEADER)
        (folder / "accel.toml").write_text(
            f'[accelerator]\nname = "{NAME}"\n[array]\nrows = 4\ncolumns = 4\n'
        )
        super().__init__()
        pattern = tvm_api.is_op("relax.matmul")(tvm_api.wildcard(), tvm_api.wildcard())
        self._register_pattern("matmul", pattern, fits)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("Tensorize", tiled))
        self._register_codegen(includes=lambda: '#include "gemm_npu.h"')
        self._register_driver(["gemm_npu.c"], ["gemm_npu.h"], reentrant=True)

    @property
    def target_name(self) -> str:
        return NAME

    @property
    def folder(self) -> Path:
        return self._folder


def matmul(rows: int, columns: int, depth: int) -> tuple[Any, Any, Any]:
    """A module with one product, its input and the values that NumPy yields."""
    random = np.random.default_rng(rows)
    a = random.integers(-128, 128, (rows, depth)).astype("int8")
    b = random.integers(-128, 128, (depth, columns)).astype("int8")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, depth), "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = relax.op.matmul(x, relax.const(b), out_dtype="int32")
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get(), a, a.astype("int32") @ b.astype("int32")


@pytest.mark.parametrize("sizes", [(16, 8, 32), (4, 4, 8), (8, 20, 8)], ids=str)
def test_a_tensorized_product_is_exact(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    npu = GemmNpu(tmp_path)
    module, data, wanted = matmul(*sizes)
    library = umakit.compile_model(module, [npu], tmp_path / "library", name="net")
    assert [row.where for row in library.report.placements] == [NAME]
    source = (library.path / "codegen/host/src/tvmgen_net.c").read_text()
    assert "gemm_npu_tile(" in source
    (result,) = umakit.run_library(library.path, {"x": data}).outputs.values()
    np.testing.assert_array_equal(result, wanted)


def test_sizes_that_the_instruction_does_not_divide_run_on_the_cpu(tmp_path: Path) -> None:
    module, data, wanted = matmul(6, 8, 8)
    library = umakit.compile_model(module, [GemmNpu(tmp_path)], tmp_path / "library", name="net")
    (row,) = library.report.placements
    assert (row.where, row.reason) == ("cpu", "sizes are not multiples of 4, 4, 8")
    (result,) = umakit.run_library(library.path, {"x": data}).outputs.values()
    np.testing.assert_array_equal(result, wanted)


def test_loops_of_another_computation_are_not_taken(tmp_path: Path) -> None:
    instruction = tir.tensor_intrinsic("gemm_npu_4x4x4", product(4, 4, 4), call)
    schedule = tir.schedule(product(8, 8, 8))
    block = schedule.get_sblock("c")
    with pytest.raises(tvm_api.ScheduleError):
        schedule.tensorize(schedule.get_loops(block)[1], instruction)


def test_a_broken_release_of_tvm_ffi_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_api, "FFI_VERSION", "0.1.15.post2")
    with pytest.raises(BackendError, match=r"apache-tvm-ffi 0\.1\.15\.post2 .*; pip install"):
        tir.tensor_intrinsic("gemm_npu_4x4x2", product(4, 4, 2), call)
