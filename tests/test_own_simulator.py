# SPDX-License-Identifier: Apache-2.0
"""Simulators of backends' own: the one of `docs/your-simulator.md`, typed along, and others."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from umakit.cli.main import run_command
from umakit.cli.tables import profile_table

import umakit
from umakit import find_backend
from umakit.errors import AcceleratorConfigError, BuildError, DeviceError
from umakit.library.metadata import load_metadata
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.tools.accounting import account
from umakit.tools.page import html, make_page
from umakit.tools.size import library_size

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "your-simulator.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"`tiny_npu/([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = dict(BLOCK.findall(PAGE))
DIGITS = ROOT / "examples" / "digits"
NETWORK = DIGITS / "digits_int8.onnx"
IMAGES = np.load(DIGITS / "held_out.npz")["image"]
STRAWBERRY = "strawberry_accelerator"

IN_C = """\
#include "umakit/own_simulator.h"

static umakit_host *the_host;
static uint32_t registers[7];
static int8_t data[128];
static int8_t weights[1280];
static int32_t sums[10];

static void *create(umakit_host *host) { the_host = host; return registers; }
static uint32_t read32(void *simulator, uint32_t offset)
{
    (void)simulator;
    return registers[offset / 4u];
}

static int job(void)
{
    uint32_t o, i;
    int status = umakit_host_read(the_host, registers[0], sizeof data, data);

    if (status == UMAKIT_OK) {
        status = umakit_host_read(the_host, registers[1], sizeof weights, weights);
    }
    for (o = 0; o < 10u; ++o) {
        for (i = 0, sums[o] = 0; i < 128u; ++i) {
            sums[o] += data[i] * weights[o * 128u + i];
        }
    }
    return status != UMAKIT_OK
               ? status
               : umakit_host_write(the_host, registers[2], sizeof sums, sums);
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    (void)simulator;
    registers[offset / 4u] = value;
    if (offset == 20u) {
        registers[6] = (uint32_t)job();
    }
}

static bool wait(void *simulator, uint64_t cycles) { (void)simulator; (void)cycles; return true; }

const struct umakit_own_simulator *tiny_npu_simulator(void)
{
    static const struct umakit_own_simulator table = {
        .version = UMAKIT_OWN_SIMULATOR_VERSION, .create = create,
        .read32 = read32, .write32 = write32, .wait = wait};
    return &table;
}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the files of the page, with replacements by file name."""

    def write_backend(changes: Mapping[str, tuple[str, str]] | None = None) -> Path:
        folder = tmp_path / "tiny_npu"
        folder.mkdir()
        assert {*FILES} == {"accel.toml", "backend.py", "machine.cc", "tiny_npu.c", "tiny_npu.h"}
        for name, text in FILES.items():
            old, new = (changes or {}).get(name, ("", ""))
            assert old in text
            (folder / name).write_text(text.replace(old, new) if old else text, encoding="utf-8")
        return folder

    return write_backend


def compiled(folder: Path, *more: str) -> Path:
    library = folder.parent / "library"
    umakit.compile_model(NETWORK, [find_backend(name) for name in (folder, *more)], library)
    return library


def profile(library: Path, **options: Any) -> Any:
    return umakit.run_library(library, {"image": IMAGES[:1]}, profile=True, **options)


def layer_named(layers: Any, name: str) -> Any:
    (found,) = (layer for layer in layers if layer.name == name)
    return found


def test_the_simulator_of_the_page_is_right_and_counts_as_by_hand(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    library = compiled(write())
    session = onnxruntime.InferenceSession(NETWORK)
    expected = session.run(None, {"image": IMAGES[:3]})[0]
    result = umakit.run_library(library, {"image": IMAGES[:3, None]})
    np.testing.assert_allclose(result.outputs["logits"][:, 0], expected, rtol=0, atol=1e-6)
    np.savez(library.parent / "in.npz", image=IMAGES[:1])
    command = ["run", str(library), "-i", str(library.parent / "in.npz"), "--profile", "--json"]
    assert run_command(command) == 0
    layers = {layer["name"]: layer for layer in json.loads(capsys.readouterr().out)["layers"]}
    promised = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.S)[0])
    assert {name: layers["dense"][name] for name in promised} == promised
    inputs, outputs, lanes = 128, 10, 8
    moved = inputs + inputs * outputs + 4 * outputs
    assert promised["moved_bytes"] == moved and promised["dma_cycles"] == moved // 4
    assert promised["clock_cycles"] == moved // 4 + outputs * inputs // lanes + 7


def test_commands_of_the_page_run(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write().parent
    shutil.copy(NETWORK, folder)
    np.savez(folder / "in.npz", image=IMAGES[:1])
    monkeypatch.chdir(folder)
    commands = re.findall(r"^\$ uma (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert run_command(shlex.split(command)) == 0, capsys.readouterr().err
    assert (folder / "digits.html").is_file()


def test_its_engines_are_on_the_page(write: Write) -> None:
    page = make_page(NETWORK, [find_backend(write())])
    dense = layer_named(page.layers, "dense")
    assert [(each.stream, each.label, each.start, each.completion) for each in dense.commands] == [
        ("dma", "load", 6, 358), ("array", "sums", 358, 518), ("dma", "store", 518, 528),
    ]  # fmt: skip
    assert page.clock_cycles == 529 and page.accelerators[0].cells is None
    text = html(page)
    assert "dma: load: cycles 6 to 358" in text and "529" in text


def test_what_it_does_not_count_is_null(write: Write) -> None:
    missing = {"machine.cc": ("    counters->clock = machine.clock;\n", "")}
    backend = write(missing)
    dense = layer_named(profile(compiled(backend)).layers, "dense")
    assert (dense.clock_cycles, dense.cycles, dense.dma_cycles) == (None, 522, 362)
    page = make_page(NETWORK, [find_backend(backend)])
    assert page.clock_cycles is None and page.unmeasured == ("tiny_npu",)
    assert "whose cycles no simulator counts" in html(page)


def test_unknown_counters_leave_those_of_others(write: Write) -> None:
    without = {"machine.cc": ("functions.counters = counters;", "(void)counters;")}
    library = compiled(write(without), STRAWBERRY)
    result = profile(library)
    layers = result.layers
    assert {layer.where for layer in layers} == {"cpu", "tiny_npu", STRAWBERRY}
    for layer in layers:
        for name in ("clock_cycles", "cycles", "device_macs", "moved_bytes"):
            figure = getattr(layer, name)
            assert figure is None if layer.where == "tiny_npu" else figure is not None
            assert layer.where != STRAWBERRY or figure > 0
    accounting = account(load_metadata(library)["umakit"], result)
    column = next(each for each in profile_table(accounting).columns if each.header == "cycles")
    cells = list(column.cells)
    counted = [layer.clock_cycles or 0 for layer in layers if layer.where == STRAWBERRY]
    assert "-" in cells[:-1] and cells[-1] == f"{sum(counted):,}"


def test_macros_may_be_figures(write: Write) -> None:
    lanes = {"accel.toml": ("LANES=8", "LANES={lines.size}")}
    backend = write(lanes)
    with (backend / "accel.toml").open("a") as file:
        file.write('[[memory]]\nname = "lines"\nsize = 16\naddress = "offset"\n')
        file.write('reachable_by = ["accelerator"]\n')
    dense = layer_named(profile(compiled(backend)).layers, "dense")
    assert dense.array_cycles == 10 * 128 // 16


def test_the_doctor_finds_nothing_wrong_with_it(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["doctor", str(write())]) == 0
    assert "each function that the driver calls is defined" in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_product_is_without_it(write: Write) -> None:
    backend = write()
    library = compiled(backend)
    text = json.loads((library / "metadata.json").read_text())["umakit"]["sources"]
    assert text["own"]["tiny_npu"]["sources"] == ["machine.cc", "tiny_npu_device.c"]
    assert not list((library / "codegen").rglob("machine*"))
    assert (library / "simulator" / "tiny_npu" / "machine.cc").is_file()
    size = library_size(library)
    assert size.simulator_text_bytes > 0
    folder = library.parent / "tvmgen_digits_int8"
    command = ["package", str(library), "--format", "arduino", "-o", str(folder)]
    assert run_command(command) == 0
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert "tiny_npu.c" in names
    assert not names & {"machine.cc", "tiny_npu_device.c", "umakit_simulator.c", "umakit_host.c"}


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("simulated", ["ON", "OFF"])
def test_cmake_builds_it_while_devices_are_simulated(write: Write, simulated: str) -> None:
    library = compiled(write())
    build = library.parent / "build"
    option = f"-DTVMGEN_DIGITS_INT8_SIMULATED_DEVICES={simulated}"
    subprocess.run(["cmake", "-S", library, "-B", build, option], check=True, capture_output=True)
    made = subprocess.run(["cmake", "--build", build], check=True, capture_output=True, text=True)
    assert ("machine.cc" in made.stdout) == (simulated == "ON")
    assert (build / "tvmgen_digits_int8_main").is_file() == (simulated == "ON")


def test_a_simulator_in_c_without_counters_runs_on_emulators(write: Write) -> None:
    backend = write({"accel.toml": ("machine.cc", "machine.c")})
    (backend / "machine.c").write_text(IN_C, encoding="utf-8")
    library = compiled(backend)
    here = profile(library)
    dense = layer_named(here.layers, "dense")
    assert (dense.clock_cycles, dense.cycles, dense.moved_bytes) == (None, None, None)
    if shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm"):
        there = profile(library, device="qemu-cortex-m3")
        np.testing.assert_array_equal(there.outputs["logits"], here.outputs["logits"])


def test_the_readme_says_how_a_board_is_compiled(write: Write) -> None:
    """With registers that umakit does not know, and what no driver of umakit does left out."""
    library = compiled(write())
    text = (library / "README.md").read_text(encoding="utf-8")
    assert "TIMEOUT_CYCLES" not in text and "whose driver stops" not in text
    if not shutil.which("arm-none-eabi-gcc"):
        pytest.skip("there is no arm-none-eabi-gcc")
    (command,) = re.findall(r"^    (arm-none-eabi-gcc (?:.*\\\n)*.*)$", text, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=library, check=True)
    (code,) = re.findall(r"```c\n(.*umakit_memory_mapped_device.*?)```", text, re.DOTALL)
    entry = "int main(void) { return tvmgen_digits_int8_run(0, 0); }\n"
    include = '#include "codegen/host/include/tvmgen_digits_int8.h"\n'
    (library / "main.c").write_text(f"{include}{code}\n{entry}", encoding="utf-8")
    linking = ["--specs=nosys.specs", "-nostartfiles", "-Wl,-emain"]
    objects = sorted(path.name for path in library.glob("*.o"))
    assert "umakit_device_memory_mapped.o" in objects
    subprocess.run(
        ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", *linking, "-Icodegen/host/src",
         "main.c", *objects, "-lm", "-o", "program"],
        cwd=library, check=True,
    )  # fmt: skip


def test_devices_without_c_plus_plus_refuse_it(write: Write) -> None:
    if not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")):
        pytest.skip("there is no emulator")
    with pytest.raises(BuildError, match=r"the simulator of tiny_npu is in C\+\+"):
        profile(compiled(write()), device="qemu-cortex-m3")


def test_a_simulator_may_say_why_it_cannot_go_on(write: Write) -> None:
    library = compiled(write({"machine.cc": ("offset / 4 >= 7", "offset == 16")}))
    sentence = "the driver wrote to a register that does not exist"
    with pytest.raises(DeviceError, match=f"the simulator of tiny_npu failed: {sentence}"):
        profile(library)


@pytest.mark.parametrize(
    ("file", "old", "new", "place", "sentence"),
    [
        ("machine.cc", "offset / 4 >= 7", "offset == 16", "inference 0, ",
         "the simulator of tiny_npu failed: the driver wrote to a register"),
        ("tiny_npu.c", "outputs > MOST_OUTPUTS", "data[0] != data[1] || outputs > 0",
         "inference 0, ", "the run stopped with status "),
        ("machine.cc", "bool wait(void *simulator, std::uint64_t cycles)\n{\n",
         "bool wait(void *simulator, std::uint64_t cycles)\n{\n    __builtin_trap();\n", "",
         "the program was stopped by signal"),
        ("machine.cc", "bool wait(void *simulator, std::uint64_t cycles)\n{\n",
         "bool wait(void *simulator, std::uint64_t cycles)\n{\n"
         "    for (volatile int turn = 0;; turn = 1) {}\n", "",
         "the program did not end within 1 s"),
    ],
)  # fmt: skip
def test_a_failed_run_names_the_layer(
    file: str, old: str, new: str, place: str, sentence: str, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    library = compiled(write({file: (old, new)}))
    layers = json.loads((library / "metadata.json").read_text())["umakit"]["layers"]
    (number,) = (n for n, layer in enumerate(layers) if layer["name"] == "dense")
    np.savez(library.parent / "in.npz", image=IMAGES[:2, None])
    capsys.readouterr()
    limit = ["--timeout", "1"] if "turn" in new else []
    assert run_command(["run", str(library), "-i", str(library.parent / "in.npz"), *limit]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert f"{place}layer {number}, dense (tiny_npu): {sentence}" in error, error
    assert "`uma diff` names the layer" not in error, error


LOOP = "for (volatile int turn = 0;; turn = 1) {}"


@pytest.mark.parametrize(
    ("begin", "function"),
    [
        ("bool wait(void *simulator, std::uint64_t cycles)\n{\n", "wait"),
        ("std::uint32_t read32(void *simulator, std::uint32_t offset)\n{\n", "read32"),
    ],
)
def test_a_function_that_never_returns_is_named_with_its_layer(
    begin: str, function: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {
        "machine.cc": (begin, f"{begin}    {LOOP}\n"),
        "accel.toml": ("timeout = 60 ", "timeout = 0.5 "),
    }
    backend = write(changes)
    library = compiled(backend)
    np.savez(library.parent / "in.npz", image=IMAGES[:2, None])
    capsys.readouterr()
    page = str(backend.parent / "page.html")
    runs = [
        ["run", str(library), "-i", str(library.parent / "in.npz")],
        ["diff", str(NETWORK), "--backend", str(backend)],
        ["report", str(NETWORK), "-b", str(backend), "-o", page],
    ]
    for command in runs[:2] if function == "wait" else runs[2:]:
        assert run_command(command) == 1
        error = " ".join(capsys.readouterr().err.split())
        assert re.search(
            r"layer \d+, dense \(tiny_npu\): the simulator of tiny_npu did not return from "
            rf"{function} within 0.5 s \(\[simulator\] timeout in accel.toml\); let it return, ",
            error,
        ), error


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('extern "C" ', "", 'define tiny_npu_simulator in a source of .simulator. .*extern "C"'),
        ("LANES", "LANE", "machine.cc"),
    ],
)
def test_compilers_are_quoted(write: Write, old: str, new: str, sentence: str) -> None:
    with pytest.raises(BuildError, match=sentence):
        profile(compiled(write({"machine.cc": (old, new)})))


def test_a_table_of_another_version_is_refused(write: Write) -> None:
    changes = {"machine.cc": ("= UMAKIT_OWN_SIMULATOR_VERSION", "= 99")}
    with pytest.raises(DeviceError, match="the version of the simulator's table is not"):
        profile(compiled(write(changes)))


def build_machine(backend: Path, compiler: str = "c++", source: str = "machine.cc") -> Path:
    """Compile the machine of the page apart, as whoever sells it does."""
    include = ROOT / "sim" / "include"
    output = backend / "machine.o"
    command = [compiler, "-O0", "-fPIC", "-DLANES=8", f"-I{include}", "-c", source, "-o", output]
    subprocess.run(command, check=True, cwd=backend)
    (backend / source).unlink()
    return output


@pytest.mark.parametrize("kind", ["machine.o", "lib/libmodel.a", "lib/libmodel.so"])
def test_a_simulator_may_be_compiled_already(kind: str, write: Write) -> None:
    backend = write({"accel.toml": ('sources = ["machine.cc"]', "sources = []")})
    text = (backend / "accel.toml").read_text()
    old = re.findall(r"^libraries.*$", text, re.MULTILINE)[0]
    text = text.replace(old, f'libraries = ["{kind}"]')
    (backend / "accel.toml").write_text(re.sub(r"^(defines|include).*\n", "", text, flags=re.M))
    machine = build_machine(backend)
    (backend / "lib").mkdir()
    if kind.endswith(".a"):
        subprocess.run(["ar", "rcs", backend / kind, machine], check=True, capture_output=True)
    if kind.endswith(".so"):
        name = "-Wl,-soname,libmodel.so.2"
        command = ["c++", "-shared", name, machine, "-o", backend / kind, "-Wl,-z,lazy"]
        subprocess.run(command, check=True)
    library = compiled(backend)
    assert layer_named(profile(library).layers, "dense").clock_cycles == 529
    if kind.endswith(".a"):
        assert run_command(["doctor", str(backend)]) == 0
    if kind.endswith(".so") and shutil.which("cmake"):
        build = library.parent / "build"
        subprocess.run(["cmake", "-S", library, "-B", build], check=True, capture_output=True)
        subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
        program = str(build / "tvmgen_digits_int8_main")
        IMAGES[:1].tofile(library.parent / "in")
        files = [str(library.parent / name) for name in ("in", "out")]
        subprocess.run([program, *files, "1", "1"], check=True, capture_output=True)


def test_a_compiled_simulator_of_another_processor_is_refused(write: Write) -> None:
    if not shutil.which("arm-none-eabi-gcc"):
        pytest.skip("there is no other compiler")
    backend = write({"accel.toml": ("machine.cc", "machine.c")})
    (backend / "machine.c").write_text(IN_C, encoding="utf-8")
    build_machine(backend, "arm-none-eabi-gcc", "machine.c")
    text = (backend / "accel.toml").read_text().replace('["machine.c"]', "[]")
    old = re.findall(r"^libraries.*$", text, re.MULTILINE)[0]
    text = text.replace(old, 'libraries = ["machine.o"]')
    (backend / "accel.toml").write_text(text)
    with pytest.raises(BuildError, match=r"machine.o is compiled for Arm \(32 bits\), programs"):
        profile(compiled(backend))


OWN = '[accelerator]\nname = "x"\n[device]\nsimulator = "own"\n[simulator]\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f'{OWN}sources = ["b.c"]', "accel.toml:6: simulator: there is no file b.c"),
        (f'{OWN}sources = ["../a.c"]', "../a.c is outside of the backend's folder"),
        (f'{OWN}sources = ["/a.c"]', "/a.c is outside of the backend's folder"),
        (f'{OWN}sources = ["a.c", "s/a.cc"]', "a.c and s/a.cc would both become a.o"),
        (f'{OWN}sources = ["a.py"]', "a.py is not a C or C++ file"),
        (f'{OWN}sources = ["a.o"]', "a.o is compiled already: name it in libraries"),
        (f'{OWN}sources = ["a.c"]\ninclude = ["i"]', "accel.toml:7: simulator.include: there"),
        (f'{OWN}sources = ["a.c"]\ndefines = ["A B"]', "'A B' is not NAME or NAME=value"),
        (f'{OWN}sources = ["a.c"]\ndefines = ["A={{b}}"]',
         "there is no figure b; figures are none"),
        (f'{OWN}sources = ["a.c"]\ndefines = ["A={{b.c}}"]\n[[memory]]\nname = "b"\nsize = 4',
         "there is no figure b.c; figures are b.banks, b.row_bytes, b.size"),
        (f'{OWN}sources = ["a.c"]\ndefines = ["A={{}}"]', "'A={}' is not NAME or NAME=value"),
        (f'{OWN}sources = ["a.c"]\nlibraries = ["-x"]', "'-x' is neither the name of a library"),
        (f'{OWN}sources = ["a.c"]\nlibraries = ["l.a"]', "accel.toml:7: simulator: there is no"),
        (OWN.removesuffix("[simulator]\n"), 'simulator = "own" needs a section [simulator]'),
        (OWN.replace('"own"', '"none"') + 'sources = ["a.c"]\n[array]\nrows = 1\ncolumns = 1',
         '[simulator] needs simulator = "own"'),
        ('[accelerator]\nname = "x"', "array: is missing"),
    ],
)  # fmt: skip
def test_sections_that_cannot_be_are_refused_in_a_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "s").mkdir()
    for name in ("a.c", "s/a.cc", "a.py"):
        (tmp_path / name).touch()
    (tmp_path / "accel.toml").write_text(text)
    with pytest.raises(AcceleratorConfigError, match=re.escape(sentence)):
        load_accelerator_config(tmp_path / "accel.toml")
