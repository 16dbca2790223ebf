# SPDX-License-Identifier: Apache-2.0
"""Backends that umakit 0.1.0 generated, kept as they were, work with this version."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from comparisons import some

from umakit.machine import DriverCosts, Hardware, TilePlanner
from umakit.moved import MOVED

BACKENDS = Path(__file__).parent / "data" / "backends_0_1_0"

# Modules that the Python files of each one import and that are elsewhere today.
OLD_IMPORTS = {
    "vanilla_accelerator": {"harness", "registry", "strategy"},
    "strawberry_accelerator": {"accelerator_config", "example_networks", "harness", "registry"},
    "chocolate_accelerator": {
        *("accelerator_config", "example_networks", "harness", "registry"),
        *("systolic", "tiling"),
    },
}


@pytest.mark.soak
@pytest.mark.parametrize("name", some(OLD_IMPORTS, 3))
def test_a_backend_of_0_1_0_compiles_and_runs_a_network(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(BACKENDS / name, folder)
    command = [sys.executable, "-W", "default::DeprecationWarning", str(folder / "run.py")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^\S.*  +" + name, ended.stdout, re.MULTILINE), "nothing was offloaded"
    assert "largest difference from TVM's LLVM build: 0\n" in ended.stdout
    warned = re.findall(r"DeprecationWarning: umakit\.(\w+) goes away .*: use \S+", ended.stderr)
    assert set(warned) == OLD_IMPORTS[name]


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_module_of_today(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, public = MOVED[old]
    monkeypatch.delitem(sys.modules, f"umakit.{old}", raising=False)
    with pytest.warns(DeprecationWarning, match=re.escape(f"use {public or place}")) as warned:
        module = importlib.import_module(f"umakit.{old}")
    assert module is importlib.import_module(place)
    assert module.__name__ == place and module.__spec__.name == place
    assert len(warned) == 1


def test_modules_of_an_old_folder_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("umakit.tiling", "umakit.tiling.space"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.warns(DeprecationWarning, match=r"use umakit\.machine"):
        from umakit.tiling.space import tiles_on  # type: ignore[import-not-found]

    import umakit.machine.space

    assert tiles_on is umakit.machine.space.tiles_on


def test_names_of_no_version_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("umakit.no_such_module")


def test_the_old_name_of_a_planners_predicate_warns() -> None:
    hardware = Hardware(rows=4, columns=4, scratchpad_bytes=4096)
    planner = TilePlanner(hardware, DriverCosts(1, 1, 1, 1, 1, 1, 1))
    with pytest.warns(DeprecationWarning, match=r"called accepts") as warned:
        predicate = planner.judge
    assert predicate == planner.accepts and len(warned) == 1
