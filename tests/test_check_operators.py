# SPDX-License-Identifier: Apache-2.0
"""`uma check` draws layers of all operators that have a pattern, and of patterns of users."""

from __future__ import annotations

import contextlib
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umakit import find_backend, patterns
from umakit.errors import BackendError, InputError
from umakit.operators import registry
from umakit.operators.drawing import NotDrawable
from umakit.testing import check_backend, check_layer
from umakit.testing.check.cases import Case, read_case
from umakit.testing.check.drawing import Walk
from umakit.testing.check.session import Session

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
for name in patterns.__all__:
    kind = getattr(patterns, name)
    if name[0] == "q" and hasattr(kind, "KIND"):
        names = ("layouts", "batch", "groups", "rounding", "dtypes")
        given = {one: None for one in names if hasattr(kind, one)}
        self._register_pattern(*kind(**given))
"""
QUOTIENTS = "qdivide size=99 values=near_zero_point"
"""-1 LSB has 31 bits of headroom, which overflowed in LLVM's build."""

OWN = """
from tvm import relax
def layer(settings, random):
    if settings["columns"] == 7:
        raise ValueError("seven columns")
    shape = (settings["rows"], settings["length"])
    return [(shape, "int32"), (shape, "int32")], relax.op.bitwise_xor
drawing = patterns.drawn(layer, sizes=["length"], rows=(1, 3), length=(4, 5), columns=(1, 7))
any = patterns.wildcard
xor = patterns.is_op("relax.bitwise_xor")(any(), any())
self._register_pattern("xor", xor, drawing=drawing)
either = patterns.is_op("relax.bitwise_and")(any(), any())
broken = patterns.drawn(lambda settings, random: settings["size"], length=(1, 2))
self._register_pattern("broken", either, drawing=broken)
"""


def backend_of(folder: Path, name: str, body: str) -> Path:
    """A user's folder with a backend whose layers run as their patterns' own loops."""
    (folder / name).mkdir()
    (folder / name / "accel.toml").write_text(ACCEL.format(name))
    lines = "\n        ".join(body.strip("\n").splitlines())
    (folder / name / "backend.py").write_text(HEAD.format(lines, name))
    return folder / name


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_every_value_of_every_setting_is_drawn_or_refused(name: str) -> None:
    drawing = OFFERED[name].drawing
    assert drawing is not None
    first = {key: values[0] for key, values in drawing.settings.items()}
    roundings = drawing.settings.get("rounding", ("",))
    for key, values in drawing.settings.items():
        for value, rounding in itertools.product(values, roundings):
            chosen = {**first, **({"rounding": rounding} if rounding else {}), key: value}
            with contextlib.suppress(NotDrawable):
                drawing.build(chosen, None, np.random.default_rng(1))


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_each_operator_with_a_pattern_has_a_drawing(name: str) -> None:
    assert OFFERED[name].drawing is not None


def test_a_backend_that_claims_every_operator_passes(tmp_path: Path) -> None:
    """A drawn layer of each operator, in one library."""
    backend = find_backend(str(backend_of(tmp_path, "all_npu", EVERYTHING)))
    session, random = Session(backend, tmp_path), np.random.default_rng(2)
    names = {f"q{name}" for name in OFFERED}
    assert set(session.claims) == names | {"qdepthwise"}
    cases = [(read_case(QUOTIENTS), True)]
    for claim in session.claims.values():
        walk = Walk(claim, random)
        found = (each for each in iter(walk.draw, None) if each[1])
        cases.append((Case((next(found)[0],)), True))
    found = session.failures_of(cases)
    assert not found.failures
    assert [str(case) for case, ran in found.ran if not ran] == []


def test_a_pattern_of_the_user_is_drawn_as_he_says(tmp_path: Path) -> None:
    backend = find_backend(str(backend_of(tmp_path, "own_npu", OWN)))
    report = check_layer(backend, "xor length=7 rows=2")
    assert report.passed and report.operators["xor"].ran == 1
    with pytest.raises(InputError, match="no such layer: seven columns"):
        check_layer(backend, "xor columns=7")
    with pytest.raises(BackendError, match=r"backend.py:\d+: it raised KeyError: 'size'"):
        check_layer(backend, "broken")


def test_the_backend_of_the_page_is_whole(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "check.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from tvm.*?)```", page, re.DOTALL)
    folder = tmp_path / "my_npu"
    folder.mkdir()
    (folder / "backend.py").write_text(code)
    accel = '[accelerator]\nname = "my_npu"\n\n[device]\nsimulator = "none"\n'
    (folder / "accel.toml").write_text(accel)
    report = check_backend(find_backend(str(folder)), least_draws=8)
    assert report.passed and report.operators["xor"].ran >= 8


def test_a_pattern_that_cannot_be_drawn_says_how_to_draw_it(tmp_path: Path) -> None:
    body = OWN.replace("drawing=drawing", "drawing=None")
    folder = backend_of(tmp_path, "bare_npu", body)
    report = check_backend(find_backend(str(folder)), draws=1, operators=["xor"])
    (failure,) = report.failures
    before, _, _ = (folder / "backend.py").read_text().partition('self._register_pattern("xor"')
    line = 1 + before.count("\n")
    assert failure.what == "layers of xor cannot be drawn"
    assert f"backend.py:{line}, give _register_pattern('xor', ...) the argument" in failure.fix
    assert "drawing=patterns.drawn(LAYER, SETTING=(FIRST, ANOTHER))" in failure.fix


@pytest.mark.parametrize(
    "settings", [{"size": ()}, {"values": (1,)}, {"sizes": ("length",)}], ids=str
)
def test_a_drawing_of_no_layers_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="no values or a name that is taken"):
        patterns.drawn(lambda given, random: ([], None), **settings)
