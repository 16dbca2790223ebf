# SPDX-License-Identifier: Apache-2.0
"""Every number that a backend states about memory: right, refused with its line, or harmless."""

from __future__ import annotations

import collections
import os
import re
from pathlib import Path

import pytest
from comparisons import SANITIZED
from memory_mutants import MEMORY_KEYS, OTHER_KEYS, PROJECTS, Trial, mutants, project

from umakit.backend import ArraySection, DmaSection, MachineSection, MemorySection
from umakit.devices import build

EVERY = 1 if "UMAKIT_EXAMPLES" in os.environ else 12
"""Of so many mutants one is tried; all of them in `make soak`."""

ALLOWED = {"equal", "refused"}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("mutants"))


@pytest.mark.soak
@pytest.mark.parametrize("name", PROJECTS)
def test_a_wrong_number_about_memory_is_refused_or_harmless(
    name: str, trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FLAGS", SANITIZED)
    folder = project(name, tmp_path)
    assert trial.outcome(folder, None).kind == "equal"
    counts: collections.Counter[str] = collections.Counter()
    failed = []
    all_ = mutants(name, folder)
    for mutant in all_[PROJECTS.index(name) % EVERY :: EVERY]:
        outcome = trial.outcome(folder, mutant)
        counts[outcome.kind] += 1
        if outcome.kind not in ALLOWED:
            failed.append(f"{mutant.name}: {outcome.kind}: {outcome.text}")
    print(f"{name}: {len(all_)} mutants, {sum(counts.values())} tried: {dict(counts)}")
    print("\n".join(failed))
    assert not failed


def test_every_key_with_a_number_is_tried_or_not_about_memory() -> None:
    sections = {
        "array": ArraySection, "dma": DmaSection, "memory": MemorySection,
        "machine": MachineSection,
    }  # fmt: skip
    for name, section in sections.items():
        counted = {
            key
            for key, field in section.model_fields.items()
            if re.search(r"\bint\b", str(field.annotation))
        }
        assert counted == {*MEMORY_KEYS[name], *OTHER_KEYS[name]}, name
