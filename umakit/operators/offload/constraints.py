# SPDX-License-Identifier: Apache-2.0
"""Capabilities of an accelerator as constraints; a broken constraint gives a sentence."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

from umakit.errors import BackendError
from umakit.operators.derivation.windows import same_padding
from umakit.operators.offload.composite import ROUNDINGS
from umakit.operators.parameters import Pair

Constraint = Callable[[Any], str]
"""Function from the parameters of a composite to a reason for refusal, or an empty text. Parameters
are `Any`: each pattern has its own class."""

Pairs = int | Iterable[int | Pair] | None
"""Supported sizes: `1` for 1x1, `(1, 2)` for 1x1 and 2x2, `[1, (3, 5)]` for 1x1 and 3x5; None for
any."""

Sides = tuple[int, int, int, int]
"""Padding as (top, left, bottom, right)."""

Padding = str | int | Sides | Iterable[str | int | Sides] | None
"""`valid`, `same`, rows and columns on each side, or each of the four sides; or several."""

Names = str | Iterable[str] | None
"""One, several, or any."""


V = TypeVar("V", str, int)


class OtherOperator(str):
    """A refusal because the match is another operator; reported only without other reasons."""


class OtherLayout(str):
    """A refusal because of the layout; the partition changes the layout if all else suits."""


PADDINGS = ("valid", "same")
LAYOUTS = ("NHWC", "NCHW")


def one_of_pairs(wanted: Pairs, name: str, read: Callable[[Any], Pair], refusal: str) -> Constraint:
    """Return the constraint that a (rows, columns) pair is supported.

    Args:
        wanted: one or several numbers; a pair in a list is rows x columns.
        read: parameters -> (rows, columns).
        refusal: rest of the message, before the list of supported pairs.
    """
    if wanted is None:
        return _anything
    pairs = listed_pairs(wanted, name)
    texts = [_by(pair) for pair in pairs]

    def check(layer: Any) -> str:
        found = tuple(read(layer))
        return "" if found in pairs else f"{name} {_by(found)}: {refusal} {_or(texts)}"

    return check


def listed_pairs(wanted: int | Iterable[int | Pair], name: str) -> list[tuple[int, int]]:
    """Return the (rows, columns) pairs of a constraint."""
    items = list(wanted) if isinstance(wanted, Iterable) else [wanted]
    pairs = [(item, item) if isinstance(item, int) else tuple(item) for item in items]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(n, int) and n >= 1 for n in pair):
            raise BackendError(f"{name} {wanted!r} is not a list of sizes like [1, (3, 3)]")
    if not pairs:
        raise BackendError(f"{name} is an empty list", fix="None stands for any")
    return [(rows, columns) for rows, columns in pairs]


def checked_names(wanted: Names, name: str, names: Sequence[str]) -> list[str] | None:
    """Return the given names if all of them exist; None for any."""
    given = _listed(wanted)
    for item in given or ():
        if item not in names:
            raise BackendError(f"{name} {item!r} is unknown", fix=f"say {_or(names)}")
    return given


def _listed(wanted: V | Iterable[V] | None) -> list[V] | None:
    """Return the given values as a list, since an iterator can be read only once."""
    if wanted is None:
        return None
    return [wanted] if isinstance(wanted, (str, int)) else list(wanted)


def one_of(
    wanted: V | Iterable[V] | None, read: Callable[[Any], V], say: Callable[[V, str], str]
) -> Constraint:
    """Return the constraint that a value is supported.

    Args:
        wanted: a value, a list of values, or None for any.
        read: parameters -> value.
        say: (value, supported values) -> the message.
    """
    values = _listed(wanted)
    if values is None:
        return _anything
    texts = [str(value) for value in values]

    def check(layer: Any) -> str:
        found = read(layer)
        return "" if found in values else say(found, _or(texts))

    return check


def multiple_of(wanted: int | None, name: str, read: Callable[[Any], int]) -> Constraint:
    """Return the constraint that a count is a multiple of a number."""
    if wanted is None:
        return _anything
    if wanted < 1:
        raise BackendError(f"{name}: nothing is a multiple of {wanted}")

    def check(layer: Any) -> str:
        found = read(layer)
        return f"{found} {name}: no multiple of {wanted}" if found % wanted else ""

    return check


def at_most(wanted: int | None, name: str, read: Callable[[Any], int]) -> Constraint:
    """Return the constraint that a count does not exceed a limit."""
    if wanted is None:
        return _anything

    def check(layer: Any) -> str:
        found = read(layer)
        return f"{found} {name}: the accelerator has at most {wanted}" if found > wanted else ""

    return check


def padding_is(wanted: Padding) -> Constraint:
    """Return the constraint that the padding is supported."""
    if wanted is None:
        return _anything
    items = listed_paddings(wanted)

    def check(layer: Any) -> str:
        if layer.padding in [_places(item, layer) for item in items]:
            return ""
        offered = _or([_padding_text(item) for item in items])
        sides = ",".join(str(n) for n in layer.padding)
        return f"padding {sides} (top, left, bottom, right): the accelerator pads {offered}"

    return check


def listed_paddings(
    wanted: str | int | Sides | Iterable[str | int | Sides],
) -> list[str | int | Sides]:
    """Return the paddings of a constraint."""
    if isinstance(wanted, (str, int)) or _is_sides(wanted):
        wanted = [wanted]
    found = list(wanted)
    for item in found:
        if item not in PADDINGS and not _is_sides(item) and not isinstance(item, int):
            raise BackendError(
                f"padding {item!r} is unknown",
                fix="say 'valid', 'same', a number, or (top, left, bottom, right)",
            )
    return found


def _is_sides(value: object) -> TypeGuard[Sides]:
    return isinstance(value, tuple) and len(value) == 4 and all(isinstance(n, int) for n in value)


def _places(item: str | int | Sides, layer: Any) -> tuple[int, ...]:
    if isinstance(item, tuple):
        return item
    if isinstance(item, int):
        return (item,) * 4
    if item == "valid":
        return (0, 0, 0, 0)
    window = getattr(layer, "kernel", None) or layer.window
    dilation = getattr(layer, "dilation", (1, 1))
    sizes = zip((layer.height, layer.width), window, layer.strides, dilation, strict=True)
    (top, bottom), (left, right) = (same_padding(*size) for size in sizes)
    return top, left, bottom, right


def refuse_if(read: Callable[[Any], bool], say: Callable[[Any], str]) -> Constraint:
    """Return the constraint that a condition does not hold, with the message if it holds."""
    return lambda layer: say(layer) if read(layer) else ""


def types(dtypes: Names, rounding: Names = None) -> list[Constraint]:
    """Return the constraints on the dtypes of operands and result and the rounding of products."""

    def said(part: str) -> Callable[[str, str], str]:
        return lambda found, few: f"{found} {part}: the accelerator computes {few}"

    listed = _listed(dtypes)
    return [
        one_of(listed, lambda layer: layer.data_dtype, said("data")),
        one_of(listed, lambda layer: layer.output_dtype, said("result")),
        one_of(
            checked_names(rounding, "rounding", ROUNDINGS),
            lambda layer: layer.rounding,
            lambda found, few: f"rounding {found}: the accelerator rounds as {few}",
        ),
    ]


def _anything(layer: Any) -> str:
    return ""


def _by(pair: Sequence[int]) -> str:
    return "x".join(str(n) for n in pair)


def _padding_text(item: str | int | Sides) -> str:
    if isinstance(item, tuple):
        return ",".join(str(n) for n in item)
    return f"{item} on each side" if isinstance(item, int) else str(item)


def _or(texts: Sequence[str]) -> str:
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def check_function(function: object, what: str, arguments: int) -> None:
    """Refuse an object that cannot be called with a number of arguments.

    Args:
        function: a function, or None for none.
    """
    if function is None:
        return
    if not callable(function):
        raise BackendError(
            f"{what} is {function!r}, which is no function",
            fix="write the name of a function, without quotes and without calling it",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions in C may have none
        return
    try:
        signature.bind(*range(arguments))
    except TypeError:
        counted = f"{arguments} argument{'' if arguments == 1 else 's'}"
        raise BackendError(
            f"{what} takes {signature}, and is called with {counted}",
            fix=f"let the function take {counted}",
        ) from None
