# SPDX-License-Identifier: Apache-2.0
"""Cycles of a systolic array, in closed form; the model of `sim/include/umakit/systolic_cycles.h`.

A matrix product C[m, n] = A[m, k] B[k, n] is cut into folds of the array's size, which do not
overlap; a fold at an edge costs as much as a full fold. After A. Samajdar et al., "A systematic
methodology for characterizing scalability of DNN accelerators using SCALE-Sim" (ISPASS 2020).
Without drain, preload and packed columns the cycles equal the counts of SCALE-Sim.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from umakit.errors import InputError

LARGEST = 2**31 - 1
"""Maximum value of every dimension."""


class Dataflow(Enum):
    """The operand or result that is stationary in the array while the others move through it."""

    OUTPUT_STATIONARY = "output_stationary"
    WEIGHT_STATIONARY = "weight_stationary"
    INPUT_STATIONARY = "input_stationary"

    @classmethod
    def named(cls, name: str) -> Dataflow:
        """Return a dataflow by its name or its usual abbreviation: `os`, `ws`, `is`.

        Raises:
            InputError: there is no such dataflow.
        """
        for dataflow in cls:
            parts = dataflow.value.split("_")
            if name in (dataflow.value, "".join(part[0] for part in parts)):
                return dataflow
        raise InputError(f"there is no dataflow {name!r}", fix="choose os, ws or is")


@dataclass(frozen=True)
class SystolicArray:
    """An array of multiply-accumulate cells.

    Attributes:
        rows, columns: dimensions in cells.
        drain_cycles: cycles to move the results of a fold out; 0 if the drain is hidden.
        preload: whether operands of the next fold enter while the present one computes, so that the
            array is filled and drained once per product instead of once per fold.
        pack_columns: whether channels that fill at most half of the columns are computed for
            several groups of positions at a time; output stationary only.
        preload_rows: rows of the stationary operand that enter per cycle with preload.
    """

    rows: int
    columns: int
    dataflow: Dataflow = Dataflow.OUTPUT_STATIONARY
    drain_cycles: int = 0
    preload: bool = False
    pack_columns: bool = False
    preload_rows: int = 1

    def __post_init__(self) -> None:
        _check("rows", self.rows)
        _check("columns", self.columns)
        _check("preload rows", self.preload_rows)
        _check("drain cycles", self.drain_cycles, least=0)


@dataclass(frozen=True)
class Product:
    """A matrix product of m x k with k x n.

    A convolution is a product with m = rows * columns of the result, n = output channels and k =
    kernel rows * kernel columns * input channels.
    """

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            _check(name, getattr(self, name))

    @property
    def macs(self) -> int:
        """The number of multiply-accumulates."""
        return self.m * self.n * self.k


@dataclass(frozen=True)
class SystolicCycles:
    """The cycles of a product.

    Attributes:
        folds: number of parts that the product is cut into.
        compute_cycles: cycles without the drain.
        drain_cycles: drain cycles of all folds; with preload only of the last fold, since the other
            drains are hidden.
        tail_cycles: cycles at the end, included in the above, in which the next product may already
            enter; 0 without preload.
        slots: multiply-accumulates of the folds if all cells were used.
    """

    folds: int
    compute_cycles: int
    drain_cycles: int
    tail_cycles: int
    macs: int
    slots: int
    cells: int

    @property
    def cycles(self) -> int:
        """The total cycles."""
        return self.compute_cycles + self.drain_cycles

    @property
    def busy_cycles(self) -> int:
        """The cycles until the next product may enter."""
        return self.cycles - self.tail_cycles

    @property
    def utilisation(self) -> float:
        """The fraction of the array's peak multiply-accumulates that the product uses, 0 to 1."""
        return self.macs / (self.cycles * self.cells)

    @property
    def mapping_efficiency(self) -> float:
        """The fraction of the folds' multiply-accumulate slots that the product fills, 0 to 1."""
        return self.macs / self.slots

    def as_json(self) -> dict[str, Any]:
        """Return all fields and properties by name, for JSON."""
        return {
            "cycles": self.cycles,
            "utilisation": self.utilisation,
            "mapping_efficiency": self.mapping_efficiency,
            **asdict(self),
        }


def systolic_cycles(product: Product, array: SystolicArray) -> SystolicCycles:
    """Compute the cycles of a product on an array.

    With preload, folds follow each other without a gap: a fold takes the cycles of its moving
    operand, but at least the cycles to load the next fold's stationary operand.
    """
    m, n, k = product.m, product.n, product.k
    rows, columns = array.rows, array.columns
    along_rows, along_columns, through = {
        Dataflow.OUTPUT_STATIONARY: (m, n, k),
        Dataflow.WEIGHT_STATIONARY: (k, n, m),
        Dataflow.INPUT_STATIONARY: (k, m, n),
    }[array.dataflow]
    # A stationary operand has to be brought in first, a row a cycle.
    load = 0 if array.dataflow is Dataflow.OUTPUT_STATIONARY else rows
    if array.preload:
        load = -(-load // array.preload_rows)
    if array.pack_columns and array.dataflow is Dataflow.OUTPUT_STATIONARY:
        folds = _packed_folds(product, array)
    else:
        folds = -(-along_rows // rows) * -(-along_columns // columns)
    fill = load + rows + columns - 2
    if array.preload:
        compute, drain = folds * max(through, load) + fill, array.drain_cycles
    else:
        compute, drain = folds * (fill + through), folds * array.drain_cycles
    return SystolicCycles(
        folds=folds,
        compute_cycles=compute,
        drain_cycles=drain,
        tail_cycles=fill + drain if array.preload else 0,
        macs=product.macs,
        slots=folds * rows * columns * through,
        cells=rows * columns,
    )


def _packed_folds(product: Product, array: SystolicArray) -> int:
    """Return the folds if the last channels share the columns among groups of positions."""
    full, rest = divmod(product.n, array.columns)
    folds = full * -(-product.m // array.rows)
    if rest:
        folds += -(-product.m // (array.rows * (array.columns // rest)))
    return folds


def parse_product(text: str) -> Product:
    """Parse a product from `M,N,K`."""
    try:
        m, n, k = (int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{text!r} is not a matrix product", fix="write M,N,K, such as 196,32,72"
        ) from None
    return Product(m, n, k)


def _check(name: str, value: int, least: int = 1) -> None:
    if not least <= value <= LARGEST:
        raise InputError(f"{name} is {value}", fix=f"choose {least} to {LARGEST}")


@dataclass(frozen=True)
class ArrayBound:
    """A lower bound of a layer's cycles on a systolic array.

    Attributes:
        dataflow: name of the dataflow whose bound is the smallest; None for pools, which use none.
        folds: the fewest folds in it; 0 for pools.
        array: the fewest cycles that jobs occupy the array, or the pooling stage, in it.
        first_load: the fewest cycles until the first job can start.
        drain: the fewest cycles from the end of the last job's folds until its results have left.
        last_store: the fewest cycles from there until the last tile of the result is stored.
        bus: the fewest cycles that the traffic on the bus takes.
        cycles: the bound.
    """

    dataflow: str | None
    folds: int
    array: int
    first_load: int
    drain: int
    last_store: int
    bus: int
    cycles: int


@dataclass(frozen=True)
class ArrayWork:
    """The least array cycles of a layer in one dataflow.

    Attributes:
        dataflow: the dataflow; None for pools.
        folds: folds of all images.
        busy: cycles that jobs occupy the array.
        tail: cycles from the end of a job until the results have left the array.
        smallest: cycles of the smallest job without the tail.
    """

    dataflow: Dataflow | None
    folds: int
    busy: int
    tail: int
    smallest: int
