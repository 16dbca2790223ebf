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
from umakit.cli.main import run_command

from umakit.backend import ArraySection, DmaSection, MachineSection, MemorySection
from umakit.devices import build
from umakit.tools.scaffold import new_backend

INT8 = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
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


def test_an_order_of_weights_is_refused_with_the_line_of_its_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The patterns are made in a list, and registered in a loop over it."""
    folder = new_backend("small_npu", tmp_path, kind="tiles").folder
    file = folder / "backend.py"
    text = file.read_text(encoding="utf-8")
    line = re.search(r"^ *patterns\.qdense\(.*$", text, re.MULTILINE)
    assert line is not None
    other = re.sub(r'weight_layout=f".*?"', 'weight_layout="O/4 I 4o"', line[0])
    file.write_text(text.replace(line[0], other), encoding="utf-8")
    words = ["partition", str(INT8), "-b", str(folder), "--rounding", "tflm"]
    assert run_command(words) == 2
    error = capsys.readouterr().err
    number = 1 + text[: line.start()].count("\n")
    assert f"backend.py:{number}: weight_layout 'O/4 I 4o' of weights" in error
    mend = re.search(r"write (weight_layout='[^']*'), or", error)
    assert mend is not None
    mended = other.replace('weight_layout="O/4 I 4o"', mend[1])
    file.write_text(text.replace(line[0], mended), encoding="utf-8")
    copy = folder.rename(tmp_path / "mended")  # what is imported is not imported again
    assert run_command([*words[:3], str(copy), *words[4:]]) == 0
    assert "nothing runs on" not in capsys.readouterr().err
