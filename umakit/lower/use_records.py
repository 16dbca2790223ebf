# SPDX-License-Identifier: Apache-2.0
"""Compiling with the tilings that a search found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from umakit.errors import RecordsError, short_path

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend
    from umakit.frontend import Model
    from umakit.machine import Layer


class TunedLayers:
    """Which of the layers that are cut into tiles have a record.

    Attributes:
        layers: that were cut, once for each time.
        tuned: those that have a record.
    """

    def __init__(self, known: frozenset[Layer], layers: list[Layer]) -> None:
        self._known = known
        self.layers = layers

    @property
    def tuned(self) -> list[Layer]:
        """Those that have a record."""
        return [layer for layer in self.layers if layer in self._known]


@contextmanager
def using_records(
    path: Path | None, model: Model, backends: Sequence[UMABackend]
) -> Iterator[TunedLayers | None]:
    """Let a backend cut layers as the records say, until the end of the block.

    Args:
        path: of the records; None for none.
        model: what is compiled.
        backends: one of which they have to be of.

    Raises:
        RecordsError: they cannot be read; are of another model, backend or version; or, at the end
            of the block, have no layer of the network.
    """
    if path is None:
        yield None
        return
    from umakit.lower.tiling_records import Owner, check_owner, read_records

    records = read_records(path)
    name = records.owner.backend.name
    tiled = {each.target_name: each for each in backends if each.tiling is not None}
    if not tiled:
        raise RecordsError(
            "no backend that cuts layers into tiles was given",
            where=short_path(path),
            fix=f"give --backend {name}, or leave the records out",
        )
    backend = tiled.get(name, next(iter(tiled.values())))
    assert backend.tiling is not None
    check_owner(records, Owner.of(model, backend.target_name, backend.tiling), path)
    with backend.tiling.using(records.tilings) as asked:
        used = TunedLayers(frozenset(records.tilings), asked)
        yield used
        if not used.tuned:
            raise RecordsError(
                f"has none of the network's {len(asked)} layers on {name}",
                where=short_path(path),
                fix="tune with the same --input-shapes and --rounding",
            )
