# SPDX-License-Identifier: Apache-2.0
"""`patterns.qconv2d_add`: a convolution and the sum behind it as one call of a driver."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_backend import (
    BLOCKED,
    SUM,
    Array,
    Npu,
    add,
    compiled,
    conv,
    fused,
    integers,
    network,
    placements,
    relax,
    rescale,
    residual_npu,
    results,
    source,
)
from test_diff import blamed, wrong_layers
from test_diff_quantized import planted
from tflite_networks import trained_model

from umakit import OpStrategy, PassPhase, patterns, run_library, tir, tvm_api
from umakit.errors import LoweringError
from umakit.operators.add import Add
from umakit.tools.diff import diff_model

RESNET = "pretrainedResnet_quant.tflite"
SHAPE = (1, 6, 5, 8)


# --- which sums are taken -----------------------------------------------------------------------


def summed(left: Any, right: Any, of: str, **values: Any) -> Any:
    """A sum in which zero points fit: `of` says which operands are results of `conv`."""
    call = add(left, right, tvm_api.static_shape(left) or (), **values)
    layer = Add.of(call)
    zero_points = tuple(3 if side in of else 5 for side in ("left", "right"))
    return replace(layer, zero_points=zero_points).call(list(call.args), None)  # type: ignore[arg-type]


def assert_equal_to_the_cpu(module: Any, npu: Npu, folder: Path, **given_: Array) -> Any:
    """Results on the backend are the CPU's; the library."""
    library = compiled(module, [npu], folder)
    wanted = results(module, [], folder, **given_)
    got = run_library(library.path, given_).outputs.values()
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert len(np.unique(one)) > 1
    return library


def test_shortcuts_of_every_kind(tmp_path: Path) -> None:
    def two_convolutions(b: Any, x: Any) -> Any:
        small = b.emit(conv(x, kernel=(1, 1), padding=(0,) * 4))
        return summed(b.emit(conv(x)), small, "left right")

    def a_second_that_reads_the_first(b: Any, x: Any) -> Any:
        first = b.emit(conv(x))
        return summed(first, b.emit(conv(first)), "left right")

    def one_tensor_as_data_and_addend(b: Any, x: Any) -> Any:
        return summed(x, b.emit(conv(x)), "right")

    def a_constant(b: Any, x: Any) -> Any:
        return summed(b.emit(conv(x)), relax.const(integers(*SHAPE)), "left")

    def around_the_cpu(b: Any, x: Any) -> Any:
        first = b.emit(conv(x))
        beside = b.emit(relax.op.bitwise_not(first))
        return summed(b.emit(conv(first)), beside, "left")

    def one_behind_the_other(b: Any, x: Any) -> Any:
        first = b.emit(summed(b.emit(conv(x)), x, "left", output_zero_point=5))
        return summed(first, b.emit(conv(first)), "right")

    kinds = {
        two_convolutions: 1, a_second_that_reads_the_first: 1, one_tensor_as_data_and_addend: 1,
        a_constant: 1, around_the_cpu: 1, one_behind_the_other: 2,
    }  # fmt: skip
    for build, wanted in kinds.items():
        module, npu = network(build, SHAPE), residual_npu(tmp_path)
        library = assert_equal_to_the_cpu(module, npu, tmp_path, x=integers(3, *SHAPE))
        assert fused(library) == wanted, build.__name__
        stays = {r.operator for r in library.report.placements if r.where == "cpu"}
        assert stays <= {"bitwise_not"}, build.__name__


def test_the_comment_tells_the_convolution_from_the_sum(tmp_path: Path) -> None:
    module = network(lambda b, x: summed(b.emit(conv(x)), x, "left", output_zero_point=5), SHAPE)
    text = source(compiled(module, [residual_npu(tmp_path)], tmp_path))
    comment = " ".join(
        text[text.index(" * Layer 0") :].partition("*/")[0].replace(" *", "").split()
    )
    for fact in (
        "output zero point 5 (sum)",
        "convolution before the addition zero point 3, clip",
        "addition addend zero point 5, left shift",
    ):
        assert fact in comment


def test_the_convolution_that_can_be_taken_is(tmp_path: Path) -> None:
    """Either of two convolutions is offloaded if the other one cannot be."""

    def build(b: Any, x: Any) -> Any:
        small = b.emit(conv(x, kernel=(1, 1), padding=(0,) * 4))
        return summed(b.emit(conv(x)), small, "left right")

    module = network(build, SHAPE)
    for kernel in (1, 3):
        pattern = patterns.qconv2d_add(kernels=kernel)
        npu = Npu(tmp_path, [pattern], SUM)
        rows = placements(module, npu)
        assert [row.operator for row in rows if row.where != "cpu"] == [
            "quantized.conv2d", "quantized.add",
        ]  # fmt: skip
        assert_equal_to_the_cpu(module, npu, tmp_path, x=integers(2, *SHAPE))


def test_what_stands_behind_the_sum_is_part_of_it(tmp_path: Path) -> None:
    followers: list[Any] = [
        lambda x: relax.op.clip(x, -10, 40), relax.op.nn.relu,
        lambda x: rescale(x, 1.0, clip=(0, 50)),
    ]  # fmt: skip

    def build(b: Any, x: Any, y: Any) -> Any:
        sums = [
            summed(*((b.emit(conv(x)), y) if side == "left" else (y, b.emit(conv(x)))), side)
            for side in ("left", "right")
        ]
        return [follower(b.emit(total)) for total in sums for follower in followers[:1]] + [
            follower(b.emit(summed(b.emit(conv(x)), y, "left"))) for follower in followers
        ]

    npu = residual_npu(tmp_path)
    given_ = {"x": integers(3, *SHAPE), "y": integers(3, *SHAPE)}
    library = assert_equal_to_the_cpu(network(build, SHAPE, SHAPE), npu, tmp_path, **given_)
    assert {row.where for row in library.report.placements} == {npu.target_name}
    assert fused(library) == 5 and not re.search(r"\bfor \(", source(library))


def test_a_second_change_of_scale_behind_the_sum(tmp_path: Path) -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        total = b.emit(summed(b.emit(conv(x)), y, "left"))
        return rescale(total, 1.7, output_zero_point=-4)

    module = network(build, SHAPE, SHAPE)
    given_ = {"x": integers(3, *SHAPE), "y": integers(3, *SHAPE)}
    first, second, third = placements(module, residual_npu(tmp_path))
    assert third.reason == (
        "qconv2d_add: a second change of scale behind it: the accelerator rescales a result once"
    )
    assert "cpu" not in (first.where, second.where)
    asks = Npu(tmp_path, [patterns.qconv2d_add(requantize=True)])
    library = assert_equal_to_the_cpu(module, asks, tmp_path, **given_)
    assert {row.where for row in library.report.placements} == {asks.target_name}


def test_a_result_that_is_used_elsewhere_too_is_not_fused(tmp_path: Path) -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        convolution = b.emit(conv(x))
        return [summed(convolution, y, "left"), convolution]

    module, npu = network(build, SHAPE, SHAPE), residual_npu(tmp_path)
    given_ = {"x": integers(2, *SHAPE), "y": integers(2, *SHAPE)}
    library = assert_equal_to_the_cpu(module, npu, tmp_path, **given_)
    assert fused(library) == 0
    assert {row.where for row in library.report.placements} == {npu.target_name}
    _, total = placements(module, Npu(tmp_path, [patterns.qconv2d_add(), patterns.qconv2d()]))
    assert total.reason == "qconv2d_add: a result inside the pattern is used elsewhere too"


def test_sums_run_inside_a_tvm_process(tmp_path: Path) -> None:
    def build(b: Any, x: Any) -> Any:
        total = b.emit(summed(x, b.emit(conv(x)), "right"))
        return relax.op.bitwise_not(total)

    module, npu = network(build, SHAPE), residual_npu(tmp_path, blocked=True)
    npu.register()
    generated = tvm_api.relax_transform.RunCodegen()(npu.partition(module))
    x = integers(*SHAPE)
    got = tvm_api.llvm_executable(generated)["main"](tvm_api.to_device(x)).numpy()
    np.testing.assert_array_equal(got, *results(module, [], tmp_path, x=x))


# --- refusals -----------------------------------------------------------------------------------

WIDE = (1, 6, 5, 12)


def sum_of(
    right: tuple[int, ...] = SHAPE, dtype: str = "int8", of: str = "left", **values: Any
) -> Any:
    """conv(x) + y."""

    def build(b: Any, x: Any, y: Any) -> Any:
        return summed(b.emit(conv(x)), y, of, **values)

    builder = relax.BlockBuilder()
    x, y = (
        relax.Var(name, relax.TensorType(list(shape), kind))
        for name, shape, kind in (("x", SHAPE, "int8"), ("y", right, dtype))
    )
    with builder.function("main", [x, y]):
        with builder.dataflow():
            output = builder.emit_output(build(builder, x, y))
        builder.emit_func_output(output)
    return builder.get()


def depthwise(b: Any, x: Any, y: Any) -> Any:
    return summed(b.emit(conv(x, groups=8)), y, "left")


def doubled(b: Any, x: Any, y: Any) -> Any:
    convolution = b.emit(conv(x))
    return summed(convolution, convolution, "left right")


def refused(message: str, module: Any, **options: Any) -> tuple[str, Any, Any]:
    return message, module, patterns.qconv2d_add(**options)


REFUSED = [
    refused("kernel 3x3: the accelerator has 1x1", sum_of(), kernels=1),
    refused("rounding tflm: the accelerator rounds as ort", sum_of(), rounding="ort"),
    refused("layout NHWC: the accelerator reads NCHW", sum_of(), layouts="NCHW"),
    refused(
        "shapes 1x6x5x8 and 1x1x1x8: the accelerator adds equal ones", sum_of((1, 1, 1, 8))
    ),
    refused("int8 and uint8 make int8: the accelerator adds equal ones", sum_of(dtype="uint8")),
    refused(
        "int8 and int8 make uint8: the accelerator adds equal ones",
        sum_of(output_dtype="uint8", clip=(0, 255)),
    ),
    refused("rounding tflm, and ort of the sum", sum_of(rounding="ort"), rounding=None),
    refused(
        "zero point 3 of its result, which the addition takes for 5", sum_of(of="neither")
    ),
    refused(
        "a depthwise convolution, 8 groups of one channel",
        network(depthwise, SHAPE, SHAPE), groups=None,
    ),
    refused(
        "its result is added to itself: the accelerator adds another tensor",
        network(doubled, SHAPE, SHAPE),
    ),
    refused("240 bytes: none are left", sum_of(),
            predicate=lambda layer: f"{layer.operand_bytes['addend']} bytes: none are left"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "module", "pattern"), REFUSED, ids=[message[:40] for message, _, _ in REFUSED]
)
def test_a_refused_sum_says_why_and_its_convolution_is_taken_alone(
    message: str, module: Any, pattern: Any, tmp_path: Path
) -> None:
    convolution, total = placements(module, Npu(tmp_path, [pattern]))
    assert [convolution.where, total.where] == ["cpu", "cpu"]
    assert total.reason == convolution.reason == f"qconv2d_add: {message}"
    alone = Npu(tmp_path, [pattern, patterns.qconv2d(groups=None), patterns.qdepthwise()])
    convolution, total = placements(module, alone)
    assert (convolution.where, total.where) == (alone.target_name, "cpu")
    assert total.reason == f"qconv2d_add: {message}"


def test_the_convolution_is_told_its_own_reason_only(tmp_path: Path) -> None:
    both = Npu(tmp_path, [patterns.qconv2d_add(kernels=5), patterns.qconv2d(kernels=1)])
    convolution, total = placements(sum_of(), both)
    assert convolution.reason == "kernel 3x3: the accelerator has 1x1"
    assert total.reason == "qconv2d_add: kernel 3x3: the accelerator has 5x5"


def test_a_sum_without_a_convolution_has_no_pattern(tmp_path: Path) -> None:
    module = network(lambda b, x, y: add(x, y, SHAPE), SHAPE, SHAPE)
    (row,) = placements(module, Npu(tmp_path, [patterns.qconv2d_add()]))
    assert row.reason == "no pattern covers quantized.add"


# --- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_a_backend_is_told(side: str, tmp_path: Path) -> None:
    """In a predicate, a strategy and a TIR pass; the convolution is always on the left."""
    seen: list[Any] = []

    def build(b: Any, x: Any, y: Any) -> Any:
        convolution = b.emit(conv(x, 12))
        operands = (convolution, y) if side == "left" else (y, convolution)
        return summed(*operands, side, clip=(-20, 90), output_zero_point=-2)

    def predicate(layer: Any) -> bool:
        seen.append(layer)
        return True

    def note(function: Any) -> Any:
        seen.append(patterns.parameters_of(function))
        assert [p.name for p in function.params][:3] == ["data", "addend", "weights"]
        return function

    module = network(build, SHAPE, WIDE)
    options: dict[str, Any] = {"weight_layout": BLOCKED, "fold_zero_point": True}
    npu = Npu(tmp_path, [patterns.qconv2d_add(predicate=predicate, **options)])
    npu._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("note", note))
    compiled(module, [npu], tmp_path)
    assert len(seen) == 2 and seen[0] == seen[1]
    layer = seen[1]
    assert isinstance(layer, patterns.QConv2dAdd) and isinstance(layer, patterns.QConv2d)
    (original,) = (
        Add.of(b.value)
        for b in tvm_api.bindings_of(module["main"])
        if tvm_api.operator_name(b.value) == "quantized.add"
    )
    order = (0, 1, 2) if side == "left" else (1, 0, 2)
    assert layer.addition.zero_points == (3, 5)
    assert layer.addition.multipliers == tuple(original.multipliers[i] for i in order)
    assert layer.addition.shifts == tuple(original.shifts[i] for i in order)
    assert (layer.output_zero_point, layer.clip) == (3, (-128, 127))
    assert (layer.addition.output_zero_point, layer.addition.clip) == (-2, (-20, 90))
    assert layer.operand_shapes == {
        "data": SHAPE, "addend": WIDE, "weights": (2, 3, 3, 8, 8), "bias": (16,),
        "multipliers": (16,), "shifts": (16,), "result": WIDE,
    }  # fmt: skip
    assert list(layer.operand_shapes) == list(layer.POINTERS) == list(layer.pointer_types)
    assert layer.operand_bytes["addend"] == layer.operand_bytes["result"] == 6 * 5 * 12
    shapes = {name: array.shape for name, array in layer.stored_arrays().items()}
    assert shapes == layer.stored_shapes
    multipliers, shifts = layer.addition.multipliers, layer.addition.shifts
    plain = example_scalars(patterns.qconv2d())
    assert list(layer.scalars)[: len(plain)] == plain
    assert dict(list(layer.scalars.items())[len(plain) :]) == {
        "add_left_shift": 20, "convolution_multiplier": multipliers[0],
        "convolution_shift": shifts[0], "addend_zero_point": 5,
        "addend_multiplier": multipliers[1], "addend_shift": shifts[1],
        "sum_multiplier": multipliers[2], "sum_shift": shifts[2], "sum_zero_point": -2,
        "sum_lowest": -20, "sum_highest": 90,
    }  # fmt: skip


def example_scalars(pattern: patterns.OperatorPattern) -> list[str]:
    """Names of the integers that a driver gets."""
    return re.findall(r"int32_t (\w+)[,)]", patterns.c_declaration("f", pattern))


def test_a_second_change_of_scale_has_the_last_arguments() -> None:
    scalars = example_scalars(patterns.qconv2d_add(requantize=True))
    assert scalars[-7:-5] == ["sum_highest", "then_multiplier"]
    assert scalars[-1] == "then_highest" and len(set(scalars)) == len(scalars)


def test_a_strategy_of_convolutions_is_not_asked(tmp_path: Path) -> None:
    """The composite is one operator of its own, of which a strategy may be registered."""
    seen: list[Any] = []

    def of_convolutions(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        raise AssertionError

    def of_sums(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        seen.append(patterns.parameters_of(attrs))
        chosen = OpStrategy()
        chosen.add_implementation(lambda attrs, inputs, out_type: tvm_api.te.compute(
            SHAPE, lambda *i: inputs[1][i], name="addend"
        ))  # fmt: skip
        return chosen

    npu = Npu(tmp_path, [patterns.qconv2d_add()])
    npu._register_operator_strategy("quantized.conv2d", of_convolutions)
    npu._register_operator_strategy("quantized.conv2d_add", of_sums)
    y = integers(2, *SHAPE)
    (got,) = results(sum_of(), [npu], tmp_path, x=integers(2, *SHAPE), y=y)
    np.testing.assert_array_equal(got, y)
    (layer,) = seen
    assert layer.addition.left_shift == 20 and layer.weights is None


def test_a_pass_that_takes_the_composite_apart_is_told(tmp_path: Path) -> None:
    """A pass between partitioning and lowering may leave what no driver call stands for."""

    def without_sum(module: Any, context: Any) -> Any:
        for variable, function in tvm_api.relax_functions(module):
            if tvm_api.function_attribute(function, "Composite") is None:
                continue
            first = next(iter(tvm_api.bindings_of(function)))
            builder = relax.BlockBuilder()
            with builder.function("composite", list(function.params)):
                with builder.dataflow():
                    result = builder.emit_output(first.value)
                builder.emit_func_output(result)
            made = builder.get()["composite"].with_attrs(dict(function.attrs))
            module.update_func(variable, made.without_attr("global_symbol"))
        return module

    npu = Npu(tmp_path, [patterns.qconv2d_add()])
    change = tvm_api.tvm.ir.transform.module_pass(without_sum, opt_level=0, name="without_sum")
    npu._register_relax_pass(PassPhase.POST_PARTITIONING_1, change)
    with pytest.raises(LoweringError, match="as qconv2d_add matches it"):
        compiled(sum_of(), [npu], tmp_path)


# --- uma diff -----------------------------------------------------------------------------------


def test_diff_compares_behind_the_sum(tmp_path: Path) -> None:
    path = trained_model(RESNET)
    assert diff_model(path, [residual_npu(tmp_path)], most=1).agrees
    error = ("added(sum_of, (int8_t)sum, addend[place])",
             "added(sum_of, (int8_t)sum, addend[calls == 6 ? place ^ 1 : place])")  # fmt: skip
    result = diff_model(path, [planted(residual_npu(tmp_path), error)], most=1)
    names = ["model/conv2d_5/BiasAdd", "model/activation_4/Relu"]
    assert blamed(result) == names and wrong_layers(result) == [" + ".join(names)]
    assert result.blame is not None
    operators = [operator.operator for operator in result.blame.operators]
    assert operators == ["quantized.conv2d", "quantized.add"]
