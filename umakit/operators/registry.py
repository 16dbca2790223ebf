# SPDX-License-Identifier: Apache-2.0
"""The registry of integer operators.

A file of `operators/` registers one `IntegerOperator` with the answers to all questions of the
stages. No other file names the operator: recognition, lowering, patterns and reports ask the
functions here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import partial
from typing import Any, ParamSpec

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.operators.drawing import Drawing
from umakit.operators.interface import Interface
from umakit.operators.islands import Island, Network
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import PREFIX, Parameters, register_relax_operators
from umakit.tvm_api import Call, Expr, PrimFunc

F = ParamSpec("F")
PARAMETERS = "umakit.parameters"
"""Attribute of a prim func with the attributes of its integer operator, as JSON, for readers."""

Shapes = list[tuple[int, ...]]
Derivation = Callable[[Island], Expr | None]
"""Returns an expression, None for another operator's island, or raises `NoIntegerForm`."""

Kernel = Callable[[Any, Call], tuple[PrimFunc, list[Expr]]]
"""(parameters, call) -> prim func and its Relax arguments. `Any` stands for the operator's own
parameter class."""

KernelOfOperands = Callable[[Any, Shapes, list[str]], PrimFunc]
"""(parameters, shapes of the operands, their dtypes) -> prim func; an operator's own parameters."""
Rule = Callable[[tvm_api.BlockBuilder, Call], Call]
"""(block builder, call) -> call_tir."""

QUANTIZE = "quantize"
"""Islands of the quantize itself, with all that stands before it; asked first."""

FLOATS = "floats"
"""Islands that the model computes in floating point; only the quantize is replaced."""


class Order(IntEnum):
    """Order of the recognitions of one Relax operator.

    `SPECIAL` recognitions return None for islands of other operators; at most one recognition is
    `GENERAL`.
    """

    SPECIAL = 0
    GENERAL = 1


@dataclass(frozen=True)
class Recognition:
    """The islands of an integer operator.

    Attributes:
        relax: names of the Relax operators before the quantize, without activation, for example
            `nn.conv2d`; or `QUANTIZE`, or `FLOATS`.
        derive: function that returns the call, or None for an island of another operator.
    """

    relax: tuple[str, ...]
    derive: Derivation
    arithmetics: tuple[Arithmetic, ...] = (Arithmetic.TFLM, Arithmetic.ORT)
    order: Order = Order.GENERAL


@dataclass(frozen=True)
class IntegerCall:
    """A Relax operator on integers, replaced by an integer operator.

    Attributes:
        replace: (call, network) -> expression; the unchanged call for no replacement.
        without_quantize: whether networks without a quantize have such calls too.
    """

    relax: str
    replace: Callable[[Call, Network], Expr]
    without_quantize: bool = False


@dataclass(frozen=True)
class IntegerOperator:
    """An integer operator, with its facts for all stages.

    Attributes:
        name: name without `relax.quantized.`, for example `conv2d`, by default the name of the
            parameters; for an operator computed by another operator, a name for messages.
        parameters: the attributes of `relax.quantized.NAME`; None for an operator computed by
            another operator.
        kernel: kernel on the CPU, with operands of its own, such as ordered weights.
        kernel_of_operands: kernel on the CPU with the operands of the call, in place of `kernel`.
        takes_clip: whether a clip of the result becomes part of the parameters.
        macs: (call, shape of the result) -> number of multiply-accumulates; None for none.
        kind: call -> name of the operator's special case for readers, for example
            `depthwise_conv2d`; None if all calls have the operator's name.
        interface: driver's arguments, the source of generated pattern and parameters for an
            operator without `patterns`; None if backends cannot offload the operator.
        drawing: source of layers for `uma check`; None without one.
    """

    name: str = ""
    parameters: type[Parameters] | None = None
    kernel: Kernel | None = None
    kernel_of_operands: KernelOfOperands | None = None
    recognitions: tuple[Recognition, ...] = ()
    integer_calls: tuple[IntegerCall, ...] = ()
    takes_clip: bool = False
    macs: Callable[[Call, tuple[int, ...]], int] | None = None
    kind: Callable[[Call], str] | None = None
    patterns: tuple[type[Any], ...] = ()
    interface: Interface | None = None
    drawing: Drawing | None = None

    def __post_init__(self) -> None:
        if self.parameters is not None:
            object.__setattr__(self, "name", self.parameters.operator)
        if self.kernel_of_operands is not None:
            object.__setattr__(self, "kernel", partial(_of_operands, self.kernel_of_operands))

    @property
    def composites(self) -> tuple[type[Any], ...]:
        """The parameters of the patterns."""
        return tuple(pattern.KIND for pattern in self.patterns)


_OPERATORS: dict[str, IntegerOperator] = {}


def _registering(make: Callable[F, IntegerOperator]) -> Callable[F, None]:
    def register(*fields: F.args, **named: F.kwargs) -> None:
        operator = make(*fields, **named)
        if operator.name in _OPERATORS:
            raise ValueError(f"operator {operator.name} is registered twice")
        for own in operator.recognitions:
            for name in own.relax if own.order is Order.GENERAL else ():
                for arithmetic in own.arithmetics:
                    others = recognitions(name, arithmetic)
                    if any(other.order is Order.GENERAL for other in others):
                        raise ValueError(
                            f"{operator.name} is not the only one recognized in {name}"
                        )
        if operator.parameters is not None:
            register_relax_operators([operator.parameters])
        _OPERATORS[operator.name] = operator

    return register


register = _registering(IntegerOperator)
"""Register the operator of some fields of `IntegerOperator`; called by the operator's file. Raises
ValueError for a name that is taken, and for two `GENERAL` recognitions of the same islands."""


def operators() -> tuple[IntegerOperator, ...]:
    """Return all integer operators by name."""
    return tuple(_OPERATORS[name] for name in sorted(_OPERATORS))


def operator_of(call: Call) -> IntegerOperator | None:
    """Return the integer operator of a Relax call; None for other operators."""
    name = tvm_api.operator_name(call)
    return _OPERATORS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def name_for_readers(call: Call) -> str:
    """Return the name of a call's operator in reports and comments.

    The name is Relax's, or the name of a special case of an integer operator:
    `quantized.depthwise_conv2d` for a `quantized.conv2d` with groups of one channel.
    """
    operator = operator_of(call)
    if operator is None or operator.kind is None:
        return tvm_api.operator_name(call)
    return f"{PREFIX}{operator.kind(call)}"


def parameters_class(name: str) -> Any:
    """Return the class of the parameters of an operator, by its name such as `conv2d`.

    The type is `Any` because only the caller knows the class.
    """
    return _OPERATORS[name].parameters


def recognitions(relax: str, arithmetic: Arithmetic) -> list[Recognition]:
    """Return the recognitions of islands that end with a Relax operator, in order of trial."""
    found = [
        recognition
        for operator in operators()
        for recognition in operator.recognitions
        if relax in recognition.relax and arithmetic in recognition.arithmetics
    ]
    return sorted(found, key=lambda recognition: recognition.order)


def integer_calls(relax: str) -> list[IntegerCall]:
    """Return the replacements of a Relax operator on integers."""
    return [item for item in _integer_calls() if item.relax == relax]


def roots_without_quantize() -> set[str]:
    """Return the Relax operators on integers with replacements in networks without a quantize."""
    return {item.relax for item in _integer_calls() if item.without_quantize}


def _integer_calls() -> Iterator[IntegerCall]:
    for operator in operators():
        yield from operator.integer_calls


def legalizations() -> dict[str, Rule]:
    """Return the rules for `LegalizeOps` by operator, for the CPU kernels."""
    return {
        f"relax.{PREFIX}{operator.name}": _rule(operator.parameters, operator.kernel)
        for operator in operators()
        if operator.parameters is not None and operator.kernel is not None
    }


def legalizations_with(kernels: Mapping[str, Kernel]) -> dict[str, Rule]:
    """Return the rules for `LegalizeOps` of operators with kernels other than their own."""
    return {f"relax.{PREFIX}{name}": _rule(parameters_class(name), kernel)
            for name, kernel in kernels.items()}  # fmt: skip


def _rule(kind: type[Parameters], kernel: Kernel) -> Rule:
    def rule(builder: tvm_api.BlockBuilder, call: Call) -> Call:
        parameters = kind.of(call)
        function, operands = kernel(parameters, call)
        function = function.with_attr(PARAMETERS, json.dumps(asdict(parameters)))
        name = tvm_api.operator_name(call).replace(".", "_")
        variable = builder.add_func(function, name)
        several = isinstance(call.ty, tvm_api.relax.TupleType)
        types = list(call.ty.fields) if several else call.ty
        return tvm_api.relax.call_tir(variable, tvm_api.relax.Tuple(operands), types)

    return rule


def shape_of(expression: Expr) -> tuple[int, ...]:
    """Return the shape of an operand."""
    shape = tvm_api.static_shape(expression)
    if shape is None:
        raise LoweringError("an integer operator's operand has no static shape")
    return shape


def _of_operands(
    function: KernelOfOperands, parameters: Any, call: Call
) -> tuple[PrimFunc, list[Expr]]:
    shapes = [shape_of(operand) for operand in call.args]
    dtypes = [tvm_api.dtype_of(operand) for operand in call.args]
    return function(parameters, shapes, dtypes), list(call.args)
