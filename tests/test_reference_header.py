# SPDX-License-Identifier: Apache-2.0
"""`umakit/reference.h`: the loops equal NumPy, for any layer, in one piece or in steps."""

import ctypes
import math
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st

from umakit import sim

Array = npt.NDArray[Any]

SOURCE = """\
#include "umakit/reference.h"
{functions}
"""

CONVOLUTION = (
    "batch height width input_channels output_height output_width output_channels kernel_height "
    "kernel_width stride_y stride_x pad_top pad_left dilation_y dilation_x groups weight_block "
    "channels_first scales input_zero_point output_zero_point lowest highest rounding"
).split()
ADDITION = (
    "left_zero_point right_zero_point left_shift left_multiplier left_multiplier_shift "
    "right_multiplier right_multiplier_shift multiplier shift output_zero_point lowest highest "
    "rounding"
).split()
MULTIPLICATION = (
    "left_zero_point right_zero_point multiplier shift output_zero_point lowest highest rounding"
).split()
POOL = (
    "batch height width channels output_height output_width window_height window_width stride_y "
    "stride_x pad_top pad_left channels_first lowest highest"
).split()

FUNCTIONS = """\
void conv2d(const struct umakit_reference_convolution *layer, const int8_t *data,
            const int8_t *weights, const int32_t *bias, const int32_t *multipliers,
            const int8_t *shifts, int8_t *result);
void conv2d(const struct umakit_reference_convolution *layer, const int8_t *data,
            const int8_t *weights, const int32_t *bias, const int32_t *multipliers,
            const int8_t *shifts, int8_t *result)
{
    umakit_reference_conv2d(layer, data, weights, bias, multipliers, shifts, result);
}
void step(const struct umakit_reference_convolution *layer, const int8_t *data,
          const int8_t *weights, const int32_t *bias, const int32_t *multipliers,
          const int8_t *shifts, const int8_t *addend, int32_t *sums, int32_t continues,
          int32_t keeps, int8_t *result);
void step(const struct umakit_reference_convolution *layer, const int8_t *data,
          const int8_t *weights, const int32_t *bias, const int32_t *multipliers,
          const int8_t *shifts, const int8_t *addend, int32_t *sums, int32_t continues,
          int32_t keeps, int8_t *result)
{
    umakit_reference_conv2d_step(layer, data, weights, bias, multipliers, shifts, addend, sums,
                                 continues, keeps, result);
}
void add(const struct umakit_reference_addition *addition, const int8_t *left,
         const int8_t *right, int8_t *result, int32_t elements);
void add(const struct umakit_reference_addition *addition, const int8_t *left,
         const int8_t *right, int8_t *result, int32_t elements)
{
    umakit_reference_add(addition, left, right, result, elements);
}
void multiply(const struct umakit_reference_multiplication *multiplication, const int8_t *left,
              const int8_t *right, int8_t *result, int32_t elements);
void multiply(const struct umakit_reference_multiplication *multiplication, const int8_t *left,
              const int8_t *right, int8_t *result, int32_t elements)
{
    umakit_reference_multiply(multiplication, left, right, result, elements);
}
void max_pool(const struct umakit_reference_pool *pool, const int8_t *data, int8_t *result);
void max_pool(const struct umakit_reference_pool *pool, const int8_t *data, int8_t *result)
{
    umakit_reference_max_pool2d(pool, data, result);
}
void avg_pool(const struct umakit_reference_pool *pool, const int8_t *data, int8_t *result);
void avg_pool(const struct umakit_reference_pool *pool, const int8_t *data, int8_t *result)
{
    umakit_reference_avg_pool2d(pool, data, result);
}
"""


def _structure(names: list[str], *more: tuple[str, Any]) -> Any:
    fields = [*((name, ctypes.c_int32) for name in names), *more]
    return type("Structure", (ctypes.Structure,), {"_fields_": fields})


Addition = _structure(ADDITION)
Multiplication = _structure(MULTIPLICATION)
Pool = _structure(POOL)
Convolution = _structure(CONVOLUTION, ("addition", ctypes.POINTER(Addition)))


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of the header, compiled with traps for undefined behaviour."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "loops.c").write_text(SOURCE.format(functions=FUNCTIONS))
    flags = "-std=c99 -O1 -fPIC -shared -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
    traps = "-fsanitize=undefined -fsanitize-undefined-trap-on-error"
    include = f"-I{sim.source_directory() / 'include'}"
    command = ["cc", *flags.split(), *traps.split(), include, "loops.c", "-o", "loops.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "loops.so"))


@pytest.mark.parametrize("compiler", ["g++ -std=c++11", "clang++ -std=c++11", "clang -std=c99"])
def test_simulators_in_cxx_may_include_it(compiler: str, tmp_path: Path) -> None:
    name, standard = compiler.split()
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    source = tmp_path / ("a.cc" if name.endswith("+") else "a.c")
    source.write_text(SOURCE.format(functions=FUNCTIONS))
    flags = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only".split()
    include = f"-I{sim.source_directory() / 'include'}"
    subprocess.run([name, standard, *flags, include, str(source)], check=True)


def as_pointer(array: Array | None) -> Any:
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def rescaled(value: int, multiplier: int, shift: int, rounding: int) -> int:
    """value * multiplier * 2^(shift - 31), by exact fractions (0) or by NumPy's float32 (1)."""
    if rounding == 1:
        factor = np.ldexp(np.float32(multiplier), shift - 31)
        return int(np.rint(np.float32(value) * factor))
    left, right = max(shift, 0), max(-shift, 0)
    high = math.floor(Fraction(value * 2**left * multiplier, 2**31) + Fraction(1, 2))
    size = math.floor(Fraction(abs(high), 2**right) + Fraction(1, 2))
    return size if high >= 0 else -size


def clipped(value: int, zero_point: int, lowest: int, highest: int) -> int:
    return min(max(value + zero_point, lowest), highest)


def scales(draw: Any, count: int) -> tuple[Array, Array]:
    multipliers = [draw(st.integers(2**30, 2**31 - 1)) for _ in range(count)]
    shifts = [draw(st.integers(-12, -4)) for _ in range(count)]
    return np.array(multipliers, "int32"), np.array(shifts, "int8")


def limits(draw: Any) -> dict[str, int]:
    lowest, highest = sorted((draw(st.integers(-128, 127)), draw(st.integers(-128, 127))))
    return {"output_zero_point": draw(st.integers(-128, 127)), "lowest": lowest, "highest": highest}


def image(random: np.random.Generator, *shape: int) -> Array:
    return random.integers(-128, 128, shape).astype("int8")


@st.composite
def convolutions(draw: Any) -> tuple[dict[str, int], int]:
    """Members of a convolution, and the seed of its values."""
    small = st.integers(1, 3)
    groups, inputs, outputs = draw(small), draw(small), draw(small)
    if draw(st.booleans()):
        groups, inputs = draw(st.integers(2, 5)), 1
    layer = {name: draw(small) for name in ("batch", "kernel_height", "kernel_width")}
    layer |= {name: draw(small) for name in ("stride_y", "stride_x", "dilation_y", "dilation_x")}
    layer |= {name: draw(st.integers(0, 2)) for name in ("pad_top", "pad_left")}
    layer |= {name: draw(st.integers(1, 6)) for name in ("height", "width")}
    layer |= {name: draw(st.integers(1, 4)) for name in ("output_height", "output_width")}
    layer |= {"input_channels": groups * inputs, "output_channels": groups * outputs}
    count = draw(st.sampled_from([1, groups * outputs]))
    block = draw(st.sampled_from([1, 2, 4, groups * outputs]))
    layer |= {"groups": groups, "weight_block": block, "scales": count}
    layer |= {"channels_first": draw(st.integers(0, 1)), "rounding": draw(st.integers(0, 1))}
    layer |= {"input_zero_point": draw(st.integers(-128, 127)), **limits(draw)}
    return layer, draw(st.integers(0, 2**32 - 1))


def in_blocks(weights: Array, block: int) -> Array:
    """O x H x W x I as O/block x H x W x I x block, filled up with zeros."""
    missing = -weights.shape[0] % block
    filled = np.concatenate([weights, np.zeros((missing, *weights.shape[1:]), "int8")])
    return filled.reshape(-1, block, *weights.shape[1:]).transpose(0, 2, 3, 4, 1).copy()


def sums_of(layer: dict[str, int], data: Array, weights: Array) -> Array:
    """Sums of products by NumPy's einsum over a padded image, int64, NHWC without bias."""
    below = layer["output_height"] * layer["stride_y"] + layer["kernel_height"] * 3
    right = layer["output_width"] * layer["stride_x"] + layer["kernel_width"] * 3
    pads = ((0, 0), (layer["pad_top"], below), (layer["pad_left"], right), (0, 0))
    padded = np.pad(data.astype("int64") - layer["input_zero_point"], pads)
    groups, outputs = layer["groups"], layer["output_channels"]
    per_group = data.shape[3] // groups
    shape = (data.shape[0], layer["output_height"], layer["output_width"], outputs)
    found = np.zeros(shape, "int64")
    for ky in range(layer["kernel_height"]):
        for kx in range(layer["kernel_width"]):
            top, left = ky * layer["dilation_y"], kx * layer["dilation_x"]
            window = padded[:, top :: layer["stride_y"], left :: layer["stride_x"]]
            window = window[:, : shape[1], : shape[2]]
            for group in range(groups):
                channels = slice(group * per_group, (group + 1) * per_group)
                rows = slice(group * outputs // groups, (group + 1) * outputs // groups)
                tap = weights[rows, ky, kx].astype("int64")
                found[..., rows] += np.einsum("nyxi,oi->nyxo", window[..., channels], tap)
    return found


def finished(
    layer: dict[str, int], sums: Array, multipliers: Array, shifts: Array, add: Any = None
) -> Array:
    found = np.empty(sums.shape, "int8")
    for place, value in np.ndenumerate(sums):
        scale = place[3] if len(multipliers) > 1 else 0
        scaled = rescaled(
            int(value), int(multipliers[scale]), int(shifts[scale]), layer["rounding"]
        )
        element = clipped(scaled, layer["output_zero_point"], layer["lowest"], layer["highest"])
        found[place] = element if add is None else add(element, place)
    return found


def laid_out(layer: dict[str, int], array: Array) -> Array:
    return array.transpose(0, 3, 1, 2).copy() if layer["channels_first"] else array


def operands(layer: dict[str, int], seed: int) -> tuple[Array, Array, Array, Array, Array]:
    random = np.random.default_rng(seed)
    data = image(random, layer["batch"], layer["height"], layer["width"], layer["input_channels"])
    per_group = layer["input_channels"] // layer["groups"]
    window = (layer["kernel_height"], layer["kernel_width"], per_group)
    weights = image(random, layer["output_channels"], *window)
    bias = random.integers(-3000, 3000, layer["output_channels"]).astype("int32")
    multipliers = random.integers(2**30, 2**31, layer["scales"]).astype("int32")
    return (
        data,
        weights,
        bias,
        multipliers,
        random.integers(-12, -4, layer["scales"]).astype("int8"),
    )


def result_of(layer: dict[str, int]) -> Array:
    sizes = [layer[name] for name in ("batch", "output_height", "output_width", "output_channels")]
    return laid_out(layer, np.full(sizes, 99, "int8"))


@examples(60)
@given(convolutions())
def test_a_convolution_equals_numpy(loops: ctypes.CDLL, drawn: tuple[dict[str, int], int]) -> None:
    layer, seed = drawn
    data, weights, bias, multipliers, shifts = operands(layer, seed)
    arrays = (laid_out(layer, data), in_blocks(weights, layer["weight_block"]), bias)
    result = result_of(layer)
    pointers = map(as_pointer, (*arrays, multipliers, shifts, result))
    loops.conv2d(ctypes.byref(Convolution(**layer)), *pointers)
    sums = sums_of(layer, data, weights) + bias
    expected = finished(layer, sums, multipliers, shifts)
    np.testing.assert_array_equal(result, laid_out(layer, expected))


@examples(40)
@given(convolutions(), st.data())
def test_steps_and_an_addition_equal_numpy(
    loops: ctypes.CDLL, drawn: tuple[dict[str, int], int], data_of: st.DataObject
) -> None:
    """Input channels in three parts, of a convolution in one group, and another tensor added."""
    layer, seed = drawn
    draw = data_of.draw
    layer |= {"groups": 1, "input_channels": 3 * draw(st.integers(1, 2))}
    data, weights, bias, multipliers, shifts = operands(layer, seed)
    factors, ups = scales(draw, 3)
    addition = {"left_zero_point": layer["output_zero_point"], "left_shift": 8, **limits(draw)}
    addition |= {"right_zero_point": draw(st.integers(-128, 127)), "rounding": layer["rounding"]}
    names = ("left_multiplier", "right_multiplier", "multiplier")
    addition |= dict(zip(names, map(int, factors), strict=True))
    names = ("left_multiplier_shift", "right_multiplier_shift", "shift")
    addition |= dict(zip(names, map(int, ups), strict=True))
    result = result_of(layer)
    addend = image(np.random.default_rng(seed), *sums_of(layer, data, weights).shape)
    sums = np.zeros(result.size, "int32")
    part = layer["input_channels"] // 3
    for step in range(3):
        channels = slice(step * part, (step + 1) * part)
        some = laid_out(layer, data[..., channels].copy())
        matrix = in_blocks(weights[..., channels], layer["weight_block"])
        structure = Convolution(**(layer | {"input_channels": part}))
        structure.addition = ctypes.pointer(Addition(**addition))
        arrays = (some, matrix, bias, multipliers, shifts, laid_out(layer, addend), sums)
        pointers = map(as_pointer, arrays)
        loops.step(
            ctypes.byref(structure), *pointers, int(step > 0), int(step < 2), as_pointer(result)
        )

    def add(element: int, place: tuple[int, ...]) -> int:
        return added(addition, element, int(addend[place]))

    expected = finished(layer, sums_of(layer, data, weights) + bias, multipliers, shifts, add)
    np.testing.assert_array_equal(result, laid_out(layer, expected))


def added(addition: dict[str, int], left: int, right: int) -> int:
    rounding, up = addition["rounding"], 2 ** addition["left_shift"]
    total = 0
    for side, value in (("left", left), ("right", right)):
        value = (value - addition[f"{side}_zero_point"]) * up
        factor = addition[f"{side}_multiplier"]
        total += rescaled(value, factor, addition[f"{side}_multiplier_shift"], rounding)
    total = rescaled(total, addition["multiplier"], addition["shift"], rounding)
    return clipped(total, addition["output_zero_point"], addition["lowest"], addition["highest"])


@examples(40)
@given(st.data())
def test_sums_and_products_equal_fractions(loops: ctypes.CDLL, data_of: st.DataObject) -> None:
    draw = data_of.draw
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(1, 9))
    left, right, result = image(random, size), image(random, size), image(random, size)
    factors, ups = (list(map(int, found)) for found in scales(draw, 3))
    values = {"rounding": draw(st.integers(0, 1)), **limits(draw)}
    values |= {f"{side}_zero_point": draw(st.integers(-128, 127)) for side in ("left", "right")}
    values |= {"multiplier": factors[0], "shift": ups[0]}
    pointers = [as_pointer(array) for array in (left, right, result)]
    loops.multiply(ctypes.byref(Multiplication(**values)), *pointers, size)
    for i in range(size):
        product = (int(left[i]) - values["left_zero_point"]) * (
            int(right[i]) - values["right_zero_point"]
        )
        scaled = rescaled(product, factors[0], ups[0], values["rounding"])
        ends = (values["output_zero_point"], values["lowest"], values["highest"])
        assert result[i] == clipped(scaled, *ends)
    values |= {"left_shift": draw(st.integers(0, 20))}
    for side, factor, up in zip(("left", "right"), factors[1:], ups[1:], strict=True):
        values |= {f"{side}_multiplier": factor, f"{side}_multiplier_shift": up}
    loops.add(ctypes.byref(Addition(**values)), *pointers, size)
    expected = [added(values, int(a), int(b)) for a, b in zip(left, right, strict=True)]
    assert result.tolist() == expected


@examples(40)
@given(st.data())
def test_pools_equal_numpy(loops: ctypes.CDLL, data_of: st.DataObject) -> None:
    draw, small = data_of.draw, st.integers(1, 3)
    pool = {name: draw(small) for name in POOL if not name.startswith("pad")}
    pool |= {"height": draw(st.integers(3, 7)), "width": draw(st.integers(3, 7))}
    pool |= {"channels_first": draw(st.integers(0, 1)), "pad_top": 0, "pad_left": 0}
    if pool["window_height"] > 1:
        pool["pad_top"] = 1
    pool |= {f"output_{axis}": 1 + (pool[axis] - 1) // 3 for axis in ("height", "width")}
    pool["lowest"], pool["highest"] = (values := limits(draw))["lowest"], values["highest"]
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    data = image(random, pool["batch"], pool["height"], pool["width"], pool["channels"])
    shape = (pool["batch"], pool["output_height"], pool["output_width"], pool["channels"])
    for function in ("max_pool", "avg_pool"):
        result = laid_out(pool, np.zeros(shape, "int8"))
        given_data = laid_out(pool, data)
        getattr(loops, function)(
            ctypes.byref(Pool(**pool)), as_pointer(given_data), as_pointer(result)
        )
        expected = np.zeros(shape, "int8")
        for y in range(shape[1]):
            for x in range(shape[2]):
                top = y * pool["stride_y"] - pool["pad_top"]
                left = x * pool["stride_x"]
                window = data[
                    :, max(top, 0) : top + pool["window_height"], left : left + pool["window_width"]
                ].astype("int64")
                values_of = window.reshape(shape[0], -1, shape[3])
                if function == "max_pool":
                    found = values_of.max(axis=1)
                else:
                    total, count = values_of.sum(axis=1), values_of.shape[1]
                    found = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
                expected[:, y, x] = np.clip(found, pool["lowest"], pool["highest"])
        np.testing.assert_array_equal(result, laid_out(pool, expected))
