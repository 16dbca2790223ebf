# SPDX-License-Identifier: Apache-2.0
"""The imported network, which all importers return."""

from __future__ import annotations

import hashlib
import math
import re
import struct
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.text.identities import SourceOperator

InputShapes = Mapping[str, Sequence[int]]

READABLE = "see that it exists and may be read"
"""Advice for a file that cannot be opened."""


class QuantizedSemantics(Enum):
    """Meaning of a quantized operator in a model format.

    `INTEGERS` (TensorFlow Lite): the runtime defines the integer results; any other result is
    wrong. `RUNTIME` (ONNX Runtime): operators are real arithmetic, but the runtime computes some of
    them in integers; the integer results are reproduced. `REALS` (PyTorch, Relax): real arithmetic
    between dequantize and quantize; integer kernels round this arithmetic to within 1 LSB.
    """

    INTEGERS = "integers"
    RUNTIME = "runtime"
    REALS = "reals"


@dataclass(frozen=True)
class Quantization:
    """Scale and zero point of a tensor: `real = scale * (integer - zero_point)`."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class WeightsQuantization:
    """Scales and zero points of a layer's weights: `real = scale * (integer - zero_point)`.

    Attributes:
        scales: least and greatest scale.
        zero_points: least and greatest zero point. The constants of the program have their zero
            points already subtracted.
        count: number of scales: 1, or the number of output channels.
    """

    scales: tuple[float, float]
    zero_points: tuple[int, int]
    count: int


@dataclass(frozen=True)
class TensorSpecification:
    """Name (as in the user's model), shape and dtype of an input or output.

    Attributes:
        quantization: scale and zero point of a quantized tensor, if known.
        next_state: for a state input, name of the output that yields the state for the next
            inference. The first inference takes the representation of 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    next_state: str = ""


@dataclass(frozen=True)
class Model:
    """An imported network.

    Attributes:
        name: a C identifier derived from the file's name.
        module: a Relax module whose `main` takes the inputs in order; weights are constants.
        inputs: in the order of `main`'s parameters.
        outputs: in the order of the tuple that `main` returns.
        notices: decisions made on the user's behalf, one sentence each.
        fingerprint: SHA-256 of the model file, hexadecimal; empty for an object.
        arithmetic: runtime whose rounding a quantized network reproduces: `tflm` for TensorFlow
            Lite (Micro), `ort` for ONNX Runtime.
        semantics: meaning of quantized operators in the model.
        path: path of the model file; empty for an object.
        quantizations: per-tensor scale and zero point of each quantized node's result, by node
            name; empty before quantized operators become integer operators.
        weights: scales and zero points of quantized weights, by name of the node that yields the
            layer's result; empty before quantized operators become integer operators.
        sources: operators of the file by the names that the calls of `module` carry.
        origin: network before the conversion of quantized operators to integer operators; None
            before the conversion and for float networks.
    """

    name: str
    module: Any
    inputs: tuple[TensorSpecification, ...]
    outputs: tuple[TensorSpecification, ...]
    notices: tuple[str, ...] = ()
    fingerprint: str = ""
    arithmetic: str = "ort"
    semantics: QuantizedSemantics = QuantizedSemantics.REALS
    path: str = ""
    quantizations: Mapping[str, Quantization] = field(default_factory=dict)
    weights: Mapping[str, WeightsQuantization] = field(default_factory=dict)
    sources: Mapping[str, SourceOperator] = field(default_factory=dict)
    origin: Model | None = None


MOST_ELEMENTS = 2**31 - 1
"""Maximum number of elements of a tensor: generated C counts them in 32 bits."""


def check_input_shapes(shapes: InputShapes) -> None:
    """Refuse invalid input shapes.

    Raises:
        ModelError: a size is not a positive integer, or a tensor has too many elements.
    """
    for name, shape in shapes.items():
        sizes = list(shape)
        if not all(isinstance(size, (int, np.integer)) and size > 0 for size in sizes):
            raise ModelError(
                f"the shape {sizes} for input {name!r} is not made of positive integers",
                fix="give the sizes of the tensor, for example [1, 3, 32, 32]",
            )
        check_element_count(sizes, repr(name), "")


def check_element_count(shape: Sequence[int], label: str, where: str) -> None:
    """Refuse a tensor whose element count does not fit the loop counters of generated C.

    Raises:
        ModelError: the tensor has more than `MOST_ELEMENTS` elements.
    """
    if math.prod(int(size) for size in shape) > MOST_ELEMENTS:
        raise ModelError(
            f"{label} of shape {list(shape)} has more than {MOST_ELEMENTS} elements",
            where=where,
            fix="choose smaller dimensions",
        )


ROUNDINGS = ("tflm", "ort")


def with_rounding(model: Model, rounding: str | None) -> Model:
    """Return the model with the given rounding of quantized arithmetic.

    Args:
        model: an imported network.
        rounding: a name in `ROUNDINGS`; None for the default of the model's format.

    Raises:
        ModelError: the rounding is unknown, or the model's format leaves no choice.
    """
    if rounding is None or rounding == model.arithmetic:
        return model
    if rounding not in ROUNDINGS:
        raise ModelError(
            f"there is no rounding {rounding!r}",
            where=model.path or model.name,
            fix=f"choose {' or '.join(ROUNDINGS)}",
        )
    if model.semantics is QuantizedSemantics.INTEGERS:
        raise ModelError(
            f"integers of the model's format are defined with the rounding {model.arithmetic}, "
            f"not {rounding}",
            where=model.path or model.name,
            fix="leave --rounding out, or quantize the model as ONNX (QDQ) or with PyTorch",
        )
    # Real results are near the results of any runtime; another runtime cannot be met exactly.
    return replace(model, arithmetic=rounding, semantics=QuantizedSemantics.REALS)


def type_specification(name: str, type_: tvm_api.Type, where: str) -> TensorSpecification:
    """Return the specification of a tensor with a Relax type.

    Raises:
        ModelError: the type is not a tensor, has a symbolic dimension or has no elements.
    """
    shape = tvm_api.static_type_shape(type_)
    if shape is None:
        raise ModelError(
            f"the shape of tensor {name!r} is not known at compile time, or it is not a tensor",
            where=where,
            fix="generated C has fixed sizes; export the model with static shapes",
        )
    if 0 in shape:
        raise ModelError(
            f"tensor {name!r} of shape {list(shape)} has no elements",
            where=where,
            fix="choose sizes of at least 1",
        )
    check_element_count(shape, repr(name), where)
    return TensorSpecification(name, shape, tvm_api.type_dtype(type_))


def symbolic_notice(input_name: str, dimension: str) -> str:
    """Return the notice for a symbolic dimension that is bound to 1."""
    return (
        f"input {input_name!r}: symbolic dimension {dimension!r} is bound to 1 "
        "(--input-shapes chooses another size)"
    )


def file_fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def last_line(error: BaseException) -> str:
    """Return the last line of an error of TVM or torch, or a general sentence.

    Messages of Python, and of checks inside TVM, mention internal values that do not help a user.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = re.sub(r"^\S*Error:\s*", "", lines[-1] if lines else "")
    if not text or isinstance(error, PYTHON_ERRORS) or OWN_VALUES.search(text):
        return "its shapes, types or attributes are not those that it takes"
    return text


PYTHON_ERRORS = (
    KeyError, IndexError, AttributeError, NameError, StopIteration, RecursionError, MemoryError,
    OverflowError, ZeroDivisionError, struct.error,
)  # fmt: skip
"""Exceptions whose text is about Python's values."""

OWN_VALUES = re.compile(
    r"Check failed|object has no|<class '|\b0x[0-9a-f]{6,}|NoneType|positional argument|object is "
    r"not|not subscriptable|unhashable|out of range|keyword argument|[a-z]Error\b|::|Mismatched |"
    r"not enough values|too many values|BlockBuilder|invalid literal|Cannot cast|"
    r"unsupported operand|list of Expr|argument #|broadcast together|cannot reshape array|"
    r"\bself\.|required argument"
)
"""Marks of error texts about internal values."""


PAGE, ROOM = "docs/refusals.md", "umakit."

USUAL = "export the model again, perhaps with other shapes, attributes or operators"
"""Advice of a refusal without advice of its own."""


def listed(error: ModelError) -> None:
    """Add to a refusal the default fix and the link to its section of the page.

    The section is the one that the first error of the chain has, or else the section of the module
    that raised it.
    """
    first = error
    while isinstance(first.__context__, ModelError):
        first = first.__context__
    if first.page:
        error.fix, error.page = error.fix or USUAL, first.page
        return
    frames = (frame for frame, _ in traceback.walk_tb(first.__traceback__))
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    own = [name for name in modules if name.startswith(ROOM)]
    on_page(error, own[-1] if own else ROOM)


def on_page(error: ModelError, module: str) -> ModelError:
    """Return a refusal with the default fix and the link to a module's section of the page."""
    error.fix = error.fix or USUAL
    error.page = f"{PAGE}#{section_of(module)}"
    return error


def section_of(module: str) -> str:
    """Return the section of the page for a module, for example `onnx-resize`."""
    parts = module.removeprefix(ROOM).removeprefix("frontend").strip(".").split(".")
    return "-".join(part for part in parts if part) or "files"
