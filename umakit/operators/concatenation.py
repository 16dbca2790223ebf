# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and PACK of TensorFlow Lite."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from umakit import tvm_api
from umakit.errors import BackendError, ModelError
from umakit.operators.drawings import layers
from umakit.operators.interface import Interface
from umakit.operators.kernels.loops import buffer, buffers, kernel, loops, sequence
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.constraints import Constraint
from umakit.operators.offload.generated import Generated, GeneratedPattern
from umakit.operators.offload.matching import Match, NotReadable
from umakit.operators.offload.pattern import as_call
from umakit.operators.parameters import Parameters, whole_range
from umakit.operators.registry import Shapes, register, shape_of
from umakit.operators.tflite import ANY, TfliteNode, converts, imported

relax, tirx = tvm_api.relax, tvm_api.tirx

RELAX = "concat"


@dataclass(frozen=True)
class Concatenation(Parameters):
    """Tensors joined along an axis; networks have Relax's `concat` instead.

    Attributes:
        axis: the axis, from 0.
    """

    operator: ClassVar[str] = "concatenation"

    axis: int

    @classmethod
    def of(cls, call: tvm_api.Call) -> Concatenation:
        """The parameters of a call of this operator or of Relax's `concat`."""
        if tvm_api.operator_name(call) != RELAX:
            return super().of(call)
        shape, dtype = shape_of(call), tvm_api.dtype_of(call)
        return cls(**whole_range(shape, dtype), axis=int(call.attrs.axis or 0) % len(shape))


def _kernel(parameters: Concatenation, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    names = [f"operand_{number}" for number in range(len(shapes))]
    operands = buffers(names, shapes, dtypes)
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    statements, start = [], 0
    for operand, shape in zip(operands, shapes, strict=True):

        def copy(
            *place: tvm_api.PrimExpr, source: tvm_api.Buffer = operand, first: int = start
        ) -> tvm_api.Stmt:
            moved = [n + first if axis == parameters.axis else n for axis, n in enumerate(place)]
            return tirx.BufferStore(output, source[tuple(place)], moved)

        statements.append(loops([(f"i{axis}", n) for axis, n in enumerate(shape)], copy))
        start += shape[parameters.axis]
    return kernel([*operands, output], sequence(*statements))


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QConcatenation(Concatenation, Generated):
    """Tensors joined along an axis."""

    INTERFACE = Interface(names={"axis": ()}, relax=RELAX, clips=False)
    FOLLOWED = False

    def __post_init__(self) -> None:
        names = [f"operand_{number}" for number in range(len(self.shapes))]
        object.__setattr__(self, "POINTERS", (*names, "result"))

    @property
    def sizes(self) -> dict[str, int]:
        """The elements before the axis, and for each operand the elements from the axis on."""
        first = self.axis
        lengths = {f"length_{n}": math.prod(shape[first:]) for n, shape in enumerate(self.shapes)}
        return {"outer": math.prod(self.shapes[0][:first]), **lengths}


@dataclass(frozen=True)
class _Parts(Match):
    """The match of a concatenation; the operands are the fields of a tuple."""

    @property
    def operands(self) -> list[tvm_api.Expr]:
        return list(self.operator.args[0].fields)


@dataclass(frozen=True, eq=False)
class qconcatenation(GeneratedPattern):
    """An integer concatenation of a number of tensors.

    The driver gets the pointers operand_0, operand_1, ..., result, then outer, length_0, length_1,
    ...: it copies from each operand in turn as many elements as its length says, `outer` times.

    Attributes:
        operands: number of tensors; register a pattern of another name for each number.
    """

    KIND = QConcatenation
    OPERATOR = Concatenation
    OPERANDS = 1

    name: str = "qconcatenation"
    operands: int = field(default=2, kw_only=True)

    def __post_init__(self) -> None:
        if self.operands < 1:
            raise BackendError(f"operands={self.operands}", where=self.name, fix="say 1 or more")
        super().__post_init__()

    def _operands(self, wildcards: list[tvm_api.DFPattern]) -> list[tvm_api.DFPattern]:
        return [tvm_api.is_tuple([tvm_api.wildcard() for _ in range(self.operands)])]

    def _alternatives(self, operator: tvm_api.DFPattern) -> Any:
        """The concatenation of the number of tensors; other numbers match too, to be refused."""
        return [operator, tvm_api.is_op(self.operator_name)(tvm_api.wildcard())]

    def _match(self, context: tvm_api.PatternCheckContext) -> Match:
        call = as_call(context.matched_expr)
        if not isinstance(call.args[0], tvm_api.RelaxTuple):
            raise NotReadable("its operands are one tuple: the accelerator gets each")
        return _Parts(call)

    def match_of(self, function: tvm_api.Function) -> Match | None:
        found = super().match_of(function)
        return None if found is None else _Parts(found.operator)

    def stored_fields(self, data_dtype: str) -> dict[str, Any]:
        """Return the fields of the parameters that depend on the number of operands."""
        return {"shapes": ((1,),) * self.operands, "dtypes": (data_dtype,) * self.operands}

    def _dtype_constraints(self) -> list[Constraint]:
        return [*super()._dtype_constraints()[:2], _one_dtype]

    def _further_constraints(self) -> list[Constraint]:
        return [
            _c.refuse_if(
                lambda layer: len(layer.shapes) != self.operands,
                lambda layer: (
                    f"{len(layer.shapes)} tensors: the accelerator concatenates {self.operands}"
                ),
            )
        ]


def _one_dtype(layer: Any) -> str:
    others = set(layer.dtypes) - {layer.output_dtype}
    return f"{others.pop()} and {layer.output_dtype}: the accelerator copies" if others else ""


register(
    parameters=Concatenation,
    kernel_of_operands=_kernel,
    drawing=layers.concatenation(),
    patterns=(qconcatenation,),
)


@converts("PACK", *ANY, same_dtype=True, same_scale=True)
def pack(node: TfliteNode) -> tvm_api.Expr:
    """PACK of tensors of one shape along a new axis."""
    options = node.options("PackOptions")
    result = node.result.shape
    axis = options.Axis() + (len(result) if options.Axis() < 0 else 0)
    if not 0 <= axis < len(result):
        raise ModelError(f"its axis is {options.Axis()}")
    part = (*result[:axis], 1, *result[axis + 1 :])
    if any(tensor.shape != part[:axis] + part[axis + 1 :] for tensor in node.tensors):
        raise ModelError(f"its result has the shape {list(result)}")
    parts = [node.emit(relax.op.reshape(value, part)) for value in node.values()]
    return relax.op.concat(parts, axis)


converts("CONCATENATION", *ANY, same_dtype=True, same_scale=True)(imported)
