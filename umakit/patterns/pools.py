# SPDX-License-Identifier: Apache-2.0
"""Patterns of pools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from umakit.operators.avg_pool2d import AveragePool2d
from umakit.operators.max_pool2d import MaxPool2d
from umakit.patterns import constraints as _c
from umakit.patterns.constraints import Constraint, Pairs
from umakit.patterns.offer import WindowOffer
from umakit.patterns.parameters import QAveragePool2d, QMaxPool2d


@dataclass(frozen=True, eq=False)
class PoolOffer(WindowOffer):
    """What pools have in common.

    Attributes:
        windows: rows and columns.
    """

    OPERANDS: ClassVar[int] = 1

    windows: Pairs = field(default=None, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [
            *_c.types(self.dtypes),
            *self._window_constraints(self.windows, "window", lambda known: known.window),
            *self._image_constraints(),
            _c.multiple_of(self.channel_multiple, "channels", lambda known: known.input_channels),
        ]


@dataclass(frozen=True, eq=False)
class qavg_pool2d(PoolOffer):
    """An integer average pool; padding is left out of the mean, ties go away from zero."""

    KIND = QAveragePool2d
    OPERATOR = AveragePool2d

    name: str = "qavg_pool2d"


@dataclass(frozen=True, eq=False)
class qmax_pool2d(PoolOffer):
    """An integer max pool."""

    KIND = QMaxPool2d
    OPERATOR = MaxPool2d

    name: str = "qmax_pool2d"
