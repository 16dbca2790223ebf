# SPDX-License-Identifier: Apache-2.0
"""Patterns of all operators: patterns of their own, and patterns generated from an `Interface`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, get_type_hints

from umakit import tvm_api
from umakit.errors import BackendError
from umakit.operators import registry
from umakit.operators.interface import BIAS, Interface, Unsuitable, four, image
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.composite import ROUNDINGS, Composite, Image, Shape
from umakit.operators.offload.constraints import Constraint, Names
from umakit.operators.offload.matching import Match
from umakit.operators.offload.pattern import Arrays, OperatorPattern
from umakit.operators.offload.pattern_families import ElementwisePattern, PoolPattern
from umakit.operators.offload.rounding import rounding_constraints
from umakit.operators.parameters import BIAS_DTYPES, Parameters, Pool2d

RESULT = "result"
"""The pointer to the first result."""

COMMON = tuple(item.name for item in fields(Parameters))


@dataclass(frozen=True, kw_only=True)
class Generated(Composite):
    """Parameters of an operator with a pattern generated from an `Interface`.

    Attributes:
        shapes, dtypes: shapes and dtypes of the operands, in the order of the driver's pointers.
    """

    INTERFACE: ClassVar[Interface]
    FOLLOWED: ClassVar[bool]
    """Whether clips and changes of scale behind the operator can be taken in."""

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The driver's arguments about shapes, by name."""
        return self.INTERFACE.sizes(self, self._of_operands(self.shapes))

    def _of_operands(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.POINTERS[: len(values)], values, strict=True))

    def _of_results(self, found: dict[str, Any], first: Any) -> dict[str, Any]:
        others = {name: found[operand] for name, operand in self.INTERFACE.results.items()}
        return {**found, RESULT: first, **others}

    @property
    def scalars(self) -> dict[str, int]:
        own = self.attribute_names()
        found = self.sizes
        for name in (item for item in own if item not in COMMON):
            found |= self.INTERFACE.arguments(name, getattr(self, name))
        return {**found, **(self.ending() if self.INTERFACE.clips else {})}

    @property
    def wide_scalars(self) -> tuple[str, ...]:
        return self.INTERFACE.wide

    @property
    def pointer_types(self) -> dict[str, str]:
        return self._of_results(self._of_operands(self.dtypes), self._parameters.output_dtype)

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        return self._of_results(self._of_operands(self.shapes), self._parameters.output_shape)

    @classmethod
    def example(cls, dtype: str, requantize: bool, broadcast: bool) -> Composite:
        """Parameters of the smallest operator, as an example of their order."""
        interface, kinds = cls.INTERFACE, get_type_hints(cls)
        values: dict[str, Any] = {name: _smallest(kinds[name]) for name in cls.attribute_names()}
        values |= {name: texts[0] for name, texts in interface.values.items()}
        dtypes = tuple(dtype_of(kind, dtype) for kind in interface.operands.values())
        shapes = ((1,) * interface.axes,) * len(dtypes)
        values |= {
            "output_shape": (1, 1, 1, 1), "output_dtype": interface.result or dtype,
            "rounding": ROUNDINGS[0], "data_shape": shapes[0], "data_dtype": dtypes[0],
            "shapes": shapes, "dtypes": dtypes,
        }  # fmt: skip
        if "layout" in values:
            values["layout"] = "NHWC"
        if issubclass(cls, GeneratedPair):
            values["broadcasts"] = broadcast
        if requantize:
            then = cls.PARTS["then"]
            values["then"] = then(**{item.name: values.get(item.name, 0) for item in fields(then)})
        return cls(**values)


def _smallest(kind: Any) -> Any:
    if kind in (int, str):
        return kind()
    inner = getattr(kind, "__args__", ())
    return tuple(0 for item in inner if item is int)


@dataclass(frozen=True, kw_only=True)
class GeneratedPair(Generated):
    """Parameters of an operator of two operands with possibly different shapes.

    Attributes:
        broadcasts: whether the driver gets the shapes of both operands, of four axes; else the
            driver gets only the number of elements.
    """

    broadcasts: bool

    @property
    def right_shape(self) -> Shape:
        """Shape of the second operand."""
        return self.shapes[1]

    @property
    def sizes(self) -> dict[str, int]:
        if not self.broadcasts:
            return {"elements": math.prod(self.data_shape)}
        found: dict[str, int] = {}
        for side, shape in self._of_operands(self.shapes).items():
            found |= {f"{side}_{axis}": n for axis, n in enumerate(four(shape))}
        return found


@dataclass(frozen=True, eq=False)
class GeneratedPattern(OperatorPattern):
    """An integer operator; the driver gets operands, sizes and parameters.

    Attributes:
        rounding: roundings of products with multipliers, names of `umakit.patterns.ROUNDINGS`; or,
            for operators whose driver rescales sums, `"own:FUNCTION"`, a C function of the backend.
    """

    KIND: ClassVar[type[Generated]]

    rounding: Names = field(default=None, kw_only=True)

    @property
    def operator_name(self) -> str:
        relax = self.KIND.INTERFACE.relax
        return f"relax.{relax}" if relax else super().operator_name

    def __post_init__(self) -> None:
        if self.requantize and not self.KIND.FOLLOWED:
            raise BackendError(
                "requantize=True: a change of scale behind it is an operator of its own",
                where=self.name,
                fix="leave it out",
            )
        super().__post_init__()

    def _alternatives(self, operator: tvm_api.DFPattern) -> Any:
        return super()._alternatives(operator) if self.KIND.FOLLOWED else [operator]

    def _fields(
        self, parameters: Parameters, match: Match, shapes: list[Shape], arrays: Arrays | None
    ) -> dict[str, Any]:
        dtypes = tuple(tvm_api.dtype_of(operand) for operand in match.operands)
        return {**super()._fields(parameters, match, shapes, arrays), "shapes": tuple(shapes),
                "dtypes": dtypes}  # fmt: skip

    def _constraints(self) -> list[Constraint]:
        return [*self._dtype_constraints(), *self._further_constraints()]

    def _dtype_constraints(self) -> list[Constraint]:
        interface = self.KIND.INTERFACE
        if interface.rounding is None:
            data, result, rounding = _c.types(self.dtypes, self.rounding)
        else:
            given = rounding_constraints(self.dtypes, self.rounding, float32=False)
            data, result, rounding = given
        found = {"data": data, "result": result}
        return [*(found[name] for name in interface.checks), rounding, _other_dtypes]

    def _further_constraints(self) -> list[Constraint]:
        return [_sizes]


@dataclass(frozen=True, eq=False)
class GeneratedPairPattern(GeneratedPattern, ElementwisePattern):
    """An integer operator of two operands with possibly different shapes."""

    DOES = "takes"

    def _fields(
        self, parameters: Parameters, match: Match, shapes: list[Shape], arrays: Arrays | None
    ) -> dict[str, Any]:
        found = super()._fields(parameters, match, shapes, arrays)
        del found["right_shape"]
        return found

    def _further_constraints(self) -> list[Constraint]:
        return [self._shapes]


@dataclass(frozen=True, eq=False)
class GeneratedPoolPattern(GeneratedPattern, PoolPattern):
    """An integer pool; the driver gets more than a window."""

    def _further_constraints(self) -> list[Constraint]:
        return self._pool_constraints()


def _sizes(layer: Any) -> str:
    try:
        return "" if layer.sizes else "no sizes"
    except Unsuitable as reason:
        return str(reason)


def _other_dtypes(layer: Any) -> str:
    interface = layer.INTERFACE
    for name, wanted, found in zip(
        interface.operands, interface.operands.values(), layer.dtypes, strict=True
    ):
        own = layer.output_dtype if name in TABLES_OF_RESULTS else layer.data_dtype
        wanted = dtype_of(wanted, own)
        if found != wanted:
            return f"{found} {name}: the driver of {layer.data_dtype} data reads {wanted}"
    if interface.result and layer.output_dtype != interface.result:
        return f"{layer.output_dtype} result: the driver writes {interface.result}"
    return ""


def dtype_of(kind: str, data: str) -> str:
    """Return the dtype of an operand, by its entry in an interface and the data's dtype."""
    return BIAS_DTYPES.get(data, "int32") if kind == BIAS else kind or data


TABLES_OF_RESULTS = ("table",)
"""Operands whose elements are results, where their dtype is not fixed."""


# --- generation ----------------------------------------------------------------------------------


@cache
def _made(name: str) -> tuple[type[Generated], type[GeneratedPattern]]:
    operator = next(each for each in registry.operators() if each.name == name)
    parameters, interface = operator.parameters, operator.interface
    assert parameters is not None and interface is not None
    pair, pool = interface.broadcasts is not None, issubclass(parameters, Pool2d)
    bases: tuple[type, ...] = (parameters, GeneratedPair if pair else Generated)
    if interface.sizes is image:
        bases = (*bases, Image)
    composite: Any = dataclass(frozen=True, kw_only=True)(
        type(
            f"Q{parameters.__name__}",
            bases,
            {
                "__doc__": parameters.__doc__,
                "__module__": parameters.__module__,
                "__annotations__": {},
                "POINTERS": (*interface.operands, RESULT, *interface.results),
                "RESULTS": (RESULT, *interface.results),
                "INTERFACE": interface,
                "FOLLOWED": interface.clips and operator.takes_clip,
            },
        )
    )
    base = GeneratedPairPattern if pair else GeneratedPoolPattern if pool else GeneratedPattern
    namespace: dict[str, Any] = {
        "__doc__": _docstring(composite),
        "__module__": parameters.__module__,
        "__annotations__": {"name": "str", "dtypes": "Names", "rounding": "Names"},
        "KIND": composite,
        "OPERATOR": parameters,
        "OPERANDS": len(interface.operands),
        "name": f"q{name}",
        "dtypes": field(default=interface.dtypes, kw_only=True),
        "rounding": field(default=interface.rounding, kw_only=True),
    }
    if pair:
        namespace["__annotations__"]["broadcast"] = "bool"
        namespace["broadcast"] = field(default=bool(interface.broadcasts), kw_only=True)
    pattern: Any = dataclass(frozen=True, eq=False)(type(f"q{name}", (base,), namespace))
    return composite, pattern


def _docstring(composite: type[Generated]) -> str:
    summary, _, rest = str(composite.__doc__).partition("\n\n")
    paragraphs = [part for part in rest.split("\n\n") if not part.strip().startswith("Attributes")]
    broadcast = bool(composite.INTERFACE.broadcasts)
    example = composite.example("int8", requantize=False, broadcast=broadcast)
    pointers, scalars = ", ".join(composite.POINTERS), ", ".join(example.scalars)
    gets = (
        f"The driver gets the pointers {pointers}, then {scalars}; `{composite.__name__}` says "
        "what they are."
    )
    wrapped = textwrap.fill(gets, 96, initial_indent=INDENT, subsequent_indent=INDENT)
    return "\n\n".join(part.rstrip() for part in [summary, *paragraphs, wrapped] if part.strip())


INDENT = " " * 4


def operand_names(name: str) -> tuple[str, ...] | None:
    """Return the names of an operator's operands; None if backends cannot offload it."""
    for operator in registry.operators():
        if operator.name == name:
            made = [_made(name)[0]] if operator.interface is not None else operator.composites
            return made[0].POINTERS[: -len(made[0].RESULTS)] if made else None
    return None


@cache
def _members() -> dict[str, type[Any] | tuple[str, int]]:
    """The members of `umakit.patterns`: classes, or operator and position in the result of `_made`.

    Generated members are generated on demand: there are many.
    """
    found: dict[str, type[Any] | tuple[str, int]] = {}
    for operator in registry.operators():
        found |= {kind.__name__: kind for kind in (*operator.patterns, *operator.composites)}
        if operator.interface is not None and operator.parameters is not None:
            found[f"Q{operator.parameters.__name__}"] = operator.name, 0
            found[f"q{operator.name}"] = operator.name, 1
    return found


def names() -> list[str]:
    """Return the names of all patterns and of the parameters of their composites."""
    return sorted(_members())


def member(name: str) -> type[Any] | None:
    """Return a pattern, such as `qsoftmax`, or parameters, such as `QSoftmax`; None for others."""
    found = _members().get(name)
    return _made(found[0])[found[1]] if isinstance(found, tuple) else found
