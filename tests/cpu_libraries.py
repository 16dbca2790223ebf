# SPDX-License-Identifier: Apache-2.0
"""Libraries that are exported for a CPU, and run in a workspace of NaN."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from networks import Array

import umakit
from umakit.cpu.kernel_choices import Choice, KernelKey
from umakit.devices import HOST
from umakit.devices.build import compile_c, library_sources
from umakit.devices.cpus import cpu_flags
from umakit.library.export import Library
from umakit.library.metadata import load_metadata
from umakit.memory.planners import LARGEST_SCRATCH_LIMIT as MOST_SCRATCH


def export(model: onnx.ModelProto, cpu: str, folder: Path) -> Path:
    """A library whose workspace the caller gives, and whose kernels are all those for the CPU.

    It may be compiled for another machine only: `cpu_here` names kernels that run on this one.
    """
    return export_with(model, cpu, folder, {}).path


def export_with(
    model: onnx.ModelProto, cpu: str, folder: Path, choices: Mapping[KernelKey, Choice]
) -> Library:
    """The same with choices for kernels."""
    folder.mkdir(exist_ok=True)
    onnx.save(model, str(folder / "net.onnx"))
    pools = (umakit.MemoryPool("sram"),)
    options = umakit.ExportOptions(
        cpu=cpu, pools=pools, scratch_limit=MOST_SCRATCH, choices=choices
    )
    out = folder / f"library_{Path(cpu).stem}"
    return umakit.compile_model(folder / "net.onnx", [], out, options=options)


def run_on_garbage(library: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """One inference in a workspace of NaN, so that what is read before it is written shows."""
    description = load_metadata(library)["umakit"]
    shared = library.parent / f"{library.name}.so"
    flags = ["-shared", "-fPIC", *cpu_flags(library, HOST)]
    compile_c(library_sources(library), shared, flags)
    outputs = {o["name"]: np.full(o["shape"], np.nan, o["dtype"]) for o in description["outputs"]}
    arrays = [np.ascontiguousarray(inputs[each["name"]]) for each in description["inputs"]]
    pools = [np.full(p["used_bytes"] + 64, 0xFF, np.uint8) for p in description["memory"]["pools"]]
    addresses = [array.ctypes.data for array in (*arrays, *outputs.values())]
    addresses += [-(-pool.ctypes.data // 64) * 64 for pool in pools]
    function = getattr(ctypes.CDLL(str(shared)), f"{description['interface']}_run_unpacked")
    assert function(*map(ctypes.c_void_p, addresses)) == 0
    return outputs
