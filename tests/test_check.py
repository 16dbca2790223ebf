# SPDX-License-Identifier: Apache-2.0
"""`uma check`: right backends pass, and what is wrong is found and named."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from console import type_along
from umakit.cli import check as check_command
from umakit.cli.main import run_command

from umakit import find_backend
from umakit.errors import AcceleratorConfigError, BuildError, InputError
from umakit.testing import check_backend, check_layer
from umakit.testing.check import search
from umakit.testing.check.cases import read_case
from umakit.testing.check.report import CheckReport, Counts, Failure
from umakit.testing.registers import RegisterReport
from umakit.tools.scaffold import new_backend

ROOT = Path(__file__).parents[1]
STRAWBERRY = "strawberry_accelerator"


def edited(folder: Path, name: str, file: str, old: str, new: str) -> Path:
    """A copy of a reference backend with one text of a file replaced."""
    copy = folder / name
    shutil.copytree(ROOT / "backends" / name, copy)
    text = (copy / file).read_text(encoding="utf-8")
    assert old in text
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")
    return copy


def test_layers_of_each_operator_run_and_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "check.xml"
    arguments = ["check", STRAWBERRY, "--draws", "12", "--seed", "3", "--json", "--junit"]
    assert run_command([*arguments, str(junit)]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is None and report["failures"] == []
    assert any("qconv2d: no layer with kernel" in each for each in report["incomplete"])
    assert re.fullmatch(
        r"incomplete: nothing is wrong in what ran, but \d+ of \d+ values have not run "
        r"\(--json names them\)\. --draws \d+ runs each\.",
        report["verdict"],
    )
    assert report["registers"]["registers"] == 101 and not report["registers"]["differences"]
    assert set(report["operators"]) == {"qconv2d", "qdense", "qdepthwise"}
    assert sum(counts["drawn"] for counts in report["operators"].values()) == 12
    assert all(counts["ran"] for counts in report["operators"].values())
    suite = ElementTree.parse(junit).getroot()
    assert {test.get("name") for test in suite} == {"registers", *report["operators"]}
    assert not suite.findall("testcase/failure")


def test_the_text_of_a_case_is_read_back() -> None:
    text = "qconv2d height=5 padding=same input_zero_point=-128 seed=7 then qdense outputs=3"
    case = read_case(text)
    assert str(case) == text
    assert case.layers[0].settings["input_zero_point"] == -128


@pytest.mark.parametrize(
    "case, reason",
    [
        ("", "names no pattern"),
        ("qconv2d height", "NAME=VALUE"),
        ("qconv2d hight=3", "no setting 'hight'; write height"),
        ("qconv2d padding=some", "not possible"),
        ("qpool height=3", "no pattern 'qpool'; patterns are qconv2d"),
        ("qconf2d height=3", "no pattern 'qconf2d'; write qconv2d"),
        ("qconv2d kernel_height=5", "no such layer"),
    ],
)
def test_a_wrong_case_is_refused_by_name(case: str, reason: str) -> None:
    backend = find_backend(STRAWBERRY)
    with pytest.raises(InputError, match=reason) as caught:
        check_layer(backend, case)
    # What it says is to be done is done, and mends the case.
    fix = caught.value.fix
    if "the report" in fix:
        case = "qconv2d height=3 seed=2"
    elif found := re.fullmatch(r"write (\w+)", fix):
        wrong = re.search(r"no (?:setting|pattern) '(\w+)'", caught.value.what)
        assert wrong is not None
        case = case.replace(wrong[1], found[1])
    elif found := re.match(r"patterns are (\w+)|say (?:one of|an integer, such as) (\w+)", fix):
        case = found[1] or re.sub("=.*", f"={found[2]}", case)
    else:
        return
    assert check_layer(backend, case).passed


def test_a_single_layer_that_is_refused_did_not_run() -> None:
    report = check_layer(find_backend(STRAWBERRY), "qconv2d stride_y=3 seed=1")
    (counts,) = report.operators.values()
    assert (counts.drawn, counts.ran, counts.refused, counts.failed) == (1, 0, 1, 0)
    assert "does not run on the accelerator: stride 3x1" in report.failures[0].what


def test_a_pattern_that_accepts_nothing_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FIRST_TRIES", 200)
    folder = edited(
        tmp_path, STRAWBERRY, "patterns.py", "if needed > room:", "if needed > room or True:"
    )
    report = check_backend(find_backend(str(folder)), draws=5, operators=["qdense"])
    assert not report.passed
    assert "the pattern accepts no layer" in report.failures[0].what


def test_a_mistake_in_accel_toml_is_none_of_a_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = new_backend("lay_npu", tmp_path, kind="layer", flags={"operators": "dense"}).folder
    with (folder / "accel.toml").open("a", encoding="utf-8") as file:
        file.write("[sorces]\n")
    assert run_command(["check", str(folder), "--draws", "5"]) == 2
    assert re.search(r"accel\.toml:\d+: sorces: there is no such key", capsys.readouterr().err)


def test_a_mistake_that_a_stage_finds_in_accel_toml_is_none_of_a_layer(tmp_path: Path) -> None:
    """A simulator's header that is missing is noticed when a library is built."""
    folder = tmp_path / "nova_nn"
    shutil.copytree(ROOT / "examples" / "nova_nn", folder)
    file = folder / "accel.toml"
    file.write_text(file.read_text().replace("nova_nn_functions.h", "nova_nn_function.h"))
    with pytest.raises(
        AcceleratorConfigError,
        match=r"accel\.toml:\d+: sources\.headers: there.*; write Include/nova_nn_functions.h",
    ):
        check_backend(find_backend(str(folder)), draws=5)


def test_an_error_that_two_patterns_share_is_none_of_a_layer(tmp_path: Path) -> None:
    folder = edited(tmp_path, STRAWBERRY, f"{STRAWBERRY}.c", "pad_top, pad_left},", "missing},")
    with pytest.raises(BuildError, match="missing"):
        check_backend(find_backend(str(folder)), draws=5, operators=["qconv2d", "qdense"])


def test_a_bug_is_found_named_and_reduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = edited(
        tmp_path, STRAWBERRY, f"{STRAWBERRY}.c", "pad_top, pad_left},", "pad_left, pad_top},"
    )
    arguments = ["check", str(folder), "--operator", "qconv2d", "--draws", "60", "--jobs", "1"]
    assert run_command(arguments) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    what = next(line for line in lines if line.startswith("qconv2d: "))
    assert re.search(r"qconv2d of [\dx]+: element \[0, 1, 0, 0\].* is -?\d+ instead of -?\d+", what)
    command = shlex.split(lines[lines.index(what) + 1])
    case = read_case(command[command.index("--case") + 1])
    assert len(case.layers) == 1 and len(case.layers[0].settings) <= 5
    # Each failing layer belongs to one of the cases, or is counted as not examined.
    failed, not_examined = map(
        int, re.findall(r"^qconv2d +60 +\d+ +\d+ +(\d+) +(\d+)$", out, re.M)[0]
    )
    more = [int(each) - 1 for each in re.findall(r"^  (\d+) failing layers belong", out, re.M)]
    cases = out.count(" --case ")
    assert cases > 1 and more and cases + sum(more) + not_examined == failed
    assert lines[-1] == (
        f"wrong: {STRAWBERRY} has {cases} failures, in {failed} of 60 drawn cases "
        f"({not_examined} not examined)."
    )
    assert run_command(command[1:]) == 1
    assert f"wrong: {STRAWBERRY} has 1 failure, in 1 of 1 drawn cases." in capsys.readouterr().out
    assert check_layer(find_backend(STRAWBERRY), str(case)).passed


def test_a_printed_case_says_what_its_numbers_mean(capsys: pytest.CaptureFixture[str]) -> None:
    report = CheckReport("my_npu", 0, {"qdense": Counts(9, 8, 1, 5, not_examined=2)})
    case = read_case("qdense outputs=2 scales=0 seed=1")
    report.failures = [Failure("qdense", "is wrong", case, "look here", layers=3)]
    check_command._print(report, "my_npu", None, values=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["operator", "drawn", "ran", "refused", "failed", "not", "examined"]
    assert lines[3:] == [
        "qdense: is wrong",
        "  uma check my_npu --case 'qdense outputs=2 scales=0 seed=1'",
        "  scales=0: one scale for each output channel",
        "  3 failing layers belong to this case",
        "  look here",
        "wrong: my_npu has 1 failure, in 5 of 9 drawn cases (2 not examined).",
    ]
    assert report.as_json()["verdict"] == lines[-1]


def test_registers_alone_have_a_verdict() -> None:
    report = CheckReport("my_npu", 0)
    report.add_registers(RegisterReport("registers.toml", 3))
    assert report.verdict == "my_npu is right in what was compared."
    report.add_registers(RegisterReport("registers.toml", 3, differences=["A", "B"]))
    assert report.verdict == "wrong: my_npu has 2 failures."
    assert [each.fix for each in report.failures] == ["change the device, or registers.toml", ""]


def test_predicted_cycles_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lane_npu"
    shutil.copytree(ROOT / "examples" / "lane_npu", folder)
    file = folder / "accel.toml"
    file.write_text(file.read_text().replace("transfer = 9", "transfer = 8"))
    assert run_command(["check", str(folder), "--operator", "qdense", "--draws", "4"]) == 3
    printed = capsys.readouterr().out
    case = re.search(r"for 0 of \d+ layers; the worst has .* \(-\d.\d\d %\): (qdense.*)", printed)
    assert case and read_case(case[1]).pattern == "qdense"


def test_patterns_of_float_operators_are_walked() -> None:
    report = check_backend(find_backend("vanilla_accelerator"), least_draws=12, seed=1)
    assert report.passed
    assert report.operators["conv2d"].ran >= 20


@pytest.mark.parametrize("width, stride", [(65536, 1), (80001, 2)])
def test_sizes_of_more_bits_than_registers_have_are_cut(width: int, stride: int) -> None:
    case = f"qmax_pool2d width={width} stride_x={stride}"
    report = check_layer(find_backend("chocolate_accelerator"), case)
    assert report.passed and report.operators["qmax_pool2d"].ran == 1


@pytest.mark.page
def test_the_page_prints_what_the_commands_print(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    assert type_along(ROOT / "docs" / "check.md", tmp_path, update=update) == 7
