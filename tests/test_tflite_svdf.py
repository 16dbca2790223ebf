# SPDX-License-Identifier: Apache-2.0
"""SVDF of TensorFlow Lite: drawn layers next to TensorFlow Lite Micro, states passed on."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from comparisons import SANITIZED, examples
from hypothesis import given
from hypothesis import strategies as st
from tflite_networks import Array, TfliteFile, micro_interpreter
from tflite_states import assert_states_equal_micro, drawn, passed_on

import umakit
from umakit.devices import build
from umakit.errors import InputError, ModelError
from umakit.frontend import import_model
from umakit.frontend.model import Model
from umakit.library.metadata import read_description
from umakit.tools.diff import NUMPY, diff_model
from umakit.tools.diff.references import TFLITE_MICRO

all_sizes = st.tuples(*(st.integers(1, most) for most in (3, 9, 3, 4, 6)))
"""Sequences, inputs, filters of a unit, units, places in time."""

zero_points = st.integers(-128, 127)
seeds = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-5
RELU, RELU6 = 1, 3


def layer(
    file: TfliteFile, name: str, sizes: tuple[int, ...], seed: int, *, state: str,
    zeros: tuple[int, int, int] = (0, 0, 0), activation: int = 0, bias: int | None = 2**12,
    dtype: str = "", bias_scale: float = 0.0, weights_zero: int = 0, variable: bool = True,
    features: tuple[int, ...] = (), shape_of_bias: tuple[int, ...] = (),
    rank_of_options: int | None = None, extra: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Add an SVDF; returns numbers of its data and its result.

    Args:
        file: that it is added to.
        name: what names of its tensors start with.
        sizes: see `all_sizes`.
        seed: of weights and scales.
        state: dtype of state and weights over time; `float32` of all tensors.
        zeros: zero points of data, state and result.
        activation: of the schema.
        bias: largest value of the bias; None to omit it.
        dtype, bias_scale, weights_zero, variable: of state, bias, weights and state, where they
            are not those that fit.
        features, shape_of_bias: shapes that do not fit.
        rank_of_options: where it is not the number of filters of a unit.
        extra: inputs behind the state.
    """
    batch, inputs, rank, units, memory = sizes
    random, filters = np.random.default_rng(seed), rank * units
    shapes = {
        "data": (batch, inputs), "features": features or (filters, inputs),
        "times": (filters, memory), "bias": shape_of_bias or (units,),
        "state": (batch, filters * memory), "result": (batch, units),
    }  # fmt: skip
    floats = state == "float32"
    dtypes = dict.fromkeys(shapes, "float32") if floats else {
        **dict.fromkeys(("data", "features", "result"), "int8"),
        "times": state, "bias": "int32", "state": dtype or state,
    }  # fmt: skip
    scales = scales_of(random, inputs, rank * memory, state)
    scales["bias"] = bias_scale or scales["bias"]
    points = dict(zip(("data", "state", "result", "times"), (*zeros, weights_zero), strict=True))

    def tensor(kind: str, data: Array | None = None, **facts: Any) -> int:
        if not floats:
            facts |= {"scale": scales[kind], "zero_point": points.get(kind, 0)}
        return file.tensor(shapes[kind], dtypes[kind], data=data, name=f"{name}_{kind}", **facts)

    def constant(kind: str, most: int = 2**31) -> int:
        if floats:
            values = random.normal(0, 0.4, shapes[kind]) * bool(most)
            return tensor(kind, values.astype(np.float32))
        limits = np.iinfo(dtypes[kind])
        low, high = max(limits.min, -most), min(limits.max, most)
        values = random.integers(low, high + 1, shapes[kind]).astype(dtypes[kind])
        return tensor(kind, values)

    x = tensor("data")
    operands = [x, constant("features"), constant("times")]
    operands += [-1 if bias is None else constant("bias", bias)]
    operands += [tensor("state", variable=variable)]
    y = tensor("result")
    operands += [x] * extra
    options = {
        "Rank": rank if rank_of_options is None else rank_of_options,
        "FusedActivationFunction": activation,
    }
    file.operator("SVDF", operands, [y], "SVDFOptions", **options)
    return x, y


def scales_of(
    random: np.random.Generator, inputs: int, products: int, state: str
) -> dict[str, float]:
    """Scales with which most results are within the range of their dtype, and some are not."""
    data, features, times = (np.float32(random.uniform(0.001, 0.2)) for _ in range(3))
    half = 128 if state == "int8" else 32768
    spread = float(random.choice([0.3, 1.0, 3.0]))
    kept = np.float32(data * features * 74 * 74 * np.sqrt(inputs) * spread / half)
    times = np.float32(times / half)
    bias = np.float32(kept * times)
    result = np.float32(bias * (half * 0.6) ** 2 * np.sqrt(products) * spread / 128)
    return {
        "data": float(data), "features": float(features), "times": float(times),
        "bias": float(bias), "state": float(kept), "result": float(result),
    }  # fmt: skip


@examples(2)
@given(all_sizes, all_sizes, st.tuples(zero_points, zero_points, zero_points), seeds)
def test_integers(
    narrow: tuple[int, ...], wide: tuple[int, ...], zeros: tuple[int, int, int], seed: int
) -> None:
    file = TfliteFile()
    ends = [
        layer(file, "narrow", narrow, seed, state="int8", zeros=zeros),
        layer(file, "relu", narrow, seed + 1, state="int8", zeros=(*zeros[:2], -128),
              activation=RELU),
        layer(file, "wide", wide, seed + 2, state="int16", zeros=(zeros[0], 0, zeros[2])),
    ]  # fmt: skip
    content = file.finish([x for x, _ in ends], [y for _, y in ends])
    assert_states_equal_micro(content, seed)


@examples(2)
@given(all_sizes, seeds)
def test_floats(sizes: tuple[int, ...], seed: int) -> None:
    file = TfliteFile()
    ends = [
        layer(file, f"layer{function}", sizes, seed + function, state="float32",
              activation=function)
        for function in (0, RELU, RELU6)
    ]  # fmt: skip
    content = file.finish([x for x, _ in ends], [y for _, y in ends])
    assert_states_equal_micro(content, seed, tolerance=TOLERANCE)


def single(state: str = "int8", **facts: Any) -> bytes:
    """A file with one layer of two sequences, four inputs and three units."""
    file = TfliteFile()
    x, y = layer(file, "one", (2, 4, 2, 3, 2), 5, state=state, **facts)
    return file.finish([x] if facts.get("variable", True) else [x, y - 1], [y])


def of_library(content: bytes, folder: Path) -> list[list[Array]]:
    """Outputs of several inferences."""
    path = folder / "one.tflite"
    path.write_bytes(content)
    model = import_model(path)
    random = np.random.default_rng(3)
    item = model.inputs[0]
    rounds = [{item.name: drawn(random, item.shape, item.dtype)} for _ in range(4)]
    library = umakit.compile_model(path, [], folder / "library")
    return passed_on(library.path, model, rounds)


@pytest.mark.parametrize("state", ["int8", "float32"])
def test_an_omitted_bias_is_zero(state: str, tmp_path: Path) -> None:
    """TensorFlow Lite Micro does not take layers without a bias."""
    omitted = of_library(single(state, bias=None), tmp_path)
    assert any(values[0].any() for values in omitted)
    np.testing.assert_array_equal(omitted, of_library(single(state, bias=0), tmp_path))


def test_header_metadata_and_notices_tell_the_states(tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(single(zeros=(3, -7, 5)))
    notices: list[str] = []
    library = umakit.compile_model(path, [], tmp_path / "library", notice=notices.append)
    assert (
        "TensorFlow Lite keeps 'one_state' between inferences: here they are inputs, their next "
        "values outputs; `uma run` passes them on"
    ) in notices
    description = read_description(library.path)
    assert [item.name for item in description.inputs] == ["one_data", "one_state"]
    assert [item.name for item in description.outputs] == ["one_result", "one_state_next"]
    state = description.inputs[1]
    assert (state.next_state, state.zero_point) == ("one_state_next", -7)
    header = next(library.path.rglob("tvmgen_one.h")).read_text(encoding="utf-8")
    assert "#define TVMGEN_ONE_ONE_STATE_FIRST (-7)" in header
    assert '#define TVMGEN_ONE_ONE_STATE_NEXT "one_state_next"' in header
    readme = (library.path / "README.md").read_text(encoding="utf-8")
    assert "| `one_state` | `one_state_next` | -7 |" in readme


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an activation": ({"activation": RELU6}, "its fused activation 3 is not supported for int"),
    "filters": ({"features": (6, 5)}, "the shapes of its tensors do not fit each other"),
    "a vector": ({"features": (24,)}, "one of its tensors is not a matrix"),
    "a rank": ({"rank_of_options": 4}, "its 6 filters are not a multiple of its rank 4"),
    "no rank": ({"rank_of_options": 0}, "its 6 filters are not a multiple of its rank 0"),
    "an input more": ({"extra": 1}, "it has 6 inputs, not 5"),
    "a bias": ({"shape_of_bias": (2,)}, "its bias is int32[2], not int32[3]"),
    "no variable": ({"variable": False}, "its state 'one_state' is not a variable tensor"),
    "a state of another width": ({"dtype": "int16"}, "which its kernel does not take together"),
    "a scale of the bias": ({"bias_scale": 0.5}, "its bias has another scale than the products"),
    "a zero point of weights": ({"weights_zero": 1}, "its weights have a zero point"),
}


@pytest.mark.parametrize("why", BAD)
def test_what_is_not_taken_is_refused(why: str, tmp_path: Path) -> None:
    changes, message = BAD[why]
    path = tmp_path / "one.tflite"
    path.write_bytes(single(**changes))
    with pytest.raises(ModelError, match="SVDF that writes 'one_result'") as raised:
        import_model(path)
    assert message in str(raised.value)


def test_a_layer_without_its_state_is_refused(tmp_path: Path) -> None:
    file, path = TfliteFile(), tmp_path / "one.tflite"
    x, y = (file.tensor((1, 4), "int8", name=name, scale=0.1) for name in "xy")
    file.operator("SVDF", [x], [y], "SVDFOptions", Rank=1)
    path.write_bytes(file.finish([x], [y]))
    with pytest.raises(ModelError, match="SVDF that writes 'y' lacks its state, input 4"):
        import_model(path)


SHIPPING = Path(__file__).parents[1] / "docs/shipping.md"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_firmware_of_the_page_passes_states_on(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    excerpts = re.findall(r"```c\n(.*?)```", SHIPPING.read_text(encoding="utf-8"), re.DOTALL)
    (excerpt,) = [text for text in excerpts if "listen" in text]
    file = TfliteFile()
    content = file.finish(*layer_of_the_page(file))
    path = tmp_path / "keywords.tflite"
    path.write_bytes(content)
    library = umakit.compile_model(path, [], tmp_path / "library").path
    program, rounds = tmp_path / "program", batch_of(import_model(path), 4)["voice_data"]
    loop = textwrap.dedent(f"""
        #include <stdio.h>
        int main(void)
        {{
            int8_t data[{rounds[0].size}], result[3];
            start();
            while (fread(data, sizeof data, 1, stdin) == 1) {{
                if (listen(data, result) != 0 || fwrite(result, sizeof result, 1, stdout) != 1) {{
                    return 1;
                }}
            }}
            return 0;
        }}
        """)
    (tmp_path / "main.c").write_text(excerpt + loop, encoding="utf-8")
    host = library / "codegen/host"
    subprocess.run(
        [compiler, *SANITIZED, *STRICT, f"-I{host / 'include'}", tmp_path / "main.c",
         *host.glob("src/*.c"), "-o", program, "-lm"],
        check=True,
    )  # fmt: skip
    ended = subprocess.run([program], input=rounds.tobytes(), stdout=subprocess.PIPE, check=True)
    found = np.frombuffer(ended.stdout, np.int8).reshape(-1, 1, 3)
    np.testing.assert_array_equal(found, kept_by_micro(content, rounds))


def layer_of_the_page(file: TfliteFile) -> tuple[list[int], list[int]]:
    x, y = layer(file, "voice", (1, 4, 2, 3, 5), 7, state="int8", zeros=(3, -7, 5))
    return [x], [y]


def batch_of(model: Model, count: int) -> dict[str, Array]:
    """Arrays with a dimension for inferences, without states."""
    random = np.random.default_rng(3)
    return {
        item.name: drawn(random, (count, *item.shape), item.dtype)
        for item in model.inputs
        if not item.next_state
    }


def kept_by_micro(content: bytes, rounds: Array) -> Array:
    """Results of one interpreter, which keeps its states."""
    interpreter, found = micro_interpreter(content), []
    for data in rounds:
        interpreter.set_input(data, 0)
        interpreter.invoke()
        found.append(np.array(interpreter.get_output(0)))
    return np.stack(found)


def test_a_run_passes_states_on(tmp_path: Path) -> None:
    file, path = TfliteFile(), tmp_path / "keywords.tflite"
    content = file.finish(*layer_of_the_page(file))
    path.write_bytes(content)
    data = batch_of(import_model(path), 4)["voice_data"]
    expected = kept_by_micro(content, data)
    assert len(np.unique(expected, axis=0)) > 1
    library = umakit.compile_model(path, [], tmp_path / "library").path

    def run(**arrays: Array) -> dict[str, Array]:
        with mock.patch.object(build, "FLAGS", SANITIZED):
            return umakit.run_library(library, arrays, repeat=2).outputs

    whole = run(voice_data=data)
    np.testing.assert_array_equal(whole["voice_result"], expected)
    # In pieces, and with a state for each inference.
    first = run(anything=data[:3])
    last = run(voice_data=data[3], voice_state=first["voice_state_next"][-1])
    np.testing.assert_array_equal(last["voice_result"], expected[3])
    going_on = run(voice_data=data[1:], voice_state=first["voice_state_next"][0])
    np.testing.assert_array_equal(going_on["voice_result"], expected[1:])
    own = run(voice_data=data[1:], voice_state=whole["voice_state_next"][:-1])
    np.testing.assert_array_equal(own["voice_result"], expected[1:])
    for name in own:
        np.testing.assert_array_equal(own[name], whole[name][1:])
    with pytest.raises(InputError, match="different numbers of inferences"):
        run(voice_data=data, voice_state=whole["voice_state_next"][:2])
    with pytest.raises(InputError, match="input 'voice_data' is missing"):
        run(voice_state=whole["voice_state_next"][0])
    with pytest.raises(InputError, match="input 'voice_state' has shape"):
        run(voice_data=data, voice_state=np.zeros((1, 3), np.int8))


def test_states_of_a_diff_are_passed_on(tmp_path: Path) -> None:
    file, path = TfliteFile(), tmp_path / "keywords.tflite"
    path.write_bytes(file.finish(*layer_of_the_page(file)))
    agreeing = diff_model(path, [])
    assert agreeing.agrees and agreeing.reference == TFLITE_MICRO
    assert {"voice_result", "voice_state_next"} <= set(agreeing.outputs)
    library = umakit.compile_model(path, [], tmp_path / "library").path
    # Wrong from the second inference on: the oldest place of the state is not left out.
    sources = {path: path.read_text() for path in library.glob("codegen/host/src/*.c")}
    wrong = {path: re.sub(r"state\[(\w+) \+ 1\]", r"state[\1]", c) for path, c in sources.items()}
    (changed,) = [path for path in sources if wrong[path] != sources[path]]
    changed.write_text(wrong[changed])
    differing = diff_model(path, [], library=library)
    assert not differing.agrees and differing.inferences == 2
    assert differing.reference == TFLITE_MICRO
    state = np.full((1, 30), 9, np.int8)
    given = {**batch_of(import_model(path), 2), "voice_state": state}
    own = diff_model(path, [], inputs=given)
    assert own.agrees and own.reference == NUMPY
    assert any("takes none from the inputs" in notice for notice in own.notices)
