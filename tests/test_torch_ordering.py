# SPDX-License-Identifier: Apache-2.0
"""topk, sort, the k-th value, extremes with their places, and running sums, next to torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")

from torch_networks import execute, functions_of, tensor  # noqa: E402  needs torch

ORDERS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.topk(3), lambda x: x.topk(2, 1, largest=False), lambda x: x.topk(4, 2)[1],
    lambda x: x.topk(3, -2, sorted=False)[0].sum(-2), lambda x: x.topk(6, -1)[0] * 2,
    lambda x: x.sort(), lambda x: x.sort(1, descending=True), lambda x: x.argsort(2),
    lambda x: torch.sort(x, dim=1, descending=True, stable=True), lambda x: x.kthvalue(2, 1),
    lambda x: x.kthvalue(5, keepdim=True), lambda x: x.max(1), lambda x: x.min(-1, keepdim=True),
    lambda x: (x * 7).int().sort(stable=True, dim=-1), lambda x: x[0, 0, 0].topk(1),
    lambda x: (x * 3).abs().to(torch.uint8).sort(dim=0, stable=True),
)  # fmt: skip
SCANS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.cumsum(1), lambda x: x.cumsum(-1, dtype=torch.float64), lambda x: x.cumprod(2),
    lambda x: (x * 5).int().cumsum(0), lambda x: (x > 0).cumsum(1), lambda x: x[0, 0, 0].cumsum(0),
    lambda x: (x + 100).repeat(1, 500, 1).cumsum(1),
)  # fmt: skip


@pytest.mark.parametrize("functions", [ORDERS, SCANS], ids=["orders", "scans"])
def test_orders_and_scans(functions: tuple[Callable[[Any], Any], ...], tmp_path: Path) -> None:
    inputs = [tensor(3, 5, 6, seed=seed) for seed in range(len(functions))]
    execute(functions_of(*functions), tmp_path, *inputs, backends=False)


def test_nan_is_the_largest_and_an_extreme(tmp_path: Path) -> None:
    x = tensor(6, 5)
    x[torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) < 0.2] = float("nan")
    functions: tuple[Callable[[Any], Any], ...] = (
        lambda x: x.topk(5)[0], lambda x: x.topk(3, largest=False)[0],
        lambda x: x.sort(descending=True, stable=True, dim=1), lambda x: x.sort(stable=True, dim=0),
        lambda x: x.kthvalue(2)[0], lambda x: x.max(0), lambda x: x.min(1), lambda x: x.cumsum(1),
    )  # fmt: skip
    execute(functions_of(*functions), tmp_path, *[x] * len(functions), backends=False)
