# SPDX-License-Identifier: Apache-2.0
"""Exported libraries on the co-simulation device of `sim/cosim`, without Verilator: a second model
takes the place of the RTL. `sim/tests/test_cosim.c` tests the device itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strict import WARNINGS

import umakit
from umakit import find_backend, sim
from umakit.devices.build import compile_c, library_sources
from umakit.devices.catalogue import HOST
from umakit.library.options import ExportOptions
from umakit.pipeline import export_program, import_network, partition_network
from umakit.text.rendering import render

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
NETWORK = DIGITS / "digits_int8.onnx"
IMAGES = np.load(DIGITS / "held_out.npz")["image"][:2]
COSIM = sim.source_directory() / "cosim"
BACKENDS = ("strawberry_accelerator", "chocolate_accelerator")

SECOND = """
#define %(name)s_device %(name)s_second_device
#define %(name)s_counters %(name)s_second_counters
#include "%(name)s/%(name)s_device.c"
#include "umakit/own_simulator.h"
#include <stdlib.h>
#include <string.h>

const struct umakit_own_simulator *%(name)s_rtl_simulator(void);
void %(name)s_rtl_randomize(uint32_t state_seed, uint32_t pause_seed);

void %(name)s_rtl_randomize(uint32_t state_seed, uint32_t pause_seed)
{
    (void)state_seed;
    (void)pause_seed;
}

static umakit_host *the_host;
static struct umakit_systolic_array fresh;
static uint64_t wrong_from = UINT64_MAX; /* bytes written after which one more is made wrong */

static umakit_device *inner(void)
{
    umakit_device *device = %(name)s_second_device();

    memcpy(device->windows, the_host->windows, sizeof device->windows);
    return device;
}

static void *create(umakit_host *host)
{
    const char *wrong = getenv("SECOND_WRONG_FROM");

    the_host = host;
    (void)inner();
    fresh = simulator;
    wrong_from = wrong == NULL ? UINT64_MAX : strtoull(wrong, NULL, 10);
    return host;
}

static void reset(void *unused)
{
    (void)unused;
    simulator = fresh;
}

static void spoil(void)
{
    struct umakit_own_counters measured;
    int i = 0;

    umakit_simulator_measure(inner(), &measured);
    while (measured.bytes_written > wrong_from && i < 8) {
        const struct umakit_simulator_window *window = &the_host->windows[i++];

        if (window->memory != NULL && window->direction == UMAKIT_FROM_DEVICE) {
            ((unsigned char *)(uintptr_t)window->memory)[window->bytes - 1u] ^= 1u;
            wrong_from = UINT64_MAX;
        }
    }
}

static uint32_t read32(void *unused, uint32_t offset)
{
    (void)unused;
    return umakit_device_read32(inner(), offset);
}

static void write32(void *unused, uint32_t offset, uint32_t value)
{
    (void)unused;
    umakit_device_write32(inner(), offset, value);
    (void)umakit_device_read32(inner(), 0u); /* a cycle more: the clocks are not equal */
}

static bool wait(void *unused, uint64_t cycles)
{
    const bool is_raised = umakit_device_wait(inner(), (uint32_t)cycles) == UMAKIT_OK;

    (void)unused;
    spoil();
    return is_raised;
}

static void counters(void *unused, struct umakit_own_counters *counted)
{
    (void)unused;
    umakit_simulator_measure(inner(), counted);
}

static void unmapping(void *unused, uint32_t address, size_t bytes)
{
    (void)unused;
    (void)bytes;
    umakit_device_unmap(inner(), address);
}

const struct umakit_own_simulator *%(name)s_rtl_simulator(void)
{
    static const struct umakit_own_simulator table = {.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                      .create = create,
                                                      .reset = reset,
                                                      .read32 = read32,
                                                      .write32 = write32,
                                                      .wait = wait,
                                                      .counters = counters,
                                                      .unmapping = unmapping};

    return &table;
}
"""


@dataclass(frozen=True)
class Program:
    """A library with its device replaced; layers of the accelerator and the right outputs."""

    path: Path
    layers: tuple[int, ...]
    right: bytes

    def run(self, **environment: str) -> tuple[Any, list[dict[str, Any]], bytes]:
        """Return what it printed last, the report and the outputs of two inferences."""
        folder = self.path.parent
        (folder / "inputs").write_bytes(IMAGES.tobytes())
        report = {"UMAKIT_COSIM_REPORT": str(folder / "report")}
        command = [str(self.path), "inputs", "outputs", "2", "1"]
        ran = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **report, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.stderr == ""
        lines = (folder / "report").read_text().splitlines()
        records = [each for each in map(json.loads, lines) if "progress" not in each]
        said = json.loads(ran.stdout.splitlines()[-1])
        return said, records, (folder / "outputs").read_bytes()


def build(library: Path, name: str, folder: Path) -> Path:
    sources = library / "codegen" / "host" / "src"
    (interface,) = (path.stem for path in (library / "codegen/host/include").iterdir())
    model = f'#define {name}_device {name}_model_device\n#include "{name}/{name}_device.c"\n'
    main = str(library / "runtime" / "main.c")
    texts = {
        "cosim_main.c": render("rtl/cosim_main.c.j2", interface=interface, main=main),
        "cosim_device.c": render("rtl/cosim_device.c.j2", backends=[name], is_traced=False),
        "second.c": SECOND % {"name": name},
        "model.c": model,
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    includes = [f"-I{path}" for path in (sources, library / "runtime", COSIM)]
    flags = [f"-D{interface.upper()}_PROFILE", *includes]
    for file in ("cosim_main.c", "cosim_device.c"):
        command = ["cc", "-std=c99", *WARNINGS, *flags, "-fsyntax-only", str(folder / file)]
        subprocess.run(command, check=True)
    others = [path for path in library_sources(library) if path.name != f"{name}_device.c"]
    files = [*(folder / file for file in texts), *others, *sorted(COSIM.glob("*.c"))]
    program = folder / "program"
    compile_c([*files, *HOST.platform_sources(library / "runtime")], program, flags)
    return program


@pytest.fixture(scope="module", params=BACKENDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    options = ExportOptions(keep_in_scratchpads=False)
    backends = [find_backend(name)]
    network = import_network(NETWORK)
    partitioned = partition_network(network.model, backends, options, lambda stage: None)
    library = export_program(
        network.model, partitioned, backends, folder / "library", options, lambda stage: None
    )
    layers = library.metadata["umakit"]["layers"]
    numbers = tuple(number for number, each in enumerate(layers) if each["where"] == name)
    right = umakit.run_library(library.path, {"image": IMAGES[:, None]}).outputs["logits"]
    return Program(build(library.path, name, folder), numbers, right.tobytes())


def checked(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(each["inference"], each["layer"]) for each in records if each.get("checked")]


def test_two_equal_devices_agree(program: Program) -> None:
    said, records, outputs = program.run()
    assert said["status"] == 0 and outputs == program.right
    assert checked(records) == [(run, number) for run in (0, 1) for number in program.layers]
    for each in records:
        taken = each["model_cycles"], each["rtl_cycles"], each["layer_model_cycles"]
        if not each["checked"]:
            assert taken == (None, None, 0) and each["register_writes"] == 0
            continue
        more = each["rtl_access_cycles"] - each["model_access_cycles"]
        assert more == each["register_writes"] > 0
        assert taken[0] == taken[2] > each["model_access_cycles"]
        assert each["compared_bytes"] > 0 and each["tiles"] > 0 and each["waits"] > 0


@pytest.mark.parametrize("tiles", [None, 1])
@pytest.mark.parametrize("every", [1, 2])
def test_the_second_takes_part_in_some(program: Program, every: int, tiles: int | None) -> None:
    chosen = program.layers[1::every]
    limits = {} if tiles is None else {"UMAKIT_COSIM_TILES": str(tiles)}
    said, records, outputs = program.run(UMAKIT_COSIM_LAYERS=",".join(map(str, chosen)), **limits)
    assert said["status"] == 0 and outputs == program.right
    assert checked(records) == [(run, number) for run in (0, 1) for number in chosen]
    assert {each["detached"] for each in records if each["checked"]} == {tiles is not None}


def difference(said: Mapping[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    *layers, last = records
    found: dict[str, Any] = last["difference"]
    assert all("layer_model_cycles" in each for each in layers)
    assert said["status"] != 0 and said["message"] == found["sentence"]
    assert re.search(rf"in layer {found['layer']}, tile {found['tile']}", found["sentence"])
    return found


def test_a_wrong_byte_is_found_in_its_layer(program: Program) -> None:
    _, records, _ = program.run()
    written = 0
    for each in records[: len(records) // 2]:
        if not each["checked"]:
            continue
        found = difference(*program.run(SECOND_WRONG_FROM=str(written))[:2])
        assert (found["kind"], found["layer"]) == ("memory", each["layer"])
        assert found["bytes_differing"] == 1 and found["byte"] == found["buffer_bytes"] - 1
        assert found["expected"] ^ found["found"] == 1
        written += each["compared_bytes"]


def test_what_is_corrupted_on_purpose_is_found(program: Program) -> None:
    for number in program.layers:
        found = difference(*program.run(UMAKIT_COSIM_CORRUPT=str(number))[:2])
        assert (found["kind"], found["layer"], found["inference"]) == ("memory", number, 0)


def test_doorbells_count_commands(program: Program) -> None:
    """Offset 8 is the register that starts engines, in both maps."""
    wrong = {"UMAKIT_COSIM_CORRUPT": str(program.layers[-1])}
    without = difference(*program.run(**wrong)[:2])
    found = difference(*program.run(**wrong, UMAKIT_COSIM_DOORBELLS="0x8")[:2])
    written = sum(offset == 8 for offset, _ in found["last_writes"])
    assert without["command"] is None and found["command"] >= written > 0
    assert without["first_cycle"] <= found["first_cycle"] < found["last_cycle"]
    assert f", command {found['command']}: " in found["sentence"]
