# SPDX-License-Identifier: Apache-2.0
"""All of TensorFlow Lite Micro's operators with all dtypes, which `dtype_sweep` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from tflite_cases import INFERENCES, Case, Tensor, of

from umakit.operators.tflite import CONVERSIONS

DTYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
SCALED = {"int8": 3, "uint8": 130, "int16": 0}
"""Zero points of dtypes that have scales."""

RESULTS = {
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "L2_NORMALIZATION": {"int8": (1 / 128, 0)},
    "LOG_SOFTMAX": {"int8": (1 / 16, 127)},
    "RSQRT": {"int8": (0.1, -128)},
}
"""Scales and zero points that kernels want of their result."""

Draw = Callable[..., Tensor]
"""(shape) -> tensor of the dtype that is tried."""


def drawn(dtype: str) -> Draw:
    def tensor(*shape: int) -> Tensor:
        return Tensor(shape, dtype, 0.125 if dtype in SCALED else 0.0, SCALED.get(dtype, 0))

    return tensor


def constant(tensor: Tensor, seed: int = 0) -> Tensor:
    random = np.random.default_rng(seed)
    values = random.integers(0, 2 if tensor.dtype == "bool" else 9, tensor.shape)
    return replace(tensor, values=values.astype(tensor.dtype), constant=True)


def flag(*shape: int) -> Tensor:
    return Tensor(shape, "bool")


def one(code: str, options: str = "", **values: object) -> Callable[[Draw], Case]:
    return lambda x: Case(code, [x(2, 3, 4)], [x(2, 3, 4)], options, values)


def two(code: str, options: str = "") -> Callable[[Draw], Case]:
    return lambda x: Case(code, [x(2, 3, 4), x(1, 3, 4)], [x(2, 3, 4)], options)


def compared(code: str, options: str) -> Callable[[Draw], Case]:
    return lambda x: Case(code, [x(2, 3), x(2, 3)], [flag(2, 3)], options)


def reduced(code: str) -> Callable[[Draw], Case]:
    return lambda x: Case(code, [x(2, 3, 4), of([1])], [x(2, 4)], "ReducerOptions")


def image(code: str, options: str, **values: object) -> Callable[[Draw], Case]:
    facts = {"StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2, **values}
    return lambda x: Case(code, [x(1, 4, 4, 2)], [x(1, 4, 4, 2)], options, facts)


ROWS = Tensor((2,), "int32", values=np.tile(np.array([1, 0], np.int32), (INFERENCES, 1)))
"""An input of the positions of rows, the same in each inference."""

CASES: dict[str, Callable[[Draw], Case]] = {
    **{code: one(code) for code in (
        "CEIL COS EXP FLOOR LOG LOGICAL_NOT NEG RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 ROUND RSQRT "
        "SIN SQRT SQUARE LOGISTIC TANH ELU HARD_SWISH"
    ).split()},
    "ABS": one("ABS", "AbsOptions"),
    "LEAKY_RELU": one("LEAKY_RELU", "LeakyReluOptions", Alpha=0.5),
    "SOFTMAX": one("SOFTMAX", "SoftmaxOptions", Beta=1.0),
    "LOG_SOFTMAX": one("LOG_SOFTMAX", "LogSoftmaxOptions"),
    "L2_NORMALIZATION": one("L2_NORMALIZATION", "L2NormOptions"),
    "ZEROS_LIKE": one("ZEROS_LIKE", "ZerosLikeOptions"),
    "CAST": one("CAST", "CastOptions"),
    "ADD": two("ADD", "AddOptions"), "SUB": two("SUB", "SubOptions"),
    "MUL": two("MUL", "MulOptions"), "DIV": two("DIV", "DivOptions"),
    "MAXIMUM": two("MAXIMUM"), "MINIMUM": two("MINIMUM"),
    "SQUARED_DIFFERENCE": two("SQUARED_DIFFERENCE"),
    "FLOOR_DIV": two("FLOOR_DIV", "FloorDivOptions"),
    "FLOOR_MOD": two("FLOOR_MOD", "FloorModOptions"),
    "LOGICAL_AND": two("LOGICAL_AND"), "LOGICAL_OR": two("LOGICAL_OR"),
    "EQUAL": compared("EQUAL", "EqualOptions"),
    "NOT_EQUAL": compared("NOT_EQUAL", "NotEqualOptions"),
    "GREATER": compared("GREATER", "GreaterOptions"),
    "GREATER_EQUAL": compared("GREATER_EQUAL", "GreaterEqualOptions"),
    "LESS": compared("LESS", "LessOptions"),
    "LESS_EQUAL": compared("LESS_EQUAL", "LessEqualOptions"),
    **{code: reduced(code) for code in (
        "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL"
    )},
    "AVERAGE_POOL_2D": image("AVERAGE_POOL_2D", "Pool2DOptions"),
    "MAX_POOL_2D": image("MAX_POOL_2D", "Pool2DOptions"),
    "L2_POOL_2D": image("L2_POOL_2D", "Pool2DOptions"),
    "ADD_N": lambda x: Case("ADD_N", [x(3), x(3), x(3)], [x(3)], "AddNOptions"),
    "ARG_MAX": lambda x: Case("ARG_MAX", [x(2, 5), of([1])], [Tensor((2,), "int32")],
                              "ArgMaxOptions", {"OutputType": 2}),
    "ARG_MIN": lambda x: Case("ARG_MIN", [x(2, 5), of([1])], [Tensor((2,), "int32")],
                              "ArgMinOptions", {"OutputType": 2}),
    "BATCH_MATMUL": lambda x: Case("BATCH_MATMUL", [x(2, 3, 4), x(2, 4, 5)], [x(2, 3, 5)],
                                   "BatchMatMulOptions"),
    "BATCH_TO_SPACE_ND": lambda x: Case("BATCH_TO_SPACE_ND", [x(4, 1, 1, 3), of([2, 2]),
                                                              of([[0, 0], [0, 0]])],
                                        [x(1, 2, 2, 3)]),
    "SPACE_TO_BATCH_ND": lambda x: Case("SPACE_TO_BATCH_ND", [x(1, 2, 2, 3), of([2, 2]),
                                                              of([[0, 0], [0, 0]])],
                                        [x(4, 1, 1, 3)]),
    "BROADCAST_TO": lambda x: Case("BROADCAST_TO", [x(1, 3), of([2, 3])], [x(2, 3)],
                                   "BroadcastToOptions"),
    "CONCATENATION": lambda x: Case("CONCATENATION", [x(2, 3), x(2, 3)], [x(4, 3)],
                                    "ConcatenationOptions"),
    "CUMSUM": lambda x: Case("CUMSUM", [x(2, 3), of([1])], [x(2, 3)], "CumsumOptions"),
    "DEPTH_TO_SPACE": lambda x: Case("DEPTH_TO_SPACE", [x(1, 2, 2, 4)], [x(1, 4, 4, 1)],
                                     "DepthToSpaceOptions", {"BlockSize": 2}),
    "SPACE_TO_DEPTH": lambda x: Case("SPACE_TO_DEPTH", [x(1, 4, 4, 1)], [x(1, 2, 2, 4)],
                                     "SpaceToDepthOptions", {"BlockSize": 2}),
    "DEQUANTIZE": lambda x: Case("DEQUANTIZE", [x(2, 3)], [Tensor((2, 3))], "DequantizeOptions"),
    "QUANTIZE": lambda x: Case("QUANTIZE", [Tensor((2, 3))], [x(2, 3)], "QuantizeOptions"),
    "EXPAND_DIMS": lambda x: Case("EXPAND_DIMS", [x(2, 3), of([0])], [x(1, 2, 3)],
                                  "ExpandDimsOptions"),
    "FILL": lambda x: Case("FILL", [of([2, 3]), x()], [x(2, 3)], "FillOptions"),
    "GATHER": lambda x: Case("GATHER", [x(4, 3), of([2, 0])], [x(2, 3)], "GatherOptions"),
    "GATHER_ND": lambda x: Case("GATHER_ND", [x(4, 3), of([[2, 0]])], [x(1)]),
    "MIRROR_PAD": lambda x: Case("MIRROR_PAD", [x(3, 3), of([[1, 1], [0, 2]])], [x(5, 5)],
                                 "MirrorPadOptions"),
    "PACK": lambda x: Case("PACK", [x(2, 3), x(2, 3)], [x(2, 2, 3)], "PackOptions",
                           {"ValuesCount": 2}),
    "PAD": lambda x: Case("PAD", [x(2, 3), of([[1, 0], [0, 1]])], [x(3, 4)]),
    "PADV2": lambda x: Case("PADV2", [x(2, 3), of([[1, 0], [0, 1]]), constant(x(1))], [x(3, 4)]),
    "PRELU": lambda x: Case("PRELU", [x(2, 3), constant(x(1, 3))], [x(2, 3)]),
    "RESHAPE": lambda x: Case("RESHAPE", [x(2, 3), of([6])], [x(6)], "ReshapeOptions"),
    "RESIZE_BILINEAR": lambda x: Case("RESIZE_BILINEAR", [x(1, 2, 2, 3), of([4, 4])],
                                      [x(1, 4, 4, 3)], "ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": lambda x: Case("RESIZE_NEAREST_NEIGHBOR",
                                              [x(1, 2, 2, 3), of([4, 4])], [x(1, 4, 4, 3)],
                                              "ResizeNearestNeighborOptions"),
    "REVERSE_V2": lambda x: Case("REVERSE_V2", [x(2, 3), of([1])], [x(2, 3)], "ReverseV2Options"),
    "SELECT_V2": lambda x: Case("SELECT_V2", [flag(2, 3), x(2, 3), x(2, 3)], [x(2, 3)]),
    "SHAPE": lambda x: Case("SHAPE", [x(2, 3)], [Tensor((2,), "int32")], "ShapeOptions",
                            {"OutType": 2}),
    "SLICE": lambda x: Case("SLICE", [x(2, 3), of([0, 1]), of([2, 2])], [x(2, 2)]),
    "SPLIT": lambda x: Case("SPLIT", [of(1), x(2, 4)], [x(2, 2), x(2, 2)], "SplitOptions",
                            {"NumSplits": 2}),
    "SPLIT_V": lambda x: Case("SPLIT_V", [x(2, 4), of([1, 3]), of(1)], [x(2, 1), x(2, 3)],
                              "SplitVOptions", {"NumSplits": 2}),
    "SQUEEZE": lambda x: Case("SQUEEZE", [x(1, 3)], [x(3)], "SqueezeOptions"),
    "STRIDED_SLICE": lambda x: Case("STRIDED_SLICE", [x(2, 4), of([0, 1]), of([2, 4]), of([1, 2])],
                                    [x(2, 2)], "StridedSliceOptions"),
    "TRANSPOSE": lambda x: Case("TRANSPOSE", [x(2, 3), of([1, 0])], [x(3, 2)]),
    "UNPACK": lambda x: Case("UNPACK", [x(2, 3)], [x(3), x(3)], "UnpackOptions", {"Num": 2}),
    "EMBEDDING_LOOKUP": lambda x: Case("EMBEDDING_LOOKUP", [ROWS, constant(x(3, 4))], [x(2, 4)]),
    "DYNAMIC_UPDATE_SLICE": lambda x: Case("DYNAMIC_UPDATE_SLICE", [x(3, 4), x(1, 4), of([1, 0])],
                                           [x(3, 4)]),
}  # fmt: skip


def candidates() -> Iterator[tuple[str, str, Case]]:
    for code, make in CASES.items():
        for dtype in DTYPES:
            case = make(drawn(dtype))
            if dtype in RESULTS.get(code, {}):
                scale, zero_point = RESULTS[code][dtype]
                (result,) = case.results
                case = replace(case, results=[replace(result, scale=scale, zero_point=zero_point)])
            if code == "LOGISTIC" and dtype == "int16":
                case = replace(case, inputs=[replace(case.inputs[0], scale=1 / 8192)])
            if code == "DIV" and dtype == "int8":
                case = replace(case, inputs=[replace(case.inputs[0], scale=9.0), case.inputs[1]])
            yield code, dtype, positive(case)


def positive(case: Case) -> Case:
    """The case with numbers above 0, where the operator takes no others."""
    if case.code not in ("LOG", "SQRT", "RSQRT", "DIV", "FLOOR_DIV", "FLOOR_MOD", "CAST"):
        return case
    random, inputs = np.random.default_rng(3), []
    for tensor in case.inputs:
        least = SCALED.get(tensor.dtype, 0) + 1
        most = 250 if tensor.dtype == "uint8" else 120
        values = random.integers(least, most, (INFERENCES, *tensor.shape)).astype(tensor.dtype)
        inputs.append(replace(tensor, values=values))
    return replace(case, inputs=inputs)


def test_every_registered_operator_is_swept_or_has_tests_of_its_own() -> None:
    others = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in others)
    missing = [code for code in {*CONVERSIONS} - {*CASES} if f'"{code}"' not in text]
    assert not missing, "draw them here, or test all their dtypes in a test of the operator"
