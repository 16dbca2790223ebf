# SPDX-License-Identifier: Apache-2.0
"""The page `docs/your-rtl.md`, typed along: a small design runs a network as its simulator does."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiny_npu import (
    DESIGN,
    FILES,
    NETWORK,
    ONLY_RTL,
    PAGE,
    fast_compilers,
    needs_verilator,
    said_by_uma,
    write_backend,
)
from trace_rules import read_trace
from umakit.cli.cosim import wave_sentence

import umakit
from umakit import find_backend
from umakit.devices import verilator
from umakit.devices.designs import design_of, wiring
from umakit.devices.waveforms import cycles_of
from umakit.errors import BuildError
from umakit.tools.cosim import COMPILING, CosimDifference, cosim_model, wave_cycles
from umakit.tools.cosim.layers import layers_of

pytestmark = needs_verilator

IMAGES = np.load(NETWORK.with_name("held_out.npz"))["image"]
STRAWBERRY = "strawberry_accelerator"

Said = Callable[..., tuple[int, str, str]]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(autouse=True, scope="module")
def compiled_fast() -> Iterator[None]:
    with fast_compilers():
        yield


@pytest.fixture
def uma(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command; returns its exit code, and what it printed and reported."""
    return functools.partial(said_by_uma, capsys)


def compiled(backend: Path, *more: str) -> Path:
    library = backend.parent / "digits"
    umakit.compile_model(NETWORK, [find_backend(each) for each in (backend, *more)], library)
    np.savez(backend.parent / "in.npz", image=IMAGES[:1])
    return library


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the backend, the library `digits` and inputs."""
    folder = tmp_path_factory.mktemp("rtl")
    compiled(write_backend(folder))
    return folder


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def signless() -> dict[str, dict[str, str]]:
    """The bug of the page."""
    removed, added = (line[1:].strip() for line in blocks("diff")[0].splitlines())
    return {DESIGN: {removed: added}}


# --- the page -----------------------------------------------------------------------------------


def test_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uma: Said
) -> None:
    write_backend(tmp_path)
    shutil.copy(NETWORK, tmp_path)
    np.savez(tmp_path / "in.npz", image=IMAGES[:1])
    monkeypatch.chdir(tmp_path)
    commands = [line[6:] for text in blocks("console") for line in text.splitlines()]
    assert len(commands) == 5
    printed = []
    for command in commands:
        code, out, err = uma(*shlex.split(command))
        assert code == 0, f"{command}: {out} {err}"
        printed.append(flat(out))
    doctor, profile, cosim, *_ = map(str.splitlines, blocks("text"))
    assert flat(doctor[0]).rpartition(" Verilator ")[0] in printed[0]
    for line in profile:
        assert flat(line) in printed[3].replace(" CPU us simulator us", ""), line
    for line in cosim[:2]:
        assert flat(line) in printed[4]
    assert cosim[2].partition(" in ")[0] in printed[4] and "of the RTL in" in printed[4]
    with np.load("simulated.npz") as simulated, np.load("rtl.npz") as rtl:
        assert {**simulated}.keys() == {**rtl}.keys() >= {"logits"}
        for name, array in simulated.items():
            assert array.tobytes() == rtl[name].tobytes()


def test_the_clock_is_that_of_the_page_by_hand(there: Path, uma: Said, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    code, out, _ = uma("run", there / "digits", "-i", there / "in.npz", "--profile", "--json",
                       "--rtl", there / "tiny_npu", "--trace", trace)  # fmt: skip
    assert code == 0
    (dense,) = (each for each in json.loads(out)["layers"] if each["where"] == "tiny_npu")
    inputs, outputs, latency = 128, 10, 8
    accesses = dense["register_reads"] + dense["register_writes"]
    assert accesses == 7 and dense["cycles"] is None
    assert dense["clock_cycles"] == 2 * accesses + 11 * (inputs // 4 + latency + 1) + outputs + 1
    assert dense["moved_bytes"] == inputs + inputs * outputs + 4 * outputs
    assert dense["source"] == "measured"
    shown = read_trace(trace)
    process = "Simulated, RTL of tiny_npu"
    (layer,) = shown.tracks[process, "layers"][1:]
    assert layer["dur"] == dense["clock_cycles"]
    bursts = shown.tracks[process, "tiny_npu: memory read"]
    assert sum(int(each["name"].split()[0]) for each in bursts) == inputs + inputs * outputs


def test_the_design_is_clean_and_so_is_its_bug(tmp_path: Path) -> None:
    for number, changes in enumerate(({}, signless())):
        path = write_backend(tmp_path / str(number), changes) / DESIGN
        subprocess.run(["verilator", "--lint-only", "-Wall", path], check=True)
    assert 150 <= len(FILES[DESIGN].splitlines()) <= 200


def test_the_bug_of_the_page_is_found_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uma: Said
) -> None:
    write_backend(tmp_path, signless())
    shutil.copy(NETWORK, tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, _ = uma("cosim", NETWORK.name, "--backend", "./tiny_npu")
    assert code == 1
    for line in blocks("text")[3].splitlines():
        assert flat(line) in flat(out), out
    files = sorted(path.name for path in Path("digits_int8_cosim").iterdir())
    assert files == ["difference.fst", "inputs.npz"]  # Verilator's parts of an open file are gone
    again = re.search(r"^Again: +uma (.*)$", out, re.MULTILINE)
    assert again is not None
    assert uma(*shlex.split(again[1]))[0] == 1


def test_keys_of_the_page_are_those_of_the_section() -> None:
    from umakit.machine.rtl_config import BusMemorySection, RegistersSection, RtlSection

    for name, model in [("rtl", RtlSection), ("rtl.registers", RegistersSection),
                        ("rtl.memory", BusMemorySection)]:  # fmt: skip
        table = PAGE.partition(f"| key of `[{name}]` |")[2].partition("\n\n")[0]
        cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        keys = {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
        assert keys == {*model.model_fields} - {"registers", "memory"}


# --- what is refused ----------------------------------------------------------------------------

TOML, RESET = "accel.toml", "logic        rst_n,"
LEVEL = '\nreset_level = "high"'
REFUSED: dict[str, Mapping[str, Mapping[str, str]]] = {
    "no such top": {TOML: {'top = "tiny_npu"': 'top = "tiny_np"'}},
    "a syntax error": {DESIGN: {"assign pready = 1'b1;": "assign pready = 1'b1"}},
    "a parameter that the top lacks": {TOML: {"MOST_INPUTS": "MOST_INPUT"}},
    "a port that is missing": {DESIGN: {"output logic        mem_read_valid,":
                                        "output logic        mem_read_vald,"}},
    "another prefix": {TOML: {'prefix = "mem_" ': 'prefix = "memory_"'}},
    "another bus": {TOML: {'bus = "apb" ': 'bus = "axi4-lite" '}},
    "a port that does not fit": {DESIGN: {"logic [31:0] pwdata": "logic [15:0] pwdata"}},
    "an input that nothing drives": {DESIGN: {RESET: f"{RESET} input logic [3:0] mode,"}},
    "several clocks": {DESIGN: {RESET: f"{RESET} input logic bus_clk,"}},
    "an inout": {DESIGN: {RESET: f"{RESET} inout wire pad,"}},
    "VHDL": {TOML: {"rtl/tiny_npu.sv": "rtl/tiny_npu.vhd"}},
    "the wrong level of a reset": {TOML: {"# resets with 0, since its name ends in n": LEVEL}},
    "the wrong level of an interrupt": {
        TOML: {'interrupt = "irq"': 'interrupt = "irq"\ninterrupt_level = "low"'}
    },
    "widths that contradict": {TOML: {"[rtl]": "[dma]\nbytes_per_cycle = 8\n\n[rtl]"}},
}  # fmt: skip


def promised() -> dict[str, str]:
    table = PAGE.partition("| what | sentence |\n|---|---|\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (.*?) \| (.*) \|$", table, re.MULTILINE))


def test_every_refusal_of_the_page_is_tried() -> None:
    assert {*promised()} == {*REFUSED, "no Verilator", "another device"}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_are_those_of_the_page(what: str, there: Path, tmp_path: Path, uma: Said) -> None:
    changed = write_backend(tmp_path, REFUSED[what])
    code, out, err = uma("run", there / "digits", "-i", there / "in.npz", "--rtl", changed)
    assert code == 2 and out == ""
    sentence = promised()[what].replace("tiny_npu/rtl/tiny_npu.sv:", f"{changed}/{DESIGN}:")
    assert flat(sentence) in err
    if what != "a syntax error" and " level " not in what:
        assert re.search(rf"{re.escape(str(changed))}/accel\.toml:\d+: ", err), err


@pytest.fixture
def without_verilator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cc", "c++", "make", "ar", "as", "ld"):
        (programs / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(programs))
    verilator.verilator.cache_clear()
    yield
    verilator.verilator.cache_clear()


def test_without_verilator(there: Path, tmp_path: Path, without_verilator: None, uma: Said) -> None:
    backend = there / "tiny_npu"
    with pytest.raises(BuildError):
        wiring(design_of(backend))
    new = write_backend(tmp_path, {DESIGN: {"// Sums": "// The sums"}})
    code, _, err = uma("run", there / "digits", "-i", there / "in.npz", "--rtl", new)
    assert code == 2 and promised()["no Verilator"] in err
    code, out, _ = uma("doctor", backend, "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1 and json.loads(out)["errors"] == 1
    assert checks["RTL"]["status"] == "error" and checks["first network"]["status"] == "ok"
    what, _, fix = promised()["no Verilator"].partition("; ")
    assert what in checks["RTL"]["message"] and checks["RTL"]["mend"] == fix


def test_designs_run_on_the_host(there: Path, uma: Said) -> None:
    if not shutil.which("qemu-riscv32") or not shutil.which("riscv64-unknown-elf-gcc"):
        pytest.skip("there is no emulator")
    code, _, err = uma("run", there / "digits", "-i", there / "in.npz", "--device",
                       "qemu-riscv32", "--rtl", there / "tiny_npu")  # fmt: skip
    assert code == 2 and promised()["another device"] in err
    code, _, err = uma("diff", NETWORK, "-b", there / "tiny_npu", "--rtl", "--device",
                       "qemu-riscv32")  # fmt: skip
    assert code == 2 and "--rtl runs on this machine, not on qemu-riscv32" in err


def test_designs_of_other_backends_are_refused(there: Path, tmp_path: Path, uma: Said) -> None:
    run = ["run", there / "digits", "-i", there / "in.npz", "--rtl"]
    code, _, err = uma(*run, STRAWBERRY)
    assert code == 2
    assert (f"the library has no accelerator {STRAWBERRY}, whose design was given; its "
            "accelerators are tiny_npu") in err  # fmt: skip
    begin = FILES[TOML].index("\n[rtl]")
    without = write_backend(tmp_path, {TOML: {FILES[TOML][begin:]: ""}})
    code, _, err = uma(*run, without)
    assert code == 2 and "the accelerator tiny_npu has no section [rtl]" in err
    code, _, err = uma("cosim", NETWORK, "--backend", without)
    assert code == 2 and "no accelerator that was given has a section [rtl]" in err


def test_a_library_without_a_simulated_device_cannot_run_on_rtl(
    there: Path, tmp_path: Path, uma: Said
) -> None:
    none = {**ONLY_RTL, 'simulator = "own"': 'simulator = "none"'}
    without_device = {
        '#include "umakit/device.h"\n': "",
        "umakit_device *tiny_npu_device(void);\n": "",
    }
    stub = "int32_t tiny_npu_qdense(" + FILES["tiny_npu.c"].partition("int32_t tiny_npu_qdense(")[2]
    begin = stub.partition("{")[0].replace(";", "")
    backend = write_backend(tmp_path, {TOML: none, "tiny_npu.h": without_device})
    text = f'#include "tiny_npu.h"\n\n{begin}{{\n    return 0;\n}}\n'
    (backend / "tiny_npu.c").write_text(text, encoding="utf-8")
    library = compiled(backend)
    code, _, err = uma("run", library, "-i", tmp_path / "in.npz", "--rtl", there / "tiny_npu")
    assert code == 2 and "the library was exported without a simulated tiny_npu" in err


# --- a design alone -----------------------------------------------------------------------------


def test_a_design_without_a_simulator(tmp_path: Path, there: Path, uma: Said) -> None:
    backend = write_backend(tmp_path, {TOML: ONLY_RTL})
    library = compiled(backend)
    inputs = tmp_path / "in.npz"
    code, _, err = uma("run", library, "-i", inputs)
    assert code == 2 and "has no simulator: only its design in RTL answers; uma run --rtl" in err
    results = [tmp_path / "rtl.npz", tmp_path / "simulated.npz"]
    assert uma("run", library, "-i", inputs, "-o", results[0], "--rtl", backend)[0] == 0
    assert uma("run", there / "digits", "-i", inputs, "-o", results[1])[0] == 0
    with np.load(results[0]) as rtl, np.load(results[1]) as simulated:
        assert rtl["logits"].tobytes() == simulated["logits"].tobytes()
    diff = ["diff", NETWORK, "--backend", backend, "--rtl", "-o", tmp_path / "diff"]
    assert uma(*diff)[0] == 0
    for command in ("diff", "report", "cosim"):
        more = ["-o", tmp_path / "page.html"] if command == "report" else []
        code, _, err = uma(command, NETWORK, "--backend", backend, *more)
        assert code == 2 and "has no simulator" in err
    code, _, err = uma("check", backend, "--seconds", "1")
    assert code == 2 and "has no simulator" in err


def test_the_doctor_runs_a_design_that_answers_alone(tmp_path: Path, uma: Said) -> None:
    backend = write_backend(tmp_path, {TOML: ONLY_RTL})
    code, out, _ = uma("doctor", backend, "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 0 and checks["first network"]["status"] == "ok"
    assert checks["RTL"]["message"].startswith("tiny_npu: registers by apb, memory by plain of 32")
    lost = write_backend(tmp_path / "lost", {TOML: {'interrupt = "irq"': 'interrupt = "irqs"'}})
    code, out, _ = uma("doctor", lost, "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1 and checks["RTL"]["status"] == "error"
    assert "the top has no port irqs" in checks["RTL"]["message"]


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_nothing_of_a_design_is_exported(there: Path, tmp_path: Path) -> None:
    """CMake builds the library of a backend without a simulator, for a board's device."""
    assert not [
        path for path in (there / "digits").rglob("*") if path.suffix in (".sv", ".a", ".v")
    ]
    library = compiled(write_backend(tmp_path, {TOML: ONLY_RTL}))
    assert not (library / "simulator").exists() and not list(library.rglob("*.sv"))
    assert "module tiny_npu" not in "".join(
        path.read_text(errors="replace") for path in library.rglob("*") if path.is_file()
    )
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", library, "-B", build], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    assert list(build.glob("libtvmgen_digits_int8*")) and not list(build.glob("*_main"))


def test_designs_are_compiled_once(there: Path, monkeypatch: pytest.MonkeyPatch, uma: Said) -> None:
    run = ["run", there / "digits", "-i", there / "in.npz", "--rtl", there / "tiny_npu"]
    assert uma(*run)[0] == 0
    shutil.rmtree(there / "digits" / "build", ignore_errors=True)
    made: list[object] = []
    monkeypatch.setattr(verilator, "_make", lambda *arguments: made.append(arguments))
    assert uma(*run)[0] == 0 and made == []


def test_failures_of_a_design_are_sentences(there: Path, tmp_path: Path, uma: Said) -> None:
    ready = "    assign pready = 1'b1;\n"
    stops = '    always @(posedge clk) if (state == STORE) $fatal(1, "no stores today");\n'
    backend = write_backend(tmp_path, {DESIGN: {ready: ready + stops}})
    code, _, err = uma("run", there / "digits", "-i", there / "in.npz", "--rtl", backend)
    assert code == 1 and "no stores today" in err and "in cycle" in err


# --- uma cosim ----------------------------------------------------------------------------------


def cosim(uma: Said, backend: Path, *options: object, output: Path) -> tuple[int, dict[str, Any]]:
    code, out, err = uma("cosim", NETWORK, "-b", backend, "--json", "-o", output, *options)
    assert code in (0, 1), err
    return code, json.loads(out)


@pytest.mark.parametrize(
    "options", [(), ("--layers", "dense"), ("--sample", "1"), ("--jobs", "2"), ("--most", "2")]
)
def test_model_and_rtl_agree(
    options: tuple[str, ...], there: Path, tmp_path: Path, uma: Said
) -> None:
    inputs = tmp_path / "in.npz"
    np.savez(inputs, image=IMAGES[:2, None])
    code, found = cosim(uma, there / "tiny_npu", "-i", inputs, *options, output=tmp_path / "out")
    assert code == 0 and found["agrees"] and found["difference"] is None
    assert found["inferences"] == (2 if "--most" in options else 1)
    (dense,) = found["layers"]
    assert dense["layer"] == "dense" and dense["checked"]
    assert (dense["register_reads"], dense["register_writes"], dense["waits"]) == (1, 6, 1)
    if "--sample" not in options:  # whose part ends at the completion
        assert dense["compared_bytes"] == 40
        assert (dense["model_cycles"], dense["rtl_cycles"]) == (529, 476)
    assert not (tmp_path / "out").exists()


def test_data_that_are_wrong_on_purpose_are_found(there: Path, tmp_path: Path, uma: Said) -> None:
    options = ("--corrupt", "dense")
    code, found = cosim(uma, there / "tiny_npu", *options, output=tmp_path / "out")
    assert code == 1 and not found["agrees"]
    assert found["difference"]["kind"] == "memory" and found["difference"]["layer"] == "dense"


BUGS: dict[str, tuple[dict[str, str], str]] = {
    "sums go on": ({"if (load_row) sum <= '0;": "if (load_vector) sum <= '0;"}, "memory"),
    "a size is lost": ({"12'h00c: inputs <= pwdata;": "12'h00c: inputs <= pwdata - 1;"}, "memory"),
    "the interrupt is lost": ({"irq <= 1'b1;": "irq <= 1'b0;"}, "interrupt"),
    "an error that is none": ({"12'h018: prdata = error;": "12'h018: prdata = 32'd8;"}, "status"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_bugs_are_named(bug: str, tmp_path: Path) -> None:
    changes, kind = BUGS[bug]
    backend = find_backend(write_backend(tmp_path, {DESIGN: changes}))
    found = cosim_model(NETWORK, [backend]).difference
    assert found is not None and (found.kind, found.layer, found.backend) == (
        kind, "dense", "tiny_npu",
    ), found  # fmt: skip


def slow_design(folder: Path, cycles: int) -> Path:
    """The design with an interrupt that is so many cycles late."""
    last = "                    state <= IDLE;\n                    irq <= 1'b1;\n"
    late = (
        f"                    if (late != {cycles}) late <= late + 32'd1;\n"
        "                    else begin\n"
        f"                        late <= '0;\n{last}                    end\n"
    )
    rows = "    logic [31:0] row, row_address;"
    changes = {rows: f"    logic [31:0] late = '0;\n{rows}", last: late}
    return write_backend(folder, {DESIGN: changes})


def test_a_slow_design_is_not_wrong(tmp_path: Path, uma: Said) -> None:
    backend = slow_design(tmp_path, 20_000)
    code, found = cosim(uma, backend, output=tmp_path / "out")
    assert code == 0 and found["layers"][0]["rtl_cycles"] == 20_476
    code, found = cosim(uma, backend, "--patience", "3000", output=tmp_path / "out")
    assert code == 1 and found["difference"]["sentence"].endswith(
        "no interrupt of the RTL within 3000 cycles, that of the model came after 522; if it is "
        "only slow, give it more cycles with --patience"
    )


def test_the_waveform_of_a_lost_interrupt_shows_the_end(tmp_path: Path, uma: Said) -> None:
    backend = slow_design(tmp_path, 20_000)
    code, found = cosim(uma, backend, "--patience", "3000", output=tmp_path / "out")
    difference = found["difference"]
    assert code == 1 and difference["gave_up_cycle"] > difference["first_cycle"] + 3000
    path = tmp_path / "out" / "difference.fst"
    assert difference["wave_cycles"] == [0, difference["gave_up_cycle"]]
    assert cycles_of(path.read_bytes())[1] == difference["gave_up_cycle"] - 1


def test_a_waveform_of_a_long_wait_begins_with_the_command() -> None:
    facts = {"first_cycle": 70, "last_cycle": 90, "gave_up_cycle": 5_000_000}
    assert wave_cycles(facts, 20) == (70, 70 + 1_000_000 - 1)
    assert wave_cycles({**facts, "gave_up_cycle": 900_000}, 20) == (20, 900_000)
    assert wave_cycles({**facts, "last_cycle": None}, 20) is None
    difference = CosimDifference(
        "dense", "npu", "interrupt", "", facts, 0, "d.fst", wave_cycles=(70, 1_000_069)
    )
    assert wave_sentence(difference) == (
        "Wrote d.fst: waveform of cycles 70 to 1,000,069; the last command begins in cycle 70, and "
        "the RTL was given up in cycle 5,000,000, which is too late for the file"
    )


def test_a_contradicted_description_names_the_layer(tmp_path: Path, uma: Said) -> None:
    changes = {'interrupt = "irq"': 'interrupt = "irq"\ninterrupt_level = "low"'}
    backend = write_backend(tmp_path, {"accel.toml": changes})
    code, _, err = uma("cosim", NETWORK, "-b", backend, "-o", tmp_path / "out")
    assert code == 2 and "in layer dense, tile 0" in err and "interrupt_level" in err


def test_a_bus_error_has_the_address(tmp_path: Path, uma: Said) -> None:
    changes = {"row_address <= weights;": "row_address <= weights + 32'h0800_0000;"}
    backend = write_backend(tmp_path, {DESIGN: changes})
    code, found = cosim(uma, backend, output=tmp_path / "out")
    assert code == 1 and found["difference"]["kind"] == "status"
    assert re.search(
        r"; the RTL accessed bus address 0x28[0-9a-f]{6}, which no buffer has",
        found["difference"]["sentence"],
    )


def test_a_read_that_ends_in_a_bus_error_is_one(there: Path, tmp_path: Path, uma: Said) -> None:
    changes = {"paddr > 12'h018;": "paddr >= 12'h018;"}  # ERROR, which is 0
    backend = write_backend(tmp_path, {DESIGN: changes})
    said = "the read of the register at offset 0x18 ended in the bus error pslverr, in cycle "
    code, _, err = uma("run", there / "digits", "-i", there / "in.npz", "--rtl", backend)
    assert code == 1 and said in err, err
    code, found = cosim(uma, backend, output=tmp_path / "out")
    assert code == 1 and found["difference"]["kind"] == "register"
    assert found["difference"]["sentence"].endswith(
        "the read of the register at 0x18 ended in the bus error pslverr"
    )
    assert found["difference"]["wave"]


def test_the_waveform_of_a_violation_ends_where_it_is(tmp_path: Path, uma: Said) -> None:
    changes = {
        "assign mem_write_valid = state == STORE;": "logic waited;\n"
        "    assign mem_write_valid = state == STORE && !waited;\n"
        "    always_ff @(posedge clk) waited <= mem_write_valid && !mem_write_ready;"
    }
    aligned = {'bus = "plain"\n': 'bus = "plain"\nalignment = 4\n'}
    backend = write_backend(tmp_path, {DESIGN: changes, TOML: aligned})
    code, found = cosim(uma, backend, "--pauses", "1", output=tmp_path / "out")
    assert code == 1 and found["difference"]["kind"] == "failure"
    said = re.search(r"mem_write_valid fell before mem_write_ready was 1, in cycle (\d+)$",
                     found["difference"]["sentence"])  # fmt: skip
    assert said is not None
    shown = cycles_of((tmp_path / "out" / "difference.fst").read_bytes())
    assert shown == (0, int(said[1]))


def test_a_wrong_write_of_a_long_layer_is_in_its_waveform() -> None:
    facts = {"kind": "memory", "first_cycle": 70, "last_cycle": 115_980, "written_cycle": 3_700}
    assert wave_cycles(facts, 20) == (20, 3_800)
    assert wave_cycles({**facts, "written_cycle": 90_000}, 20) == (40_100, 90_100)
    never = {key: value for key, value in facts.items() if key != "written_cycle"}
    assert wave_cycles(never, 20) == (66_080, 116_080)


def test_a_corrupted_layer_has_to_be_among_the_layers(tmp_path: Path, uma: Said) -> None:
    command = ["cosim", NETWORK, "-b", STRAWBERRY, "-o", tmp_path / "out"]
    code, _, err = uma(*command, "--corrupt", "conv1", "--layers", "dense")
    assert (
        code == 2
        and (
            "the RTL takes no part in conv1, the layer of --corrupt, which is not in --layers; add "
            "conv1 to --layers, or choose one of dense"
        )
        in err
    )


def test_only_a_design_that_is_compiled_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    backend = find_backend(slow_design(tmp_path, 12_345))
    for is_first in (True, False):
        said: list[str] = []
        cosim_model(NETWORK, [backend], progress=said.append)
        assert (COMPILING in said) == is_first


def test_the_time_left_is_told_once_a_third_is_done() -> None:
    layers = [
        {"name": name, "where": "npu", "macs": 1, "predicted_cycles": cycles}
        for name, cycles in (("a", 10), ("b", 990), ("c", 1000))
    ]
    said: list[str] = []
    design = SimpleNamespace(backend="npu")
    tell = layers_of({"layers": layers}, [design], None, said.append)  # type: ignore[list-item]
    for number in range(3):
        tell({"layer": number, "checked": True, "rtl_cycles": 1})
    assert [" s left" in each for each in said] == [False, True, True]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--patience", "0"), "--patience"),
        (("--layers", "dens"), "no layer dens runs on an accelerator with a section [rtl]; write "
         "dense"),
        (("--layers", "conv1"), "no layer conv1 runs on an accelerator with a section [rtl]"),
        (("--corrupt", "conv1"), "no layer conv1 runs on"),
        (("--sample", "0"), "--sample"),
        (("--jobs", "0"), "--jobs"),
    ],
)  # fmt: skip
def test_mistakes_of_the_call(
    options: tuple[str, ...], sentence: str, there: Path, tmp_path: Path, uma: Said
) -> None:
    code, _, err = uma("cosim", NETWORK, "-b", there / "tiny_npu", "-o", tmp_path / "out", *options)
    assert sentence in err
    assert code == 2


def test_files_of_others_are_kept(there: Path, tmp_path: Path, uma: Said) -> None:
    """They are looked at before anything is compiled."""
    place = tmp_path / "out"
    place.write_text("mine")
    command = ["cosim", NETWORK, "-b", there / "tiny_npu", "-o", place]
    code, _, err = uma(*command)
    assert code == 2 and "exists and is not a folder" in err
    place.unlink()
    place.mkdir()
    (place / "inputs.npz").write_text("mine")
    code, _, err = uma(*command)
    assert code == 2 and (place / "inputs.npz").read_text() == "mine"
    assert [path.name for path in place.iterdir()] == ["inputs.npz"]
