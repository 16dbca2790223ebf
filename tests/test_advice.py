# SPDX-License-Identifier: Apache-2.0
"""What `uma doctor` says is to be done mends the fault, and nothing new comes."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from doctor_faults import BACKENDS, MENDS, MUTATIONS, Mutation, copied, named_lines

from umakit.devices import HOST
from umakit.tools.doctor import Diagnosis, Status, environment, examination, examine_backend

CHECKED = {
    name: functools.cache(getattr(environment, name)) for name in ("device_check", "cxx_check")
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def shown(diagnosis: Diagnosis) -> str:
    return "\n".join(
        f"{each.status} {each.name}: {each.where}: {each.message} -> {each.mend}"
        for each in diagnosis.checks
    )


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.label)
def test_what_is_to_be_done_mends_what_is_broken(
    mutation: Mutation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    for name, check in CHECKED.items():  # compilers are tried once
        monkeypatch.setattr(examination, name, check)
    broken = copied(mutation.backend, tmp_path / "broken")
    mutation.apply(broken)
    before = contents(broken)
    diagnosis = examine_backend(str(broken), HOST)
    assert contents(broken) == before, "doctor wrote into the folder"
    fault = mutation.named(diagnosis)
    assert fault is not None, shown(diagnosis)
    mends = MENDS.get(mutation.label, (named_lines,))
    for number, mend in enumerate(mends):
        mended = tmp_path / str(number) / broken.name
        shutil.copytree(broken, mended)
        mend(mended, BACKENDS / mutation.backend, fault)
        found = examine_backend(str(mended), HOST)
        assert {each.status for each in found.checks} == {Status.OK}, f"{fault}\n{shown(found)}"
    record_property("covered", f"advice, {len(mends)} applied: {fault.mend}")
