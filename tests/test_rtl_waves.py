# SPDX-License-Identifier: Apache-2.0
"""Waveforms of designs, time limits of designs that never answer, and the variants of the page."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

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
from umakit.cli.cosim import shortened

import umakit
from umakit import find_backend
from umakit.testing.check import rounds

pytestmark = needs_verilator

IMAGES = np.load(NETWORK.with_name("held_out.npz"))["image"]
CYCLES, FED_CYCLES = 476, 1290
"""Of the layer in both designs, by hand: see the page."""

HANGS = {DESIGN: {"irq <= 1'b1;": "irq <= 1'b0;"}, "accel.toml": ONLY_RTL}
SOAK = pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True, scope="module")
def compiled_fast() -> Iterator[None]:
    with fast_compilers():
        yield


@pytest.fixture
def uma(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command; returns its exit code, and what it printed and reported."""
    return functools.partial(said_by_uma, capsys)


def compiled(backend: Path) -> Path:
    """Return the library of a network beside a backend, with inputs `in.npz`."""
    library = backend.parent / "digits"
    umakit.compile_model(NETWORK, [find_backend(backend)], library)
    np.savez(backend.parent / "in.npz", image=IMAGES[:1])
    return library


def write_fed(folder: Path) -> Path:
    """Write the backend of the page whose design only registers feed."""
    backend = write_backend(folder)
    shutil.rmtree(backend / "rtl")
    files = re.findall(r"^`fed/([\w./]+)`(?:, whole)?:\n\n```\w+\n(.*?)^```", PAGE, re.M | re.S)
    assert [name for name, _ in files] == ["rtl/fed.sv", "accel.toml", "tiny_npu.c"]
    for name, text in files:
        (backend / name).parent.mkdir(exist_ok=True)
        (backend / name).write_text(text, encoding="utf-8")
    return backend


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a backend without a model or a memory bus, a library and inputs."""
    folder = tmp_path_factory.mktemp("waves")
    compiled(write_fed(folder))
    return folder


def times(path: Path) -> tuple[int, int]:
    """Return the first and the last time of the header of a file in FST; two are a cycle."""
    kind, _, first, last = struct.unpack(">BQQQ", path.read_bytes()[:25])
    assert kind == 0
    return first, last


def test_a_design_of_registers_alone_has_a_waveform(
    there: Path, tmp_path: Path, uma: Said, right: bytes
) -> None:
    """It has no model; its cycles are those of the page: 1,280 writes and ten reads."""
    results = tmp_path / "rtl.npz"
    run = ["run", there / "digits", "-i", there / "in.npz", "-o", results, "--rtl",
           there / "tiny_npu", "--profile"]  # fmt: skip
    for layer in (None, "dense"):
        wave = tmp_path / "wave.fst"
        more = ["--wave-layer", layer] if layer else []
        code, out, err = uma(*run, "--wave", wave, "--json", *more)
        assert code == 0, err
        assert times(wave) == (0, 2 * FED_CYCLES - 1)
        found = json.loads(out)
        assert FED_CYCLES in {each["clock_cycles"] for each in found["layers"]}
        assert (found["wave"]["layer"], found["wave"]["cut"]) == (layer, False)
        cycles = found["wave"]["first_cycle"], found["wave"]["last_cycle"]
        assert cycles == (0, FED_CYCLES - 1)
    with np.load(results) as arrays:
        assert arrays["logits"].tobytes() == right
    code, out, _ = uma(*run, "--wave", wave)
    assert code == 0 and f"Wrote {wave}: waveform of tiny_npu, cycles 0 to 1,289, " in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "LIBRARY", "-i", "INPUTS", "--wave", "FILE"], "none runs without --rtl"),
        (["diff", NETWORK, "-b", "BACKEND", "--wave", "FILE"], "none runs without --rtl"),
        (["check", "BACKEND", "--wave", "FILE"], "none runs without --rtl"),
        (["check", "BACKEND", "--rtl", "--wave", "FILE"],
         "--wave is of one case or one varied program"),
        (["run", "LIBRARY", "-i", "INPUTS", "--rtl", "BACKEND", "--wave-layer", "dense"],
         "--wave-layer is of a waveform; add --wave FILE.fst"),
        (["run", "LIBRARY", "-i", "INPUTS", "--rtl", "BACKEND", "--wave", "FILE", "--wave-layer",
          "dens"], "no layer dens runs on a design of [rtl]; write dense"),
        (["run", "LIBRARY", "-i", "INPUTS", "--rtl", "BACKEND", "--wave", "MINE"],
         "exists and is not a waveform of umakit"),
        (["diff", NETWORK, "-b", "BACKEND", "--rtl", "--wave", "MINE"],
         "exists and is not a waveform of umakit"),
        (["run", "LIBRARY", "-i", "INPUTS", "--rtl", "BACKEND", "--wave", "FILE/more.fst"],
         "no such folder"),
    ],
)  # fmt: skip
def test_what_is_refused(
    words: list[str], sentence: str, there: Path, tmp_path: Path, uma: Said
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    places = {
        "LIBRARY": there / "digits", "INPUTS": there / "in.npz", "BACKEND": there / "tiny_npu",
        "FILE": tmp_path / "wave.fst", "FILE/more.fst": tmp_path / "wave" / "more.fst",
        "MINE": mine,
    }  # fmt: skip
    code, out, err = uma(*(places.get(word, word) for word in words))
    assert code == 2 and out == "" and sentence in err
    assert mine.read_text() == "mine" and not (tmp_path / "wave.fst").exists()


LATE = (
    "the simulator of tiny_npu failed: the driver waits for the interrupt since its write of 0x1 "
    "to the register at offset 0x14 in cycle 10, and the time limit of 1 s is over, in cycle "
)


def test_a_design_that_never_answers_has_a_sentence_and_a_waveform(
    tmp_path: Path, uma: Said
) -> None:
    """The file is complete, though the driver waited to the end."""
    backend = write_backend(tmp_path, HANGS)
    wave = tmp_path / "wave.fst"
    code, _, err = uma("run", compiled(backend), "-i", tmp_path / "in.npz", "--rtl", backend,
                       "--timeout", "1", "--wave", wave)  # fmt: skip
    assert code == 1 and f"error: inference 0: {LATE}" in err, err
    assert err.endswith("; if it is only slow, give it more time with --timeout")
    first, last = times(wave)
    assert first == 0 and last > 2 * CYCLES
    assert f"Wrote {wave}: waveform of tiny_npu, cycles 0 to" in err


def test_a_comparison_beyond_the_time_limit_says_what_to_do(tmp_path: Path, uma: Said) -> None:
    """The design never answers, so that the run cannot end before its first millisecond."""
    backend = write_backend(tmp_path, {DESIGN: HANGS[DESIGN]})
    words = ["cosim", NETWORK, "-b", backend, "-o", tmp_path / "out", "--timeout", "0.001"]
    code, _, err = uma(*words)
    assert "did not end within 0.001 s of processor time; give it more time with --timeout" in err
    assert code == 1


def test_a_varied_program_has_a_waveform(tmp_path: Path, uma: Said) -> None:
    """Also where the interrupt is still raised at its end, which ends all waits at once.

    The design stores whole words: a program with a result at another address differs.
    """
    backend, file = write_backend(tmp_path), tmp_path / "program.fst"
    _, out, _ = uma("check", backend, "--rtl", "--program", "0", "--wave", file)
    said = " ".join(out.split())
    assert "varied programs: 1 compared" in said
    assert re.search(rf"Wrote {file}: waveform of tiny_npu, cycles 0 to \d+, ", said), said
    assert file.stat().st_size > 1000


def test_a_bus_error_of_a_drawn_layer_has_the_address(tmp_path: Path, uma: Said) -> None:
    changes = {"row_address <= weights;": "row_address <= weights + 32'h0800_0000;"}
    backend = write_backend(tmp_path, {DESIGN: changes})
    code, out, _ = uma("check", backend, "--rtl", "--case", "qdense")
    assert code == 1
    said = " ".join(out.split())
    assert re.search(r"status 8: bus error \(no buffer has bus address 0x28[0-9a-f]{6}\) in", said)


def test_a_check_of_a_design_that_never_answers_ends(
    tmp_path: Path, uma: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers are given up after cycles that follow from what their model takes."""
    monkeypatch.setattr(rounds, "LEAST_CYCLES", 20_000)
    monkeypatch.setattr(rounds, "MOST_TIMES", 10)
    backend = write_backend(tmp_path, HANGS)
    code, out, _ = uma("check", backend, "--rtl", "--seconds", "1", "--draws", "4")
    assert code == 1
    said = " ".join(out.split())
    assert "the driver waits for the interrupt since its write of 0x1 to the register at" in said
    assert re.search(r"and is given up after \d+ cycles, in cycle \d+", said)


@SOAK
@pytest.mark.soak
def test_diff_names_the_layer_of_a_design_that_never_answers(tmp_path: Path, uma: Said) -> None:
    backend = write_backend(tmp_path, HANGS)
    wave = tmp_path / "wave.fst"
    code, _, err = uma("diff", NETWORK, "-b", backend, "--rtl", "--timeout", "1", "--wave", wave,
                       "-o", tmp_path / "out")  # fmt: skip
    assert code == 1 and re.search(rf"layer \d, dense \(tiny_npu\): {re.escape(LATE)}", err), err
    first, last = times(wave)
    assert first == 0 and last > 2 * CYCLES
    assert f"Wrote {wave}: waveform of tiny_npu in layer dense, cycles 0 to" in err


@SOAK
@pytest.mark.soak
def test_layers_that_are_wrong_have_a_waveform(tmp_path: Path, uma: Said) -> None:
    """The result of a layer that `uma diff` blames, and a case of `uma check`."""
    signless = {"32'(signed'(mem_read_data[8*lane+:8]))": "32'(mem_read_data[8*lane+:8])"}
    backend = write_backend(tmp_path, {DESIGN: signless})
    wave = tmp_path / "wave.fst"
    code, out, err = uma("diff", NETWORK, "-b", backend, "--rtl", "--wave", wave,
                         "-o", tmp_path / "out")  # fmt: skip
    assert code == 1 and "Wrote" in out, err
    assert times(wave) == (0, 2 * CYCLES - 1)
    case = ["check", backend, "--rtl", "--case", "qdense weights=lowest seed=1", "--wave", wave]
    code, out, err = uma(*case)
    assert code == 1 and "with --wave FILE.fst a case also writes the waveform" in out, err
    assert f"Wrote {wave}: waveform of tiny_npu, cycles 0 to " in out
    first, last = times(wave)
    assert first == 0 < last < 2 * CYCLES - 1


# --- variants of the page -----------------------------------------------------------------------


def changed() -> dict[str, dict[str, str]]:
    """The changes of the page for a driver that polls: in a file, what is removed and added."""
    found: dict[str, dict[str, str]] = {}
    blocks = re.findall(r"^`tiny_npu/([\w./]+)`, changed:\n\n```diff\n(.*?)^```", PAGE, re.M | re.S)
    for file, text in blocks:
        for removed, added in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)*)", text, re.M):
            old, new = (re.sub("^[-+]", "", part, flags=re.M) for part in (removed, added))
            whole = found.setdefault(file, {})
            for line in old.splitlines()[:-1]:
                whole[f"{line}\n"] = ""
            (last,) = re.findall(rf"^{re.escape(old.splitlines()[-1])}.*\n", FILES[file], re.M)
            whole[last] = new
    return found


def on_design(backend: Path, uma: Said, *more: object) -> tuple[bytes, int]:
    """Return the results of a network on a design, and the clock of its layer."""
    library = compiled(backend)
    results = backend.parent / "rtl.npz"
    code, out, err = uma("run", library, "-i", backend.parent / "in.npz", "-o", results, "--rtl",
                         backend, "--profile", "--json", *more)  # fmt: skip
    assert code == 0, err
    (clock,) = (each["clock_cycles"] for each in json.loads(out)["layers"] if each["clock_cycles"])
    with np.load(results) as arrays:
        return arrays["logits"].tobytes(), clock


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The results of the network on the CPU."""
    library = tmp_path_factory.mktemp("cpu") / "library"
    umakit.compile_model(NETWORK, [], library)
    return umakit.run_library(library, {"image": IMAGES[:1]}).outputs["logits"].tobytes()


@SOAK
@pytest.mark.soak
def test_a_driver_may_poll(tmp_path: Path, uma: Said, right: bytes) -> None:
    found, clock = on_design(write_backend(tmp_path, changed()), uma)
    assert found == right
    # As with an interrupt, and two cycles for each look; the last one is late by an eighth at most.
    assert CYCLES < clock < 1.5 * CYCLES


# --- names in tables ----------------------------------------------------------------------------


def test_long_names_lose_their_middle_unless_two_would_be_equal() -> None:
    names = ["model/activation_1/Relu", "model/activation_2/Relu", "dense"]
    short = shortened(names, 16)
    assert [len(name) for name in short] == [16, 16, 5] and len(set(short)) == 3
    assert short[0].startswith("model") and short[0].endswith("_1/Relu")
    assert shortened(["model/1/activation", "model/2/activation"], 9)[0] == "model/1/activation"
    assert shortened(names, 23) == names
