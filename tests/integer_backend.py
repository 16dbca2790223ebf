# SPDX-License-Identifier: Apache-2.0
"""A backend of patterns with the driver in `integer_driver.c`, and networks of its operators."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from comparisons import examples
from hypothesis import Phase

from umakit import PassPhase, UMABackend, compile_model, patterns, run_library, tvm_api
from umakit.library.export import Library
from umakit.operators.add import Add
from umakit.operators.conv2d import Conv2d
from umakit.operators.dense import Dense
from umakit.operators.max_pool2d import MaxPool2d
from umakit.operators.multiply import Multiply
from umakit.operators.numeric.fixed_point import fixed_point
from umakit.operators.requantize import Requantize
from umakit.partition.partitioner import partition
from umakit.partition.report import OperatorPlacement

relax = tvm_api.relax
Array = npt.NDArray[Any]
Registrations = Sequence[patterns.OperatorPattern | Any]

CONFIGURATION = """\
[accelerator]
name = "{name}"

[array]
rows = 4
columns = 4
"""

EXAMPLES = examples(3, phases=[Phase.explicit, Phase.generate])
"""Shrinking would compile for minutes."""

_numbers = itertools.count()


def header_of(declared: Mapping[str, patterns.OperatorPattern]) -> str:
    """The text of a header with the drivers of patterns, by name of the C function."""
    lines = [patterns.c_declaration(name, pattern) for name, pattern in declared.items()]
    return "\n".join(["#pragma once", "#include <stdint.h>", *lines, ""])


class Npu(UMABackend):
    """A backend of patterns, with the driver in `integer_driver.c` or without.

    Args:
        folder: a new one becomes the backend's.
        registrations: patterns.
        drivers: C functions by pattern.
    """

    def __init__(
        self,
        folder: Path,
        registrations: Sequence[Any],
        drivers: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        self._name = name or f"integer{next(_numbers)}_npu"
        self._folder = folder / self._name
        super().__init__()
        for registration in registrations:
            self._register_pattern(*registration)
        if drivers:
            self._register_tir_pass(PassPhase.TIR_PHASE_0, patterns.driver_calls(**drivers))
            self._register_codegen(includes=lambda: '#include "integer_driver.h"')
            self._register_driver(["integer_driver.c"], ["integer_driver.h"])

    @property
    def target_name(self) -> str:
        return self._name

    @property
    def folder(self) -> Path:
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            (self._folder / "accel.toml").write_text(CONFIGURATION.format(name=self._name))
            shutil.copy(Path(__file__).parent / "integer_driver.c", self._folder)
            (self._folder / "integer_driver.h").write_text(header_of(DECLARED))
        return self._folder


DECLARED = {
    "npu_qconv2d": patterns.qconv2d(),
    "npu_qconv2d_blocked": patterns.qconv2d(),
    "npu_qconv2d_nchw": patterns.qconv2d(),
    "npu_qconv2d_blocked_nchw": patterns.qconv2d(),
    "npu_qconv2d_then": patterns.qconv2d(requantize=True),
    "npu_qconv2d_add": patterns.qconv2d_add(),
    "npu_qconv2d_add_blocked": patterns.qconv2d_add(),
    "npu_qconv2d_add_blocked_nchw": patterns.qconv2d_add(),
    "npu_qdepthwise": patterns.qdepthwise(),
    "npu_qdepthwise_nchw": patterns.qdepthwise(),
    "npu_qdense": patterns.qdense(),
    "npu_qadd": patterns.qadd(),
    "npu_qsubtract": patterns.qsubtract(),
    "npu_lstm": patterns.qlstm(),
    "npu_qadd_broadcast": patterns.qadd(broadcast=True),
    "npu_qmultiply": patterns.qmultiply(),
    "npu_qavg_pool2d": patterns.qavg_pool2d(),
    "npu_qmax_pool2d": patterns.qmax_pool2d(),
    "npu_qmax_pool2d_nchw": patterns.qmax_pool2d(),
    "npu_broken": patterns.qmultiply(),
}

PLAIN = (
    "qconv2d", "qdepthwise", "qdense", "qadd", "qsubtract", "qmultiply", "qavg_pool2d",
    "qmax_pool2d",
)  # fmt: skip
DRIVERS = {name: f"npu_{name}" for name in PLAIN}
BLOCKED = "O/8 HWI 8o"
NCHW: dict[str, Any] = {"layout": "NCHW"}


def everything(**options: Any) -> list[Any]:
    """Every pattern with the constraints of the driver; options of convolutions."""
    return [
        patterns.qconv2d(groups=None, dilation=None, batch=None, **options),
        patterns.qdepthwise(dilation=None, multipliers=None, batch=None),
        patterns.qdense(weight_layout="IO"),
        patterns.qadd(),
        patterns.qsubtract(),
        patterns.qmultiply(),
        patterns.qavg_pool2d(batch=None),
        patterns.qmax_pool2d(batch=None),
    ]


def driven(folder: Path, *, blocked: bool = False) -> Npu:
    """The backend whose operators run in the driver."""
    if not blocked:
        return Npu(folder, everything(), DRIVERS)
    options = {"weight_layout": BLOCKED, "fold_zero_point": True}
    return Npu(folder, everything(**options), DRIVERS | {"qconv2d": "npu_qconv2d_blocked"})


SUM = {"qconv2d_add": "npu_qconv2d_add"}


def residual_npu(folder: Path, *, blocked: bool = False, driver: bool = True) -> Npu:
    """A backend of all patterns, and the sum behind a convolution."""
    options: dict[str, Any] = {}
    drivers = DRIVERS | SUM
    if blocked:
        options = {"weight_layout": BLOCKED, "fold_zero_point": True}
        drivers |= {"qconv2d": "npu_qconv2d_blocked", "qconv2d_add": "npu_qconv2d_add_blocked"}
    registrations = [patterns.qconv2d_add(groups=None, dilation=None, **options)]
    return Npu(folder, [*registrations, *everything(**options)], drivers if driver else None)


def fused(library: Any) -> int:
    """Number of layers that are a convolution and a sum."""
    layers = library.metadata["umakit"]["layers"]
    return sum("qconv2d_add" in layer["kernel"] for layer in layers)


# --- networks -----------------------------------------------------------------------------------

random = np.random.default_rng(0)


def integers(*shape: int, low: int = -128, dtype: str = "int8") -> Array:
    return random.integers(low, 128, shape).astype(dtype)


def network(build: Any, *shapes: Sequence[int], dtype: str = "int8") -> Any:
    """A Relax module with the inputs `x`, `y`; `build` returns a call or several."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(name, relax.TensorType(list(shape), dtype))
        for name, shape in zip("xy", shapes, strict=False)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            made = build(builder, *inputs)
            calls = list(made) if isinstance(made, list) else [made]
            results = [builder.emit(call) for call in calls]
            whole = results[0] if len(results) == 1 else relax.Tuple(results)
            result = builder.emit_output(whole)
        builder.emit_func_output(result)
    return builder.get()


def common(shape: Sequence[int], **values: Any) -> dict[str, Any]:
    fields = {
        "output_shape": tuple(shape), "output_dtype": "int8", "output_zero_point": 3,
        "clip": (-128, 127), "rounding": "tflm",
    }  # fmt: skip
    return fields | values


def linear_constants(weights: Array, scales: int) -> list[Any]:
    """Operands of a convolution or fully connected layer behind the data."""
    scaled = fixed_point([float(f) for f in random.uniform(1e-4, 5e-3, scales)])
    bias = random.integers(-3000, 3000, len(weights)).astype(np.int32)
    return [relax.const(a) for a in (weights, bias, scaled.multipliers, scaled.shifts)]


def conv(
    x: Any,
    outputs: int = 8,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    scales: int = 0,
    **values: Any,
) -> Any:
    """A convolution of `x` with random constants."""
    n, height, width, channels = tvm_api.static_shape(x) or ()
    weights = integers(outputs, *kernel, channels // groups, low=-127)
    sizes = [
        (size + first + last - (k - 1) * step - 1) // stride + 1
        for size, first, last, k, step, stride in zip(
            (height, width), padding[:2], padding[2:], kernel, dilation, strides, strict=True
        )
    ]
    fields = common((n, *sizes, outputs), **({"input_zero_point": -7} | values))
    parameters = Conv2d(
        **fields, strides=strides, padding=padding, dilation=dilation, groups=groups
    )
    return parameters.call([x, *linear_constants(weights, scales or outputs)], None)


def dense(x: Any, outputs: int = 8, scales: int = 1, **values: Any) -> Any:
    rows, inputs = tvm_api.static_shape(x) or ()
    parameters = Dense(**common((rows, outputs), **values), input_zero_point=11)
    weights = integers(outputs, inputs, low=-127)
    return parameters.call([x, *linear_constants(weights, scales)], None)


def add(left: Any, right: Any, shape: Sequence[int], kind: type[Add] = Add, **values: Any) -> Any:
    scaled = fixed_point([0.5, 0.21, 1.9 / 2**20])
    parameters = kind(
        **common(shape, **values), zero_points=(4, -9), left_shift=20,
        multipliers=tuple(int(m) for m in scaled.multipliers),  # type: ignore[arg-type]
        shifts=tuple(int(s) for s in scaled.shifts),  # type: ignore[arg-type]
    )  # fmt: skip
    return parameters.call([left, right], None)


def multiply(left: Any, right: Any, shape: Sequence[int], **values: Any) -> Any:
    scaled = fixed_point([0.0123])
    parameters = Multiply(
        **common(shape, **values), zero_points=(4, -9),
        multiplier=int(scaled.multipliers[0]), shift=int(scaled.shifts[0]),
    )  # fmt: skip
    return parameters.call([left, right], None)


def pool(x: Any, kind: Any = MaxPool2d, window: int = 2, stride: int = 2, **values: Any) -> Any:
    n, height, width, channels = tvm_api.static_shape(x) or ()
    sizes = [(size - window) // stride + 1 for size in (height, width)]
    parameters = kind(
        **common((n, *sizes, channels), **values), strides=(stride, stride),
        padding=(0, 0, 0, 0), window=(window, window),
    )  # fmt: skip
    return parameters.call([x], None)


def rescale(x: Any, factor: float, **values: Any) -> Any:
    """A change of scale; behind operators its zero point is 3."""
    scaled = fixed_point([factor])
    fields = common(tvm_api.static_shape(x) or (), **values)
    parameters = Requantize(
        **fields, input_zero_point=3, multiplier=int(scaled.multipliers[0]),
        shift=int(scaled.shifts[0]),
    )  # fmt: skip
    return parameters.call([x], None)


def compiled(module: Any, backends: Sequence[UMABackend], folder: Path) -> Library:
    place = Path(tempfile.mkdtemp(dir=folder))
    return compile_model(module, backends, place / "library", name="net")


def results(module: Any, backends: Sequence[UMABackend], folder: Path, **given: Array) -> Any:
    """Outputs of a network on backends."""
    return list(run_library(compiled(module, backends, folder).path, given).outputs.values())


def source(library: Library, name: str = "tvmgen_net.c") -> str:
    return (library.path / "codegen/host/src" / name).read_text(encoding="utf-8")


def assert_same_on_the_driver(module: Any, npu: Npu, folder: Path, **given: Array) -> None:
    """All operators run in the driver, and all results are the CPU's."""
    library = compiled(module, [npu], folder)
    assert {row.where for row in library.report.placements} == {npu.target_name}
    wanted = results(module, [], folder, **given)
    got = list(run_library(library.path, given).outputs.values())
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert len(np.unique(one)) > 1 or one.size < 4


def placements(module: Any, *backends: UMABackend) -> list[OperatorPlacement]:
    """Rows of the offload report in the model's layout."""
    return list(partition(module, backends, keep_layout=True).report.placements)


def reason(module: Any, *registrations: Any, folder: Path) -> str:
    """Why the only operator stays on the CPU; empty if it does not."""
    (row,) = placements(module, Npu(folder, registrations))
    assert bool(row.reason) == (row.where == "cpu")
    return row.reason
