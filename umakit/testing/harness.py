# SPDX-License-Identifier: Apache-2.0
"""Compile, build, run and compare: `AOTModel` and `compile_and_run` as in `tvm.testing.aot`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.backend.base import UMABackend
from umakit.devices.probe import Probe
from umakit.devices.run import run_library
from umakit.devices.unpacked import run_unpacked
from umakit.errors import DeviceError, InputError
from umakit.files.staging import temporary_folder
from umakit.floats import in_comparisons
from umakit.frontend import Model, import_model
from umakit.library.options import ExportOptions
from umakit.lower import expand_requantize
from umakit.lower.cpu import all_legalizations
from umakit.operators.offload.rounding import call_rounded_by
from umakit.operators.registry import operator_of
from umakit.partition.macs import multiply_accumulates
from umakit.partition.partitioner import partition
from umakit.partition.report import OffloadReport
from umakit.pipeline import compile_model, export_program
from umakit.quantized import quantize_to_integers
from umakit.registration.backend import Backend

Array = npt.NDArray[Any]
INTERFACES = ("c", "unpacked")

OPTIMIZED_MACS = 10**8
"""Multiply-accumulates of a network above which LLVM optimizes code that runs once."""


@dataclass(frozen=True)
class AOTModel:
    """A network with inputs and expected outputs.

    Attributes:
        module: a Relax module, or the path of a model file.
        inputs: arrays by input name.
        outputs: expected arrays by output name; empty means TVM's own LLVM result.
        output_tolerance: relative and absolute tolerance; None means exact for integers and 1e-5
            for floats.
        name: name of the model in C.
        params: values of the module's parameters by name.
    """

    module: Any
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array] = field(default_factory=dict)
    output_tolerance: float | None = None
    name: str = "default"
    params: Mapping[str, Array] | None = None


@dataclass(frozen=True)
class AOTReport:
    """The results of `compile_and_run`.

    Attributes:
        offload: the offload report.
        outputs: outputs of the library, by name.
        largest_difference: largest absolute difference over all outputs.
        expected_from: source of the expected values.
    """

    offload: OffloadReport
    outputs: dict[str, Array]
    largest_difference: float
    expected_from: str

    def __str__(self) -> str:
        rows = self.offload.placements
        operators = max([16, *(len(row.operator) for row in rows)])
        names = max([16, *(len(row.name) for row in rows)])
        lines = [
            f"{row.operator:<{operators}} {row.name:<{names}} {row.where:<24} {row.reason}".rstrip()
            for row in rows
        ]
        return "\n".join(
            [*lines, f"largest difference from {self.expected_from}: {self.largest_difference:.3g}"]
        )


def compile_and_run(
    models: AOTModel | Sequence[AOTModel],
    backend: UMABackend | Sequence[UMABackend] | None = None,
    *,
    interface_api: str = "c",
    test_dir: str | os.PathLike[str] | None = None,
) -> AOTReport:
    """Compile models to C, run them on the host and compare with the expected outputs.

    Args:
        models: one or several models.
        backend: accelerators to use; None for the CPU alone.
        interface_api: `c` calls `tvmgen_NAME_run` with structs, `unpacked` calls
            `tvmgen_NAME_run_unpacked` with plain pointers.
        test_dir: folder for the libraries; default: a temporary folder.

    Returns:
        The report of the last model.

    Raises:
        DeviceError: a result differs by more than the tolerance; names output, index and
            difference.
        UmakitError: compiling, building or running failed.
    """
    if interface_api not in INTERFACES:
        raise InputError(f"interface_api {interface_api!r} is none of {', '.join(INTERFACES)}")
    backends = _as_list(backend)
    with temporary_folder("umakit-aot-") as temporary:
        folder = Path(test_dir) if test_dir is not None else temporary
        for model in _as_list(models):
            place = folder / model.name
            library = compile_model(
                model.module, backends, place, name=model.name, parameters=model.params
            )
            if interface_api == "c":
                outputs = run_library(place, model.inputs).outputs
            else:
                outputs = run_unpacked(place, model.inputs)
            expected = model.outputs or llvm_reference(model)
            source = "the expected outputs" if model.outputs else "TVM's LLVM build"
            largest = compare(outputs, expected, model.output_tolerance)
            report = AOTReport(library.report, outputs, largest, source)
    return report


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def llvm_reference(model: AOTModel) -> dict[str, Array]:
    """Return the outputs of TVM's own LLVM build of a model, by name."""
    imported = import_model(model.module, name=model.name, parameters=model.params)
    return llvm_runner(imported)(model.inputs)


@tvm_api.one_at_a_time
def llvm_runner(model: Model) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Return TVM's LLVM build of a network, as a function from inputs to outputs by name.

    Quantized operators become the same integer operators as in `uma compile`.

    Raises:
        ModelError: a quantized operator has no integer form.
    """
    module = quantize_to_integers(model).module
    optimize = _macs(module) >= OPTIMIZED_MACS
    machine = tvm_api.llvm_executable(_for_llvm(module), optimize=optimize)

    @tvm_api.one_at_a_time
    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        arguments = [tvm_api.to_device(inputs[item.name]) for item in model.inputs]
        result = machine["main"](*arguments)
        results = [result] if hasattr(result, "numpy") else list(result)
        return {
            item.name: value.numpy() for item, value in zip(model.outputs, results, strict=True)
        }

    return run


def _macs(module: Any) -> int:
    return sum(
        multiply_accumulates(tvm_api.operator_name(binding.value), binding.value, binding.var)
        for binding in tvm_api.bindings_of(module["main"])
        if isinstance(binding.value, tvm_api.Call)
    )


def _for_llvm(module: Any) -> Any:
    legal = tvm_api.relax_transform.LegalizeOps(all_legalizations())(module)
    return in_comparisons(expand_requantize(legal))


def compare(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float | None
) -> float:
    """Return the largest absolute difference of outputs and expected values.

    Raises:
        DeviceError: an output is missing, has another shape or dtype, or differs too much.
    """
    largest = 0.0
    for name, wanted in expected.items():
        if name not in outputs:
            raise DeviceError(f"there is no output {name!r}")
        got = outputs[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            raise DeviceError(
                f"output {name!r} is {got.dtype}{list(got.shape)}, expected "
                f"{wanted.dtype}{list(wanted.shape)}"
            )
        floating = np.issubdtype(wanted.dtype, np.floating)
        limit = tolerance if tolerance is not None else (1e-5 if floating else 0.0)
        close = np.isclose(got, wanted, rtol=limit, atol=limit, equal_nan=True)
        if not close.all():
            place = tuple(int(axis) for axis in np.argwhere(~close)[0])
            raise DeviceError(
                f"output {name!r} is {got[place]} instead of {wanted[place]} at {list(place)}, "
                f"and wrong at {int((~close).sum())} of {close.size} places"
            )
        if got.size:
            with np.errstate(invalid="ignore"):  # infinity less infinity
                difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
            largest = max(largest, float(np.nanmax(difference, initial=0.0)))
    return largest


@tvm_api.one_at_a_time
def conv2d_model(
    *,
    channels: int,
    height: int,
    width: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    seed: int = 0,
) -> AOTModel:
    """Return a network of one same-padded 2-D convolution with random weights and input.

    Args:
        channels: channels of the input, shape [1, channels, height, width], float32.
        height: height of the input.
        width: width of the input.
        filters: output channels.
        kernel: rows and columns of the kernel.
        stride: stride in both directions.
        seed: seed of the random values.
    """
    relax = tvm_api.relax
    random = np.random.default_rng(seed)
    weights = random.standard_normal((filters, channels, kernel, kernel)).astype("float32")
    ifmap = random.standard_normal((1, channels, height, width)).astype("float32")
    before, after = (kernel - 1) // 2, kernel // 2
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ifmap.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            convolution = relax.op.nn.conv2d(
                x,
                relax.const(weights),
                strides=(stride, stride),
                padding=(before, before, after, after),
            )
            result = builder.emit_output(convolution, "conv2d")
        builder.emit_func_output(result)
    return AOTModel(builder.get(), {"x": ifmap}, name="conv2d")


def rounded(call: tvm_api.Expr, rounding: str) -> tvm_api.Expr:
    """Return a call of an integer operator with an accelerator's own rounding, if it has a name."""
    if not rounding or not isinstance(call, tvm_api.Call):
        return call
    operator = operator_of(call)
    if operator is None or operator.parameters is None:
        return call
    return call_rounded_by(call, operator.parameters, rounding)


def results_of_kernels(
    module: tvm_api.IRModule, inputs: Mapping[str, Array], backends: Sequence[Backend], folder: Path
) -> list[Array]:
    """Return the results of a network by umakit's CPU kernels, in order.

    Rounding of an accelerator's own is a C function of the backend, which LLVM lacks.
    """
    folder.mkdir(parents=True)
    model = import_model(module, name="reference")
    library = export_program(
        model, partition(model.module, []), backends, folder / "library", ExportOptions()
    )
    description = library.metadata["umakit"]
    probe = Probe(description, library.path, folder / "program", flags=("-O1",))
    raw = {name: data for run in probe.run(inputs, {}) for name, data in run.outputs.items()}
    return [
        raw[output["c_name"]].view(np.dtype(output["dtype"])).reshape(output["shape"])
        for output in description["outputs"]
    ]
