# SPDX-License-Identifier: Apache-2.0
"""`uma check` draws layers of all operators that have a pattern, and of patterns of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from umakit import find_backend
from umakit.operators import registry
from umakit.testing import check_backend
from umakit.testing.check.claims import claims_of

ROOT = Path(__file__).parents[1]
OFFERED = {
    operator.name: operator
    for operator in registry.operators()
    if operator.patterns or operator.interface is not None
}
ACCEL = '[accelerator]\nname = "{}"\n\n[array]\nrows = 4\ncolumns = 4\n'
HEAD = """
from umakit import UMABackend, patterns

class Npu(UMABackend):
    def __init__(self):
        super().__init__()
        {}

    @property
    def target_name(self):
        return "{}"
"""
EVERYTHING = """
for name in dir(patterns):
    kind = getattr(patterns, name)
    if name[0] == "q" and hasattr(kind, "KIND") and name != "qlstm":
        names = ("layouts", "batch", "groups", "rounding", "dtypes")
        given = {one: None for one in names if hasattr(kind, one)}
        self._register_pattern(*kind(**given))
"""
SOFTMAX = """
        from tvm import relax
        def layer(settings, random):
            shape = (settings["rows"], settings["length"])
            return [(shape, "float32")], relax.op.nn.softmax
        pattern = patterns.is_op("relax.collapse_sum_to")(patterns.wildcard(), patterns.wildcard())
"""


def backend_of(folder: Path, name: str, body: str) -> Path:
    """A user's folder with a backend whose layers run as their patterns' own loops."""
    (folder / name).mkdir()
    (folder / name / "accel.toml").write_text(ACCEL.format(name))
    lines = "\n        ".join(body.strip("\n").splitlines())
    (folder / name / "backend.py").write_text(HEAD.format(lines, name))
    return folder / name


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_each_operator_with_a_pattern_has_a_drawing_or_says_why_not(name: str) -> None:
    operator = OFFERED[name]
    assert (operator.drawing is None) == bool(operator.not_drawn)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backend that claims every operator and computes it right."""
    return backend_of(tmp_path_factory.mktemp("npus"), "all_npu", EVERYTHING)


def test_a_backend_that_claims_every_operator_passes(everything: Path) -> None:
    backend = find_backend(str(everything))
    names = {claim.name for claim in claims_of(backend)}
    assert {f"q{name}" for name in OFFERED} - {"qlstm"} <= names
    report = check_backend(backend, draws=2 * len(names), seed=2)
    assert report.passed, report.failures
    assert all(counts.ran for counts in report.operators.values())
