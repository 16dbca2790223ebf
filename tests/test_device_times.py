# SPDX-License-Identifier: Apache-2.0
"""What a driver computes itself is told from what its device takes, in every table.

Drivers, devices and steps do planted work on a clock that nothing else moves. What each took is
known then: a work for each access to a register, which simulators count, and for each wait.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_clock import (
    CLOCK,
    DEVICE_READ,
    DEVICE_WAIT,
    DEVICE_WRITE,
    PARTS,
    READ,
    STEP,
    WAIT,
    WRITE,
    plant_in_device,
    plant_in_driver,
    plant_in_steps,
)
from strict import WARNINGS
from test_overlap import Branches
from tiny_npu import fast_compilers, needs_verilator, said_by_uma, write_backend
from umakit.cli.main import run_command
from umakit.sim import source_directory

from umakit import compile_model, find_backend, run_library
from umakit.devices import HOST
from umakit.devices.build import FLAGS, compile_c
from umakit.devices.objects import TIMES, with_timed_device
from umakit.devices.run import LayerProfile, RunResult
from umakit.library.layout import HOSTED_PLATFORM, RUNTIME
from umakit.library.metadata import load_metadata
from umakit.pipeline import ExportOptions
from umakit.tools.accounting import account
from umakit.tools.scaffold import new_backend

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
INT8 = DIGITS / "digits_int8.onnx"
FLAGS_OF_DIGITS = {"layout": "NCHW", "rounding": "ort"}


def planted(library: Path) -> Path:
    """Plant work in an exported library: in drivers, in the device of all simulators, in steps."""
    description = load_metadata(library)["umakit"]
    sources = library / "codegen" / "host" / "src"
    for paths in description["sources"]["drivers"].values():
        for path in paths:
            plant_in_driver(sources / path)
    plant_in_device(sources / "umakit_simulator.c")
    steps = [n for n, layer in enumerate(description["layers"]) if layer["where"] == "cpu"]
    plant_in_steps(sources / f"{description['interface']}.c", steps)
    (sources / "planted_clock.c").write_text(CLOCK, encoding="utf-8")
    return library


def nanoseconds(seconds: float | None) -> int:
    assert seconds is not None
    return round(seconds * 1e9)


def check_layers(layers: tuple[LayerProfile, ...]) -> int:
    """Every layer took what was planted; returns the number of those on accelerators."""
    count = 0
    for number, layer in enumerate(layers):
        whole, device = nanoseconds(layer.seconds), nanoseconds(layer.device_seconds)
        own = nanoseconds(layer.cpu_seconds)
        assert whole == own + device
        if layer.where == "cpu":
            assert (own, device) == (STEP * (number + 1), 0)
            continue
        count += 1
        reads, writes = layer.register_reads, layer.register_writes
        assert reads is not None and writes
        waits, rest = divmod(device - DEVICE_READ * reads - DEVICE_WRITE * writes, DEVICE_WAIT)
        assert rest == 0 and waits >= 0, layer
        assert own == READ * reads + WRITE * writes + WAIT * waits, layer
    return count


def inputs_of(library: Path, count: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    inputs = load_metadata(library)["umakit"]["inputs"]
    return {each["name"]: random.integers(0, 9, (count, *each["shape"])).astype(each["dtype"])
            for each in inputs}  # fmt: skip


def ran(library: Path, **options: Any) -> RunResult:
    return run_library(library, inputs_of(library, 2), profile=True, timeout=60, **options)


def new(kind: str, folder: Path) -> Path:
    """A new project that takes the layers of the digits' network."""
    return new_backend("planted_npu", folder, kind=kind, flags=FLAGS_OF_DIGITS).folder


def written(kind: str) -> Callable[[Path], Path]:
    return lambda folder: new(kind, folder)


def program(folder: Path) -> Path:
    """A simulator that is a program in another language."""
    place = folder / "relu_npu"
    shutil.copytree(ROOT / "tests" / "programs" / "relu_npu", place)
    shutil.copy(ROOT / "umakit" / "testing" / "simulator_program.py", place)
    return place


BACKENDS: dict[str, tuple[str, tuple[str | Callable[[Path], Path], ...]]] = {
    "float array": ("digits.onnx", ("vanilla_accelerator",)),
    "scratchpad": ("digits_int8.onnx", ("strawberry_accelerator",)),
    "tiles, several engines": ("digits_int8.onnx", ("chocolate_accelerator",)),
    "two accelerators": ("digits_int8.onnx", ("strawberry_accelerator", "chocolate_accelerator")),
    "layer": ("digits_int8.onnx", (written("layer"),)),
    "tiles": ("digits_int8.onnx", (written("tiles"),)),
    "own simulator": ("digits_int8.onnx", (lambda folder: ROOT / "examples" / "lane_npu",)),
    "program": ("digits.onnx", (program,)),
}  # fmt: skip


def compiled(case: str, folder: Path) -> Path:
    model, backends = BACKENDS[case]
    found = [find_backend(each if isinstance(each, str) else each(folder)) for each in backends]
    compile_model(DIGITS / model, found, folder / "library")
    return folder / "library"


@pytest.mark.parametrize("case", BACKENDS)
def test_layers_take_what_was_planted(case: str, tmp_path: Path) -> None:
    library = planted(compiled(case, tmp_path))
    result = ran(library)
    assert check_layers(result.layers) >= 3
    description = load_metadata(library)["umakit"]
    accounting = account(description, result)
    host = accounting.host
    layers = [each for each in result.layers if each.where != "cpu"]
    assert {each.where for each in layers} == {each["name"] for each in description["backends"]}
    assert host.drivers == pytest.approx(sum(each.cpu_seconds or 0 for each in layers), abs=1e-12)
    assert host.devices == pytest.approx(sum(each.device_seconds or 0 for each in layers))
    assert (host.drivers or 0) + (host.devices or 0) + (host.steps or 0) == pytest.approx(
        sum(each.seconds or 0 for each in result.layers), abs=1e-12
    )
    assert ("without the processes that simulate" in host.sentences[-1]) == (case == "program")
    assert "processor time of one inference" in host.sentences[0]
    assert (f", mean of {result.runs}" in host.sentences[0]) == (result.runs > 1)


def test_layers_that_the_cpu_does_not_wait_for(tmp_path: Path) -> None:
    """A profile waits for each layer at once, as all figures of it need."""
    inputs = Branches(0).save(["c", "ss"], tmp_path / "network.onnx")
    library = tmp_path / "library"
    backends = [find_backend("chocolate_accelerator")]
    compile_model(
        tmp_path / "network.onnx", backends, library, options=ExportOptions(overlap="always")
    )
    planted(library)
    assert "WAIT_AT_ONCE(" in (library / "codegen/host/src/tvmgen_network.c").read_text()
    assert check_layers(run_library(library, inputs, profile=True).layers) == 1


def test_each_inference_takes_what_was_planted(tmp_path: Path) -> None:
    result = ran(planted(compiled("float array", tmp_path)), each_inference=True)
    assert result.inferences is not None and result.inferences.later is not None
    for each in (result.inferences.first, result.inferences.later):
        assert check_layers(each.layers) == 3


@needs_verilator
def test_a_design_takes_what_was_planted(tmp_path: Path) -> None:
    backend = write_backend(tmp_path)
    compile_model(INT8, [find_backend(backend)], tmp_path / "library")
    library = planted(tmp_path / "library")
    with fast_compilers():
        from umakit.devices.designs import design_of

        result = ran(library, rtl=[design_of(backend)])
    assert check_layers(result.layers) == 1


WORKING_DRIVER = """
static volatile unsigned int umakit_sink;
static unsigned int work(unsigned int n)
{
    while (n-- > 0u) { umakit_sink = n; }
    return umakit_sink;
}
#define umakit_device_wait(d, c) (work(WORK), umakit_device_wait(d, c))
"""


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
    reason="there is no emulator",
)
def test_an_emulator_counts_what_a_driver_computes(tmp_path: Path) -> None:
    """Instructions are the same ones at each run; twice the work is twice as many of the driver."""
    library = compiled("scratchpad", tmp_path)
    (driver,) = load_metadata(library)["umakit"]["sources"]["drivers"]["strawberry_accelerator"][:1]
    path = library / "codegen" / "host" / "src" / driver
    text = path.read_text(encoding="utf-8")
    end = [match.end() for match in re.finditer(r"^#include .*\n", text, re.MULTILINE)][-1]

    def counted(work: int) -> tuple[int, int]:
        own = WORKING_DRIVER.replace("WORK)", f"{work}u)")
        path.write_text(text[:end] + own + text[end:], encoding="utf-8")
        result = run_library(library, inputs_of(library, 1), profile=True, device="qemu-cortex-m4")
        layers = [each for each in result.layers if each.where != "cpu"]
        assert all(each.seconds is None and each.device_seconds is None for each in layers)
        return (
            sum(each.cpu_instructions or 0 for each in layers),
            sum(each.device_instructions or 0 for each in layers),
        )

    none, once, twice = counted(0), counted(10_000), counted(20_000)
    assert counted(0) == none
    assert twice[0] - once[0] == pytest.approx(once[0] - none[0], rel=0.01)
    assert once[0] - none[0] > 3 * 10_000 * 5
    assert once[1] == pytest.approx(none[1], rel=0.01) == pytest.approx(twice[1], rel=0.01)


def test_libraries_of_older_versions_do_not_tell_times_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = compiled("float array", tmp_path)
    main = library / "runtime" / "main.c"
    main.write_text(main.read_text().replace("_DEVICE_TIMES", "_NOT_THEN"))
    layers = ran(library).layers
    assert all(each.seconds is not None for each in layers)
    assert [each.device_seconds is None for each in layers] == [
        each.where != "cpu" for each in layers
    ]
    np.savez(tmp_path / "in.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    assert run_command(["run", str(library), "-i", str(tmp_path / "in.npz"), "--profile"]) == 0
    printed = capsys.readouterr().out
    assert "host us: processor time of one inference" in printed
    assert "simulator us" not in printed and "own code" not in printed


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_programs_with_a_profile_have_no_warnings(compiler: str, tmp_path: Path) -> None:
    library = compiled("scratchpad", tmp_path)
    prefix = load_metadata(library)["umakit"]["interface"].upper()
    code = library / "codegen" / "host"
    macros = [f"-D{prefix}_{name}" for name in ("PROFILE", "DEVICE_TIMES", "EACH_INFERENCE")]
    command = [compiler, "-std=c99", *WARNINGS, "-Wconversion", "-Wshadow", "-Werror", *macros]
    includes = [f"-I{code / 'src'}", f"-I{code / 'include'}", f"-I{RUNTIME}"]
    for source in (library / "runtime" / "main.c", library / "runtime" / HOSTED_PLATFORM, TIMES):
        output = tmp_path / f"{source.stem}.o"
        subprocess.run([*command, *includes, "-c", source, "-o", output], check=True)


# --- every table --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with work in its driver and in its own simulator."""
    folder = new("layer", tmp_path_factory.mktemp("project"))
    plant_in_driver(folder / "planted_npu.c")
    plant_in_device(folder / "simulator" / "planted_npu_simulator.c", "")
    with (folder / "planted_npu.c").open("a") as driver:
        driver.write(CLOCK.partition("\n")[2])
    text = (folder / "planted_npu.c").read_text()
    (folder / "planted_npu.c").write_text(CLOCK.partition("\n")[0] + "\n" + text)
    return folder


def figures_of(text: str) -> dict[str, tuple[str, str]]:
    """`CPU us` and `simulator us` of each row of a table, and of its total."""
    lines = text[text.index("simulator us") :].splitlines()[2:]
    rows = {}
    for line in lines:
        words = line.split()
        if words and re.fullmatch(r"[\d,]+\.\d", words[-1]):
            both = re.search(r"([\d,]+\.\d)\s+([\d,]+\.\d)$", line.rstrip())
            if both:
                rows[words[0]] = (both[1], both[2])
        if words[:1] == ["total"]:
            return rows
    raise AssertionError(text)


def test_every_table_shows_the_same(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    np.savez("in.npz", image=np.zeros((1, 1, 8, 8), np.float32))

    def uma(*words: object) -> str:
        code, out, err = said_by_uma(capsys, *words)
        assert code == 0, err
        return out

    uma("compile", INT8, "-b", project, "-o", "library")
    run = ["run", "library", "-i", "in.npz", "--profile"]
    report = ["report", INT8, "-b", project, "-i", "in.npz"]
    view = json.loads(uma(*run, "--json", "--trace", "run.json"))
    page = json.loads(uma(*report, "--json", "--trace", "report.json"))
    host = view["accounting"]["host"]
    assert host == page["accounting"]["host"]
    layers = [each for each in view["layers"] if each["where"] != "cpu"]
    assert len(layers) >= 4
    microseconds = {
        each["name"]: tuple(f"{each[key] * 1e6:,.1f}" for key in ("cpu_seconds", "device_seconds"))
        for each in layers
    }
    for each in layers:
        waits = (each["device_seconds"] * 1e9 - DEVICE_READ * each["register_reads"]
                 - DEVICE_WRITE * each["register_writes"]) / DEVICE_WAIT  # fmt: skip
        own = READ * each["register_reads"] + WRITE * each["register_writes"] + WAIT * waits
        assert waits == pytest.approx(1) and each["cpu_seconds"] * 1e9 == pytest.approx(own)
    microseconds["total"] = (f"{host['drivers'] * 1e6:,.1f}", f"{host['devices'] * 1e6:,.1f}")
    printed, reported = uma(*run), uma(*report, "-o", "page.html")
    assert figures_of(printed) == figures_of(reported) == microseconds
    html = " ".join(Path("page.html").read_text(encoding="utf-8").split())
    for text in (printed, reported, html):
        for sentence in host["sentences"]:
            assert sentence[1:].replace("'", "&#39;" if text is html else "'") in text
    for name, cells in microseconds.items():
        row = next(each for each in re.findall(r"<tr.*?</tr>", html) if f">{name}<" in each
                   and cells[1] in each)  # fmt: skip
        assert [*re.findall(r">([\d,.]*)</td>", row)][-2:] == [*cells]
    for trace in ("run.json", "report.json"):
        events = json.loads(Path(trace).read_text())["traceEvents"]
        slices = {each["name"]: each["args"] for each in events
                  if each.get("args", {}).get("device_seconds") is not None}  # fmt: skip
        for each in layers:
            figures = slices[each["name"]]
            assert figures["driver_seconds"] == each["cpu_seconds"]
            assert figures["device_seconds"] == each["device_seconds"]
    Path("a.json").write_text(json.dumps(page))
    compared = json.loads(uma("report", "--compare", "a.json", "library", "--json"))
    times = {each["name"]: each["a"] for each in compared["figures"] if each["unit"] == "ns"}
    assert times["driver time"] == nanoseconds(host["drivers"])
    assert times["simulator time"] == nanoseconds(host["devices"])


def test_a_library_of_functions_has_no_simulator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_model(INT8, [find_backend(new("library", tmp_path))], tmp_path / "library")
    np.savez(tmp_path / "in.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    command = ["run", str(tmp_path / "library"), "-i", str(tmp_path / "in.npz"), "--profile"]
    assert run_command(command) == 0
    printed = capsys.readouterr().out
    assert "host us" in printed and "simulator" not in printed and "driver" not in printed
    assert re.search(r"^functions of libraries: [\d.,]+ us of processor time", printed, re.M)


# --- forms of drivers and devices ---------------------------------------------------------------


def forms() -> Iterator[tuple[str, list[str]]]:
    for compiler in ("gcc", "clang"):
        for form in ("source", "object", "archive", "shared"):
            yield f"{compiler} {form}", [compiler]
    yield "gcc source, optimized when linked", ["gcc", "-flto"]


@pytest.mark.parametrize(("form", "compiler"), [*forms()])
def test_drivers_and_devices_of_any_form_are_timed(
    form: str, compiler: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was compiled elsewhere, too."""
    monkeypatch.setenv("CC", " ".join(compiler))
    include = [f"-I{source_directory() / 'include'}", f"-I{RUNTIME}"]
    for name, text in {**PARTS, "clock.c": CLOCK}.items():
        (tmp_path / name).write_text(text)
    driver = tmp_path / "driver.c"
    if "source" not in form:
        built = tmp_path / "driver.o"
        subprocess.run([*compiler, "-fPIC", "-c", driver, *include, "-o", built], check=True)
        driver = built
    if "archive" in form:
        driver = tmp_path / "libdriver.a"
        subprocess.run(["ar", "rcs", driver, built], check=True)
    if "shared" in form:
        driver = tmp_path / "libdriver.so"
        subprocess.run([*compiler, "-shared", built, "-o", driver], check=True)
    sources = [tmp_path / name for name in ("main.c", "umakit_simulator.c", "clock.c")]
    sources += [RUNTIME / HOSTED_PLATFORM, driver]

    def run(command: list[str]) -> None:
        subprocess.run(command, check=True)

    timed = with_timed_device(sources, [*compiler, *FLAGS], include, tmp_path, run)
    compile_c(timed, tmp_path / "program", include, HOST)
    said = subprocess.run([tmp_path / "program"], check=True, capture_output=True, text=True)
    assert said.stdout.split() == [str(1000 * 6 + 40 * 6 + 70_000 + 5), str(40 * 6 + 70_000)]
