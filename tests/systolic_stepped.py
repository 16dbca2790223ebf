# SPDX-License-Identifier: Apache-2.0
"""The closed form of cycles in C and the array that is stepped cycle by cycle, for Python."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import sim
from umakit.devices.build import compile_c
from umakit.machine.systolic import Dataflow, Product, SystolicArray

Array = npt.NDArray[Any]

DATAFLOWS = list(Dataflow)


class _Size(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in "mnk"]


class _Array(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("rows", "columns", "drain_cycles")]


class _Cycles(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("folds", "compute", "drain", "slots")]


class _Operands(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in "abc"] + [
        (name, ctypes.c_uint32) for name in "mnk"
    ]


def load(folder: Path) -> ctypes.CDLL:
    """Compile both.

    Args:
        folder: for the shared object.
    """
    sources = sim.source_directory()
    library = folder / "systolic.so"
    compile_c(
        [sources / "src/umakit_systolic_cycles.c", sources / "src/umakit_systolic_stepped.c"],
        library,
        ["-O3", "-shared", "-fPIC", f"-I{sources / 'include'}"],
    )
    binary = ctypes.CDLL(str(library))
    binary.umakit_systolic_cycles.restype = _Cycles
    return binary


def in_c(simulator: ctypes.CDLL, product: Product, array: SystolicArray) -> Any:
    return simulator.umakit_systolic_cycles(
        DATAFLOWS.index(array.dataflow),
        _Size(product.m, product.n, product.k),
        _Array(array.rows, array.columns, array.drain_cycles),
    )


def stepped(simulator: ctypes.CDLL, a: Array, b: Array, array: SystolicArray) -> tuple[Array, int]:
    """The product and its cycles from the array that is stepped cycle by cycle."""
    (m, k), n = a.shape, b.shape[1]
    result, cycles = np.empty((m, n), np.int32), ctypes.c_uint64()
    cells = np.empty(2 * array.rows * array.columns * 8, np.uint8)
    status = simulator.umakit_systolic_step(
        DATAFLOWS.index(array.dataflow),
        ctypes.byref(_Operands(a.ctypes.data, b.ctypes.data, result.ctypes.data, m, n, k)),
        _Array(array.rows, array.columns, array.drain_cycles),
        ctypes.c_void_p(cells.ctypes.data),
        ctypes.c_size_t(2 * array.rows * array.columns),
        ctypes.byref(cycles),
    )
    assert status == 0
    return result, cycles.value
