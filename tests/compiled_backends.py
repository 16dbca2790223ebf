# SPDX-License-Identifier: Apache-2.0
"""Backends whose drivers and simulators are compiled already, for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.helper

SIZE = 24
X = np.random.default_rng(7).normal(size=(1, SIZE)).astype("float32")

ACCEL = '[accelerator]\nname = "clip_npu"\n[array]\nrows = 1\ncolumns = 1\n'
HEADER = """\
#ifndef CLIP_NPU_H
#define CLIP_NPU_H
#include <stdint.h>
#ifdef __cplusplus
extern "C"
#endif
int32_t clip_npu_relu(const float *data, float *result, int32_t size);
#endif
"""
DRIVER = """\
#include "clip_npu.h"
#include "part.h"
int32_t clip_npu_relu(const float *data, float *result, int32_t size)
{
    int32_t i;
    for (i = 0; i < size; ++i) { result[i] = clip_npu_part(data[i]); }
    return 0;
}
"""
PART = "float clip_npu_part(float value);\n"
PART_SOURCE = """\
#include "part.h"
float clip_npu_part(float value) { return value > 0.0f ? value : 0.0f; }
"""
BACKEND = """\
import math

from umakit import PassPhase, UMABackend, patterns, tir


def call_driver(function):
    data, result = map(tir.pointer, function.params)
    size = math.prod(tir.buffer_shape(function.params[0]))
    return tir.with_body(function, tir.driver_call("clip_npu_relu", [data, result, size]))


class ClipNpuBackend(UMABackend):
    def __init__(self) -> None:
        super().__init__()
        relu = patterns.is_op("relax.nn.relu")(patterns.wildcard())
        self._register_pattern("relu", relu)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("Clip", call_driver))
        self._register_codegen(includes=lambda: '#include "clip_npu.h"')
        self._register_driver(sources=SOURCES, headers=["clip_npu.h", "c/part.h"], reentrant=True)

    @property
    def target_name(self) -> str:
        return "clip_npu"
"""


def write_backend(folder: Path, sources: Sequence[str]) -> Path:
    """Write a backend without a simulator whose driver is `sources`; its C lies in `c`."""
    (folder / "c").mkdir(parents=True)
    texts = {
        "accel.toml": ACCEL, "clip_npu.h": HEADER, "c/clip_npu.h": HEADER, "c/part.h": PART,
        "c/driver.c": DRIVER, "c/part.c": PART_SOURCE,
        "backend.py": BACKEND.replace("SOURCES", repr(list(sources))),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def compile_object(
    folder: Path,
    source: str,
    compiler: Sequence[str] = ("cc",),
    flags: Sequence[str] = ("-O0", "-fPIC"),
) -> Path:
    """Compile a file of `c`, next to it."""
    path = folder / "c" / Path(source).with_suffix(".o")
    command = [*compiler, *flags, "-c", str(folder / "c" / source), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def archive(path: Path, *objects: Path, ar: str = "ar", flags: str = "rcs") -> Path:
    """Make a static library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([ar, flags, str(path), *map(str, objects)], check=True, capture_output=True)
    return path


def share(path: Path, *objects: Path, soname: str = "", more: Sequence[str] = ()) -> Path:
    """Make a shared library of the host."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = [f"-Wl,-soname,{soname}"] if soname else []
    command = ["cc", "-shared", *name, *map(str, objects), *more, "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def save_relu(folder: Path) -> Path:
    """Save a network that is one ReLU of float32."""
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, SIZE]) for name in "xy"
    )
    graph = onnx.helper.make_graph([node], "network", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    path = folder / "network.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path
