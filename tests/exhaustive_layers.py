# SPDX-License-Identifier: Apache-2.0
"""All small layers that a backend accepts, each compared with the reference.

python tests/exhaustive_layers.py FOLDER

Sizes, kernels, strides and paddings are combined in all ways; what is not a size of the layer, such
as the rounding and the zero points, is drawn from the values that the pattern accepts.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from umakit import find_backend
from umakit.operators.drawing import NotDrawable, Setting
from umakit.testing.check import runs
from umakit.testing.check.cases import SEED, Case, LayerSettings
from umakit.testing.check.claims import Claim
from umakit.testing.check.session import Session

SMALL: Mapping[str, Sequence[Setting]] = {
    "batch": (1, 2), "height": (1, 3), "width": (2, 3), "groups": (1, 3),
    "channels_per_group": (1, 2), "filters_per_group": (1, 2), "channels": (1, 3),
    "kernel_height": (1, 2, 3), "kernel_width": (1, 2, 3), "window_height": (1, 2, 3),
    "window_width": (1, 2, 3), "stride_y": (1, 2), "stride_x": (1, 2),
    "padding": ("valid", "same", "top", "left", "bottom", "right", "all"),
    "rows": (1, 2, 3), "inputs": (1, 2, 3, 4), "outputs": (1, 2, 3, 4),
    "axes": (1, 2, 3, 4), "size": (1, 2, 3, 4, 5, 6), "other": (1, 2, 3, 4),
    "broadcast": ("none", "right", "left"),
}  # fmt: skip
"""Values of the sizes of layers."""

KERNELS = ("kernel_height", "kernel_width")

TOGETHER = 250
"""Layers of one library."""


def small_layers(claim: Claim) -> Iterator[Case]:
    """Yield all small layers that a pattern accepts.

    Args:
        claim: the pattern.
    """
    assert claim.drawing is not None
    settings = claim.drawing.settings
    sizes = {name: SMALL[name] for name in settings if name in SMALL}
    simple = _simple(claim)
    others = {
        name: [
            each
            for each in settings[name]
            if _accepts(claim, LayerSettings(claim.name, {**simple, name: each}))
        ]
        for name in settings
        if name not in SMALL and "dilation" not in name
    }
    for seed, values in enumerate(itertools.product(*sizes.values()), 1):
        random = Random(seed)
        chosen = {name: random.choice(each) for name, each in others.items()}
        every = {**dict(zip(sizes, values, strict=True)), **chosen, SEED: seed}
        layer = LayerSettings(claim.name, every)
        if _accepts(claim, layer):
            yield Case((layer.reduced(claim.drawing),))


def _simple(claim: Claim) -> dict[str, Setting]:
    """Return a layer that a pattern accepts: all sizes are 1, or all are 3."""
    assert claim.drawing is not None
    settings = claim.drawing.settings
    sizes = [each for each in (*claim.drawing.sizes, "groups", *KERNELS) if each in settings]
    choices = {name: settings[name] for name in ("layout", "rounding") if name in settings}
    one = {"channels_per_group": 1} if "groups" in settings else {}
    for size in (1, 3):
        for values in itertools.product(*choices.values()):
            found = dict.fromkeys(sizes, size) | one | dict(zip(choices, values, strict=True))
            if _accepts(claim, LayerSettings(claim.name, found)):
                return found
    raise AssertionError(f"{claim.name} accepts no simple layer")


def _accepts(claim: Claim, layer: LayerSettings) -> bool:
    try:
        return claim.judged(claim.layer(layer))[0] is True
    except NotDrawable:
        return False


def first_difference(folder: Path, operators: Sequence[str] = ()) -> tuple[int, str]:
    """Return how many layers were compared, and what is wrong with the first; empty if none is.

    Args:
        folder: the backend.
        operators: names of the patterns whose layers are compared; empty: all.
    """
    count = 0
    with tempfile.TemporaryDirectory() as temporary:
        session = Session(find_backend(str(folder)), Path(temporary))
        for claim in session.claims.values():
            if operators and claim.name not in operators:
                continue
            layers = small_layers(claim)
            while cases := list(itertools.islice(layers, TOGETHER)):
                found = session.failures_of([(case, True) for case in cases])
                count += len(found.ran)
                print(f"{claim.name}: {count} layers", file=sys.stderr, flush=True)
                if found.failures:
                    return count, f"{found.failures[0].what} ({found.failures[0].case})"
    return count, ""


MOST_ACCESSES = 150
"""Accesses of the registers in a simple layer of one tile, rounded up."""


def first_difference_of_faults(folder: Path) -> tuple[int, str]:
    """Return how many runs had a bus error, and what is wrong with the first; empty if none is.

    A simple layer of each operator runs once with an error at each access of a register, and with
    errors from that access on. After each such run, the layer has to be right without an error.

    Args:
        folder: the backend.
    """
    count, before = 0, runs.FAULTS
    runs.FAULTS = tuple(
        runs.Fault(runs.BUS_ERROR, access, errors, 0, runs.EVERYWHERE)
        for access in range(MOST_ACCESSES)
        for errors in (1, 0)
    )
    try:
        with tempfile.TemporaryDirectory() as temporary:
            session = Session(find_backend(str(folder)), Path(temporary))
            for claim in session.claims.values():
                case = Case((LayerSettings(claim.name, {**_simple(claim), SEED: 1}),))
                failures = session.batch_of([(case, True)])[1]
                count += len(runs.FAULTS)
                if failures:
                    return count, f"{failures[0].what} ({case})"
    finally:
        runs.FAULTS = before
    return count, ""


def main(arguments: Sequence[str]) -> int:
    """Compare all small layers of a backend."""
    count, wrong = first_difference(Path(arguments[0]))
    print(f"{count} layers, {wrong or 'all right'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
