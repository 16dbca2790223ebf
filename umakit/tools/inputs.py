# SPDX-License-Identifier: Apache-2.0
"""Inputs of a comparison: the user's arrays, or random arrays with fixed seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.devices.inputs import check_inputs
from umakit.frontend.model import Model, TensorSpecification

Array = npt.NDArray[Any]

SEEDS = 3
"""Number of random inferences if the user gives no inputs."""

SMALL_INTEGERS = 10
"""Exclusive upper limit of random integers that are not quantized values, such as indices."""

TAKES_INDICES = ("take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")
KEEPS_VALUES = frozenset(
    "reshape expand_dims squeeze permute_dims astype where less add concat flatten tile repeat "
    "broadcast_to strided_slice".split()
)
"""Operators that pass the indices in an operand on to their result."""


def given_inferences(model: Model, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Split the user's arrays into single inferences; ignore arrays that are not inputs.

    A state that is passed on is in the first inference only.
    """
    names = {item.name for item in model.inputs}
    expected = [
        {
            "name": item.name, "c_name": item.name, "shape": list(item.shape), "dtype": item.dtype,
            "zero_point": item.quantization.zero_point if item.quantization else 0,
            "next_state": item.next_state,
        }
        for item in model.inputs
    ]  # fmt: skip
    chosen = {name: array for name, array in arrays.items() if name in names} or dict(arrays)
    count, _, batches = check_inputs(expected, chosen)
    return [
        {
            item.name: batch[number]
            for item, batch in zip(model.inputs, batches, strict=True)
            if number < len(batch)
        }
        for number in range(count)
    ]


def first_states(model: Model) -> dict[str, Array]:
    """Return the states of the first inference by name: integers or floats that represent 0."""
    return {
        item.name: np.full(
            item.shape, item.quantization.zero_point if item.quantization else 0, item.dtype
        )
        for item in model.inputs
        if item.next_state
    }


def random_inferences(model: Model) -> list[dict[str, Array]]:
    """Return an inference for each of the seeds 0, 1, ..., see `random_inference`."""
    return [random_inference(model, seed) for seed in range(SEEDS)]


def random_inference(model: Model, seed: int) -> dict[str, Array]:
    """Return random inputs of an inference, which depend only on the seed.

    Quantized integers are uniform over their dtype. Floats that are quantized first cover the range
    of that quantization; other floats are normally distributed. Indices are in range. States are
    omitted.
    """
    ranges, sizes = _quantized_ranges(model), _indexed_sizes(model)
    return {
        item.name: _random(
            item,
            np.random.default_rng(seed),
            ranges.get(item.name),
            min(SMALL_INTEGERS, sizes.get(item.name, SMALL_INTEGERS)),
        )
        for item in model.inputs
        if not item.next_state
    }


def random_inputs(model: Model, seed: int, count: int) -> tuple[dict[str, Array], str]:
    """Return random inputs of inferences from a seed on, and their description.

    A single inference has no leading dimension.
    """
    if count == 1:
        return random_inference(model, seed), f"random, seed {seed}"
    each = [random_inference(model, seed + number) for number in range(count)]
    arrays = {name: np.stack([one[name] for one in each]) for name in each[0]}
    return arrays, f"random, seeds {seed} to {seed + count - 1}"


def _random(
    item: TensorSpecification,
    random: np.random.Generator,
    limits: tuple[float, float] | None,
    end: int,
) -> Array:
    dtype = np.dtype(item.dtype)
    if dtype == np.bool_:
        return random.integers(0, 2, item.shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        if item.quantization is None and (dtype.itemsize > 1 or end < SMALL_INTEGERS):
            return random.integers(0, end, item.shape).astype(dtype)
        bounds = np.iinfo(dtype)
        return random.integers(bounds.min, bounds.max, item.shape, dtype, endpoint=True)
    if limits is not None:
        return random.uniform(*limits, item.shape).astype(dtype)
    return random.standard_normal(item.shape).astype(dtype)


def _names(model: Model) -> dict[Any, str]:
    """Return the names of inputs by parameter of the module."""
    parameters = model.module["main"].params
    return {each: item.name for item, each in zip(model.inputs, parameters, strict=True)}


def _quantized_ranges(model: Model) -> dict[str, tuple[float, float]]:
    """Return the real range of each float input that is quantized first."""
    names = _names(model)
    ranges: dict[str, tuple[float, float]] = {}
    for binding in tvm_api.bindings_of(model.module["main"]):
        call = binding.value
        if tvm_api.operator_name(call) != "quantize" or call.args[0] not in names:
            continue
        scale, zero_point = (tvm_api.constant_array(argument) for argument in call.args[1:3])
        if scale is None or zero_point is None or scale.size != 1:
            continue
        bounds = np.iinfo(tvm_api.dtype_of(binding.var))
        step, zero = float(scale.reshape(-1)[0]), int(zero_point.reshape(-1)[0])
        limits = step * (bounds.min - zero), step * (bounds.max - zero)
        ranges[names[call.args[0]]] = limits
    return ranges


def _indexed_sizes(model: Model) -> dict[str, int]:
    """Return the smallest extent that each integer input indexes, by input name."""
    sources = {parameter: frozenset({name}) for parameter, name in _names(model).items()}
    sizes: dict[str, int] = {}
    for binding in tvm_api.bindings_of(model.module["main"]):
        call = binding.value
        operator = tvm_api.operator_name(call)
        if operator in TAKES_INDICES:
            size = _indexed_size(operator, call)
            for name in sources.get(call.args[1], frozenset()):
                sizes[name] = min(sizes.get(name, size), size)
        elif operator in KEEPS_VALUES:
            used = [sources.get(v, frozenset()) for v in tvm_api.collect(call.args, tvm_api.Var)]
            sources[binding.var] = frozenset().union(*used)
    return sizes


def _indexed_size(operator: str, call: Any) -> int:
    shape = tvm_api.static_shape(call.args[0]) or (1,)
    if operator in ("gather_nd", "scatter_nd"):
        first = int(getattr(call.attrs, "batch_dims", 0))
        depth = (tvm_api.static_shape(call.args[1]) or (1,))[-1]
        return max(1, min(shape[first : first + depth], default=1))
    return max(1, shape[int(call.attrs.axis or 0)])
