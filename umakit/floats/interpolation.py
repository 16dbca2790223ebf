# SPDX-License-Identifier: Apache-2.0
"""Interpolation tables from coordinates: nearest, linear, cubic, and with antialiasing.

A coordinate is the position of a result element on the axis, in elements from the centre of the
first element. Each model format has its own formula for coordinates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.floats.resampling import Table, table_of

Coordinates = npt.NDArray[np.floating[Any]]


def nearest_table(axis: int, places: npt.NDArray[Any]) -> Table:
    """Return a table with one element per result.

    Args:
        axis: axis of the data.
        places: positions of the elements on the axis.
    """
    return table_of(axis, [[(int(place), 1.0)] for place in places])


def linear_table(axis: int, size: int, coordinates: Coordinates) -> Table:
    """Return a table of linear interpolation. Positions outside the axis take the border element.

    Args:
        axis: axis of the data.
        size: size of the axis.
        coordinates: coordinate of each result element.
    """
    rows = []
    for x in np.clip(coordinates, 0, size - 1).astype(np.float64):
        left = int(x)
        right = min(left + 1, size - 1)
        rows.append([(left, 1 - (x - left)), (right, x - left)])
    return table_of(axis, rows)


def cubic_weight(distance: Coordinates, a: float) -> npt.NDArray[np.float64]:
    """Return Keys' kernel (IEEE Trans. on Acoustics, Speech, and Signal Processing 29, 1981)."""
    d = np.abs(distance).astype(np.float64)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def cubic_table(
    axis: int, size: int, coordinates: Coordinates, a: float, *, exclude_outside: bool = False
) -> Table:
    """Return a table of cubic interpolation.

    Args:
        axis: axis of the data.
        size: size of the axis.
        coordinates: coordinate of each result element.
        a: coefficient of the kernel.
        exclude_outside: whether positions outside the axis get weight 0; by default they take the
            border element.
    """
    rows = []
    for x in coordinates.astype(np.float64):
        places = np.floor(x) + np.arange(-1, 3)
        weights = cubic_weight(places - x, a)
        rows.append(_inside(places, weights, size, exclude_outside))
    return table_of(axis, rows)


def antialiased_table(
    axis: int,
    size: int,
    coordinates: Coordinates,
    stretch: float,
    a: float | None,
    *,
    exclude_outside: bool,
) -> Table:
    """Return a table of interpolation with a kernel that downsampling widens.

    Args:
        axis: axis of the data.
        size: size of the axis.
        coordinates: coordinate of each result element.
        stretch: result elements per data element, at most 1.
        a: coefficient of the cubic kernel; None for the linear kernel.
        exclude_outside: whether positions outside the axis get weight 0.
    """
    reach = (1 if a is None else 2) / stretch
    rows = []
    for x in coordinates.astype(np.float64):
        places = np.arange(np.floor(x - reach), np.ceil(x + reach) + 1)
        distances = (places - x) * stretch
        weights = np.clip(1 - np.abs(distances), 0, 1) if a is None else cubic_weight(distances, a)
        rows.append(_inside(places, weights / weights.sum(), size, exclude_outside))
    return table_of(axis, rows)


def _inside(
    places: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], size: int, exclude: bool
) -> list[tuple[int, float]]:
    """Return (place, weight) pairs with places outside the axis clipped or excluded."""
    if exclude:
        inside = (places >= 0) & (places < size)
        total = weights[inside].sum()
        places, weights = places[inside], weights[inside]
        if total == 0 or not len(places):
            return [(0, 0.0)]
        weights = weights / total
    clipped = np.clip(places, 0, size - 1).astype(int)
    return [(int(place), float(weight)) for place, weight in zip(clipped, weights, strict=True)]
