# SPDX-License-Identifier: Apache-2.0
"""Nothing of a network runs on an accelerator: the warning, its advice, and `--require-offload`."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from umakit.cli.main import run_command

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
FLOAT, INT8 = str(DIGITS / "digits.onnx"), str(DIGITS / "digits_int8.onnx")
HELD_OUT = str(DIGITS / "held_out.npz")
VANILLA, STRAWBERRY = "vanilla_accelerator", "strawberry_accelerator"

BACKEND = """\
from umakit import UMABackend, patterns


class SmallBackend(UMABackend):
    target_name = "{name}"

    def __init__(self):
        super().__init__()
        self._register_pattern(
            *patterns.qconv2d("conv", {arguments})
        )
"""
ACCEL = '[accelerator]\nname = "small_npu"\n\n[array]\nrows = 1\ncolumns = 1\n'
OWN = 'layouts=["NCHW", "NHWC"], rounding=["ort", "tflm"]'


def backend(folder: Path, arguments: str, name: str = "small_npu") -> str:
    """A folder with a backend that takes some convolutions of int8."""
    (folder / name).mkdir()
    text = BACKEND.format(name=name, arguments=arguments)
    (folder / name / "backend.py").write_text(text, encoding="utf-8")
    (folder / name / "accel.toml").write_text(ACCEL, encoding="utf-8")
    return str(folder / name)


Applied = Callable[[list[str], str], list[str]]
"""Applies an advice to the words of a command."""


def replaced(old: str, new: str) -> Applied:
    return lambda words, fix: [new if word == old else word for word in words]


def with_rounding(words: list[str], fix: str) -> list[str]:
    found = re.search(r"try (--rounding) (\w+),", fix)
    assert found is not None
    return [*words, *found.groups()]


def before_the_others(words: list[str], fix: str) -> list[str]:
    first, second = (word for before, word in itertools.pairwise(words) if before == "-b")
    assert f"try {Path(second).name} before the others" in fix
    return [{first: second, second: first}.get(word, word) for word in words]


def at_the_place(words: list[str], fix: str) -> list[str]:
    found = re.search(r"\((\S+):(\d+)\)$", fix)
    assert found is not None
    path = Path(found[1])
    lines = path.read_text(encoding="utf-8").splitlines()
    number = int(found[2]) - 1
    changed = "\n".join(lines[number : number + 2]).replace(", kernels=9", "")
    assert "kernels" not in changed and "kernels=9" in "\n".join(lines)
    copy = path.parents[1] / "changed"  # what is imported is not imported again
    copy.mkdir()
    (copy / "backend.py").write_text("\n".join([*lines[:number], changed, *lines[number + 2 :]]))
    (copy / "accel.toml").write_text(ACCEL)
    return [str(copy) if word == str(path.parent) else word for word in words]


CASES: dict[str, tuple[str, list[str], str, str, Applied]] = {
    "integers on a backend for floats": (
        VANILLA, [INT8],
        'no pattern covers quantized.conv2d" (4 operators, 99.3 % of 180,480 MACs)',
        "try the float32 network that was quantized", replaced(INT8, FLOAT),
    ),
    "floats on a backend for integers": (
        STRAWBERRY, [FLOAT], 'no pattern covers nn.conv2d" (4 operators, 99.3 % of 180,480 MACs)',
        "try the network quantized to int8, as qconv2d of strawberry_accelerator takes it",
        replaced(FLOAT, INT8),
    ),
    "another rounding": (
        'layouts="NCHW", rounding="tflm"', [INT8],
        'rounding ort: the accelerator rounds as tflm" (4 operators, 99.3 % of 180,480 MACs)',
        "try --rounding tflm, ", with_rounding,
    ),
    "another layout": (
        'layouts="NHWC", rounding="ort"', [INT8, "--keep-layout"],
        'layout NCHW: the accelerator reads NHWC" (4 operators, 99.3 % of 180,480 MACs)',
        "try without --keep-layout",
        lambda words, fix: [word for word in words if word != "--keep-layout"],
    ),
    "another takes all": (
        OWN, [INT8, "-b", STRAWBERRY],
        'strawberry_accelerator takes it" (5 operators, 100.0 % of 180,480 MACs); ',
        "try small_npu before the others", before_the_others,
    ),
    "other kernels": (
        f"{OWN}, kernels=9", [INT8],
        'kernel 3x3: the accelerator has 9x9" (3 operators, 97.0 % of 180,480 MACs)',
        "`uma partition` lists the reason of each operator, which the patterns decide",
        at_the_place,
    ),
}  # fmt: skip
"""Backend, or arguments of its pattern; words of a command; reason, advice, how to apply it."""


@pytest.mark.parametrize("case", CASES)
def test_the_warning_has_the_reason_of_most_macs_and_advice_that_helps(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, options, reason, advice, apply = CASES[case]
    name = given if given in (VANILLA, STRAWBERRY) else "small_npu"
    words = [*options, "-b", given if name == given else backend(tmp_path, given)]

    def placements(words: list[str]) -> tuple[set[str], str]:
        assert run_command(["partition", *words, "--json"]) == 0
        printed = capsys.readouterr()
        places = {row["where"] for row in json.loads(printed.out)}
        return places, "".join(re.findall("^warning: .*", printed.err, re.MULTILINE))

    places, warning = placements(words)
    assert name not in places
    assert warning.startswith(f'warning: nothing runs on {name} because of "{reason}')
    assert f"; {advice}" in warning
    places, warning = placements(apply(words, warning))
    assert name in places and warning == ""


SMALL = {
    "memory": (
        r"size = 131072\nbanks = 16", "size = 128\nalignment = 32768",
        "as NHWC: needs 131,072 B, scratchpad has 128 B", "131,072", "size of scratchpad",
    ),
    "sums": (
        "sums = 32768", "sums = 16",
        "as NHWC: needs 64 B of accumulators, there are 16 B", "64", "sums",
    ),
}  # fmt: skip
"""What is too small in accel.toml for any tile; why convolutions stay on the CPU, and the mend."""


@pytest.mark.parametrize("kind", SMALL)
def test_a_memory_that_is_too_small_for_any_tile_is_named_with_its_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The network is NCHW, which is not the reason: it would get the accelerator's layout."""
    old, small, reason, needed, called = SMALL[kind]
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "small_npu", "--kind", "tiles", "--array", "16x16"]) == 0
    path = tmp_path / "small_npu" / "accel.toml"
    text, count = re.subn(old, small, path.read_text(encoding="utf-8"))
    assert count == 1
    path.write_text(text, encoding="utf-8")
    capsys.readouterr()

    def partition() -> tuple[list[dict[str, str]], str]:
        words = [INT8, "-b", "small_npu", "--rounding", "tflm", "--json"]
        assert run_command(["partition", *words]) == 0
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    rows, printed = partition()
    assert {row["reason"] for row in rows if row["operator"] == "quantized.conv2d"} == {reason}
    assert f'nothing runs on small_npu because of "{reason}" (4 operators, 99.3 %' in printed
    line = 1 + text[: text.index(small)].count("\n")
    assert (
        f"; the smallest tile of the largest layer takes {needed} B: "
        f"let {called} be as large, or larger "
        f"(small_npu/accel.toml:{line})"
    ) in printed
    key, _, found = small.split("\n")[0].partition(" = ")
    mended = text.replace(f"{key} = {found}", f"{key} = {needed.replace(',', '')}")
    path.write_text(mended, encoding="utf-8")
    rows, printed = partition()
    assert "nothing runs" not in printed and "small_npu" in {row["where"] for row in rows}


def test_a_memory_that_is_too_small_for_several_layers_is_to_fit_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "small_npu", "--kind", "tiles", "--array", "8x8"]) == 0
    path = tmp_path / "small_npu" / "accel.toml"
    text = path.read_text(encoding="utf-8")
    for size, taken in (("64", 0), ("400", 5)):
        path.write_text(text.replace("size = 131072\nbanks = 16", f"size = {size}\nbanks = 1"))
        capsys.readouterr()
        words = [INT8, "-b", "small_npu", "--rounding", "tflm", "--json"]
        assert run_command(["partition", *words]) == 0
        printed = capsys.readouterr()
        rows = json.loads(printed.out)
        assert sum(row["where"] == "small_npu" for row in rows) == taken
        advice = "the smallest tile of the largest layer takes 400 B: let size of scratchpad be"
        assert (advice in printed.err) is (taken == 0)


WORDS = {
    "partition": ["partition", FLOAT, "-b", STRAWBERRY],
    "compile": ["compile", FLOAT, "-b", STRAWBERRY, "-o", "out"],
    "report": ["report", FLOAT, "-b", STRAWBERRY, "-o", "page.html"],
    "diff": ["diff", FLOAT, "-b", STRAWBERRY, "--most", "1", "--reference", "cpu"],
    "sim": ["sim", FLOAT, "-b", STRAWBERRY],
    "run": ["run", "library", "-i", HELD_OUT],
    "size": ["size", "library"],
    "diff --library": ["diff", FLOAT, "--library", "library", "--most", "1", "--reference", "cpu"],
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unused") / "library"
    assert run_command(["compile", FLOAT, "-b", STRAWBERRY, "-o", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("command", WORDS)
def test_each_command_warns_and_json_says_so_too(
    command: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "library").symlink_to(library)
    said = f"nothing runs on {STRAWBERRY} because of "
    assert run_command([*WORDS[command], "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count(f"warning: {said}") == 1
    view = json.loads(printed.out)
    if command == "partition":
        return
    if command.startswith(("diff", "sim")):
        assert [each for each in view["notices"] if each.startswith(said)]
    else:
        (unused,) = view["unused_backends"]
        assert unused["backend"] == STRAWBERRY and unused["fix"].startswith("try the network")


def test_a_prediction_names_a_file_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions run on a copy of the backend, which is deleted."""
    monkeypatch.chdir(tmp_path)
    words = ["--kind", "tiles", "--operators", "depthwise"]
    assert run_command(["new", "my_npu", *words]) == 0
    capsys.readouterr()
    assert run_command(["sim", INT8, "-b", "./my_npu", "--rounding", "tflm", "--json"]) == 0
    printed = capsys.readouterr().err
    places = re.findall(r"\(([^()]+\.(?:py|toml))(?::\d+)?\)", printed)
    assert places and all(Path(place).is_file() for place in places), printed
    assert "umakit-sweep-" not in printed


def test_cosim_says_why_the_design_has_no_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["cosim", FLOAT, "-b", STRAWBERRY]) == 2
    error = capsys.readouterr().err
    assert f"nothing runs on {STRAWBERRY} because of" in error and "try the network" in error


REQUIRED = {
    "compile": ["compile", "MODEL", "-b", "BACKEND", "-o", "out"],
    "report": ["report", "MODEL", "-b", "BACKEND", "-o", "page.html"],
    "run": ["run", "library", "-i", HELD_OUT, "-o", "out.npz"],
}


@pytest.mark.parametrize("command", REQUIRED)
def test_offload_may_be_required(
    command: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "library").symlink_to(library)

    def run(model: str, name: str, *more: str) -> tuple[int, str]:
        words = [{"MODEL": model, "BACKEND": name}.get(word, word) for word in REQUIRED[command]]
        code = run_command([*words, *more, "--require-offload"])
        return code, capsys.readouterr().err

    code, error = run(FLOAT, STRAWBERRY)
    assert code == 1
    assert error.count("nothing runs on") == 1
    assert f"error: nothing runs on {STRAWBERRY} because of" in error
    assert [path.name for path in tmp_path.iterdir()] == ["library"]
    if command == "run":
        return
    assert run(FLOAT, VANILLA)[0] == 0
    # Each of several backends must have a layer.
    code, error = run(FLOAT, VANILLA, "-b", STRAWBERRY)
    assert code == 1 and f"error: nothing runs on {STRAWBERRY} because of" in error


def test_a_library_without_accelerators_is_not_offloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = str(tmp_path / "library")
    assert run_command(["compile", FLOAT, "-o", library]) == 0
    assert "warning" not in capsys.readouterr().err
    assert run_command(["run", library, "-i", HELD_OUT, "--require-offload"]) == 1
    assert "the network was compiled for none; name one with --backend" in capsys.readouterr().err
    assert run_command(["run", library, "-i", HELD_OUT]) == 0
