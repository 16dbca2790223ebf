# SPDX-License-Identifier: Apache-2.0
"""One simulator, as sources, as a library and as a program: every command says the same of it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umakit import sim
from umakit.backend import load_backend_folder
from umakit.devices import HOST
from umakit.devices.run import RunResult, run_library
from umakit.errors import BuildError
from umakit.library.packages import package_library
from umakit.pipeline import compile_model, import_network
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.diff import diff_model
from umakit.tools.doctor.driver import stage
from umakit.tools.doctor.probes import start_checks
from umakit.tools.page import make_page
from umakit.tools.size import library_size
from umakit.tools.tuning import Effort, tune_model

EXAMPLE = Path(__file__).parents[1] / "examples" / "lane_npu"
FORMS = ("sources", "library", "program")
MAIN = """\
#include "umakit/serve_simulator.h"
extern "C" const umakit_own_simulator *lane_npu_simulator(void);
int main() { return umakit_serve_simulator(lane_npu_simulator()); }
"""


def rewritten(text: str, section: str) -> str:
    """`accel.toml` with another section `[simulator]`."""
    start, end = text.index("[simulator]"), text.index("[machine]")
    return f"{text[:start]}[simulator]\n{section}\n\n{text[end:]}"


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the example's backend, by the form of its simulator."""
    folders = {form: tmp_path_factory.mktemp(form) / "lane_npu" for form in FORMS}
    for folder in folders.values():
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    built = folders["program"]
    macros = load_backend_folder(built).configuration.simulator_macros
    (built / "simulator" / "main.cc").write_text(MAIN)
    include = sim.source_directory() / "include"
    flags = ["-O0", "-fPIC", "-Iisa", f"-I{include}", *(f"-D{macro}" for macro in macros)]
    sources = sorted((built / "simulator").glob("*.cc"))
    subprocess.run(["c++", *flags, "-c", *sources], cwd=built, check=True)
    objects = sorted(built.glob("*.o"))
    subprocess.run(["c++", *objects, "-o", "model"], cwd=built, check=True)
    library = folders["library"] / "liblane.a"
    parts = [path for path in objects if path.stem != "main"]
    subprocess.run(["ar", "rcs", library, *parts], check=True)
    sections = {"library": 'libraries = ["liblane.a"]', "program": 'program = ["./model"]'}
    for form, section in sections.items():
        path = folders[form] / "accel.toml"
        path.write_text(rewritten(path.read_text(), section))
        shutil.rmtree(folders[form] / "simulator")
    return folders


@pytest.fixture(scope="module")
def model() -> Any:
    network = QuantizedNetwork(9, 7, 16).conv2d(16).residual().conv2d(40).dense(10)
    return network.model("alike")


@pytest.fixture(scope="module")
def libraries(
    backends: dict[str, Path], model: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    found = {}
    for form, folder in backends.items():
        found[form] = tmp_path_factory.mktemp("libraries") / form
        compile_model(model.module, [load_backend_folder(folder)], found[form], name=model.name)
    return found


def figures(result: RunResult) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in asdict(layer).items() if not key.endswith("seconds")}
        for layer in result.layers
    ]


def without_times(view: Any) -> Any:
    """What a report says, without the times of this machine."""
    if isinstance(view, list):
        return [without_times(each) for each in view]
    if not isinstance(view, dict):
        return view
    kept = (key for key in view if key != "host" and not key.endswith("seconds"))
    return {key: without_times(view[key]) for key in kept}


def test_profiles_are_equal(libraries: dict[str, Path], model: Any) -> None:
    results = [
        run_library(libraries[form], model.inputs, profile=True, record_commands=True)
        for form in FORMS
    ]
    first = figures(results[0])
    assert all(layer["clock_cycles"] > 0 for layer in first if layer["where"] == "lane_npu")
    assert any(layer["commands"] for layer in first)
    for result in results[1:]:
        assert figures(result) == first
        for name, values in results[0].outputs.items():
            np.testing.assert_array_equal(result.outputs[name], values)


def test_sizes_are_without_them(libraries: dict[str, Path]) -> None:
    sizes = [library_size(libraries[form]) for form in ("sources", "program")]
    assert len({(size.text_bytes, size.static_bytes, size.stack_bytes) for size in sizes}) == 1


def test_reports_and_differences_are_equal(backends: dict[str, Path], model: Any) -> None:
    views = []
    for form in ("sources", "program"):
        backend = load_backend_folder(backends[form])
        page = make_page(model.module, [backend], inputs=model.inputs)
        views.append(json.dumps(without_times(page.as_json()), sort_keys=True))
    assert views[0] == views[1] and json.loads(views[0])["clock_cycles"] > 0
    backend = load_backend_folder(backends["program"])
    found = diff_model(model.module, [backend], inputs=model.inputs)
    assert found.layers and all(layer.agrees for layer in found.layers)


def test_tuning_measures_the_same(backends: dict[str, Path], tmp_path: Path) -> None:
    network = QuantizedNetwork(20, 20, 16).conv2d(40).model("tuned")
    measured = []
    for form in ("sources", "program"):
        (tuned,) = tune_model(
            import_network(network.module), load_backend_folder(backends[form]),
            tmp_path / f"{form}.json", effort=Effort(simulate=1),
        )  # fmt: skip
        measured.append((tuned.record.tiling, tuned.record.simulated))
    assert measured[0][1] and measured[0] == measured[1]


def test_arduino_is_without_them(libraries: dict[str, Path], tmp_path: Path) -> None:
    names = []
    for form in FORMS:
        place = package_library(libraries[form], "arduino", tmp_path / form / "tvmgen_alike")
        names.append({path.relative_to(place).as_posix() for path in place.rglob("*.*")})
        assert not [name for name in names[-1] if "simulator" in name or "lane_npu_device" in name]
    assert names[0] == names[1] == names[2]


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_cmake_starts_the_program(libraries: dict[str, Path], model: Any, tmp_path: Path) -> None:
    build = tmp_path / "build"
    options = ["-DTVMGEN_ALIKE_PROFILE=ON", "-B", str(build), "-S", str(libraries["program"])]
    subprocess.run(["cmake", *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    (data,) = model.inputs.values()
    data.tofile(tmp_path / "in")
    command = [build / "tvmgen_alike_main", tmp_path / "in", tmp_path / "out", "1", "1"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    counted = [layer["clock_cycles"] for layer in json.loads(lines[-1])["layers"]]
    expected = run_library(libraries["sources"], model.inputs, profile=True).layers
    assert counted == [layer.clock_cycles for layer in expected] and sum(counted) > 0


@pytest.mark.skipif(
    not (shutil.which("cmake") and shutil.which("arm-none-eabi-gcc")), reason="needs a compiler"
)
@pytest.mark.parametrize("form", ["library", "program"])
def test_boards_are_without_them(form: str, libraries: dict[str, Path], tmp_path: Path) -> None:
    options = [
        "-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_C_COMPILER=arm-none-eabi-gcc",
        "-DCMAKE_C_FLAGS=-mcpu=cortex-m3 -mthumb", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
        "-B", str(tmp_path / "build"), "-S", str(libraries[form]),
    ]  # fmt: skip
    subprocess.run(["cmake", *options], check=True, capture_output=True)
    if form == "program":
        on = ["cmake", "-DTVMGEN_ALIKE_SIMULATED_DEVICES=ON", *options]
        refused = subprocess.run(on, capture_output=True, text=True, check=False)
        assert "the simulator of lane_npu is a program" in " ".join(refused.stderr.split())
        kconfig = (libraries[form] / "zephyr" / "Kconfig").read_text()
        assert "default y\n" not in kconfig.partition("SIMULATED_DEVICES")[2]
        return
    built = subprocess.run(
        ["cmake", "--build", str(tmp_path / "build")], check=True, capture_output=True, text=True
    ).stdout
    assert "lane_npu.c" in built and "lane_npu_simulator" not in built


@pytest.mark.skipif(not shutil.which("qemu-system-arm"), reason="there is no emulator")
@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ("sources", r"the simulator of lane_npu is in C\+\+, which qemu-cortex-m3 has no library"),
        ("library", r"liblane\.a is compiled for .*, programs for qemu-cortex-m3 are for Arm"),
        ("program", "the simulator of lane_npu is a program, ./model, which the host starts"),
    ],
)
def test_emulators_refuse_them_in_a_sentence(
    form: str, sentence: str, libraries: dict[str, Path], model: Any
) -> None:
    with pytest.raises(BuildError, match=sentence):
        run_library(libraries[form], model.inputs, device="qemu-cortex-m3")


def test_the_doctor_starts_each(backends: dict[str, Path], tmp_path: Path) -> None:
    counts = "clock, busy_cycles, compute_cycles, dma_cycles, macs, bytes_read, bytes_written"
    for form, start in (("library", "it can be created"), ("program", "./model answers")):
        folder = tmp_path / form
        folder.mkdir()
        (check,) = start_checks(stage(load_backend_folder(backends[form]), HOST, folder))
        assert check.message == f"{start} and counts {counts}"
