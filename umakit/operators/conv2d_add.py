# SPDX-License-Identifier: Apache-2.0
"""The pattern of a convolution followed by the addition of another tensor to its result.

Networks do not contain this operator: the operator replaces both operators of a composite, so that
the operator strategy of convolutions does not apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from umakit import tvm_api
from umakit.operators.add import Add, total_of_both
from umakit.operators.conv2d import Conv2d, QConv2d, qconv2d
from umakit.operators.drawings import windows
from umakit.operators.offload.composite import Shape
from umakit.operators.offload.constraints import OtherOperator
from umakit.operators.offload.matching import Match, NotReadable
from umakit.operators.offload.pattern import (
    ANNOTATION,
    as_call,
    calls_of,
    calls_operator,
    with_followers,
)
from umakit.operators.offload.reference import with_addition
from umakit.operators.parameters import PREFIX, Parameters
from umakit.operators.registry import register


@dataclass(frozen=True, kw_only=True)
class QConv2dAdd(QConv2d):
    """A convolution, and the sum of its result and another tensor of the same shape and dtype.

    `output_zero_point` and `clip` apply to the convolution's result, before the addition.

    Attributes:
        addition: parameters of the addition. The left operand is always the convolution's result
            and the right operand the addend, whatever the order in the model; the first zero point
            is `output_zero_point`. Zero point and clip of the sum are `addition.output_zero_point`
            and `addition.clip`.
    """

    operator: ClassVar[str] = "conv2d_add"
    POINTERS: ClassVar[tuple[str, ...]] = (
        "data", "addend", "weights", "bias", "multipliers", "shifts", "result",
    )  # fmt: skip

    PARTS: ClassVar[dict[str, type[Parameters]]] = {**QConv2d.PARTS, "addition": Add}

    addition: Add

    @property
    def pointer_types(self) -> dict[str, str]:
        return super().pointer_types | {"addend": self.output_dtype}

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        shapes = super().operand_shapes | {"addend": self.output_shape}
        return {name: shapes[name] for name in self.POINTERS}

    def described_parts(self) -> dict[str, str]:
        """Parameters of the sum, and of the convolution, whose result is in no tensor."""
        added = self.addition
        factors = zip(
            ("convolution", "addend", "sum"), added.multipliers, added.shifts, strict=True
        )
        scaled = ", ".join(f"{name} {factor} x 2^{shift - 31}" for name, factor, shift in factors)
        return {
            "output zero point": f"{added.output_zero_point} (sum)",
            "clip": f"{added.clip[0]} to {added.clip[1]} (sum)",
            "convolution before the addition": (
                f"zero point {self.output_zero_point}, clip {self.clip[0]} to {self.clip[1]}"
            ),
            "addition": (
                f"addend zero point {added.zero_points[1]}, left shift {added.left_shift}, factors"
                f" {scaled}"
            ),
        }

    def ending(self) -> dict[str, int]:
        """The last arguments of the driver: of the convolution's result, then of the sum."""
        added = self.addition
        convolution, addend, total = zip(added.multipliers, added.shifts, strict=True)
        return {
            **self._result_arguments(),
            "add_left_shift": added.left_shift,
            "convolution_multiplier": convolution[0],
            "convolution_shift": convolution[1],
            "addend_zero_point": added.zero_points[1],
            "addend_multiplier": addend[0],
            "addend_shift": addend[1],
            "sum_multiplier": total[0],
            "sum_shift": total[1],
            "sum_zero_point": added.output_zero_point,
            "sum_lowest": added.clip[0],
            "sum_highest": added.clip[1],
            **self._then_arguments(),
        }

    def reference_kernel(self) -> tvm_api.PrimFunc:
        return with_addition(super().reference_kernel(), self, total_of_both)


@dataclass(frozen=True, eq=False)
class qconv2d_add(qconv2d):
    """An integer convolution whose result is added to another tensor, in one call of the driver.

    The convolution's result must have no other use. The other tensor may be the left or right
    operand of the addition and has the shape, layout and dtype of the result; if two convolutions
    are added, the left one is matched if possible. The arguments of `qconv2d` apply
    to the convolution, except that `requantize` applies to the sum. Register this pattern before
    `qconv2d`, which matches convolutions that are refused here.
    """

    KIND = QConv2dAdd

    name: str = "qconv2d_add"

    def __iter__(self) -> Iterator[Any]:
        wildcards = [tvm_api.wildcard() for _ in range(self.OPERANDS)]
        convolution, addend = tvm_api.is_op(self.operator_name)(*wildcards), tvm_api.wildcard()
        add = tvm_api.is_op(ADD)
        additions = [add(convolution, addend), add(addend, convolution)]
        sides = zip(*(with_followers(both) for both in additions), strict=True)
        alternatives = [alternative for pair in sides for alternative in pair]
        annotations = {ANNOTATION: convolution, **dict(zip(SIDES, additions, strict=True))}
        return iter((self.name, alternatives, self, annotations))

    def __call__(self, context: tvm_api.PatternCheckContext) -> bool | str:
        answer = super().__call__(context)
        # The row of the addition gets the reason for the convolution's refusal; that of the
        # convolution only if no other pattern says more.
        return OtherOperator(f"{self.name}: {answer}") if isinstance(answer, str) else answer

    def _match(self, context: tvm_api.PatternCheckContext) -> Match:
        found, root = context.annotated_expr, as_call(context.matched_expr)
        (side,) = (position for position, name in enumerate(SIDES) if name in found)
        addition = as_call(found[SIDES[side]])
        follower = None if root.same_as(addition) else root
        return Match(as_call(found[ANNOTATION]), addition, side, follower)

    def match_of(self, function: tvm_api.Function) -> Match | None:
        calls = calls_of(function)
        names = (self.operator_name, ADD)
        if not 2 <= len(calls) <= 3 or not all(
            calls_operator(call, name) for (_, call), name in zip(calls, names, strict=False)
        ):
            return None
        (variable, convolution), (_, addition) = calls[:2]
        side = int(addition.args[1].same_as(variable))
        return Match(convolution, addition, side, calls[2][1] if len(calls) > 2 else None)

    def _last_operator(self, parameters: Parameters, match: Match) -> Parameters:
        return _addition(parameters, match)

    def _operator_fields(self, parameters: Parameters, last: Parameters) -> dict[str, Any]:
        return {**asdict(parameters), "addition": last}


ADD = f"relax.{PREFIX}{Add.operator}"


SIDES = ("left", "right")
"""Names of the addition in the predicate, which tell the side of the convolution."""


def _addition(parameters: Parameters, match: Match) -> Add:
    assert match.addition is not None
    added, addend = Add.of(match.addition), match.addend
    left, right = (tvm_api.static_shape(operand) or () for operand in match.addition.args)
    if match.addition.args[0].same_as(match.addition.args[1]):
        raise NotReadable("its result is added to itself: the accelerator adds another tensor")
    if left != right:
        texts = ["x".join(str(n) for n in shape) for shape in (left, right)]
        raise NotReadable(f"shapes {texts[0]} and {texts[1]}: the accelerator adds equal ones")
    dtypes = (parameters.output_dtype, tvm_api.dtype_of(addend), added.output_dtype)
    if len(set(dtypes)) > 1:
        raise NotReadable(
            f"{dtypes[0]} and {dtypes[1]} make {dtypes[2]}: the accelerator adds equal ones"
        )
    if added.rounding != parameters.rounding:
        raise NotReadable(f"rounding {parameters.rounding}, and {added.rounding} of the sum")
    if match.side == 1:
        (first, second), by, shifts = added.zero_points, added.multipliers, added.shifts
        added = replace(
            added,
            zero_points=(second, first),
            multipliers=(by[1], by[0], by[2]),
            shifts=(shifts[1], shifts[0], shifts[2]),
        )
    if added.zero_points[0] != parameters.output_zero_point:
        raise NotReadable(
            f"zero point {parameters.output_zero_point} of its result, which the addition takes "
            f"for {added.zero_points[0]}"
        )
    return added


register(
    parameters=QConv2dAdd,
    drawing=windows.convolution_and_sum(Conv2d, Add),
    patterns=(qconv2d_add,),
)
