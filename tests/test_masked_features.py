# SPDX-License-Identifier: Apache-2.0
"""The machine on which tests run decides nothing: neither its CPU's features nor its cores."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from cpus_here import EMULATED_FEATURES, MASK

HERE = Path(__file__).parent
ROOT = HERE.parent
SOAK = "UMAKIT_EXAMPLES" in os.environ

AVX2 = {"sse2", *EMULATED_FEATURES}
AVX512 = AVX2 | {f"avx512{part}" for part in ("f", "cd", "vl", "bw", "dq")}
MASKS = {
    "no AVX2": {"sse2"},
    "AVX2": AVX2,
    "AVX-512 without VNNI": AVX512,
    "AVX-512 with VNNI": {*AVX512, "avx512_vnni"},
}
"""Features that a machine may have; a machine that lacks some of these has still fewer."""

SKIPPED = re.compile(
    r"this machine has no [a-z0-9_, ]+, and QEMU does not emulate x86-64-v4|: hours: make soak$"
)
"""Why a test may be skipped: its features are masked, or the test takes hours."""

OF_CPUS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in HERE.glob("test_*.py")
    if re.search(
        r"^from (cpus_here|cpu_libraries|cpu_programs) import",
        path.read_text("utf-8"),
        re.MULTILINE,
    )
    and path != Path(__file__)
)


def pytest_lines(*words: str, features: set[str] | None = None) -> list[str]:
    """What pytest prints in a process that sees some of the machine's features, or all."""
    environment = {name: value for name, value in os.environ.items() if name != "UMAKIT_EXAMPLES"}
    for name in (MASK, "PYTEST_ADDOPTS"):  # -v would print trees instead of names
        environment.pop(name, None)
    if features is not None:
        environment[MASK] = " ".join(sorted(features))
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *words]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@cache
def collected(features: frozenset[str] | None, *words: str) -> list[str]:
    """Names of tests."""
    lines = pytest_lines("--collect-only", "-q", *words, features=features and set(features))
    return [line for line in lines if "::" in line]


@pytest.mark.parametrize("name", MASKS)
def test_tests_of_cpus_are_the_same_and_pass(name: str) -> None:
    """Each of their tests with its first parameters, that are quick; `make soak` runs all."""
    words = OF_CPUS if SOAK else ["--quick", *OF_CPUS]
    lines = pytest_lines("-v", "-rs", *words, features=MASKS[name])
    outcomes = dict(re.findall(r"^(\S+::.*?) (PASSED|SKIPPED)", "\n".join(lines), re.MULTILINE))
    assert list(outcomes) == collected(None, *words) and len(outcomes) > 40
    reasons = [line for line in lines if line.startswith("SKIPPED [")]
    assert [line for line in reasons if not SKIPPED.search(line)] == []
    assert list(outcomes.values()).count("PASSED") > 0.9 * len(outcomes)


@pytest.mark.skipif(not SOAK, reason="make soak")
@pytest.mark.parametrize("name", MASKS)
def test_the_whole_suite_is_collected_alike(name: str) -> None:
    found = collected(frozenset(MASKS[name]), "tests")
    assert found == collected(None, "tests") and len(found) > 5000


# --- who asks what the machine is -----------------------------------------------------------------

ASKED = re.compile(
    r"os\.cpu_count|process_cpu_count|sched_getaffinity|getloadavg|platform\.(machine|processor)\(|"
    r"os\.uname|missing_here\(|\bNATIVE\b|[\"'](native|-march=native)[\"']|/proc/(cpuinfo|loadavg)"
)
"""Words with which Python asks what the machine is."""

ALLOWED = {
    "tests/cpus_here.py": "says how the code of a CPU runs here, and masks features",
    "tests/test_masked_features.py": "this file",
    "tests/test_cpus.py": "describes machines to `native` and to errors",
    "tests/test_cpu_options.py": "`uma run MODEL` takes `native`, whichever it is",
    "tests/test_dot_products.py": "runs on this machine or in QEMU",
    "tests/cpu_programs.py": "runs the instructions or plain C",
    "tests/test_compiled_files.py": "a linker for x86-64 refuses what others may take",
    "tests/test_remote_ssh.py": "this machine is the one that answers",
    "tests/misra.py": "how many files are checked at once",
    "tests/rtl/compare_chocolate.py": "prints how long it took, and where",
    "umakit/cpu/description.py": "what `native` is",
    "umakit/pipeline/__init__.py": "says that the network cannot be run here",
    "umakit/tools/versions.py": "`uma version` prints the processor",
    "umakit/devices/cpus.py": "refuses to run code that this machine does not have",
    "umakit/devices/machine_names.py": "names the processor, for people",
    "umakit/devices/verilator.py": "how many files are compiled at once",
    "umakit/devices/catalogue.py": "which compiler makes programs for another machine",
    "cli/check.py": "how many layers run at once",
    "cli/run.py": "`uma run MODEL` takes `native`",
}
"""Files that may ask, and what for; no verdict and no output of a test depends on the answer."""


def test_only_named_files_ask_what_the_machine_is() -> None:
    folders = ("tests", "umakit", "cli", "backends", "examples", "templates")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}
    found = {name for name, text in texts.items() if ASKED.search(text)}
    assert len(texts) > 900
    assert (sorted(found - ALLOWED.keys()), sorted(ALLOWED.keys() - found)) == ([], [])
