# SPDX-License-Identifier: Apache-2.0
"""Operators of Relax that read or write at positions from a tensor: NumPy says what is right, and
every position beyond any one dimension ends the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import SANITIZED

import umakit
from umakit import tvm_api
from umakit.devices import build
from umakit.errors import DeviceError, LoweringError, ModelError
from umakit.lower.cpu import all_legalizations

Array = npt.NDArray[Any]
relax, op = tvm_api.relax, tvm_api.relax.op
DATA = np.arange(1, 25, dtype="float32").reshape(2, 3, 4)
ROWS = np.random.default_rng(3).standard_normal((3, 4)).astype("float32")


@dataclass(frozen=True)
class Case:
    """One operator.

    Attributes:
        build: from the operands to the call.
        operands: the last group of them are indices.
        indices: number of operands, counted from the second, that are indices.
        oracle: from the operands to the result.
        sizes: what each tensor of indices, or each place of its last axis, is for.
        negative: whether indices may count from the end.
    """

    build: Callable[..., Any]
    operands: tuple[Array, ...]
    indices: int
    oracle: Callable[..., Array]
    sizes: tuple[int, ...]
    negative: bool = False


def put(data: Array, *others: Array, add: bool = False) -> Array:
    *indices, values = others
    result = data.copy()
    if add:
        np.add.at(result, tuple(indices), values)
    else:
        result[tuple(indices)] = values
    return result


def added(data: Array, indices: Array, slices: Array, axis: int) -> Array:
    """The gradient of `take`, whose operands are in another order."""
    result = np.zeros_like(data)
    for number, index in enumerate(indices):
        place: list[Any] = [slice(None)] * data.ndim
        place[axis] = index
        result[tuple(place)] += np.take(slices, number, axis)
    return result


def scattered(data: Array, indices: Array, updates: Array) -> Array:
    result = data.copy()
    np.put_along_axis(result, indices, updates, 1)
    return result


def integers(*values: Any, dtype: str = "int64") -> Array:
    return np.array(values, dtype)


UP, ACROSS = integers([0], [1]), integers(2, 0, 1)
CHECKED: dict[str, Case] = {
    "index_put": Case(
        lambda x, i, j, k, v: op.index_put(x, relax.Tuple([i, j, k]), v),
        (DATA, UP, ACROSS, integers(3, -1, 0), DATA[:, :, 1] + 50), 3, put, (2, 3, 4), True,
    ),
    "index_put_added": Case(
        lambda x, i, j, v: op.index_put(x, relax.Tuple([i, j]), v, accumulate=True),
        (ROWS, integers(0, -1, 0, dtype="int32"), integers(1, 3, 1, dtype="int32"),
         ROWS[0, :3]), 2, lambda *given: put(*given, add=True), (3, 4), True,
    ),
    "index_tensor": Case(
        lambda x, i, j: op.index_tensor(x, [i, j]),
        (DATA, UP, integers(2, 0, -3)), 2, lambda x, i, j: x[i, j], (2, 3), True,
    ),
    "take": Case(
        lambda x, i: op.take(x, i, axis=1), (DATA, integers([2, 0], [1, 2])), 1,
        lambda x, i: np.take(x, i, 1), (3,),
    ),
    "gather_elements": Case(
        lambda x, i: op.gather_elements(x, i, 1), (ROWS, integers([3, 0], [1, 1], [2, 3])), 1,
        lambda x, i: np.take_along_axis(x, i, 1), (4,),
    ),
    "gather_nd": Case(
        lambda x, i: op.gather_nd(x, i), (DATA, integers([1, 2], [0, 0])), 1,
        lambda x, i: x[tuple(i.T)], (2, 3),
    ),
    "scatter_elements": Case(
        lambda x, i, v: op.scatter_elements(x, i, v, 1),
        (ROWS, integers([3, 0], [1, -2], [2, 3]), ROWS[:, :2] + 9), 1, scattered, (4,), True,
    ),
    "scatter_nd": Case(
        lambda x, i, v: op.scatter_nd(x, i, v),
        (DATA, integers([1, 2], [0, 0]), DATA[0, :2] + 30), 1,
        lambda x, i, v: put(x, *i.T, v), (2, 3),
    ),
    "grad.take_backward": Case(
        lambda x, i, g: op.grad.take_backward(g, x, i, 1),
        (ROWS, integers(3, 0, 3), ROWS[:, :3]), 1, lambda x, i, g: added(x, i, g, 1), (4,),
    ),
    "nn.nll_loss": Case(
        lambda x, i, w: op.nn.nll_loss(x, i, w, "none", -100),
        (ROWS, integers(3, 0, 1), ROWS[0]), 1,
        lambda x, i, w: -x[np.arange(3), i] * w[i], (4,),
    ),
    "grad.nll_loss_backward": Case(
        lambda x, i, w: op.grad.nll_loss_backward(op.take(x, relax.const(0), 1), x, i, w, "none"),
        (ROWS, integers(3, 0, 1), ROWS[0]), 1,
        lambda x, i, w: (i[:, None] == np.arange(4)) * -(w[i] * x[:, 0])[:, None], (4,),
    ),
}  # fmt: skip
"""By operator of Relax, and a word that tells two cases of one apart."""

WITHOUT_STATUS = {
    "argsort": "a heap of positions that it has written itself: tests/test_ordering.py",
    "bucketize": "a search that stays inside of the boundaries, whatever their order",
    "image.grid_sample": "pads: tests/test_sampling.py",
    "one_hot": "an index beyond the depth has a row without any `on` value (as in ONNX)",
    "reverse_sequence": "no position from it; lengths beyond the axis have the axis' length",
    "recurrent": "steps beyond the length of a sequence: tests/test_onnx_operator_rnn.py",
    "resample": "its positions are made of constants",
    "roi_pool": "umakit's own for ONNX: tests/test_onnx_roi_align.py",
    "slice_scatter": "its limits are constants",
    "sort": "a heap of positions that it has written itself: tests/test_ordering.py",
    "topk": "a heap of positions that it has written itself: tests/test_ordering.py",
    "vision.roi_align": "the number of an image is checked: tests/test_sampling.py",
    "vision.roi_pool": "the number of an image is checked: tests/test_sampling.py",
    "vision.multibox_transform_loc": "indices come from the operator itself",
    "vision.get_valid_counts": "indices come from the operator itself",
}
"""Operators with a tensor that positions may come from, and why no case above is of them."""

REFUSED = (
    "dynamic_strided_slice vision.all_class_non_max_suppression vision.non_max_suppression"
).split()
"""Sizes that depend on data, and calls of TVM's runtime."""

WITHOUT_POSITIONS = frozenset(
    """
abs acos acosh add arange argmax argmin asin asinh astype atan atan2 atanh bitwise_and bitwise_not
bitwise_or bitwise_xor broadcast_to ccl.allgather ccl.allreduce ccl.broadcast_from_worker0
ccl.scatter_from_worker0 ceil clip collapse_sum_like collapse_sum_to concat cos cosh cumprod cumsum
dequantize
dist.redistribute_replica_to_shard divide einsum equal erf exp expand_dims eye eye_like flatten flip
floor floor_divide floor_mod full full_like grad.avg_pool2d_backward grad.end_checkpoint
grad.max_pool2d_backward grad.no_grad grad.start_checkpoint greater greater_equal hamming_window
image.affine_grid image.resize2d image.resize3d inspect.tensor_byte_offset inspect.tensor_dtype_bits
inspect.tensor_dtype_code inspect.tensor_dtype_lanes inspect.tensor_elem_offset inspect.tensor_ndim
inspect.tensor_shape_i inspect.tensor_stride_i isfinite isinf isnan layout_transform left_shift less
less_equal log log_add_exp logical_and logical_not logical_or logical_xor matmul max maximum mean
median meshgrid min minimum mod multiply negative nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d
nn.adaptive_avg_pool3d nn.attention nn.attention_bias nn.attention_var_len nn.avg_pool1d
nn.avg_pool2d nn.avg_pool3d nn.batch_flatten nn.batch_norm nn.conv1d nn.conv1d_transpose nn.conv2d
nn.conv2d_transpose nn.conv3d nn.conv3d_transpose nn.cross_entropy_with_logits nn.dropout nn.gelu
nn.gelu_tanh nn.group_norm nn.instance_norm nn.layer_norm nn.leakyrelu nn.log_softmax nn.max_pool1d
nn.max_pool2d nn.max_pool3d nn.pad nn.pixel_shuffle nn.prelu nn.relu nn.rms_norm nn.selu nn.silu
nn.softmax nn.softplus not_equal ones ones_like outer permute_dims power prod quantize repeat
reshape right_shift round rsqrt shape_to_tensor sigmoid sign sin sinh size split sqrt square
squeeze stack std strided_slice subtract sum tan tanh tile tril triu trunc variance where zeros
zeros_like
""".split()
)
"""Operators that TVM or umakit can lower, and whose operands are not positions."""


def test_every_operator_of_relax_is_decided_about() -> None:
    by_tvm = [
        name
        for name in tvm_api.Op.list_op_names()
        if name.startswith("relax.") and tvm_api.legalization(name)
    ]
    can_be_lowered = {
        name.removeprefix("relax.")
        for name in (*by_tvm, *all_legalizations())
        if not name.startswith("relax.quantized.")
    }
    decided = {name.removesuffix("_added") for name in CHECKED} | {*WITHOUT_STATUS, *REFUSED}
    assert can_be_lowered - decided - WITHOUT_POSITIONS == set()
    assert (decided | WITHOUT_POSITIONS) - can_be_lowered == set()


def module_of(calls: dict[str, Callable[..., Any]], operands: dict[str, tuple[Array, ...]]) -> Any:
    """A module with a call for each name, beside each other."""
    builder, inputs = relax.BlockBuilder(), {}
    for name, arrays in operands.items():
        inputs[name] = [
            relax.Var(f"{name}_{n}".replace(".", "_"), relax.TensorType(a.shape, str(a.dtype)))
            for n, a in enumerate(arrays)
        ]
    with builder.function("main", [v for variables in inputs.values() for v in variables]):
        with builder.dataflow():
            results = [
                builder.emit(call(*inputs[name]), name.replace(".", "_"))
                for name, call in calls.items()
            ]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def fed(operands: dict[str, tuple[Array, ...]]) -> dict[str, Array]:
    return {
        f"{name}_{number}".replace(".", "_"): array
        for name, arrays in operands.items()
        for number, array in enumerate(arrays)
    }


def test_every_position_is_inside_of_its_dimension_or_named(tmp_path: Path) -> None:
    operands = {name: case.operands for name, case in CHECKED.items()}
    module = module_of({name: case.build for name, case in CHECKED.items()}, operands)
    library = umakit.compile_model(module, [], tmp_path / "library")
    with mock.patch.object(build, "FLAGS", SANITIZED):
        outputs = umakit.run_library(library.path, fed(operands)).outputs
        for got, case in zip(outputs.values(), CHECKED.values(), strict=True):
            np.testing.assert_allclose(got, case.oracle(*case.operands), rtol=1e-6)
        for name, case in CHECKED.items():
            for number, size in enumerate(case.sizes):
                for wrong in (size, -size - 1 if case.negative else -1, 2**31 - 1, 2**62):
                    arrays = [array.copy() for array in case.operands]
                    place = min(number, case.indices - 1)
                    chosen = arrays[1 + place]
                    if wrong > np.iinfo(chosen.dtype).max:
                        continue
                    several = case.indices == 1 and len(case.sizes) > 1
                    chosen[(0, number) if several else (0,) * chosen.ndim] = wrong
                    with pytest.raises(DeviceError, match="an index is out of range") as error:
                        inputs = fed({**operands, name: tuple(arrays)})
                        umakit.run_library(library.path, inputs)
                    assert f", {name.replace('.', '_')} (" in str(error.value), (name, wrong)


@pytest.mark.parametrize("name", [name for name in CHECKED if "nll_loss" not in name])
def test_constant_positions_outside_are_refused(name: str, tmp_path: Path) -> None:
    case = CHECKED[name]
    indices = [array.copy() for array in case.operands[1 : 1 + case.indices]]
    indices[-1][(-1,) * indices[-1].ndim] = case.sizes[-1]
    data, *others = case.operands[0], *case.operands[1 + case.indices :]

    def call(data: Any, *others: Any) -> Any:
        return case.build(
            data, *(relax.const(array, str(array.dtype)) for array in indices), *others
        )

    module = module_of({name: call}, {name: (data, *others)})
    with pytest.raises((ModelError, LoweringError), match="out of range"):
        umakit.compile_model(module, [], tmp_path / "library")
    assert not (tmp_path / "library").exists()


@pytest.mark.parametrize(("start", "end", "step"), [(0, 2, 1), (3, 4, 1), (0, 4, 2), (1, 4, 3)])
def test_slices_are_replaced(tmp_path: Path, start: int, end: int, step: int) -> None:
    expected = ROWS.copy()
    values = expected[:, start:end:step] + 5
    expected[:, start:end:step] = values
    module = module_of(
        {"slices": lambda x, v: op.slice_scatter(x, v, start, end, step, 1)},
        {"slices": (ROWS, values)},
    )
    library = umakit.compile_model(module, [], tmp_path / "library")
    with mock.patch.object(build, "FLAGS", SANITIZED):
        outputs = umakit.run_library(library.path, fed({"slices": (ROWS, values)})).outputs
    np.testing.assert_array_equal(next(iter(outputs.values())), expected)


def narrow_cases(dtype: str, size: int) -> dict[str, Case]:
    """Cases with indices of one dtype into an axis of a size, its first and last element among
    what they choose, or as much of it as the dtype holds."""
    data = np.random.default_rng(size).standard_normal((2, size)).astype("float32")
    limits = np.iinfo(dtype)
    last, first = min(size - 1, int(limits.max)), max(-size, int(limits.min))
    row, rows = integers(0, last, dtype=dtype), integers([first, last], [1, 2], dtype=dtype)
    cases = {
        "take": Case(
            lambda x, i: op.take(x, i, 1), (data, row), 1, lambda x, i: np.take(x, i, 1), (size,)
        ),
        "scatter_elements": Case(
            lambda x, i, v: op.scatter_elements(x, i, v, 1),
            (data, rows, data[:, 2:4]), 1, scattered, (size,), True,
        ),
    }  # fmt: skip
    if dtype.startswith("int"):  # Relax takes no others
        cases["gather_elements"] = Case(
            lambda x, i: op.gather_elements(x, i, 1),
            (data, abs(rows // 2)), 1, lambda x, i: np.take_along_axis(x, i, 1), (size,),
        )  # fmt: skip
        cases["index_tensor"] = Case(
            lambda x, i: op.index_tensor(x, [i]), (data.T, rows), 1, lambda x, i: x[i], (size,),
            True,
        )  # fmt: skip
    return cases


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_indices_of_few_bits(dtype: str, tmp_path: Path) -> None:
    """Sizes that the dtype of the indices holds, and such that it does not."""
    cases = {
        f"{name}_{size}": case
        for size in (5, 200, 300)
        for name, case in narrow_cases(dtype, size).items()
    }
    operands = {name: case.operands for name, case in cases.items()}
    module = module_of({name: case.build for name, case in cases.items()}, operands)
    library = umakit.compile_model(module, [], tmp_path / "library").path
    with mock.patch.object(build, "FLAGS", (*SANITIZED, "-O0")):
        outputs = umakit.run_library(library, fed(operands)).outputs
        for got, (name, case) in zip(outputs.values(), cases.items(), strict=True):
            np.testing.assert_array_equal(got, case.oracle(*case.operands), name)
        for name, case in cases.items():
            size, limits = case.sizes[0], np.iinfo(dtype)
            least = -size if case.negative else 0
            for wrong in {size, least - 1, int(limits.max), int(limits.min)}:
                if least <= wrong < size or not limits.min <= wrong <= limits.max:
                    continue
                arrays = [array.copy() for array in case.operands]
                arrays[1].reshape(-1)[-1] = wrong
                with pytest.raises(DeviceError, match="an index is out of range") as error:
                    umakit.run_library(library, fed({**operands, name: tuple(arrays)}))
                assert f", {name} (" in str(error.value), (name, wrong)
