# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch with shapes, for the sweep of dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

ONE, TWO = ((2, 3, 4),), ((2, 3, 4), (3, 1))
Entry = tuple[Callable[..., Any], Sequence[Sequence[int]]]


class Function(torch.nn.Module):
    """A function as a module, which `torch.export` wants."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._function(*tensors)


UNARY = (
    "abs neg sign square sqrt rsqrt exp log sin cos tan tanh sinh cosh asin acos atan asinh acosh "
    "atanh ceil floor round trunc sigmoid relu erf reciprocal logical_not bitwise_not isnan isinf "
    "expm1 log1p log2 log10 frac"
).split()
BINARY = (
    "add sub mul div floor_divide remainder pow maximum minimum eq ne lt le gt ge logical_and "
    "logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift atan2 fmod"
).split()
OF_ONE = {
    name: getattr(F, name)
    for name in "gelu silu mish softplus elu leaky_relu hardswish hardsigmoid selu celu".split()
}

TABLE: dict[str, Entry] = {
    **{name: (getattr(torch, name), ONE) for name in UNARY},
    **{name: (getattr(torch, name), TWO) for name in BINARY},
    **{name: (function, ONE) for name, function in OF_ONE.items()},
    **{
        name: (lambda x, name=name: getattr(torch, name)(x, dim=1), ONE)
        for name in "sum mean prod amax amin argmax argmin cumsum softmax log_softmax".split()
    },
    "sum_all": (torch.sum, ONE),
    "mean_all": (torch.mean, ONE),
    "var": (lambda x: torch.var(x, dim=1, correction=0), ONE),
    "clamp": (lambda x: torch.clamp(x, 1, 3), ONE),
    "where": (lambda x, y: torch.where(x > y, x, y), TWO),
    "matmul": (torch.matmul, ((2, 3, 4), (2, 4, 5))),
    "mm": (torch.mm, ((3, 4), (4, 5))),
    "linear": (F.linear, ((3, 4), (5, 4), (5,))),
    "conv2d": (F.conv2d, ((1, 2, 5, 5), (3, 2, 3, 3), (3,))),
    "conv1d": (F.conv1d, ((1, 2, 5), (3, 2, 3))),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), ((1, 2, 4, 4),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((1, 2, 4, 4),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), ((1, 2, 4, 4),)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), ONE),
    "cat": (lambda x, y: torch.cat([x, y], 1), ((2, 3), (2, 4))),
    "stack": (lambda x, y: torch.stack([x, y]), ((2, 3), (2, 3))),
    "split": (lambda x: torch.split(x, 1), ((2, 3),)),
    "transpose": (lambda x: torch.transpose(x, 0, 2), ONE),
    "permute": (lambda x: torch.permute(x, (2, 0, 1)), ONE),
    "reshape": (lambda x: torch.reshape(x, (4, 6)), ONE),
    "slice": (lambda x: x[:, 1:, ::2], ONE),
    "flip": (lambda x: torch.flip(x, (1,)), ONE),
    "roll": (lambda x: torch.roll(x, 1, 1), ONE),
    "repeat": (lambda x: x.repeat(2, 1, 1), ONE),
    "expand": (lambda x: x.expand(3, 2, 3, 4), ONE),
    "pad": (lambda x: F.pad(x, (1, 2)), ONE),
    "tril": (torch.tril, ((3, 4),)),
    "topk": (lambda x: torch.topk(x, 2), ((2, 7),)),
    "sort": (lambda x: torch.sort(x, stable=True), ((2, 7),)),
    "index_select": (lambda x: torch.index_select(x, 1, torch.tensor([2, 0])), ONE),
    "to_float": (lambda x: x.to(torch.float32), ONE),
    "to_int8": (lambda x: x.to(torch.int8), ONE),
    "to_int64": (lambda x: x.to(torch.int64), ONE),
}
"""(function, shapes of its operands) by name."""
