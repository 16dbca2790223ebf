# SPDX-License-Identifier: Apache-2.0
"""`uma` as its users meet it: help, output, files, exit codes and one-line errors."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import COMMANDS
from comparisons import some
from onnx import TensorProto, helper
from umakit.cli.main import parse_shapes, run_command

from umakit.devices import DEVICES
from umakit.errors import InputError
from umakit.library.packages import FORMATS
from umakit.memory.planners import PLANNERS
from umakit.version import __version__

EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
MODEL, HELD_OUT = EXAMPLES / "digits.onnx", EXAMPLES / "held_out.npz"
VANILLA = "vanilla_accelerator"
OTHER_FILES = ("calibrate", "cosim", "report", "sim", "tune")
"""Commands whose examples have files and backends that are not there."""

Uma = Callable[..., tuple[int, str, str]]


@pytest.fixture
def uma(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    """Run a command in this process: exit code, standard output, standard error.

    Lines of progress, which a slow machine prints, are left out.
    """
    monkeypatch.setattr(sys, "argv", ["uma"])
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, re.sub(r"^\[ *[\d.]+ s\] .*\n", "", captured.err, flags=re.M)

    return run


@pytest.fixture
def refused(uma: Uma) -> Callable[..., str]:
    """Run a command that is a user's mistake; its error in one line."""

    def run(*arguments: str | Path, code: int = 2) -> str:
        status, output, error = uma(*arguments)
        assert (status, output, error.count("\n")) == (code, "", 1), error
        assert error.startswith("error: ") and "Traceback" not in error
        return error.strip().removeprefix("error: ")

    return run


def process(*arguments: str | Path, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """`uma` in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "umakit.cli.main", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


def files(folder: Path) -> dict[str, bytes]:
    """Bytes of every file below a folder, but for what running built there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] != "build"
    }


def save_model(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    *,
    name: str = "model.onnx",
    domains: tuple[str, ...] = ("",),
) -> Path:
    """An ONNX file of float tensors."""

    def values(shapes: dict[str, list[int | str]]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        ]

    graph = helper.make_graph(nodes, "test", values(inputs), values(outputs))
    opsets = [helper.make_opsetid(domain, 17) for domain in domains]
    path = folder / name
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return path


def add_model(folder: Path, shape: list[int | str] | None = None) -> Path:
    """sum = left + right."""
    shape = shape or [2, 3]
    node = helper.make_node("Add", ["left", "right"], ["sum"], "adder")
    return save_model(folder, [node], {"left": shape, "right": shape}, {"sum": shape})


def relu_model(folder: Path, shape: list[int | str]) -> Path:
    """y = max(x, 0)."""
    return save_model(
        folder, [helper.make_node("Relu", ["x"], ["y"], "r")], {"x": shape}, {"y": shape}
    )


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of the digits network on Vanilla."""
    library = tmp_path_factory.mktemp("compiled") / "digits"
    command = ["compile", str(MODEL), "--backend", VANILLA, "--output", str(library)]
    assert run_command(command) == 0
    return library


@pytest.fixture(scope="module")
def adder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with two inputs, for the CPU alone."""
    folder = tmp_path_factory.mktemp("adder")
    assert run_command(["compile", str(add_model(folder)), "-o", str(folder / "library")]) == 0
    return folder / "library"


def save_arrays(path: Path, **arrays: npt.NDArray[Any]) -> Path:
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    return path


NOTE = (
    "note: input 'image': symbolic dimension 'batch' is bound to 1 "
    "(--input-shapes chooses another size)\n"
)
IMAGE = np.load(HELD_OUT)["image"][0].reshape(1, 1, 8, 8)


# --- help and start-up --------------------------------------------------------------------------


def test_help_lists_every_command(uma: Uma) -> None:
    code, output, _ = uma("--help")
    assert code == 0
    assert all(re.search(rf"\b{command}\b", output) for command in COMMANDS)


def test_no_command_at_all_shows_the_help(uma: Uma) -> None:
    _, output, error = uma()
    assert "Usage: uma" in output + error


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example(command: str, flag: str, uma: Uma) -> None:
    code, output, _ = uma(command, flag)
    assert code == 0
    assert f"Usage: uma {command}" in output
    assert re.search(rf"Examples?:\s+uma {command} ", output)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("compile", list(PLANNERS)),
        ("run", [device.name for device in DEVICES]),
        ("size", [device.name for device in DEVICES]),
        ("package", [f"{form.name}: {form.description}" for form in FORMATS.values()]),
    ],
)
def test_the_help_lists_what_is_registered(command: str, names: list[str], uma: Uma) -> None:
    """Without importing TVM: see `test_what_does_not_need_tvm_does_not_import_it`."""
    output = re.sub(r"[\s│]+", " ", uma(command, "--help")[1])
    assert len(names) > 1 and [name for name in names if name not in output] == []


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - OTHER_FILES))
def test_the_example_in_the_help_is_a_valid_command(
    command: str, uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODEL, tmp_path)
    shutil.copy(HELD_OUT, tmp_path)
    if command in ("run", "size", "package"):
        assert uma("compile", MODEL, "-b", VANILLA, "-o", "digits_library")[0] == 0
    _, output, _ = uma(command, "--help")
    examples = re.split(r"Examples?:", output)[1]
    example = " ".join(re.split(r"\n\s*\n", examples)[0].split())
    code, _, error = uma(*example.split()[1:])
    assert (code, re.sub(r"note: not given, so .*\n", "", error.replace(NOTE, ""))) == (0, "")


def test_the_version_is_printed(uma: Uma) -> None:
    assert uma("--version") == (0, f"umakit {__version__}\n", "")


def test_a_report_of_a_bug_has_all_versions(uma: Uma) -> None:
    code, text, _ = uma("--version", "--verbose")
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert code == 0 and lines["umakit"] == __version__
    assert lines["python"].endswith(platform.python_version())
    for package in ("apache-tvm", "numpy", "onnxruntime"):
        assert lines[package].split()[0] == version(package)
    assert any("gcc" in name or name.endswith("cc") for name in lines)
    assert uma("--verbose")[0] == 2


WITHOUT_TVM = [
    ["--help"],
    ["--version"],
    ["compile", "--help"],
    ["package", "--help"],
    ["new", "lazy_npu", "--kind", "library"],
    ["backends"],
    ["run", "LIBRARY", "--inputs", str(HELD_OUT)],
    ["run", "missing", "--inputs", "missing.npz"],
    ["size", "LIBRARY"],
    ["compile", str(MODEL), "-o", "out", "--input-shapes", "nonsense"],
]


@pytest.fixture(scope="module")
def imported(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Heavy modules that each of WITHOUT_TVM imported, in one new process."""
    folder = tmp_path_factory.mktemp("imported")
    commands = [[str(digits) if w == "LIBRARY" else w for w in words] for words in WITHOUT_TVM]
    code = (
        "import json, pathlib, sys; from umakit.cli.main import run_command\n"
        "heavy, seen = [], set()\n"
        f"for command in {commands!r}:\n"
        "    run_command(command)\n"
        "    found = {'tvm', 'tvm_ffi', 'onnx', 'scipy', 'torch'} & set(sys.modules)\n"
        "    heavy.append(sorted(found - seen)); seen |= found\n"
        "pathlib.Path('imported').write_text(json.dumps(heavy))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True)
    modules: list[list[str]] = json.loads((folder / "imported").read_text())
    return modules


@pytest.mark.parametrize(
    "number", range(len(WITHOUT_TVM)), ids=[" ".join(words[:2]) for words in WITHOUT_TVM]
)
def test_what_does_not_need_tvm_does_not_import_it(number: int, imported: list[list[str]]) -> None:
    assert imported[number] == []


def test_compiling_a_network_of_another_format_does_not_import_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = (
        "import sys; from umakit.cli.main import run_command; "
        f"run_command(['compile', {str(MODEL)!r}, '-o', 'out']); "
        "assert 'tvm' in sys.modules and 'torch' not in sys.modules; "
        "import torch; assert torch.ones(2).sum() == 2"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["run"], ["compile", "m.onnx"], ["run", "--no"]],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], uma: Uma) -> None:
    code, output, error = uma(*arguments)
    assert (code, output) == (2, "")
    assert "Usage: uma" in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "x", "--inputs", "y", "--repeat", "0"], "--repeat: input should be greater than"),
        (["cosim", "x", "--sample", "0"], "--sample: input should be greater than or equal to 1"),
        (["cosim", "x", "--sample", "two"], "--sample: input should be a valid integer"),
        (
            ["check", "x", "--program", "-1"],
            "--program: input should be greater than or",
        ),
        (["check", "x", "--seconds", "nan"], "--seconds: input should be greater than"),
    ],
)
def test_a_wrong_value_is_one_sentence(arguments: list[str], sentence: str, uma: Uma) -> None:
    code, output, error = uma(*arguments)
    assert (code, output) == (2, "")
    (line,) = error.splitlines()
    assert line.startswith(f"error: {sentence}")
    assert line.endswith(f"; `uma {arguments[0]} --help` says more")


# --- backends -----------------------------------------------------------------------------------


def test_backends_lists_names_and_origins(uma: Uma) -> None:
    code, output, _ = uma("backends", "--json")
    listed = json.loads(output)
    assert code == 0
    assert {"name", "origin", "location"} == set(listed[0])
    assert [item["origin"] for item in listed if item["name"] == VANILLA] == ["umakit"]
    code, table, _ = uma("backends")
    assert code == 0 and re.search(rf"{VANILLA}\s+umakit\s", table)


@pytest.mark.parametrize("columns", ["", "abc", "0", "-5", "30"])
def test_any_width_of_the_terminal_is_fine(
    columns: str, uma: Uma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, output, error = uma("backends")
    assert (code, error) == (0, "") and output


def test_an_unknown_backend_is_named_with_the_known_ones(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    for command in (["partition", MODEL], ["compile", MODEL, "-o", tmp_path / "out"]):
        error = refused(*command, "--backend", "vanila")
        assert "there is no backend 'vanila'" in error and VANILLA in error
    assert list(tmp_path.iterdir()) == []


# --- partition ----------------------------------------------------------------------------------


def test_partition_prints_stable_json(uma: Uma) -> None:
    code, output, error = uma("partition", MODEL, "--backend", VANILLA, "--json")
    rows = json.loads(output)
    assert (code, error) == (0, NOTE)
    assert all(list(row) == ["operator", "name", "where", "reason"] for row in rows)
    by_name = {(row["operator"], row["name"]): row for row in rows}
    assert by_name["nn.conv2d", "conv1"]["where"] == VANILLA
    strided = by_name["nn.conv2d", "conv3_stride2"]
    assert (strided["where"], strided["reason"]) == ("cpu", "stride 2x2: the array steps by 1x1")
    assert all((row["where"] == "cpu") == bool(row["reason"]) for row in rows)


def test_partition_prints_a_table_with_the_same_content(uma: Uma) -> None:
    code, output, _ = uma("partition", MODEL, "--backend", VANILLA)
    assert code == 0
    assert re.search(r"nn\.conv2d\s+conv3_stride2\s.*cpu\s+stride 2x2: the array steps by", output)
    assert re.search(r"^3 of \d+ operators offloaded, [\d.]+ % of [\d,]+ MACs$", output, re.M)


def test_partition_without_a_backend_says_so(uma: Uma) -> None:
    code, output, _ = uma("partition", MODEL, "--json")
    assert code == 0
    assert {(row["where"], row["reason"]) for row in json.loads(output)} == {
        ("cpu", "no backend was given")
    }


# --- compile ------------------------------------------------------------------------------------


def test_compile_writes_a_library_in_model_library_format(digits: Path) -> None:
    assert {path.name for path in digits.iterdir()} >= {
        *("codegen", "metadata.json", "parameters", "src", "runtime", "README.md"),
        "CMakeLists.txt",
    }
    metadata = json.loads((digits / "metadata.json").read_text())
    assert metadata["version"] == 7
    assert list(metadata["modules"]) == ["digits"]
    assert list(digits.parent.iterdir()) == [digits]


def test_compile_names_what_it_wrote_and_what_comes_next(uma: Uma, tmp_path: Path) -> None:
    output = tmp_path / "out"
    code, text, error = uma("compile", MODEL, "--backend", VANILLA, "-o", output)
    assert (code, error) == (0, NOTE)
    assert "3 of" in text and "arena" in text
    assert f"Wrote {output}\n" in text and f"uma run {output} --inputs" in text


def test_compile_prints_json(uma: Uma, tmp_path: Path) -> None:
    code, text, error = uma("compile", MODEL, "-o", tmp_path / "out", "--json", "--name", "my net")
    assert (code, error) == (0, NOTE)
    printed = json.loads(text)
    assert printed["output"] == str(tmp_path / "out")
    assert printed["interface"] == "tvmgen_my_net"
    assert printed["memory"]["arena_bytes"] > 0


def test_compile_replaces_a_library(uma: Uma, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert uma("compile", add_model(tmp_path), "-o", output)[0] == 0
    (output / "notes.txt").write_text("mine")
    assert uma("compile", MODEL, "-o", output)[0] == 0
    assert (output / "notes.txt").read_text() == "mine"
    assert (output / "codegen/host/src/tvmgen_digits.c").is_file()
    assert not (output / "codegen/host/src/tvmgen_model.c").exists()


@pytest.mark.parametrize("kind", ["folder", "other metadata", "file", "link"])
def test_compile_leaves_what_is_not_its_own_alone(
    kind: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    if kind == "file":
        output.write_text("mine")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        output.symlink_to(tmp_path / "elsewhere")
    else:
        output.mkdir()
        (output / "thesis.txt").write_text("mine")
        if kind == "other metadata":
            (output / "metadata.json").write_text('{"name": "a data set of mine"}')
    before = files(tmp_path)
    assert "out: exists and is no" in refused("compile", MODEL, "-o", output)
    assert files(tmp_path) == before


def test_compile_into_an_empty_folder_is_fine(uma: Uma, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert uma("compile", add_model(tmp_path), "-o", tmp_path / "out")[0] == 0


@pytest.mark.parametrize("kind", ["empty", "library"])
def test_compile_into_the_working_folder_replaces_what_is_there(
    kind: str, digits: Path, uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    if kind == "library":
        assert uma("compile", add_model(tmp_path), "-o", place)[0] == 0
    else:
        place.mkdir()
    monkeypatch.chdir(place)
    code, _, error = uma("compile", MODEL, "--backend", VANILLA, "-o", ".")
    assert (code, error) == (0, NOTE)
    assert files(place) == files(digits)


def test_a_failed_compile_leaves_an_older_library_as_it_was(
    uma: Uma, refused: Callable[..., str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert uma("compile", add_model(tmp_path), "-o", output)[0] == 0
    before = files(tmp_path)
    refused("compile", tmp_path / "missing.onnx", "-o", output)
    assert files(tmp_path) == before


@pytest.mark.soak
@pytest.mark.parametrize("seed", some(["77", "0"], 2))
def test_compile_gives_the_same_bytes_in_any_process(
    seed: str, digits: Path, tmp_path: Path
) -> None:
    place = tmp_path / f"a b {seed}"
    place.mkdir()
    model = shutil.copy(MODEL, place)
    code, _, error = process(
        *("compile", Path(model).name, "--backend", VANILLA, "--output", "library"),
        cwd=place,
        PYTHONHASHSEED=seed,
        HOME=str(place),
        TZ="Asia/Tokyo",
    )
    assert code == 0, error
    assert files(place / "library") == files(digits)


# --- run ----------------------------------------------------------------------------------------


def test_run_writes_the_outputs(digits: Path, uma: Uma, tmp_path: Path) -> None:
    outputs = tmp_path / "out.npz"
    code, text, error = uma("run", digits, "--inputs", HELD_OUT, "--outputs", outputs)
    assert (code, error) == (0, "")
    assert f"Wrote {outputs}" in text
    with np.load(outputs) as written, np.load(HELD_OUT) as held_out:
        assert written.files == ["logits"]
        assert written["logits"].shape == (540, 1, 10) and written["logits"].dtype == np.float32
        assert f"logits: float32[{540}, 1, 10]" in text
        accuracy = (written["logits"][:, 0].argmax(axis=1) == held_out["label"]).mean()
    assert accuracy > 0.95
    assert list(tmp_path.iterdir()) == [outputs]


@pytest.mark.parametrize("key", ["image", "anything", "file", "größe"])
def test_a_model_with_one_input_takes_any_key(
    key: str, digits: Path, uma: Uma, tmp_path: Path
) -> None:
    from umakit.files.npz import npz_bytes

    inputs = tmp_path / "in.npz"
    inputs.write_bytes(npz_bytes({key: IMAGE}))
    code, text, _ = uma("run", digits, "--inputs", inputs)
    assert (code, text) == (0, "logits: float32[1, 10]\n")


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((1, 1, 8, 8), "[1, 10]"), ((3, 1, 1, 8, 8), "[3, 1, 10]"), ((3, 1, 8, 8), "[3, 1, 10]")],
)
def test_one_more_leading_dimension_is_that_many_inferences(
    shape: tuple[int, ...], wanted: str, digits: Path, uma: Uma, tmp_path: Path
) -> None:
    inputs = save_arrays(tmp_path / "in.npz", image=np.resize(IMAGE, shape))
    code, text, _ = uma("run", digits, "--inputs", inputs)
    assert (code, text) == (0, f"logits: float32{wanted}\n")


def test_inputs_in_another_memory_order_give_the_same_result(
    digits: Path, uma: Uma, tmp_path: Path
) -> None:
    results = []
    for order in ("C", "F"):
        inputs = save_arrays(tmp_path / "in.npz", image=np.array(IMAGE, order=order))
        assert uma("run", digits, "-i", inputs, "-o", tmp_path / f"{order}.npz")[0] == 0
        with np.load(tmp_path / f"{order}.npz") as written:
            results.append(written["logits"])
    np.testing.assert_array_equal(*results)


ROW = np.arange(6, dtype="float32").reshape(2, 3)


def test_two_inputs_are_told_apart_by_name(adder: Path, uma: Uma, tmp_path: Path) -> None:
    inputs = save_arrays(tmp_path / "in.npz", right=ROW * 10, left=ROW, label=np.arange(3))
    assert uma("run", adder, "-i", inputs, "-o", tmp_path / "out.npz")[0] == 0
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_array_equal(written["sum"], ROW * 11)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"left": ROW, "wrong": ROW}, "input 'right' is missing"),
        ({"left": ROW}, "input 'right' is missing; inputs are 'left', 'right'"),
        ({"a": ROW, "b": ROW}, "input 'left' is missing, and 'a' is not an input"),
        ({"left": ROW, "right": ROW[:1]}, r"input 'right' has shape (1, 3), the network wants"),
        (
            {"left": ROW, "right": ROW.T},
            "input 'right' has shape (3, 2), the network",
        ),
        ({"left": ROW, "right": ROW.astype("float64")}, "input 'right' is float64, the network"),
        ({"left": ROW, "right": ROW.astype("int32")}, "the network wants float32"),
        ({"left": ROW[None].repeat(2, 0), "right": ROW}, "different numbers of inferences"),
        ({"left": ROW[None].repeat(2, 0), "right": ROW[None].repeat(3, 0)}, "different numbers"),
        ({"left": ROW[None][:0], "right": ROW[None][:0]}, "input 'left' has shape (0, 2, 3)"),
        ({}, "input 'left' is missing"),
    ],
)
def test_wrong_inputs_are_refused(
    arrays: dict[str, npt.NDArray[Any]],
    message: str,
    adder: Path,
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    inputs = save_arrays(tmp_path / "in.npz", **arrays)
    outputs = tmp_path / "out.npz"
    assert message in refused("run", adder, "--inputs", inputs, "--outputs", outputs)
    assert not outputs.exists()


def test_a_run_without_inputs_says_how_to_make_some(
    adder: Path, refused: Callable[..., str], uma: Uma, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    said = refused("run", adder, "--profile")
    assert "input 'left' is missing; give --inputs FILE.npz" in said
    command = re.search(r"python -c '.*' (?=writes one with zeros)", said)
    assert command is not None
    subprocess.run(command[0], shell=True, check=True)
    code, printed, _ = uma("run", adder, "--profile", "--inputs", "in.npz")
    assert code == 0 and "host us: processor time of one inference\n" in printed


def test_inputs_may_have_the_other_byte_order(adder: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "out.npz"
    results = []
    for order in ("<f4", ">f4"):
        inputs = save_arrays(tmp_path / "in.npz", left=ROW, right=ROW.astype(order))
        words = ["run", str(adder), "--inputs", str(inputs), "--outputs", str(outputs)]
        assert run_command(words) == 0
        with np.load(outputs) as found:
            results.append({name: found[name] for name in found.files})
    assert results[0].keys() == results[1].keys()
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 truncated", b"\x89PNG\r\n\x1a\n", b"text", HELD_OUT.read_bytes()[:500]],
    ids=["empty", "cut", "PNG", "text", "truncated"],
)
def test_a_file_that_is_no_npz_is_refused(
    content: bytes, digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    assert "is not an npz file" in refused("run", digits, "--inputs", tmp_path / "in.npz")


def test_an_npz_with_a_damaged_member_is_refused(
    digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    data = bytearray(save_arrays(tmp_path / "in.npz", image=IMAGE).read_bytes())
    data[200] ^= 0xFF
    (tmp_path / "in.npz").write_bytes(data)
    assert "is not an npz file" in refused("run", digits, "--inputs", tmp_path / "in.npz")


def test_an_npz_of_python_objects_is_refused(
    digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    inputs = save_arrays(tmp_path / "in.npz", image=np.array([print], dtype=object))
    assert "is not an npz file of plain arrays" in refused("run", digits, "--inputs", inputs)


def test_an_npy_file_is_refused(digits: Path, refused: Callable[..., str], tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", IMAGE)
    assert "is not an npz file" in refused("run", digits, "--inputs", tmp_path / "in.npy")


@pytest.mark.parametrize("place", ["missing.npz", "."])
def test_missing_inputs_are_refused(
    place: str, digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    assert "no such file" in refused("run", digits, "--inputs", tmp_path / place)


def test_outputs_that_cannot_be_written_are_refused(
    digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    missing = tmp_path / "missing" / "out.npz"
    assert "no such folder" in refused("run", digits, "-i", HELD_OUT, "-o", missing)
    assert "is a folder" in refused("run", digits, "-i", HELD_OUT, "-o", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing", "empty", "file"])
def test_a_missing_library_is_refused(
    place: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    error = refused("run", tmp_path / place, "--inputs", HELD_OUT)
    assert "is not a umakit library: there is no metadata.json" in error


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"text"', "{}", '{"umakit": {}}', '{"umakit": {"layers": []}}', "\xff"],
)
def test_damaged_metadata_is_refused(
    text: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "metadata.json").write_bytes(text.encode("latin-1"))
    error = refused("run", tmp_path, "--inputs", HELD_OUT)
    assert "metadata.json: is damaged" in error and "; export the library again" in error


@pytest.mark.parametrize("part", ["runtime/main.c", "codegen/host/src", "codegen"])
def test_a_library_with_missing_sources_is_refused(
    part: str, digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    copy = shutil.copytree(digits, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    target = copy / part
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    refused("run", copy, "--inputs", HELD_OUT)


def test_no_c_compiler_is_said_in_one_line(
    digits: Path, refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    error = refused("run", digits, "--inputs", HELD_OUT)
    assert error == "cannot run /nonexistent/cc: No such file or directory"
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no C compiler; install gcc or clang" in refused(
        "run", digits, "--inputs", HELD_OUT
    )


@pytest.mark.parametrize("compiler", ['cc "unclosed', "false"])
def test_a_compiler_that_cannot_be_used_is_said_in_one_line(
    compiler: str, digits: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    refused("run", digits, "--inputs", HELD_OUT)


@pytest.mark.parametrize("compiler", ["cc -O1 -g", "  "])
def test_the_compiler_may_have_flags_or_be_left_blank(
    compiler: str, digits: Path, uma: Uma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert uma("run", digits, "--inputs", HELD_OUT)[0] == 0


@pytest.mark.optimized  # users' way: files are compiled one by one
def test_a_compiler_that_refuses_is_quoted(
    digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    copy = shutil.copytree(digits, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    source = copy / "codegen/host/src/tvmgen_digits.c"
    source.write_text(source.read_text() + "nonsense\n")
    error = refused("run", copy, "--inputs", HELD_OUT)
    assert "tvmgen_digits.c" in error and "refused" in error


def test_a_changed_source_is_built_again(digits: Path, uma: Uma, tmp_path: Path) -> None:
    copy = shutil.copytree(digits, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    assert uma("run", copy, "--inputs", HELD_OUT)[0] == 0
    source = copy / "codegen/host/src/tvmgen_digits.c"
    text = source.read_text()
    source.write_text(text.replace("    return TVMGEN_DIGITS_OK;", "    return 7;"))
    code, _, error = uma("run", copy, "--inputs", HELD_OUT)
    assert code == 1 and "the run stopped with status 7" in error


def test_a_program_that_crashes_is_a_failed_run(
    digits: Path, refused: Callable[..., str], tmp_path: Path
) -> None:
    copy = shutil.copytree(digits, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    source = copy / "codegen/host/src/tvmgen_digits.c"
    crash = "    *(volatile int *)0 = 1;\n    return TVMGEN_DIGITS_OK;"
    source.write_text(source.read_text().replace("    return TVMGEN_DIGITS_OK;", crash))
    error = refused("run", copy, "--inputs", HELD_OUT, code=1)
    assert "the program was stopped by signal" in error


def test_a_read_only_library_runs(
    digits: Path, uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(digits, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    (copy / "build").touch()  # a folder cannot be made there, not even by root
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert uma("run", copy, "--inputs", HELD_OUT)[0] == 0
    assert list((tmp_path / "cache").rglob("run-*"))


def test_profile_counts_what_the_device_did(digits: Path, uma: Uma) -> None:
    code, text, _ = uma("run", digits, "--inputs", HELD_OUT, "--profile", "--json")
    report = json.loads(text)
    assert code == 0
    named = ["outputs", "mean_seconds", "runs", "layers", "totals", "accounting", "inferences"]
    assert (
        list(report) == [*named, "events", "wave", "cpu", "unused_backends"]
        and report["inferences"] is None
    )
    totals = report["totals"]
    own = [layer for layer in report["layers"] if layer["where"] == VANILLA]
    assert totals["clock_cycles"] == sum(layer["clock_cycles"] for layer in own)
    assert (totals["layers"], totals["measured_layers"]) == (len(own), len(own))
    assert totals["cpu_layers"] == len(report["layers"]) - len(own)
    assert totals["predicted_cycles"] is None and totals["predicted_layers"] == 0
    assert {layer["source"] for layer in own} == {"measured"}
    assert report["runs"] == 540
    conv2 = next(layer for layer in report["layers"] if layer["name"] == "conv2")
    assert conv2["where"] == VANILLA
    assert conv2["macs"] == conv2["device_macs"] == 16 * 16 * 9 * 64
    # Output stationary, 8 x 8: (64 / 8) * (16 / 8) folds of 8 + 8 + 144 - 2 cycles.
    assert conv2["cycles"] == 16 * 158
    assert all(layer["cycles"] == 0 for layer in report["layers"] if layer["where"] == "cpu")


def test_profile_prints_a_table_with_a_total(digits: Path, uma: Uma) -> None:
    code, text, _ = uma("run", digits, "--inputs", HELD_OUT, "--profile")
    assert code == 0
    header = r"^layer\s+where\s+MACs\s+cycles\s+MACs/cycle\s+CPU us\s+simulator us$"
    assert re.search(header, text, re.M)
    assert re.search(
        r"^conv2\s+vanilla_accelerator\s+147,456\s+2,546\s+57\.9\s+[\d,.]+\s+[\d,.]+$", text, re.M
    )
    assert re.search(r"^total\s+[\d,]+\s+[\d,]+\s+[\d,.]+\s+[\d,.]+$", text, re.M)


def test_repeat_and_print_time(adder: Path, uma: Uma, tmp_path: Path) -> None:
    inputs = save_arrays(tmp_path / "in.npz", left=ROW, right=ROW)
    code, text, _ = uma("run", adder, "--inputs", inputs, "--print-time", "--repeat", "7")
    assert code == 0
    header, *_, figures = text.split("\n", 1)[1].strip().splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        f"{name} (ms)" for name in ("mean", "median", "max", "min", "std")
    ]
    mean, median, most, least, _ = map(float, figures.split())
    assert least <= median <= most and least <= mean <= most
    code, text, _ = uma("run", adder, "--inputs", inputs, "--repeat", "7", "--json")
    assert json.loads(text)["runs"] == 7


# --- models that cannot be read -----------------------------------------------------------------


BAD_FILES = {
    "empty": b"",
    "truncated": MODEL.read_bytes()[: MODEL.stat().st_size // 2],
    "cut short": MODEL.read_bytes()[:-1],
    "PNG": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "text": b"this is not a model\n",
    "zeros": bytes(1000),
    "JSON": b'{"model": 1}',
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("command", ["partition", "compile"])
def test_a_file_that_is_no_model_is_refused(
    kind: str, command: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(BAD_FILES[kind])
    options = ["--output", tmp_path / "out"] if command == "compile" else []
    error = refused(command, path, *options)
    assert error.startswith(f"{path}: ")
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_model_or_a_folder_is_refused(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    assert "missing.onnx: no such file" in refused("partition", tmp_path / "missing.onnx")
    assert "is a folder, not a model file" in refused("partition", tmp_path)


@pytest.mark.parametrize(("operator", "domain"), [("Det", ""), ("FancyThing", "com.acme")])
def test_an_unsupported_operator_is_named_with_node_and_file(
    operator: str, domain: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = save_model(
        tmp_path,
        [helper.make_node(operator, ["x"], ["y"], "culprit", domain=domain)],
        {"x": [4, 4]},
        {"y": []},
        name="detector.onnx",
        domains=("", domain) if domain else ("",),
    )
    error = refused("compile", path, "--output", tmp_path / "out")
    assert operator in error and "'culprit'" in error and "detector.onnx" in error
    assert not (tmp_path / "out").exists()


def test_an_operator_that_cannot_become_c_is_named_as_in_the_model(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    path = save_model(
        tmp_path,
        [helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["selected"], "picker")],
        {"boxes": [1, 4, 4], "scores": [1, 1, 4]},
        {"selected": ["found", 3]},
    )
    error = refused("compile", path, "--output", tmp_path / "out")
    assert "picker" in error
    assert not (tmp_path / "out").exists()


def test_a_shape_that_does_not_fit_is_named_with_its_node(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    node = helper.make_node("Add", ["left", "right"], ["sum"], "adder")
    path = save_model(tmp_path, [node], {"left": [2, 3], "right": [2, 4]}, {"sum": [2, 3]})
    error = refused("partition", path)
    assert "Add" in error and "'adder'" in error and "model.onnx" in error


# --- symbolic dimensions ------------------------------------------------------------------------


def test_a_symbolic_dimension_is_bound_to_one_with_a_note(uma: Uma, tmp_path: Path) -> None:
    path = relu_model(tmp_path, ["batch", 4])
    code, text, error = uma("compile", path, "-o", tmp_path / "out", "--json")
    assert code == 0
    assert error == (
        "note: input 'x': symbolic dimension 'batch' is bound to 1 "
        "(--input-shapes chooses another size)\n"
    )
    assert json.loads(text)["inputs"][0]["shape"] == [1, 4]
    # What was decided stays with the library.
    assert [f"note: {notice}\n" for notice in json.loads(text)["notices"]] == [error]


@pytest.mark.parametrize("text", ["x:[3,4]", "x:3,4", "x: [3, 4]", " x :[3,4]"])
def test_input_shapes_choose_the_size(text: str, uma: Uma, tmp_path: Path) -> None:
    path = relu_model(tmp_path, ["batch", 4])
    code, printed, error = uma(
        "compile", path, "-o", tmp_path / "out", "--json", "--input-shapes", text
    )
    assert (code, error) == (0, "")
    assert json.loads(printed)["inputs"][0]["shape"] == [3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("z:[3,4]", "there is no input 'z'; inputs are x"),
        ("x:[3,5]", "dimension 1 of input 'x' is 4, not 5"),
        ("x:[3]", "input 'x' has 2 dimensions, not 1"),
        ("x:[3,4,5]", "input 'x' has 2 dimensions, not 3"),
        *((text, "is not of the form name:[1,3,224,224]") for text in ("x", "x:", "x:[]", "[3,4]")),
        *((text, "is not of the form") for text in ("x:[a,4]", "x:[0,4]", "x:[-1,4]", "x:[3.0,4]")),
        *((text, "is not of the form") for text in ("x:[3,,4]", "x=[3,4]")),
        (":[3,4]", "there is no input ''; inputs are x"),
    ],
)
def test_wrong_input_shapes_are_refused(
    text: str, message: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    path = relu_model(tmp_path, ["batch", 4])
    for command in (["partition", path], ["compile", path, "-o", tmp_path / "out"]):
        assert message in refused(*command, "--input-shapes", text)
    assert not (tmp_path / "out").exists()


def test_an_input_name_may_hold_colons() -> None:
    assert parse_shapes(["a:b:0:[1,2]", "c:[3]"]) == {"a:b:0": [1, 2], "c": [3]}
    with pytest.raises(InputError):
        parse_shapes(["a:b"])
