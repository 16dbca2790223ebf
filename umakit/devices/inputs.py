# SPDX-License-Identifier: Apache-2.0
"""Inputs of a run: checked against the metadata of the library, and written for its program."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.errors import InputError
from umakit.library.metadata import read_weights

Arrays = Mapping[str, npt.NDArray[Any]]
Tensors = Sequence[Mapping[str, Any]]
"""`inputs` of a library's metadata."""


def check_inputs(expected: Tensors, given: Arrays) -> tuple[int, bool, list[npt.NDArray[Any]]]:
    """Check input arrays against the inputs of a library.

    An omitted state starts at its zero point. A state that is omitted, or has no leading dimension
    for inferences, belongs to the first inference; later inferences continue with the state of the
    previous inference.

    Args:
        given: arrays by name; a model with a single input besides its states accepts any name.

    Returns:
        The number of inferences, whether the arrays had a leading dimension for inferences, and the
        arrays in the model's order with this dimension. The dimension is 1 for states that are
        passed on.
    """
    if not isinstance(given, Mapping):
        raise InputError(
            "inputs are not arrays by name", fix='write {"NAME": array}; numpy.load reads npz files'
        )
    given = _by_network_name(expected, given)
    _check_names(expected, given)
    if not expected:
        return 1, False, []
    checked = [
        _check_array(item, given[item["name"]]) if item["name"] in given else (_first(item), False)
        for item in expected
    ]
    states = [bool(item.get("next_state")) for item in expected]
    decisive = [
        pair for pair, state in zip(checked, states, strict=True) if pair[1] or not state
    ] or checked
    counts = {len(array) for array, _ in decisive}
    if len(counts) > 1 or len({batched for _, batched in decisive}) > 1:
        raise InputError("the inputs hold different numbers of inferences")
    return counts.pop(), decisive[0][1], [array for array, _ in checked]


def first_inferences(expected: Tensors, given: Arrays, count: int) -> Arrays:
    """Return the input arrays of the first inferences."""
    known, batched, arrays = check_inputs(expected, given)
    if count > known:
        raise InputError(
            f"{count:,} inferences need as many inputs, and there "
            f"{'is 1' if known == 1 else f'are {known:,}'}",
            where="--inferences",
            fix="give arrays with one more leading dimension, or fewer inferences",
        )
    if not batched:
        return given
    # A state of the first inference only has no leading dimension.
    return {
        item["name"]: array[0] if item.get("next_state") and len(array) == 1 else array[:count]
        for item, array in zip(expected, arrays, strict=True)
    }


def _by_network_name(expected: Tensors, given: Arrays) -> Arrays:
    """Return the arrays by network names, given C names, or any name for a single input."""
    data = [item["name"] for item in expected if not item.get("next_state")]
    names = {item[key] for item in expected if item.get("next_state") for key in ("name", "c_name")}
    others = [name for name in given if name not in names]
    if len(data) == 1 and len(others) == 1:
        states = {name: array for name, array in given.items() if name in names}
        given = {data[0]: given[others[0]], **states}
    for item in expected:
        # The C name is easy to type in a shell if the model's name has unusual characters.
        if item["name"] not in given and item["c_name"] in given:
            given = {**given, item["name"]: given[item["c_name"]]}
    return given


def _check_names(expected: Tensors, given: Arrays) -> None:
    names = [item["name"] for item in expected]
    allowed = {item[key] for item in expected for key in ("name", "c_name")}
    missing = [
        item["name"]
        for item in expected
        if item["name"] not in given and not item.get("next_state")
    ]
    if missing:
        unknown = [name for name in given if name not in names]
        raise InputError(
            f"input {missing[0]!r} is missing"
            + (f", and {unknown[0]!r} is not an input" if unknown else ""),
            fix=f"inputs are {', '.join(map(repr, names))}" if given else _zeros(expected),
        )
    extra = [name for name in given if name not in allowed]
    if extra and len(expected) > 1:
        raise InputError(
            f"{extra[0]!r} is not an input", fix=f"inputs are {', '.join(map(repr, names))}"
        )


def _zeros(expected: Tensors) -> str:
    """Return advice for a run without inputs: a command that writes zeros for all inputs."""
    arrays = ", ".join(
        f"{item['name']!r}: numpy.zeros({tuple(item['shape'])}, {item['dtype']!r})"
        for item in expected
        if not item.get("next_state")
    )
    code = f"import numpy; numpy.savez('in.npz', **{{{arrays}}})"
    return f"give --inputs FILE.npz; python -c {shlex.quote(code)} writes one with zeros"


def _first(state: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the initial state, with a leading dimension for inferences."""
    return np.full((1, *state["shape"]), state.get("zero_point", 0), state["dtype"])


def _check_array(
    expected: Mapping[str, Any], array: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], bool]:
    name, shape = expected["name"], tuple(expected["shape"])
    if str(array.dtype) != expected["dtype"]:
        raise InputError(
            f"input {name!r} is {array.dtype}, the network wants {expected['dtype']}",
            fix=f"convert it with .astype({expected['dtype']!r})",
        )
    if array.shape == shape:
        return np.ascontiguousarray(array)[np.newaxis], False
    if array.shape[1:] == shape and array.shape[0] > 0:
        return np.ascontiguousarray(array), True
    # One inference per row of a batch: the usual form of a dataset of single images.
    if shape and shape[0] == 1 and array.shape[1:] == shape[1:] and array.shape[0] > 0:
        return np.ascontiguousarray(array)[:, np.newaxis], True
    raise InputError(
        f"input {name!r} has shape {array.shape}, the network wants {shape}",
        fix=f"or (N, {', '.join(map(str, shape))}) for N inferences",
    )


def write_inputs(
    path: Path,
    library: Path,
    description: Mapping[str, Any],
    arrays: Iterable[npt.NDArray[Any]],
) -> None:
    """Write the input file for `runtime/main.c` of a library.

    Args:
        arrays: inputs in the order of the interface, one inference after the other.
    """
    with path.open("wb") as stream:
        if description["weights"] == "blob":
            stream.write(read_weights(library))
        for array in arrays:
            stream.write(np.ascontiguousarray(array).tobytes())
