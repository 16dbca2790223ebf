# SPDX-License-Identifier: Apache-2.0
"""Refusals of the importers: each is produced by a test, listed on a page, and in plain words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import some
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx_node_tests import collected
from refusal_sites import ROOT, Site, all_sites, refused_by, sections_of

import umakit
from umakit.codegen.c_types import C_TYPES
from umakit.errors import UmakitError
from umakit.frontend.checks import ELEMENT_TYPES
from umakit.frontend.model import PAGE, USUAL, section_of

INTERNAL = re.compile(
    r"\b(TVM|tvm|TIR|tirx?|T|relax|Relax|te|topi)\b\.?(?!\w)|\bVar\b|BlockBuilder|ShapeExpr"
    r"|PrimFunc|object has no attribute|Traceback|Check failed|lines? skipped|NoneType"
    r"|\w+(Error|Exception)\b|0x[0-9a-f]{6}|InternalError|<class|\.(py|cc|h):\d+"
)
"""Words that only those know who have read TVM's or umakit's code."""

PLAIN = re.compile(r"operator|input|output|tensor|node|network|scale|ONNX|initializer")


def models(case: TestCase) -> list[onnx.ModelProto]:
    """A node test as it is, and with all inputs but the first one as constants."""
    changed = onnx.ModelProto()
    changed.CopyFrom(case.model)
    if len(changed.graph.input) < 2 or not case.data_sets:
        return [case.model]
    values = list(zip(changed.graph.input, case.data_sets[0][0], strict=False))[1:]
    try:
        constants = [numpy_helper.from_array(np.asarray(a), v.name) for v, a in values]
    except (TypeError, NotImplementedError, ValueError):
        return [case.model]
    changed.graph.initializer.extend(constants)
    del changed.graph.input[1:]
    return [case.model, changed]


def cases() -> list[TestCase]:
    """ONNX's node tests: about one of 80, in `make soak` all."""
    return some(collected(1 if "UMAKIT_EXAMPLES" in os.environ else 5), 10)


@pytest.mark.soak
def test_refusals_have_no_internal_words(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    refusals: dict[str, str] = {}
    for case in cases():
        for model in models(case):
            path.write_bytes(model.SerializeToString())
            try:
                umakit.compile_model(path, [], tmp_path / "library")
            except UmakitError as error:
                refusals[str(error)] = case.name
    assert len(refusals) > 10
    for message, name in refusals.items():
        assert not INTERNAL.search(message), f"{name}: {message}"
        assert PLAIN.search(message), f"{name}: {message}"
        assert "\n" not in message, f"{name}: {message}"
        assert path.name in message, f"{name}: {message}"


# --- the inventory --------------------------------------------------------------------------------

GUARDS = """
frontend/__init__.py import_model: its constants, or what it computes of
frontend/simplify.py _Folder._fold_batch_norm
frontend/onnx/checks.py _check_scale: operator … of node … has a scale that holds no numbers
frontend/onnx/importer.py NamingImporter.run: is put together
frontend/onnx/files.py make_padding_explicit
frontend/simplify.py _not_supported
frontend/tflite/graph.py _Reader._is_constant: the values of tensor … end early
frontend/torch/converter.py Converter._check_result: yields one tensor
frontend/torch/converter.py Converter._constant
frontend/torch/converter.py Converter._convert_node
frontend/torch/converter.py Converter._item_of: has a result number
frontend/torch/operators/layers.py _statistics_norm
frontend/torch/static.py _constants
frontend/torch/static.py _decomposed
operators/shapes.py select
operators/svdf.py _floats
operators/tflite_integers.py as_refusals
operators/unidirectional_sequence_lstm.py _floats
"""
"""Begins of refusals that no test produces: no file is known that gets there, because what is
refused before would, or only a bug of TVM or a machine without memory does."""

INTRODUCTION = """# What the importers refuse

A network that cannot be imported exactly is refused: exit code 2 and one sentence. The sentence
names the file, the operator and its node, the value that is in the way, and what to do. The section
of this page is at its end. Sections are named after the module of umakit that refuses. `…` stands
for what the message fills in. Where the second column is empty, the message says
"{default}".

## Limits

Sizes are checked with the shapes that ONNX infers, before anything is computed:

- A tensor has at most 2,147,483,647 elements, because generated C counts them in 32 bits.
- A tensor that is computed of constants alone has at most 2,147,483,647 bytes.
- All of these together have at most 2,147,483,647 bytes and 16 times the bytes of the file's
  constants.
- An axis is resized to at most 16,777,216 places, because coordinates are float32.

No option changes these limits: choose smaller dimensions, or compute the tensor before the export.
"""


def page() -> str:
    """The page of all refusals."""
    sections: dict[str, list[Site]] = {}
    for site in all_sites():
        sections.setdefault(site.module, []).append(site)
    parts = [INTRODUCTION.format(default=USUAL)]
    for module, sites in sorted(sections.items(), key=lambda item: section_of(item[0])):
        what = (sys.modules[module].__doc__ or "").strip().splitlines()[0]
        rows = [f"| {escaped(site.says)} | {escaped(site.fix.strip('…'))} |" for site in sites]
        table = "\n".join(["| what is refused | what to do |", "|---|---|", *dict.fromkeys(rows)])
        parts.append(f"## {section_of(module)}\n\n{what}\n\n{table}\n")
    return "\n".join(parts)


def escaped(text: str) -> str:
    """A text for a cell of a table."""
    return re.sub(r"([|<>*_\[\]])", r"\\\1", text)


def test_the_page_lists_all_refusals(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    path = ROOT / PAGE
    if request.config.getoption("--update-golden"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page()
    assert {section_of(site.module) for site in all_sites()} <= sections_of(page())
    record_property("covered", f"{len(all_sites())} refusals of the importers on {PAGE}")


def test_every_refusal_is_produced_by_a_test(
    record_property: Callable[[str, object], None],
) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    keys, tests = {site.key for site in all_sites()}, refused_by()
    guards = tuple(GUARDS.split("\n")[1:-1])
    missing = keys - tests.keys()
    unguarded = {key for key in missing if not key.startswith(guards)}
    assert not unguarded, "\n".join(sorted(unguarded))
    assert all(any(key.startswith(guard) for key in missing) for guard in guards), (
        "no guard any more"
    )
    assert not tests.keys() - keys, "nothing refuses so any more"
    for test in set(tests.values()):
        file, _, function = test.partition("[")[0].partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), test
    record_property(
        "covered",
        f"{len(keys)} refusals: {len(keys & tests.keys())} by {len(set(tests.values()))} tests, "
        f"{len(missing)} guards",
    )


@pytest.mark.soak
def test_these_tests_do_produce_them(tmp_path: Path) -> None:
    """Each test is run, and what it refuses is recorded."""
    pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    found, tests = tmp_path / "refusals.jsonl", refused_by()
    names = sorted(set(tests.values()))
    environment = {**os.environ, "REFUSALS": str(found), "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "refusal_sites", *names]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
    rows = [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()]
    missing = {(test, key) for key, test in tests.items()}
    missing -= {(row["test"], row["site"]) for row in rows}
    assert not missing, "\n".join(f"{test}: {key}" for test, key in sorted(missing))
    for row in rows:
        assert "\n" not in row["message"], row


def test_element_types_are_those_of_generated_c() -> None:
    assert set(C_TYPES) == ELEMENT_TYPES
