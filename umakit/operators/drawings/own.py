# SPDX-License-Identifier: Apache-2.0
"""Drawings of a backend's own patterns, for `uma check`."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from umakit import tvm_api
from umakit.errors import BackendError, short_path
from umakit.operators import drawing as draw
from umakit.operators.drawings.families import COMMON

Layer = Callable[
    [dict[str, Any], draw.Random],
    "tuple[Sequence[tuple[Sequence[int], str]], Callable[..., tvm_api.Expr]]",
]


def drawn(
    layer: Layer, *, sizes: Iterable[str] = (), **settings: Iterable[draw.Setting]
) -> draw.Drawing:
    """Return a drawing of layers for a pattern, for `_register_pattern(drawing=...)`.

    Args:
        layer: (settings by name, numpy.random.Generator) -> ([(shape, dtype) of each input],
            function of the inputs that returns the Relax expression). Weights and other constants
            are `relax.const`. The function raises ValueError for settings without a layer. Equal
            settings and random numbers have to give equal layers.
        sizes: names of settings that can become as large as the accelerator accepts.
        settings: numbers or texts to try, by name, the simplest first: failures are reduced to the
            simplest. The name `values` is taken, for the integers of the inputs.

    Raises:
        BackendError: a setting has no values or a taken name, or a size is no setting.
    """
    values = {name: tuple(given) for name, given in settings.items()}
    wrong = [name for name, given in values.items() if not given or name in ("values", "seed")]
    wrong += [name for name in sizes if name not in values]
    if wrong or not callable(layer):
        what = (
            f"{wrong[0]} has no values or a name that is taken" if wrong else "layer is no function"
        )
        raise BackendError(what, where="patterns.drawn", fix="say NAME=(FIRST, ANOTHER)")

    def build(chosen: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        given = {name: value for name, value in chosen.items() if name != "values"}
        try:
            return _layer(layer(given, random), data)
        except (ValueError, draw.NotDrawable):
            raise
        except (Exception, SystemExit) as error:  # a team's code may raise anything
            what = f"it raised {type(error).__name__}: {error}"
            where = _place(layer, error)
            raise BackendError(what, where=where, fix="see patterns.drawn") from error

    return draw.Drawing({**values, "values": COMMON["values"]}, build, tuple(sizes))


def _layer(made: Any, data: draw.Tensor | None) -> draw.Drawn:
    """Return the layer of a backend function's result.

    Raises:
        NotDrawable: the layer cannot read the data of an earlier layer.
    """
    described, make = made
    inputs = tuple(
        draw.Tensor(tuple(int(n) for n in shape), str(dtype)) for shape, dtype in described
    )
    first = inputs[0]
    if data is not None and (data.shape, data.dtype) != (first.shape, first.dtype):
        raise draw.NotDrawable("another kind of tensor")
    operands = tuple(draw.Input(number) for number in range(len(inputs)))
    step = draw.Step(lambda given: make(*given), operands)
    layer = draw.Drawn(inputs, (step,), first, sum(math.prod(each.shape) for each in inputs))
    result = layer.module()["main"].body.body
    shape = tvm_api.static_shape(result)
    if shape is None:
        raise TypeError("the result is not one tensor of a static shape")
    return replace(layer, result=draw.Tensor(shape, tvm_api.dtype_of(result), layout=first.layout))


def _place(function: Any, error: BaseException) -> str:
    """Return the line of a function's file that raised an exception, else its first line."""
    code = getattr(function, "__code__", None)
    if code is None:
        return "drawing"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f"{short_path(code.co_filename)}:{(lines or [code.co_firstlineno])[-1]}"
