# SPDX-License-Identifier: Apache-2.0
"""Construction of a program from a lowered network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.frontend.model import Model, Quantization, TensorSpecification
from umakit.lower import Kernel, Lowered
from umakit.lower.driver_calls import Parameter
from umakit.partition.constant_roles import UNKNOWN
from umakit.partition.report import CPU, OffloadReport
from umakit.program.program import KernelCall, Program, Role, Tensor
from umakit.program.symbols import LayerSymbols
from umakit.text.identities import unique_labels
from umakit.text.names import INTERFACE_NAMES, c_identifier, unique

QUANTIZED = ("int8", "uint8", "int16", "uint16")
"""Dtypes of integers that stand for real numbers."""


def build_program(
    model: Model, lowered: Lowered, report: OffloadReport, reserved: Iterable[str] = ()
) -> Program:
    """Flatten a lowered network into a program."""
    return _Builder(model, lowered, report, reserved).build()


class _Builder:
    def __init__(
        self, model: Model, lowered: Lowered, report: OffloadReport, reserved: Iterable[str]
    ) -> None:
        self._model = model
        self._lowered = lowered
        self._report = report
        self._taken: set[str] = {name.lower() for name in reserved}
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._constant_names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._values: dict[Any, Any] = {}
        self._calls: list[KernelCall] = []
        self._quantizations: dict[str, Quantization] = {}
        self._symbols = LayerSymbols(model.name, self._layer_names())

    def build(self) -> Program:
        main = self._lowered.main
        inputs = []
        for specification, parameter in zip(self._model.inputs, main.params, strict=True):
            name = self._declare(specification, Role.INPUT)
            self._values[parameter] = name
            inputs.append(name)
        # Declared before other tensors, so that outputs keep the names of the model.
        outputs = [self._declare(each, Role.OUTPUT) for each in self._model.outputs]
        for binding in tvm_api.bindings_of(main):
            self._values[binding.var] = self._evaluate(binding)
        results = self._value(main.body.body)
        self._write_outputs(outputs, results if isinstance(results, list) else [results])
        labels = unique_labels(call.label for call in self._calls)
        calls = tuple(
            replace(call, label=label) for call, label in zip(self._calls, labels, strict=True)
        )
        used = {call.kernel for call in calls}
        kernels = {name: k for name, k in self._lowered.kernels.items() if name in used}
        return Program(
            self._model.name,
            self._tensors,
            self._constants,
            calls,
            kernels,
            tuple(inputs),
            tuple(outputs),
            self._model.fingerprint,
            planned=self._lowered.planned,
            notices=self._model.notices,
            quantizations=self._quantizations,
            sources=self._model.sources,
            choices=self._lowered.choices,
        )

    def _layer_names(self) -> Iterable[str]:
        for binding in tvm_api.bindings_of(self._lowered.main):
            value = binding.value
            if isinstance(value, tvm_api.Call) and tvm_api.operator_name(value) == "call_tir":
                yield self._layer_name(value)

    def _layer_name(self, call: tvm_api.Call) -> str:
        return self._report.main_name(tvm_api.rows_of(call)) or str(call.args[0].name_hint)

    def _declare(
        self, specification: TensorSpecification, role: Role, pool: str = "", name: str = ""
    ) -> str:
        name = unique(name or c_identifier(specification.name), self._taken)
        self._tensors[name] = Tensor(
            name,
            specification.name,
            specification.shape,
            specification.dtype,
            role,
            specification.quantization,
            pool,
            specification.next_state,
        )
        return name

    def _evaluate(self, binding: tvm_api.Binding) -> Any:
        value = binding.value
        if isinstance(value, tvm_api.Call):
            operator = tvm_api.operator_name(value)
            if operator == "call_tir":
                return self._call(value)
            if operator in ("reshape", "memory.view"):
                return self._value(value.args[0])
            raise LoweringError(
                f"call of {operator or value.op} cannot become C", where=str(binding.var.name)
            )
        return self._value(value)

    def _value(self, expression: tvm_api.PrimExpr) -> Any:
        """Return a tensor name, the array of a constant, or a list of both for a tuple."""
        array = tvm_api.constant_array(expression)
        if array is not None:
            return array
        if isinstance(expression, tvm_api.RelaxTuple):
            return [self._value(field) for field in expression.fields]
        if isinstance(expression, tvm_api.TupleGetItem):
            return self._value(expression.tuple_value)[expression.index]
        if isinstance(expression, tvm_api.Var) and expression in self._values:
            return self._values[expression]
        raise LoweringError(f"a {type(expression).__name__} in `main` cannot become C")

    def _constant(self, array: npt.NDArray[Any], layer: str, label: str, part: str) -> str:
        """Return the name of a constant. Equal constants share the name of the first layer."""
        key = (str(array.dtype), tuple(array.shape), array.tobytes())
        if key not in self._constant_names:
            shape = tuple(int(size) for size in array.shape)
            kind = TensorSpecification(f"{part} of {label}", shape, str(array.dtype))
            name = self._symbols.symbol(layer, part, self._taken, INTERFACE_NAMES)
            name = self._declare(kind, Role.CONSTANT, name=name)
            self._constants[name] = np.ascontiguousarray(array)
            self._constant_names[key] = name
        return self._constant_names[key]

    def _scratch(self, parameter: Parameter, kernel: Kernel, layer: str, label: str) -> str:
        part = parameter.own_name if kernel.keeps_names else "scratch"
        part += "_local" if parameter.pool else ""
        kind = TensorSpecification(f"{label} scratch", (parameter.elements,), parameter.dtype)
        name = self._symbols.tensor(layer, part, self._taken)
        return self._declare(kind, Role.SCRATCH, parameter.pool, name)

    def _call(self, call: tvm_api.Call) -> Any:
        kernel = self._lowered.kernels[call.args[0].name_hint]
        numbers = tvm_api.rows_of(call)
        rows = [self._report.placements[row] for row in numbers]
        label = self._report.label(numbers) or kernel.name
        layer = self._symbols.layer(self._layer_name(call))
        arguments, roles = self._arguments(kernel, call, layer, label)
        results = self._results(call, layer, label)
        scratch = [self._scratch(each, kernel, layer, label) for each in kernel.scratch]
        macs = sum(row.macs for row in rows)
        attributes = [row.attributes for row in rows if row.attributes]
        for layout in (
            *(tiles.layout for tiles in kernel.packed.values()),
            *kernel.layouts.values(),
        ):
            attributes = [{**each, "weights_layout": layout} for each in attributes]
        self._calls.append(
            KernelCall(
                kernel.name,
                tuple(arguments),
                tuple(results),
                tuple(scratch),
                label,
                kernel.target,
                macs,
                numbers,
                tuple(dict.fromkeys(row.operator for row in rows)),
                symbol=layer,
                weights={
                    row.name: self._model.weights[row.yields]
                    for row in rows
                    if row.yields in self._model.weights
                },
                attributes=attributes[0] if len(attributes) == 1 else {},
                roles=roles,
                inner={
                    row.name: self._model.quantizations[row.yields]
                    for row in rows[:-1]
                    if row.yields in self._model.quantizations and row.yields != rows[-1].yields
                },
            )
        )
        return results if isinstance(call.ty_args[0], tvm_api.relax.TupleType) else results[0]

    def _arguments(
        self, kernel: Kernel, call: tvm_api.Call, layer: str, label: str
    ) -> tuple[list[str], dict[int, str]]:
        """Return the names of a call's arguments, and the roles of constants by their number."""
        arguments: list[str] = []
        roles: dict[int, str] = {}
        given = enumerate(call.args[1].fields)
        taken = [argument for number, argument in given if number not in kernel.ignored]
        for argument, parameter in zip(taken, kernel.inputs, strict=True):
            value = self._value(argument)
            if isinstance(value, np.ndarray):
                part = parameter.own_name if kernel.keeps_names else ""
                stored = "weights" if len(arguments) in kernel.layouts else ""
                part = part or stored or self._role(tvm_api.rows_of(call), value, kernel, call)
                tiles = kernel.packed.get(len(arguments))
                value = value if tiles is None else tiles.stored(value)
                value = self._constant(value, layer, label, part)
                roles |= {} if kernel.keeps_names or part == UNKNOWN else {len(arguments): part}
            arguments.append(value)
        return arguments, roles

    def _results(self, call: tvm_api.Call, layer: str, label: str) -> list[str]:
        fields = tvm_api.tuple_fields(call.ty_args[0])
        results: list[str] = []
        for number, kind in enumerate(fields):
            shape = tvm_api.static_type_shape(kind)
            if shape is None:
                raise LoweringError("a result has no static shape", where=label)
            specification = TensorSpecification(label, shape, tvm_api.type_dtype(kind))
            part = "output" if len(fields) == 1 else f"output_{number}"
            name = self._symbols.tensor(layer, part, self._taken)
            results.append(self._declare(specification, Role.INTERMEDIATE, name=name))
            self._note_quantization(results[-1], specification.dtype, tvm_api.rows_of(call))
        return results

    def _role(
        self, rows: tuple[int, ...], value: npt.NDArray[Any], kernel: Kernel, call: tvm_api.Call
    ) -> str:
        """Return the role of a constant, including weights with channels padded."""
        role = self._lowered.roles.role(rows, value)
        result = tvm_api.static_type_shape(tvm_api.tuple_fields(call.ty_args[0])[0])
        if role != UNKNOWN or not kernel.has_vectors or value.ndim != 4 or not result:
            return role
        return self._lowered.roles.role(rows, np.ascontiguousarray(value[..., : result[-1]]))

    def _note_quantization(self, tensor: str, dtype: str, rows: tuple[int, ...]) -> None:
        """Record scale and zero point of a result, from the last node that it covers."""
        nodes = [self._report.placements[row].yields for row in rows]
        found = [self._model.quantizations.get(node) for node in nodes]
        if dtype in QUANTIZED and found and found[-1] is not None:
            self._quantizations[tensor] = found[-1]

    def _copy(self, name: str, source: str | npt.NDArray[Any]) -> None:
        """Append a copy of a tensor or constant to an output tensor."""
        label = f"copy to {self._tensors[name].label}"
        layer = self._symbols.layer(f"copy_to_{name}")
        if not isinstance(source, str):
            source = self._constant(source, layer, label, "values")
        self._calls.append(KernelCall("", (source,), (name,), (), label, CPU, 0, symbol=layer))

    def _write_outputs(self, outputs: list[str], results: list[str | npt.NDArray[Any]]) -> None:
        """Turn results into output tensors, with copies for constants, inputs and repeated
        results."""
        rename: dict[str, str] = {}
        for name, result in zip(outputs, results, strict=True):
            if not isinstance(result, str):
                self._copy(name, result)
            elif self._tensors[result].role is Role.INTERMEDIATE and result not in rename:
                # One kernel writes the whole result, so it can write directly to the output.
                rename[result] = name
            else:
                self._copy(name, rename.get(result, result))
        for result in rename:
            del self._tensors[result]
        self._calls = [
            replace(
                call,
                inputs=tuple(rename.get(name, name) for name in call.inputs),
                outputs=tuple(rename.get(name, name) for name in call.outputs),
            )
            for call in self._calls
        ]
