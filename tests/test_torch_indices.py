# SPDX-License-Identifier: Apache-2.0
"""Elements of PyTorch's tensors by number: results next to torch's, and numbers out of range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umakit
from umakit.errors import DeviceError, ModelError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
F = torch.nn.functional

from comparisons import some  # noqa: E402
from torch_networks import Function, execute, export, tensor  # noqa: E402  needs torch

BY_NUMBER: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: x.gather(1, i), "gather_last": lambda x, i: x.gather(-1, i.mT),
    "index_select": lambda x, i: x.index_select(2, i[0, :, 0]),
    "take": lambda x, i: x.take(i), "take_along":
    lambda x, i: x[:, :3, :4].take_along_dim(i.clamp(max=1), 1),
    "adjacent": lambda x, i: x[:, i[0] - 1, i[1]], "apart":
    lambda x, i: x[i[0].clamp(max=1), :, i[1] - 3], "all": lambda x, i: x[i.clamp(max=1), i, i],
    "outer": lambda x, i: x[:, i[0, :, :1], i[0, 0] - 2], "remainder": lambda x, i: (2 - i) % 3,
    "remainders": lambda x, i: (i - 2) % (2 * i - 3),
    "one_hot": lambda x, i: F.one_hot(i, 5), "one_hot_float":
    lambda x, i: F.one_hot(i, 4) * x[0, 0, 0],
    "scatter": lambda x, i: x.scatter(2, i.argsort(2), x.flip(1)),
    "scatter_value": lambda x, i: x.scatter(1, i, 1.5), "scatter_add": lambda x, i:
    x.scatter_add(1, i, -x), "scatter_max": lambda x, i: x.scatter_reduce(1, i, 2 * x, "amax"),
    "scatter_sum": lambda x, i: x.scatter_reduce(2, i, x, "sum"),
    "scatter_product": lambda x, i: x.scatter_reduce(1, i, x, "prod"),
    "put": lambda x, i: x.index_put((i[0, 0].clamp(max=1), i[0, 1] - 1), x[1]),
    "put_add": lambda x, i: x.index_put((i[0].clamp(max=1),), x[0], accumulate=True),
    "put_value": lambda x, i: x.index_put((i[0].clamp(max=1), i[1]), torch.tensor(3.0)),
    "slice_scatter": lambda x, i: x.slice_scatter(x[:, :2], 1, 0, 4, 2),
    "select_scatter": lambda x, i: x.select_scatter(x[:, 0] * 2, 1, -1),
}  # fmt: skip


def numbers(*shape: int) -> Any:
    """int64 numbers from 0 to 3."""
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(3))


def test_elements_by_number(tmp_path: Path) -> None:
    def forward(_: Any, x: Any, i: Any) -> Any:
        return {name: function(x, i) for name, function in BY_NUMBER.items()}

    # Fewer indices than elements, in all dimensions.
    execution = execute(
        Function(forward), tmp_path, tensor(2, 4, 4 + 2), numbers(2, 3, 4), backends=False
    )
    assert list(execution.result.outputs) == list(BY_NUMBER)


OUTSIDE: dict[str, tuple[Callable[[Any, Any], Any], list[int]]] = {
    "gather": (lambda x, i: x.gather(0, i), [-1, 5]),
    "index_select": (lambda x, i: x.index_select(0, i), [-1, 5]),
    "index": (lambda x, i: x[i], [-6, 5]),
    "several": (lambda x, i: x.reshape(5, 1)[i, i - i], [-6, 5]),
    "one_hot": (lambda x, i: F.one_hot(i, 5), [-1, 5]),
    "scatter": (lambda x, i: x.scatter(0, i, x), [-1, 5]),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x), [-1, 5]),
    "put": (lambda x, i: x.index_put((i,), x[:3]), [-6, 5]),
}  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("operator", some(OUTSIDE, 2))
def test_numbers_out_of_range_end_a_run(operator: str, tmp_path: Path) -> None:
    function, outside = OUTSIDE[operator]
    inside = torch.tensor([4, 0, 2])
    execution = execute(
        Function(lambda _, x, i: function(x, i)), tmp_path, tensor(5), inside, backends=False
    )
    for number in outside:
        arrays = {"x": tensor(5).numpy(), "i": np.array([1, number, 2])}
        arrays = dict(zip(("inputs_0", "inputs_1"), arrays.values(), strict=True))
        with pytest.raises(DeviceError, match="an index is out of range"):
            umakit.run_library(execution.library.path, arrays)
        constant = Function(lambda _, x, n=number: function(x, torch.tensor([1, n, 2])))
        with pytest.raises(ModelError, match=f"index {number}|out of (range|bounds)|Class values"):
            umakit.import_model(export(constant, tensor(5)))


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x.scatter_reduce(0, torch.tensor([1]), x, "mean"), "reduce=mean"),
        (lambda x: x.scatter_reduce(0, torch.tensor([1]), x, "sum", include_self=False),
         "include_self=False"),
        (lambda x: x[x > 0.5], "static type|other than"),
    ],
)  # fmt: skip
def test_refusals(function: Callable[[Any], Any], what: str) -> None:
    with pytest.raises(ModelError, match=what):
        umakit.import_model(export(Function(lambda _, x: function(x)), tensor(5)))
