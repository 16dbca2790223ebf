# SPDX-License-Identifier: Apache-2.0
"""Every path that a command takes: read, written, or neither. What is read is never written."""

from __future__ import annotations

import os
import re
import shutil
import typing
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import COMMANDS
from onnx import TensorProto, helper, numpy_helper
from remembering import remember
from umakit.cli.main import app, run_command

EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
CHOCOLATE = Path(__file__).parents[1] / "backends" / "chocolate_accelerator"

READ, WRITTEN, NEITHER = "read", "written", "neither"

NETWORK = {"model": READ, "backend": READ, "input_shapes": NEITHER}
MODEL = {**NETWORK, "rounding": NEITHER}
CHOICE = {"choose": NEITHER}
DECIDED: dict[str, dict[str, str]] = {
    # Where a backend is made nothing may be.
    "new": dict.fromkeys(
        ("name", "tutorial", "directory", "kind", "operators", "layout", "rounding", "array",
         "scratchpad", "simulator", "registers", "update"), NEITHER,
    ),
    "backends": {},
    "partition": {**MODEL, **CHOICE, "cpu": READ},
    "compile": {
        **MODEL, **CHOICE, "output": WRITTEN, "memory_map": WRITTEN, "records": READ,
        "cpu": READ, "name": NEITHER,
        "pool": NEITHER, "planner": NEITHER, "weights": NEITHER, "overlap": NEITHER,
    },
    "run": {
        "library": READ, "inputs": READ, "outputs": WRITTEN, "device": READ, "rtl": NEITHER,
        "wave": WRITTEN, "wave_layer": NEITHER, "trace": WRITTEN, "cpu": READ,
    },
    "cosim": {
        **MODEL, "inputs": READ, "output": WRITTEN, "layers": NEITHER, "corrupt": NEITHER,
    },
    "package": {"library": READ, "form": NEITHER, "output": WRITTEN},
    "diff": {
        **NETWORK, **CHOICE, "library": READ, "inputs": READ, "output": WRITTEN,
        "reference": NEITHER,
        "device": READ, "pool": NEITHER, "planner": NEITHER, "weights": NEITHER,
        "rounding": NEITHER, "wave": WRITTEN, "cpu": READ,
    },
    "report": {
        **MODEL, **CHOICE, "output": WRITTEN, "inputs": READ, "records": READ, "trace": WRITTEN,
        "compare": NEITHER, "fail_if": NEITHER, "budget": NEITHER, "write_budget": WRITTEN,
        "cpu": READ, "device": READ,
    },
    # Records that exist are read as well, as those of tune are.
    "sim": {
        **MODEL, "records": WRITTEN, "plot": WRITTEN, "set_": NEITHER, "sweep": NEITHER,
        "cost": NEITHER, "scheduler": NEITHER, "gemm": NEITHER, "dataflow": NEITHER,
    },
    # Records that exist are read as well, and replaced by more of them.
    "tune": {**MODEL, "records": WRITTEN, "scheduler": NEITHER, "cpu": READ, "device": READ},
    "size": {"library": READ, "device": READ, "cpu": READ},
    "doctor": {"backend": READ, "device": READ},
    "check": {
        "backend": READ, "operator": NEITHER, "case": NEITHER, "device": READ, "junit": WRITTEN,
        "wave": WRITTEN,
    },
    "calibrate": {"backend": READ, "output": WRITTEN, "device": READ},
}  # fmt: skip
"""By command, every argument and option that is a path or a text."""

PATHS_AND_TEXTS = (
    Path, Path | None, str, str | None, list[str] | None, list[Path] | None, tuple[str, str] | None,
)  # fmt: skip
SUFFIXES = {
    ("compile", "memory_map"): ".svg",
    ("package", "output"): ".tar",
    ("sim", "plot"): ".svg",
}
FIXED = {"check": ["--draws", "1"], "package": ["--format", "tar"], "report": ["--seed", "1"]}
NEEDED = {
    ("run", "wave"): ["--rtl", "strawberry_accelerator"],
    ("diff", "wave"): ["--rtl"],
    ("check", "wave"): ["--rtl", "--case", "qdense seed=1"],
}
"""What an output is refused without."""

ON_THE_HOST = {("run", "wave"), ("run", "trace"), ("diff", "wave"), ("check", "wave")}
"""Outputs that are refused with another device."""


def test_every_path_and_text_is_decided_about() -> None:
    taken = {}
    for command in app.registered_commands:
        assert command.callback is not None
        types = typing.get_type_hints(command.callback)
        name = command.name or command.callback.__name__
        taken[name] = {option for option, type_ in types.items() if type_ in PATHS_AND_TEXTS}
    assert taken == {name: set(options) for name, options in DECIDED.items()}


# --- a place with all inputs ---------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but for what a run built and the modules that Python compiled."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"build", "__pycache__"} & set(path.relative_to(folder).parts)
    }


DATA = "weights.svg"
"""A file of weights beside the model: of a name that a memory map may have."""


def small_model(location: str = DATA) -> bytes:
    """y = x + w, with w in another file."""
    shape = [1, 4]
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    onnx.external_data_helper.set_external_data(weights, location, offset=0, length=16)
    weights.ClearField("raw_data")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], "a")],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weights],
    )
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return model.SerializeToString()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each kind of input."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "model.onnx").write_bytes(small_model())
    (folder / DATA).write_bytes(np.ones(4, np.float32).tobytes())
    np.savez(folder / "in.npz", x=np.ones((1, 4), np.float32))
    assert run_command(["compile", str(folder / "model.onnx"), "-o", str(folder / "lib")]) == 0
    shutil.copytree(CHOCOLATE, folder / "npu", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def place(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it as the working folder."""
    shutil.copytree(exported, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "place"


def inputs_of(command: str, place: Path) -> dict[str, Path]:
    """The inputs that a command is given, by option."""
    files = {
        "model": place / "model.onnx", "backend": place / "npu", "library": place / "lib",
        "inputs": place / "in.npz", "records": place / "records.json",
        "cpu": place / "cpu.toml", "device": place / "board.toml",
    }  # fmt: skip
    given = {name: files[name] for name, kind in DECIDED[command].items() if kind is READ}
    if command == "diff":
        del given["backend"], given["cpu"]  # the library is compiled already
    if command == "tune":
        del given["cpu"], given["device"]  # in place of which there is a backend
    if "model" in given:
        given["data of the model"] = place / DATA
    if "cpu" in given:
        files["cpu"].write_text('name = "mine"')
    if "device" in given:
        files["device"].write_text('compiler = "gcc"')
    if "records" in given:
        files["records"].write_text('{"format": "umakit tuning records"}')
    return given


def line(command: str, given: dict[str, Path], outputs: dict[str, Path]) -> list[str]:
    """The command line."""
    words = list(FIXED.get(command, []))
    last = []
    for option in COMMANDS[command].params:
        value = {**given, **outputs}.get(str(option.name))
        if value is None:
            continue
        if option.param_type_name == "argument":
            last.append(str(value))
        else:
            words += [option.opts[0], str(value)]
    return [*words, "--", *last]


WAYS = ("same", "dots", "relative", "link", "hard link")


def another_way(path: Path, way: str, other: Path) -> Path:
    """Another path that leads to the same file."""
    if way == "link":
        other.symlink_to(path)
    elif way == "hard link":
        other.hardlink_to(path)
    elif way == "dots":
        return other.parent / "npu" / ".." / path.relative_to(other.parent)
    else:
        return path if way == "same" else path.relative_to(other.parent)
    return other


def targets(given: dict[str, Path]) -> list[Path]:
    """What must not be replaced: the inputs, and of folders some of their files."""
    files = [one for path in given.values() for one in sorted(path.glob("*.[tmp]*"))[:2]]
    return [*given.values(), *files]


OUTPUTS = [
    (command, option)
    for command, options in DECIDED.items()
    for option, kind in options.items()
    if kind is WRITTEN
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_no_input_is_an_output(
    command: str, option: str, way: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = SUFFIXES.get((command, option), "")
    given = inputs_of(command, place)
    if (command, option) in ON_THE_HOST:
        del given["device"]
    if suffix:  # inputs have names that the output may have
        given = {
            name: path
            if path.is_dir() or path.suffix == suffix
            else path.rename(path.with_suffix(suffix))
            for name, path in given.items()
        }
    if command == "package":
        written = place / "lib.tar"
        assert run_command(["package", "lib", "--format", "tar", "-o", str(written)]) == 0
        given = {"library": written}
    tried = 0
    for number, target in enumerate(targets(given)):
        other = place / f"other{number}{suffix or target.suffix}"
        if target.is_dir() and way == "hard link":
            continue
        output = another_way(target, way, other)
        if suffix and output.suffix != suffix:
            continue
        outputs = {"output": place / "fresh"} if option == "memory_map" else {}
        words = [
            *NEEDED.get((command, option), []),
            *line(command, given, {**outputs, option: output}),
        ]
        before = tree(place)
        ways = [[], ["--force"]] if way == "same" else [["--force"]]
        for force in ways if command != "tune" else [[]]:
            code = run_command([command, *force, *words])
            error = capsys.readouterr().err
            context = f"{command} {words}: {error}"
            assert code == 2 and error.count("\n") == 1, context
            assert "Traceback" not in error and output.name in error, context
            assert tree(place) == before, context
            tried += 1
    assert tried


@pytest.mark.parametrize(
    "words",
    ["diff -o data", "compile -o data", "compile -o .", "tune -b npu --records data/w/library.npz"],
)
def test_weights_below_the_model_stay(
    words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comparison writes files of names that it chooses itself."""
    location = "data/w/library.npz" if "w/" in words else "data/library.npz"
    (place / location).parent.mkdir(parents=True)
    shutil.copy(place / DATA, place / location)
    (place / "model.onnx").write_bytes(small_model(location))
    before = tree(place)
    for force in ([], ["--force"] if "tune" not in words else []):
        assert run_command([*words.split(), "model.onnx", *force]) == 2
        error = capsys.readouterr().err
        assert re.search(r"is the input|is an input|holds the input", error), error
        assert tree(place) == before


def test_files_of_a_backend_in_folders_below_stay(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else is in its folder may be written: a library, for example."""
    npu = place / "npu"
    (npu / "c").mkdir()
    (npu / "more").mkdir()
    (npu / "more" / "__init__.py").write_text("SHIFT = 1\n")
    source = (npu / "backend.py").read_text()
    driver = [path.name for path in npu.glob("*.[ch]")]
    assert len(driver) == 2
    for name in driver:
        (npu / name).rename(npu / "c" / name)
    source = source.replace('f"{driver}.', 'f"c/{driver}.')
    start = source.index("from umakit")
    (npu / "backend.py").write_text(f"{source[:start]}from .more import SHIFT\n{source[start:]}")
    before = tree(place)
    for name in (*(f"c/{name}" for name in driver), "more/__init__.py", "accel.toml"):
        words = ["report", "model.onnx", "-b", "./npu", "--force", "-o", f"npu/{name}"]
        assert run_command(words) == 2
        assert "no input is replaced" in capsys.readouterr().err, name
    assert run_command("compile model.onnx -b ./npu --force -o npu/c".split()) == 2
    assert "holds the input" in capsys.readouterr().err
    assert tree(place) == before
    assert run_command("compile model.onnx -b ./npu -o npu/library".split()) == 0


def test_results_in_the_folder_of_a_library(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(place)
    (place / "lib" / "results").mkdir()
    for name in ("lib/out.npz", "lib/results/out.npz", "lib/out.npz"):
        code = run_command(["run", "lib", "-i", "in.npz", "-o", name])
        assert code == 0, capsys.readouterr().err
    words = "diff model.onnx -l lib -i in.npz -o lib/results"
    assert run_command(words.split()) == 0, capsys.readouterr().err
    with np.load("lib/out.npz") as found:
        assert np.array_equal(found["y"], np.full((1, 4), 2, np.float32))
    # What the library consists of stays, and nothing is put among what is compiled.
    now = tree(place)
    listed = [path for path in before if path.startswith("lib/")]
    assert len(listed) > 10
    new = [f"lib/{folder}/new.npz" for folder in ("codegen/host/src", "runtime", "build/host")]
    for name in (*listed, *new, "lib/SHA256SUMS"):
        assert run_command(["run", "lib", "-i", "in.npz", "--force", "-o", name]) == 2, name
        assert re.search("no input is replaced|which is read", capsys.readouterr().err), name
    os.link(place / "lib" / "metadata.json", place / "lib" / "other.npz")
    assert run_command("run lib -i in.npz --force -o lib/other.npz".split()) == 2
    (place / "lib" / "other.npz").unlink()
    (place / "lib" / "mine.npz").write_text("mine")
    assert run_command("run lib -i in.npz -o lib/mine.npz".split()) == 2
    (place / "lib" / "mine.npz").unlink()
    assert tree(place) == now
    # A recompile keeps them. A library without a manifest is one as a whole.
    assert run_command("compile model.onnx -o lib".split()) == 0
    assert tree(place) == now
    shutil.copytree("lib", "copy", ignore=shutil.ignore_patterns("SHA256SUMS", "metadata.json"))
    capsys.readouterr()
    assert run_command("run copy -i in.npz -o copy/new.npz".split()) == 2
    assert "lies inside copy, which is read" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["beside", "around", "working folder"])
def test_an_output_folder_with_an_input_in_it_is_refused(
    kind: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copy("model.onnx", place / "lib" / "model.onnx")
    shutil.copy(DATA, place / "lib" / DATA)
    output = {"beside": place / "lib", "around": place, "working folder": Path()}[kind]
    if kind != "beside":
        os.chdir(place / "lib")
    before = tree(place)
    assert run_command(["compile", str(model), "-o", str(output), "--force"]) == 2
    assert "holds the input" in capsys.readouterr().err
    assert tree(place) == before


def test_a_command_again_replaces_what_it_wrote(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(monkeypatch, "umakit.tools.diff.diff_model", "umakit.tools.page.make_page")
    before = tree(place)
    for _ in range(2):
        for words in (
            "compile model.onnx -o lib2 --memory-map map.svg",
            "compile model.onnx -o lib2 --memory-map map.png",
            "compile model.onnx -o lib2.tar",
            "compile model.onnx -o lib2 --memory-map lib2/map.svg",
            "run lib2 -i in.npz -o out.npz",
            "package lib2 --format tar -o packed.tar",
            "package packed.tar --format arduino -o packed",
            "diff model.onnx --inputs in.npz -o difference",
            "report model.onnx -o page.html",
        ):
            assert run_command(words.split()) == 0, (words, capsys.readouterr().err)
    found = tree(place)
    assert {path: found[path] for path in before} == before
    # The inputs of a difference, compared again, stay where they are.
    inputs = (place / "difference/inputs.npz").stat()
    words = "diff model.onnx --inputs difference/inputs.npz -o difference"
    assert run_command(words.split()) == 0
    assert (place / "difference/inputs.npz").stat() == inputs


@pytest.mark.parametrize(
    "words",
    [
        "compile model.onnx -o fresh --memory-map mine.svg",
        "run lib -i in.npz -o mine.npz",
        "package lib --format tar -o mine.tar",
        "diff model.onnx -o mine",
        "report model.onnx -o mine.html",
        "report model.onnx -o page.html --trace mine.json",
        "run lib -i in.npz -o out.npz --trace mine.json",
        "tune model.onnx -b npu --records mine.json",
        "sim model.onnx -b npu --sweep array.rows=8 --records mine.json",
        "sim model.onnx -b npu --sweep array.rows=8 --plot mine.svg",
        "compile model.onnx -o mine",
        "package lib --format arduino -o mine",
        "new mine",
    ],
)
def test_files_of_others_are_refused_before_anything_is_done(
    words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine.svg", "mine.tar", "mine.html", "mine.json"):
        (place / name).write_text("mine")
    np.savez(place / "mine.npz", y=np.ones(3))
    (place / "mine").mkdir()
    shutil.copy(place / "mine.npz", place / "mine" / "inputs.npz")
    before = tree(place)
    assert run_command(words.split()) == 2
    error = capsys.readouterr().err
    assert "mine" in error and "exists" in error and error.count("\n") == 1, error
    assert tree(place) == before
