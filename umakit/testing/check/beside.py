# SPDX-License-Identifier: Apache-2.0
"""A backend together with another backend in the same network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from umakit.backend.registry import built_in_backend
from umakit.devices import HOST, Device
from umakit.errors import UmakitError
from umakit.registration.backend import Backend
from umakit.testing.check.batch import build_batch, member_of, run_batch
from umakit.testing.check.cases import Case, LayerSettings
from umakit.testing.check.checks import results_are_right, runs_end_well
from umakit.testing.check.claims import claims_of
from umakit.testing.check.report import Failure

OTHERS = {"vanilla_accelerator": "conv2d", "strawberry_accelerator": "qdense"}
"""Reference backends, with the pattern of a layer to run next to the tested backend's."""

MOST_CASES = 6


def fails_beside_another(
    backend: Backend, cases: Sequence[Case], folder: Path, device: Device = HOST
) -> list[Failure]:
    """Return the failures of a network with layers of two backends.

    Args:
        backend: the backend under test, which has priority.
        cases: cases that the backend accepts.
        folder: folder for files.
        device: device for the library.
    """
    own = {claim.name: claim for claim in claims_of(backend)}
    free = [(name, pattern) for name, pattern in OTHERS.items() if pattern not in own]
    if not free:
        return []
    name, pattern = free[0]
    other = built_in_backend(name)
    claims = own | {claim.name: claim for claim in claims_of(other) if claim.name == pattern}
    theirs = Case((LayerSettings(pattern),))
    mixed = [*cases[: MOST_CASES // 2], theirs, *cases[MOST_CASES // 2 : MOST_CASES], theirs]
    members = [member_of(case, number, claims, True) for number, case in enumerate(mixed)]
    try:
        batch = build_batch(members, [backend, other], folder, device)
        run_batch(batch)
    except UmakitError as error:
        what = f"a network with {name} next to it does not work: {error}"
        return [Failure(cases[0].pattern, what, None, error.fix)]
    found = [*runs_end_well(batch), *results_are_right(batch)]
    return [
        Failure(
            failure.pattern, f"next to {name} in one network: {failure.what}", failure.case,
            "alone it is right: do both define or change the same?",
        )
        for failure in found
    ]  # fmt: skip
