# SPDX-License-Identifier: Apache-2.0
"""`make bench-m3`: what is imported is the earlier revision, and ratios are of the same network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import cortex_m3

    return cortex_m3


def test_ratios_are_those_of_the_same_network_and_large_ones_are_marked(bench: Any) -> None:
    base = bench.Figures(code=1000, stack=400, instructions=5000)
    same = bench.Figures(code=1010, stack=None, instructions=2500)
    larger = bench.Figures(code=1011, stack=396, instructions=5000)
    text = bench.markdown([("a", "cpu", base, same), ("b", "npu", base, larger)], "v1")
    rows = [line for line in text.splitlines() if line.startswith(("| a |", "| b |"))]
    assert rows == [
        "| a | cpu | 1,010 | 1.010 |  |  | 2,500 | 0.500 |",
        "| b | npu | 1,011 | **1.011** | 396 | 0.990 | 5,000 | 1.000 |",
    ]


def test_a_revision_that_git_does_not_know_is_named(bench: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"git rev-parse --verify 'nowhere\^{commit}' failed"):
        bench.environment_of("nowhere", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_umakit_is_not_measured_instead(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    package = tmp_path / "revisions" / commit.stdout.strip() / "umakit"
    package.parent.mkdir(parents=True)
    with pytest.raises(SystemExit, match="is imported instead of"):
        bench.environment_of("HEAD", tmp_path / "revisions")
    package.mkdir()
    (package / "__init__.py").write_text("")
    environment = bench.environment_of("HEAD", tmp_path / "revisions")
    code = "import umakit; print(umakit.__file__)"
    command = [sys.executable, "-P", "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).parent == package
