# SPDX-License-Identifier: Apache-2.0
"""`umakit.patterns`: integer operators on a driver in C, reasons, weight layouts, parameters."""

from __future__ import annotations

import itertools
import re
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import some
from hypothesis import given
from hypothesis import strategies as st
from integer_backend import (
    BLOCKED,
    DRIVERS,
    EXAMPLES,
    NCHW,
    Array,
    Npu,
    add,
    assert_same_on_the_driver,
    common,
    compiled,
    conv,
    dense,
    driven,
    everything,
    integers,
    linear_constants,
    multiply,
    network,
    placements,
    pool,
    reason,
    relax,
    rescale,
    results,
    source,
)
from tflite_exactness import weights_and_bias
from tflite_networks import TfliteFile, tflite_micro, trained_model

from umakit import (
    OpStrategy,
    PassPhase,
    compile_model,
    patterns,
    run_library,
    tir,
    tvm_api,
)
from umakit.errors import BackendError, DeviceError, LoweringError
from umakit.library.export import Library
from umakit.operators.add import Add, Subtract
from umakit.operators.avg_pool2d import AveragePool2d
from umakit.operators.conv2d import Conv2d
from umakit.operators.dense import Dense
from umakit.operators.max_pool2d import MaxPool2d
from umakit.operators.multiply import Multiply
from umakit.operators.numeric.fixed_point import fixed_point
from umakit.operators.parameters import Parameters

# --- trained models -----------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.optimized
@pytest.mark.parametrize(
    ("name", "blocked"),
    some(
        itertools.product(
            ("ad01_int8.tflite", "pretrainedResnet_quant.tflite", "kws_ref_model.tflite"),
            (False, True),
        ),
        3,
    ),
)
def test_trained_models_on_the_driver_equal_tensorflow_lite_micro(
    name: str, blocked: bool, tmp_path: Path
) -> None:
    path, npu = trained_model(name), driven(tmp_path, blocked=blocked)
    library = compile_model(path, [npu], tmp_path / "library")
    report = library.report
    stays = {row.operator for row in report.placements if row.where == "cpu"}
    assert stays <= {"reshape", "quantized.softmax"}
    assert report.offloaded_macs == report.total_macs > 0
    (known,) = library.metadata["umakit"]["inputs"]
    noise = np.random.default_rng(2)
    shape = (24, *known["shape"])
    smooth = np.clip(noise.normal(0, 9, shape).cumsum(axis=-1).cumsum(axis=-2), -128, 127)
    inputs = np.concatenate([noise.integers(-128, 128, shape), smooth]).astype(np.int8)
    (output,) = run_library(library.path, {known["name"]: inputs}).outputs.values()
    expected = tflite_micro(path.read_bytes(), inputs)
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("options", [{}, {"weight_layout": BLOCKED, "fold_zero_point": True}])
def test_without_a_driver_the_loops_of_the_same_arrays_run(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = trained_model("kws_ref_model.tflite")
    npu = Npu(tmp_path, everything(**options))
    library = compile_model(path, [npu], tmp_path / "library")
    (known,) = library.metadata["umakit"]["inputs"]
    inputs = integers(20, *known["shape"])
    (output,) = run_library(library.path, {known["name"]: inputs}).outputs.values()
    np.testing.assert_array_equal(output, tflite_micro(path.read_bytes(), inputs))


LINEAR = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
}


@pytest.mark.parametrize("code", LINEAR)
def test_data_of_16_bits_with_a_bias_of_64(code: str, tmp_path: Path) -> None:
    """Sums of 64 bits and multipliers of 15, as TensorFlow Lite Micro has them."""
    dense_, depthwise = code == "FULLY_CONNECTED", code == "DEPTHWISE_CONV_2D"
    shape: tuple[int, ...] = (2, 40) if dense_ else (1, 6, 7, 10)
    outputs = 10
    file = TfliteFile()
    x = file.tensor(shape, "int16", scale=0.01, name="x")
    weights = (1, 3, 3, 10) if depthwise else (outputs, 40) if dense_ else (outputs, 3, 3, 10)
    constants, product = weights_and_bias(
        file, weights, outputs, 3 if depthwise else 0, 0.01, 5, True, "int64"
    )
    result = (2, outputs) if dense_ else (1, 3, 4, outputs)
    y = file.tensor(result, "int16", scale=product * 900, name="y")
    options: dict[str, Any] = {"FusedActivationFunction": 0}
    if not dense_:
        options |= {"Padding": 0, "StrideH": 2, "StrideW": 2, "DilationHFactor": 1}
        options |= {"DilationWFactor": 1} | ({"DepthMultiplier": 1} if depthwise else {})
    file.operator(code, [x, *constants], [y], LINEAR[code], **options)
    path = tmp_path / "wide.tflite"
    path.write_bytes(file.finish([x], [y]))
    prepared: dict[str, Any] = {"dtypes": "int16", "fold_zero_point": True}
    npu = Npu(tmp_path, [
        patterns.qconv2d(weight_layout=BLOCKED, **prepared), patterns.qdepthwise(**prepared),
        patterns.qdense(weight_layout="O/8 I 8o", **prepared),
    ])  # fmt: skip
    library = compile_model(path, [npu], tmp_path / "library")
    assert {row.where for row in library.report.placements} == {npu.target_name}
    inputs = integers(20, *shape, dtype="int16") * np.int16(200)
    (output,) = run_library(library.path, {"x": inputs}).outputs.values()
    expected = tflite_micro(path.read_bytes(), inputs)
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(output, expected)


# --- single operators ---------------------------------------------------------------------------

zero_points = st.integers(-128, 127)
sizes = st.integers(1, 7)


@st.composite
def convolutions(draw: st.DrawFn, channels: int) -> dict[str, Any]:
    """Options of `conv` for data of 7x6."""
    groups = draw(st.sampled_from([1, 1, channels] + [2] * (channels % 2 == 0)))
    outputs = groups * draw(st.integers(1, 9))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    low, high = sorted([draw(zero_points), draw(zero_points)])
    return {
        "outputs": outputs,
        "kernel": kernel,
        "groups": groups,
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "padding": tuple(draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)),
        "dilation": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        "scales": draw(st.sampled_from([1, outputs])),
        "input_zero_point": draw(zero_points),
        "output_zero_point": draw(zero_points),
        "clip": (low, high) if draw(st.booleans()) else (-128, 127),
    }


@EXAMPLES
@given(st.data(), st.sampled_from([1, 2, 3, 8, 9]), st.booleans(), st.integers(1, 2))
def test_convolutions_of_any_shape(data: Any, channels: int, blocked: bool, batch: int) -> None:
    options = [data.draw(convolutions(channels)) for _ in range(6)]
    shape = (batch, 7, 6, channels)
    module = network(lambda b, x: [conv(x, **chosen) for chosen in options], shape)
    with tempfile.TemporaryDirectory() as folder:
        npu = driven(Path(folder), blocked=blocked)
        library = compiled(module, [npu], Path(folder))
        assert {row.where for row in library.report.placements} == {npu.target_name}
        x = integers(3, *shape)
        got = run_library(library.path, {"x": x}).outputs.values()
        wanted = results(module, [], Path(folder), x=x)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


@EXAMPLES
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 4))
def test_other_operators_of_any_shape(inputs: int, outputs: int, rows: int) -> None:
    shape = (rows, inputs)
    module = network(
        lambda b, x, y: [
            dense(x, outputs),
            dense(y, outputs, outputs, clip=(-20, 90)),
            add(x, y, shape),
            add(x, y, shape, Subtract, clip=(-100, 90)),
            multiply(x, y, shape, clip=(0, 127)),
        ],
        shape,
        shape,
    )
    with tempfile.TemporaryDirectory() as folder:
        npu = driven(Path(folder))
        assert_same_on_the_driver(
            module, npu, Path(folder), x=integers(3, *shape), y=integers(3, *shape)
        )


@pytest.mark.parametrize("kind", [AveragePool2d, MaxPool2d])
def test_pools(kind: Any, tmp_path: Path) -> None:
    module = network(
        lambda b, x: [pool(x, kind), pool(x, kind, 3, 1, clip=(-5, 100))], (2, 7, 6, 3)
    )
    assert_same_on_the_driver(module, driven(tmp_path), tmp_path, x=integers(2, 2, 7, 6, 3))


def test_an_operand_that_is_used_twice_or_constant(tmp_path: Path) -> None:
    shape = (2, 5)
    constant = relax.const(integers(*shape))
    module = network(lambda b, x: [add(x, x, shape), multiply(x, constant, shape)], shape)
    assert_same_on_the_driver(module, driven(tmp_path), tmp_path, x=integers(4, *shape))


def test_a_status_of_the_driver_stops_the_run(tmp_path: Path) -> None:
    shape = (2, 5)
    module = network(lambda b, x, y: multiply(x, y, shape), shape, shape)
    npu = Npu(tmp_path, everything(), {"qmultiply": "npu_broken"})
    with pytest.raises(DeviceError, match="status 42"):
        results(module, [npu], tmp_path, x=integers(1, *shape), y=integers(1, *shape))


def test_patterns_run_inside_a_tvm_process(tmp_path: Path) -> None:
    shape = (1, 4, 4, 3)
    module = network(lambda b, x: relax.op.bitwise_not(b.emit(conv(x, 5))), shape)
    npu = driven(tmp_path, blocked=True)
    npu.register()
    generated = tvm_api.relax_transform.RunCodegen()(npu.partition(module))
    x = integers(*shape)
    got = tvm_api.llvm_executable(generated)["main"](tvm_api.to_device(x)).numpy()
    np.testing.assert_array_equal(got, *results(module, [], tmp_path, x=x))


def test_layers_of_one_shape_share_a_kernel_and_keep_their_arrays(tmp_path: Path) -> None:
    def build(builder: Any, x: Any) -> Any:
        return conv(builder.emit(conv(x, 3)), 3)

    module, npu = network(build, (1, 4, 4, 3)), driven(tmp_path)
    text = source(compiled(module, [npu], tmp_path))
    assert len(re.findall(r"(?:=|return) npu_qconv2d\(", text)) == 1
    assert_same_on_the_driver(module, npu, tmp_path, x=integers(2, 1, 4, 4, 3))


# --- constraints --------------------------------------------------------------------------------

CONVOLUTION = (1, 6, 6, 12)


def one_conv(shape: tuple[int, ...] = CONVOLUTION, dtype: str = "int8", **options: Any) -> Any:
    return network(lambda b, x: conv(x, **options), shape, dtype=dtype)


def one_pool(**options: Any) -> Any:
    return network(lambda b, x: pool(x, **options), CONVOLUTION)


def one_add(right: tuple[int, ...] = CONVOLUTION, **options: Any) -> Any:
    return network(lambda b, x, y: add(x, y, CONVOLUTION, **options), CONVOLUTION, right)


def one_dense(rows: int = 1, **options: Any) -> Any:
    return network(lambda b, x: dense(x, **options), (rows, 12))


DEPTHWISE: dict[str, Any] = {"groups": 12, "outputs": 12}

REFUSED: list[tuple[Any, Any, str]] = [
    (patterns.qconv2d(strides=[(1, 2)]), one_conv(), "stride 1x1: the accelerator steps by 1x2"),
    (
        patterns.qconv2d(strides=(1, 2)), one_conv(strides=(3, 3)),
        "stride 3x3: the accelerator steps by 1x1 or 2x2",
    ),
    (
        patterns.qconv2d(kernels=[(1, 1), 3, (3, 1)]), one_conv(kernel=(5, 5)),
        "kernel 5x5: the accelerator has 1x1, 3x3 or 3x1",
    ),
    (patterns.qconv2d(), one_conv(dilation=(2, 1)), "dilation 2x1: the accelerator has 1x1"),
    (patterns.qconv2d(), one_conv(groups=4), "4 groups: the accelerator has 1"),
    (patterns.qconv2d(groups=(1, 2)), one_conv(groups=4), "4 groups: the accelerator has 1 or 2"),
    (
        patterns.qconv2d(padding="valid"), one_conv(),
        "padding 1,1,1,1 (top, left, bottom, right): the accelerator pads valid",
    ),
    (
        patterns.qconv2d(padding=["same", 0, (0, 1, 2, 3)]), one_conv(padding=(2, 1, 0, 1)),
        "padding 2,1,0,1 (top, left, bottom, right): the accelerator pads same, 0 on each side "
        "or 0,1,2,3",
    ),
    (
        patterns.qconv2d(padding="same"), one_conv(strides=(2, 2)),
        "padding 1,1,1,1 (top, left, bottom, right): the accelerator pads same",
    ),
    (patterns.qconv2d(), one_conv((3, 6, 6, 12)), "3 images: the accelerator has at most 1"),
    (patterns.qconv2d(channel_multiple=8), one_conv(), "12 input channels: no multiple of 8"),
    (
        patterns.qconv2d(channel_multiple=4), one_conv(outputs=6),
        "6 output channels: no multiple of 4",
    ),
    (
        patterns.qconv2d(input_channel_multiple=5), one_conv(),
        "12 input channels: no multiple of 5",
    ),
    (
        patterns.qconv2d(output_channel_multiple=5), one_conv(),
        "8 output channels: no multiple of 5",
    ),
    (
        patterns.qconv2d(per_channel=False), one_conv(),
        "8 scales, one for each output channel: the accelerator has 1",
    ),
    (
        patterns.qconv2d(), one_conv(dtype="uint8"),
        "uint8 data: the accelerator computes int8",
    ),
    (
        patterns.qconv2d(), one_conv(output_dtype="uint8", clip=(0, 255)),
        "uint8 result: the accelerator computes int8",
    ),
    (patterns.qconv2d(rounding="ort"), one_conv(), "rounding tflm: the accelerator rounds as ort"),
    (
        patterns.qconv2d(), one_conv(rounding="ort"),
        "rounding ort: the accelerator rounds as tflm",
    ),
    (patterns.qconv2d(layouts="NCHW"), one_conv(), "layout NHWC: the accelerator reads NCHW"),
    (
        patterns.qconv2d(), one_conv(**DEPTHWISE),
        "a depthwise convolution, 12 groups of one channel",
    ),
    (patterns.qdepthwise(), one_conv(), "a convolution that is not depthwise"),
    (
        patterns.qdepthwise(), one_conv(groups=12, outputs=24),
        "channel multiplier 2: the accelerator has 1",
    ),
    (
        patterns.qdepthwise(kernels=5), one_conv(**DEPTHWISE),
        "kernel 3x3: the accelerator has 5x5",
    ),
    (
        patterns.qdepthwise(channel_multiple=16), one_conv(**DEPTHWISE),
        "12 output channels: no multiple of 16",
    ),
    (patterns.qdense(rows=1), one_dense(2), "2 rows: the accelerator has at most 1"),
    (patterns.qdense(input_multiple=8), one_dense(), "12 inputs: no multiple of 8"),
    (patterns.qdense(output_multiple=3), one_dense(), "8 outputs: no multiple of 3"),
    (
        patterns.qdense(per_channel=False), one_dense(scales=8),
        "8 scales, one for each output channel: the accelerator has 1",
    ),
    (
        patterns.qsubtract(), one_add((1, 1, 1, 12), kind=Subtract),
        "shapes 1x6x6x12 and 1x1x1x12: the accelerator subtracts equal ones",
    ),
    (
        patterns.qadd(), one_add((1, 1, 1, 12)),
        "shapes 1x6x6x12 and 1x1x1x12: the accelerator adds equal ones",
    ),
    (patterns.qadd(rounding="ort"), one_add(), "rounding tflm: the accelerator rounds as ort"),
    (
        patterns.qmax_pool2d(windows=3), one_pool(),
        "window 2x2: the accelerator has 3x3",
    ),
    (patterns.qmax_pool2d(strides=1), one_pool(), "stride 2x2: the accelerator steps by 1x1"),
    (patterns.qmax_pool2d(channel_multiple=8), one_pool(), "12 channels: no multiple of 8"),
    (patterns.qavg_pool2d(), one_pool(), "no pattern covers quantized.max_pool2d"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "module", "wanted"), REFUSED, ids=lambda v: str(v)[:40])
def test_a_constraint_that_fails_says_so_with_its_values(
    pattern: Any, module: Any, wanted: str, tmp_path: Path
) -> None:
    assert reason(module, pattern, folder=tmp_path) == wanted


TAKEN = {
    "defaults": (patterns.qconv2d(), one_conv()),
    "a pair": (patterns.qconv2d(strides=[(1, 2)]), one_conv(strides=(1, 2))),
    "a list": (patterns.qconv2d(kernels=[1, (3, 3)], strides=[1, 2]), one_conv()),
    "same": (patterns.qconv2d(padding="same"), one_conv()),
    "same, stride 2": (
        patterns.qconv2d(padding="same"), one_conv(strides=(2, 2), padding=(0, 0, 1, 1)),
    ),
    "same, dilated": (
        patterns.qconv2d(padding="same", dilation=2),
        one_conv(padding=(2, 2, 2, 2), dilation=(2, 2)),
    ),
    "a number": (patterns.qconv2d(padding=[0, 1]), one_conv()),
    "sides": (patterns.qconv2d(padding=(1, 1, 1, 1)), one_conv()),
    "any": (
        patterns.qconv2d(dilation=None, groups=None, batch=None, dtypes=None, rounding=None),
        one_conv((2, 6, 6, 12), "uint8", groups=3, outputs=9, dilation=(2, 2), rounding="ort"),
    ),
    "channels": (patterns.qconv2d(input_channel_multiple=4, output_channel_multiple=8), one_conv()),
    "one scale": (patterns.qconv2d(per_channel=False), one_conv(scales=1)),
    "depthwise": (patterns.qdepthwise(multipliers=[1, 2]), one_conv(groups=12, outputs=24)),
    "broadcast": (patterns.qadd(broadcast=True), one_add((1, 1, 1, 12))),
    "pool": (patterns.qmax_pool2d(windows=2, strides=2, padding=["valid"]), one_pool()),
    "iterators": (
        patterns.qconv2d(dtypes=iter(["int8"]), rounding=iter(["tflm"]), layouts=iter(["NHWC"])),
        one_conv(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TAKEN)
def test_what_meets_its_constraints_is_taken(what: str, tmp_path: Path) -> None:
    pattern, module = TAKEN[what]
    assert reason(module, pattern, folder=tmp_path) == ""


def test_all_constraints_that_fail_are_told(tmp_path: Path) -> None:
    pattern = patterns.qconv2d(kernels=1, strides=1, channel_multiple=4)
    assert reason(one_conv(strides=(2, 2)), pattern, folder=tmp_path) == (
        "kernel 3x3: the accelerator has 1x1; stride 2x2: the accelerator steps by 1x1"
    )


def test_a_backend_of_both_convolutions_tells_only_what_concerns_one(tmp_path: Path) -> None:
    both = (patterns.qdepthwise(kernels=5), patterns.qconv2d(kernels=1))
    assert reason(one_conv(), *both, folder=tmp_path) == "kernel 3x3: the accelerator has 1x1"
    assert reason(one_conv(**DEPTHWISE), *both, folder=tmp_path) == (
        "kernel 3x3: the accelerator has 5x5"
    )


def test_weights_that_are_computed_are_refused(tmp_path: Path) -> None:
    def build(builder: Any, x: Any, y: Any) -> Any:
        call = dense(x)
        return relax.Call(call.op, [x, y, *call.args[2:]], call.attrs)

    module = network(build, (1, 12), (8, 12))
    wanted = "its weights are computed, not constant: they cannot be prepared"
    assert reason(module, patterns.qdense(), folder=tmp_path) == wanted


def test_data_of_16_bits_are_refused_or_have_a_bias_of_64(tmp_path: Path) -> None:
    module = one_conv(dtype="int16", output_dtype="int16", clip=(-(2**15), 2**15 - 1))
    wanted = "int32 bias: drivers of int16 data get int64"
    assert reason(module, patterns.qconv2d(dtypes="int16"), folder=tmp_path) == wanted
    assert "const int64_t *bias" in patterns.c_declaration("f", patterns.qconv2d(), "int16")
    assert "const int32_t *bias" in patterns.c_declaration("f", patterns.qconv2d(), "uint8")


def test_an_own_predicate_sees_the_parameters_and_the_arrays(tmp_path: Path) -> None:
    seen: list[Any] = []

    def predicate(known: patterns.QConv2d) -> bool | str:
        seen.append(known)
        assert known.shifts is not None
        return True if known.width < 6 else f"{known.width} columns: the line buffer holds 5"

    pattern = patterns.qconv2d(predicate=predicate)
    assert reason(one_conv(), pattern, folder=tmp_path) == "6 columns: the line buffer holds 5"
    assert reason(one_conv((1, 6, 4, 12)), pattern, folder=tmp_path) == ""
    known = seen[0]
    assert (known.height, known.width, known.input_channels, known.output_channels) == (6, 6, 12, 8)
    assert (known.batch, known.output_height, known.output_width) == (1, 6, 6)
    assert (known.kernel, known.strides, known.groups, known.scales) == ((3, 3), (1, 1), 1, 8)
    assert known.weights.shape == (8, 3, 3, 12) == known.weights_shape
    assert [len(a) for a in (known.bias, known.multipliers, known.shifts)] == [8, 8, 8]


def test_an_own_predicate_is_asked_last_and_must_answer(tmp_path: Path) -> None:
    def never(known: Any) -> bool:
        raise AssertionError

    pattern = patterns.qconv2d(kernels=1, predicate=never)
    assert reason(one_conv(), pattern, folder=tmp_path).startswith("kernel 3x3")
    with pytest.raises(BackendError, match="predicate of pattern 'qconv2d' returned int"):
        reason(one_conv(), patterns.qconv2d(predicate=lambda known: 1), folder=tmp_path)


WRONG = {
    "strides": (lambda: patterns.qconv2d(strides=0), "stride 0 is not a list of sizes"),
    "kernels": (lambda: patterns.qconv2d(kernels=[]), "kernel is an empty list"),
    "padding": (lambda: patterns.qconv2d(padding="some"), "padding 'some' is unknown; say 'valid'"),
    "multiple": (lambda: patterns.qconv2d(channel_multiple=0), "input channels: nothing is a mul"),
    "rounding": (
        lambda: patterns.qadd(rounding="up"),
        "rounding 'up' is unknown; say tflm, ort or even",
    ),
    "layouts": (lambda: patterns.qconv2d(layouts="HWC"), "layout 'HWC' is unknown; say NHWC or"),
    "an axis twice": (lambda: patterns.qconv2d(weight_layout="OOHWI"), "weight layout 'OOHWI'"),
    "an axis less": (lambda: patterns.qconv2d(weight_layout="OHW"), "weight layout 'OHW' does"),
    "no block": (lambda: patterns.qconv2d(weight_layout="O/8 HWI"), "weight layout 'O/8 HWI'"),
    "two blocks": (lambda: patterns.qconv2d(weight_layout="O/8HWI4o"), "weight layout"),
    "block of 0": (lambda: patterns.qconv2d(weight_layout="OHWI0o"), "weight layout"),
    "an unknown axis": (lambda: patterns.qdense(weight_layout="OHWI"), "the axes O, I"),
    "something else": (lambda: patterns.qdense(weight_layout="O-I"), "weight layout"),
    "a declaration": (
        lambda: patterns.c_declaration("f", ("f", None)),
        "f: c_declaration got tuple",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_constraints_that_make_no_sense_are_refused(what: str) -> None:
    make, message = WRONG[what]
    with pytest.raises(BackendError, match=re.escape(message)):
        make()


def test_two_backends_share_a_network_by_their_constraints(tmp_path: Path) -> None:
    def build(builder: Any, x: Any) -> Any:
        small = builder.emit(conv(x, kernel=(1, 1), padding=(0, 0, 0, 0)))
        large = builder.emit(conv(small))
        return conv(large, kernel=(5, 5), padding=(2, 2, 2, 2))

    module = network(build, CONVOLUTION)
    one = Npu(tmp_path, [patterns.qconv2d(kernels=1)], DRIVERS, name="one_npu")
    other = Npu(tmp_path, [patterns.qconv2d(kernels=[1, 3])], name="other_npu")
    first, second, third = placements(module, one, other)
    assert [first.where, second.where, third.where] == ["one_npu", "other_npu", "cpu"]
    assert third.reason == (
        "one_npu: kernel 5x5: the accelerator has 1x1; "
        "other_npu: kernel 5x5: the accelerator has 1x1 or 3x3"
    )
    assert placements(module, other, one)[0].where == "other_npu"
    x = integers(2, *CONVOLUTION)
    np.testing.assert_array_equal(
        results(module, [one, other], tmp_path, x=x), results(module, [], tmp_path, x=x)
    )


# --- weights and bias ---------------------------------------------------------------------------


def blocked_by_hand(weights: Array, block: int) -> Array:
    """O/b HWI bo, element by element."""
    outputs, *window = weights.shape
    stored = np.zeros((-(-outputs // block), *window, block), weights.dtype)
    for o in range(outputs):
        stored[o // block, ..., o % block] = weights[o]
    return stored


LAYOUTS: dict[str, Any] = {
    "OHWI": lambda w: w,
    "HWIO": lambda w: np.moveaxis(w, 0, 3),
    "OIHW": lambda w: np.moveaxis(w, 3, 1),
    "O/8 HWI 8o": lambda w: blocked_by_hand(w, 8),
    "OHWI8o": lambda w: blocked_by_hand(w, 8),
    "O/4HWI4o": lambda w: blocked_by_hand(w, 4),
    "HW O/2 I/4 4i 2o": lambda w: np.pad(w, [(0, -w.shape[0] % 2), (0, 0), (0, 0), (0, 3)])
    .reshape(-1, 2, 2, 3, 2, 4).transpose(2, 3, 0, 4, 5, 1),
}  # fmt: skip


DENSE_LAYOUTS = ("OI", "IO", "O/8 I 8o")


@pytest.mark.parametrize("text", LAYOUTS)
def test_weight_layouts_are_what_numpy_makes_of_them(text: str, tmp_path: Path) -> None:
    weights = integers(11, 2, 3, 5)
    layout = patterns.weight_layout(text, "OHWI")
    wanted = LAYOUTS[text](weights)
    stored = layout.stored(weights)
    assert stored.flags.c_contiguous and layout.stored_shape(weights.shape) == stored.shape
    np.testing.assert_array_equal(stored, wanted)


@pytest.mark.parametrize("fold", [False, True])
def test_results_do_not_depend_on_the_layout_of_weights(fold: bool, tmp_path: Path) -> None:
    """A pattern for each layout, told apart by the number of output channels."""

    def only(outputs: int) -> Any:
        return lambda known: known.weights_shape[0] == outputs or "another layout"

    registrations = [
        patterns.qconv2d(f"conv{n}", weight_layout=text, fold_zero_point=fold, predicate=only(n))
        for n, text in enumerate(LAYOUTS, start=9)
    ] + [
        patterns.qdense(f"dense{n}", weight_layout=text, fold_zero_point=fold, predicate=only(n))
        for n, text in enumerate(DENSE_LAYOUTS, start=9)
    ]
    module = network(
        lambda b, x, y: (
            [conv(x, n, (2, 3)) for n, _ in enumerate(LAYOUTS, start=9)]
            + [dense(y, n) for n, _ in enumerate(DENSE_LAYOUTS, start=9)]
        ),
        (1, 4, 3, 5),
        (3, 12),
    )
    npu = Npu(tmp_path, registrations)
    given = {"x": integers(2, 1, 4, 3, 5), "y": integers(2, 3, 12)}
    assert_same_on_the_driver(module, npu, tmp_path, **given)


def c_arrays(library: Library) -> list[list[int]]:
    """The constants of a library."""
    text = source(library, "tvmgen_net_constants.c")
    bodies = re.findall(r"const \w+ \w+\[\d+\] = \{([^}]*)\}", text)
    return [[int(eval(n)) for n in body.replace("\n", "").split(",")] for body in bodies]


def test_the_library_holds_the_prepared_arrays_and_no_others(tmp_path: Path) -> None:
    module = one_conv((1, 4, 4, 2), outputs=3, kernel=(2, 2), input_zero_point=-9)
    (binding,) = list(tvm_api.bindings_of(module["main"]))[:1]
    weights, bias, multipliers, shifts = (
        tvm_api.constant_array(a).astype(int)
        for a in binding.value.args[1:]  # type: ignore[union-attr]
    )
    library = compiled(module, [driven(tmp_path, blocked=True)], tmp_path)
    folded = bias + 9 * weights.reshape(3, -1).sum(axis=1)
    # Whole blocks of 8 channels: what reads one finds zeros behind the last channel.
    filled = [np.concatenate([a, np.zeros(5, int)]) for a in (folded, multipliers, shifts)]
    wanted = [blocked_by_hand(weights, 8), *filled]
    assert sorted(c_arrays(library)) == sorted(a.ravel().tolist() for a in wanted)


# --- parameters in strategies and TIR passes ----------------------------------------------------


def test_a_tir_pass_and_a_strategy_see_the_same_parameters(tmp_path: Path) -> None:
    seen: list[Any] = []
    pattern = patterns.qconv2d(weight_layout="HWIO", fold_zero_point=True)
    npu = Npu(tmp_path, [pattern])

    def note(function: Any) -> Any:
        seen.append(patterns.parameters_of(function))
        assert [p.name for p in function.params][:2] == ["data", "weights"]
        assert tir.buffer_shape(function.params[1]) == (3, 3, 12, 8)
        return function

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        seen.append(patterns.parameters_of(attrs))
        chosen = OpStrategy()
        chosen.add_implementation(lambda attrs, inputs, out_type: tvm_api.te.compute(
            seen[0].output_shape, lambda *i: inputs[2][i[3]].astype("int8")
        ))  # fmt: skip
        return chosen

    npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("note", note))
    compiled(one_conv(), [npu], tmp_path)
    npu._register_operator_strategy("quantized.conv2d", strategy)
    x = integers(1, *CONVOLUTION)
    (got,) = results(one_conv(), [npu], tmp_path, x=x)
    assert len(seen) == 3 and seen[0] == seen[1] == seen[2]
    known, in_a_strategy = seen[0], seen[1]
    assert isinstance(known, patterns.QConv2d) and in_a_strategy.weights is None
    with pytest.raises(LoweringError, match="not known in an operator strategy"):
        in_a_strategy.stored_arrays()
    assert known.weight_layout.text == "HWIO" and known.zero_point_in_bias
    assert (known.input_zero_point, known.output_zero_point) == (-7, 3)
    assert (known.clip, known.rounding, known.per_channel) == ((-128, 127), "tflm", True)
    assert len(np.unique(got)) > 1 and (got == got[..., :1, :1, :]).all()


def test_a_tir_pass_sees_the_arrays_of_its_own_layer(tmp_path: Path) -> None:
    seen: list[Any] = []

    def note(function: Any) -> Any:
        seen.append(patterns.parameters_of(function))
        return function

    options = {"weight_layout": BLOCKED, "fold_zero_point": True, "expand_scales": True}
    npu = Npu(tmp_path, [patterns.qconv2d(**options)])
    npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("note", note))

    def build(builder: Any, x: Any) -> Any:
        return conv(builder.emit(conv(x, 3, scales=1)), 3, scales=1)

    module = network(build, (1, 4, 4, 3))
    library = compiled(module, [npu], tmp_path)
    assert len(seen) == 2 and seen[0] == seen[1], "equal but for their arrays"
    calls = [b.value for b in tvm_api.bindings_of(module["main"])][:2]
    stored = []
    for call, known in zip(calls, seen, strict=True):
        weights, bias, multipliers, shifts = (tvm_api.constant_array(a) for a in call.args[1:])  # type: ignore[union-attr]
        assert weights is not None and bias is not None
        np.testing.assert_array_equal(known.weights, weights)
        np.testing.assert_array_equal(known.bias, bias)
        np.testing.assert_array_equal(known.multipliers, np.repeat(multipliers, 3))  # type: ignore[arg-type]
        arrays = known.stored_arrays()
        folded = bias - known.input_zero_point * weights.reshape(3, -1).astype(int).sum(1)
        np.testing.assert_array_equal(arrays["bias"], [*folded, 0, 0, 0, 0, 0])
        np.testing.assert_array_equal(arrays["shifts"], [*np.repeat(shifts, 3), 0, 0, 0, 0, 0])  # type: ignore[arg-type]
        np.testing.assert_array_equal(arrays["weights"], blocked_by_hand(weights, 8))
        assert {name: a.shape for name, a in arrays.items()} == known.stored_shapes
        stored += [a.astype(int).ravel().tolist() for a in arrays.values()]
    # They are what the library holds, and the layers share a kernel all the same.
    assert sorted(c_arrays(library)) == sorted(map(list, {tuple(a) for a in stored}))
    kernels = [layer["kernel"] for layer in library.metadata["umakit"]["layers"]]
    assert len(kernels) == 2 and len(set(kernels)) == 1


def test_layers_whose_passes_made_different_code_have_kernels_of_their_own(tmp_path: Path) -> None:
    def call(function: Any) -> Any:
        known = patterns.parameters_of(function)
        bounds = (int(known.bias.min()), int(known.bias.max()))
        arguments = list(replace(known, clip=bounds).scalars.values())
        pointers = [tir.pointer(parameter) for parameter in function.params]
        return tir.with_body(function, tir.driver_call("npu_qdense", [*pointers, *arguments]))

    npu = Npu(tmp_path, [patterns.qdense(weight_layout="IO")], {"nothing": "nothing"})
    npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("call", call))
    module = network(lambda b, x: [dense(x, 4), dense(x, 4)], (1, 12))
    text = source(compiled(module, [npu], tmp_path))
    assert len(re.findall(r"(?:=|return) npu_qdense\(", text)) == 2


def test_a_pass_may_build_a_call_of_its_own(tmp_path: Path) -> None:
    def call(function: Any) -> Any:
        known = patterns.parameters_of(function)
        left, right, result = (tir.pointer(p) for p in function.params)
        arguments = [left, right, result, *replace(known, clip=(-1, 1)).scalars.values()]
        return tir.with_body(function, tir.driver_call("npu_qmultiply", arguments))

    npu = Npu(tmp_path, [patterns.qmultiply()], {"nothing": "nothing"})
    npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("call", call))
    shape = (4, 9)
    module = network(lambda b, x, y: multiply(x, y, shape), shape, shape)
    (got,) = results(module, [npu], tmp_path, x=integers(2, *shape), y=integers(2, *shape))
    assert set(np.unique(got)) <= {-1, 0, 1}


def test_other_prim_funcs_have_no_parameters() -> None:
    a = tir.placeholder((4,), "int8", "a")
    function = tir.reference_loops(a, tvm_api.topi.nn.relu(a))
    assert patterns.parameters_of(function) is None
    assert patterns.parameters_of(relax.op.nn.softmax(relax.const(1.0), 0).attrs) is None
    assert patterns.parameters_of(None) is None
    with pytest.raises(LoweringError, match=r"not an integer operator of umakit\.patterns"):
        patterns.driver_call(function, "f")


# --- what stands behind -------------------------------------------------------------------------


def behind(follow: Any) -> Any:
    return network(lambda b, x: follow(b.emit(conv(x, 8))), (1, 4, 4, 2))


def test_what_only_clips_becomes_part_of_the_operator(tmp_path: Path) -> None:
    followers: list[Any] = [
        lambda x: relax.op.clip(x, -10, 40),
        lambda x: relax.op.clip(x, 100, 110),  # beside the operator's own
        relax.op.nn.relu,
        lambda x: rescale(x, 1.0, clip=(0, 50)),
    ]
    module = network(
        lambda b, x: [f(b.emit(conv(x, 8, clip=(-60, 60)))) for f in followers], (1, 4, 4, 2)
    )
    npu = driven(tmp_path)
    library = compiled(module, [npu], tmp_path)
    assert [row.where for row in library.report.placements] == [npu.target_name] * 8
    assert not re.search(r"\bfor \(", source(library))
    x = integers(3, 1, 4, 4, 2)
    wanted = results(module, [], tmp_path, x=x)
    got = list(run_library(library.path, {"x": x}).outputs.values())
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("factor", [1.0, 1.7])
def test_a_second_change_of_scale_is_for_those_that_ask_for_it(
    factor: float, tmp_path: Path
) -> None:
    module = behind(lambda x: rescale(x, factor, output_zero_point=-4))
    x = integers(3, 1, 4, 4, 2)
    plain = Npu(tmp_path, [patterns.qconv2d()])
    first, second = placements(module, plain)
    assert (first.where, second.where) == (plain.target_name, "cpu")
    assert second.reason.startswith("a second change of scale behind it")
    asks = Npu(tmp_path, [patterns.qconv2d(requantize=True)])
    assert {row.where for row in placements(module, asks)} == {asks.target_name}
    wanted = results(module, [], tmp_path, x=x)
    for npu in (plain, asks):
        np.testing.assert_array_equal(results(module, [npu], tmp_path, x=x), wanted)


def test_a_driver_that_rescales_twice_is_always_told_how(tmp_path: Path) -> None:
    seen: list[dict[str, int]] = []

    def note(function: Any) -> Any:
        seen.append(patterns.parameters_of(function).scalars)
        return function

    for module in (one_conv(clip=(-3, 9)), behind(lambda x: rescale(x, 0.37))):
        npu = Npu(tmp_path, [patterns.qconv2d(requantize=True)])
        npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("note", note))
        compiled(module, [npu], tmp_path)
    unit, other = seen
    assert list(unit) == list(other) and list(unit)[-6:] == [
        "then_multiplier", "then_shift", "then_input_zero_point", "then_output_zero_point",
        "then_lowest", "then_highest",
    ]  # fmt: skip
    assert list(unit.values())[-6:] == [2**30, 1, 3, 3, -3, 9]
    assert list(other)[-6:] and other["then_multiplier"] == fixed_point([0.37]).multipliers[0]


def test_an_operator_whose_result_is_used_elsewhere_too_is_taken_alone(tmp_path: Path) -> None:
    def build(builder: Any, x: Any) -> Any:
        made = builder.emit(conv(x, 8))
        return [relax.op.nn.relu(made), made]

    module, npu = network(build, (1, 4, 4, 2)), driven(tmp_path)
    first, second = placements(module, npu)
    assert (first.where, second.where) == (npu.target_name, "cpu")
    x = integers(2, 1, 4, 4, 2)
    for one, other in zip(
        results(module, [npu], tmp_path, x=x), results(module, [], tmp_path, x=x), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("right", [(12,), (1, 1, 1, 12), (1, 6, 1, 1), (1, 1, 1, 1), CONVOLUTION])
def test_broadcasting_operators_are_told_both_shapes(
    right: tuple[int, ...], tmp_path: Path
) -> None:
    declared = patterns.c_declaration("f", patterns.qadd(broadcast=True))
    assert "int32_t left_0, int32_t left_1, int32_t left_2, int32_t left_3" in declared
    module = network(
        lambda b, x, y: [add(x, y, CONVOLUTION), add(y, x, CONVOLUTION)], CONVOLUTION, right
    )
    npu = Npu(tmp_path, [patterns.qadd(broadcast=True)], {"qadd": "npu_qadd_broadcast"})
    given = {"x": integers(2, *CONVOLUTION), "y": integers(2, *right)}
    assert_same_on_the_driver(module, npu, tmp_path, **given)


def test_a_second_change_of_scale_in_the_driver(tmp_path: Path) -> None:
    followers: list[Any] = [
        lambda x: rescale(x, 0.37, output_zero_point=-4),
        lambda x: rescale(x, 1.7, clip=(-20, 90)),
        lambda x: relax.op.clip(x, -10, 40),
    ]
    module = network(
        lambda b, x: [*(f(b.emit(conv(x, 8))) for f in followers), conv(x, 5)], (1, 4, 4, 2)
    )
    npu = Npu(tmp_path, [patterns.qconv2d(requantize=True)], {"qconv2d": "npu_qconv2d_then"})
    assert_same_on_the_driver(module, npu, tmp_path, x=integers(3, 1, 4, 4, 2))


def test_operators_are_what_parameters_are_named_after() -> None:
    for kind in (Conv2d, Dense, Add, Subtract, Multiply, MaxPool2d, AveragePool2d):
        assert issubclass(kind, Parameters)
        known = getattr(patterns, f"Q{kind.__name__}")
        assert issubclass(known, kind) and issubclass(known, patterns.Composite)


@pytest.mark.skipif(
    "layout" not in {item.name for item in fields(Conv2d)}, reason="there is no NCHW operator yet"
)
def test_convolutions_in_nchw(tmp_path: Path) -> None:
    """The model's weights are OIHW there; what the driver gets is in the layout it asks for."""

    def build(x: Any, outputs: int, groups: int) -> Any:
        weights = integers(outputs, 6 // groups, 2, 3, low=-127)
        known = Conv2d(
            **common((1, outputs, 5, 3)), strides=(1, 2), padding=(1, 1, 0, 1), **NCHW,
            dilation=(1, 1), groups=groups, input_zero_point=5,
        )  # fmt: skip
        return known.call([x, *linear_constants(weights, outputs)], None)

    def pooled(x: Any, kind: Any) -> Any:
        known = kind(
            **common((1, 6, 2, 2)), strides=(2, 2), padding=(0, 0, 0, 0), window=(2, 2),
            **NCHW,
        )  # fmt: skip
        return known.call([x], None)

    module = network(
        lambda b, x: [build(x, 4, 1), build(x, 8, 2), build(x, 12, 6), pooled(x, MaxPool2d)],
        (1, 6, 5, 5),
    )
    given = {"layouts": "NCHW", "fold_zero_point": True}
    registrations = [
        patterns.qconv2d(groups=None, weight_layout=BLOCKED, **given),
        patterns.qdepthwise(multipliers=2, **given),
        patterns.qmax_pool2d(layouts="NCHW"),
    ]
    npu = Npu(tmp_path, registrations)
    assert_same_on_the_driver(module, npu, tmp_path, x=integers(3, 1, 6, 5, 5))
    refused = placements(module, Npu(tmp_path, everything()))
    assert {row.reason for row in refused} == {"layout NCHW: the accelerator reads NHWC"}
