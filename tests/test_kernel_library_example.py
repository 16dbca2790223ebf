# SPDX-License-Identifier: Apache-2.0
"""A vendor's kernel library as a backend: `examples/nova_nn`.

The library knows nothing of umakit; results are compared with TensorFlow Lite Micro.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from comparisons import SANITIZED
from console import check_commands, run
from test_layouts import resnet8
from test_new_projects import check_project
from tflite_networks import tflite_micro, trained_model

import umakit
from umakit.backend import load_backend_folder
from umakit.devices import build
from umakit.library.metadata import load_metadata
from umakit.partition.partitioner import partition
from umakit.pipeline import import_network
from umakit.registration.sources.needed import needed_files
from umakit.registration.sources.tree import source_tree
from umakit.testing import QuantizedNetwork, compile_and_run
from umakit.tools.scaffold import new_backend

ROOTS = (".umakit/base/", "")
FOLDER = Path(__file__).parents[1] / "examples" / "nova_nn"
NETWORKS = ["pretrainedResnet_quant.tflite", "kws_ref_model.tflite", "ad01_int8.tflite"]
TRAPS = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
WITHOUT_SCRATCH = {"ad01_int8.tflite"}


def copy_of(folder: Path, old: str = "", new: str = "") -> Any:
    """A copy of the backend, perhaps with another text in `accel.toml`."""
    copy = folder / "nova_nn"
    shutil.copytree(FOLDER, copy)
    text = (copy / "accel.toml").read_text(encoding="utf-8")
    assert old in text
    (copy / "accel.toml").write_text(text.replace(old, new), encoding="utf-8")
    return load_backend_folder(copy)


@pytest.fixture(scope="module", params=NETWORKS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(network's file, library)."""
    path = trained_model(request.param)
    folder = tmp_path_factory.mktemp(path.stem) / "library"
    return path, umakit.compile_model(path, [load_backend_folder(FOLDER)], folder)


def check(path: Path, library: Path, count: int, device: str = "host") -> None:
    """Outputs of random inputs are those of TensorFlow Lite Micro."""
    (item,) = load_metadata(library)["umakit"]["inputs"]
    shape = (count, *item["shape"])
    inputs = np.random.default_rng(count).integers(-128, 128, shape).astype(np.int8)
    (output,) = umakit.run_library(library, {item["name"]: inputs}, device=device).outputs.values()
    expected = tflite_micro(path.read_bytes(), inputs)
    assert len(np.unique(expected)) > 2
    np.testing.assert_array_equal(output, expected)


def test_whole_networks_are_exact_under_the_sanitizers(compiled: Any) -> None:
    path, library = compiled
    on_cpu = [row.operator for row in library.report.placements if row.where == "cpu"]
    assert set(on_cpu) <= {"reshape"}
    with mock.patch.object(build, "FLAGS", SANITIZED):
        check(path, library.path, 5)


def test_whole_networks_are_exact_on_the_cortex_m3(compiled: Any) -> None:
    path, library = compiled
    if shutil.which("arm-none-eabi-gcc") is None or shutil.which("qemu-system-arm") is None:
        pytest.skip("needs arm-none-eabi-gcc and qemu-system-arm")
    with mock.patch.object(build, "FLAGS", (*build.FLAGS, *TRAPS)):
        check(path, library.path, 1, "qemu-cortex-m3")


def test_scratch_is_in_the_memory_plan(compiled: Any) -> None:
    path, library = compiled
    memory = library.metadata["umakit"]["memory"]
    tensors = [t for pool in memory["pools"] for t in pool["tensors"] if "scratch" in t["name"]]
    assert bool(tensors) == (path.name not in WITHOUT_SCRATCH)
    assert all(t["first_layer"] == t["last_layer"] for t in tensors)
    assert memory["arena_bytes"] == memory["live_set_bound_bytes"]


def test_only_functions_in_use_are_exported(compiled: Any, tmp_path: Path) -> None:
    """Code of the export, without help of the linker, and of a link of the whole library that
    leaves out what is not called."""
    _, library = compiled
    host = library.path / "codegen" / "host"
    generated = sorted((host / "src").glob("tvmgen_*.c"))
    exported = sorted((host / "src" / "nova_nn").rglob("*.c"))
    whole = sorted((FOLDER / "nova-nn" / "Source").rglob("*.c"))
    assert len(exported) < len(whole)
    prefix = library.metadata["umakit"]["interface"]

    def linked(sources: list[Path], *flags: str) -> int:
        output = tmp_path / "program"
        command = ["cc", "-std=c99", "-Os", "-w", "-ffunction-sections", "-fdata-sections"]
        command += ["-shared", "-fPIC", "-fvisibility=hidden", *flags]
        command += [f"-I{host / 'include'}", f"-I{FOLDER / 'nova-nn' / 'Include'}"]
        subprocess.run([*command, *generated, *sources, "-o", output], check=True)
        text = subprocess.run(["size", "-A", output], check=True, capture_output=True, text=True)
        return int(re.findall(r"^\.text\s+(\d+)", text.stdout, re.MULTILINE)[0])

    smallest = linked(whole, "-Wl,--gc-sections", f"-Wl,--undefined={prefix}_run")
    assert linked(exported) <= 1.1 * smallest


def test_a_core_with_other_scratch(tmp_path: Path) -> None:
    """Kernels of another core, which keep sums and wide columns, and need more memory for them."""
    path = trained_model("kws_ref_model.tflite")
    dsp = copy_of(tmp_path, "[sources.cores]", "defines = { NOVA_DSP = 1 }\n\n[sources.cores]")
    library = umakit.compile_model(path, [dsp], tmp_path / "library")
    with mock.patch.object(build, "FLAGS", SANITIZED):
        check(path, library.path, 5)


def test_the_backend_has_at_most_a_hundred_lines() -> None:
    """Lines of its two files, without comments."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in ("backend.py", "accel.toml")]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    assert len([line for line in lines if line and not line.startswith("#")]) <= 100


@pytest.mark.page
def test_commands_of_its_page(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for name in ("nova_nn", "digits"):
        shutil.copytree(FOLDER.with_name(name), tmp_path / "examples" / name)
    update = bool(request.config.getoption("--update-golden"))
    page = FOLDER / "README.md"
    count = check_commands(page, lambda command: run(command, tmp_path), update=update)
    assert count == 6


def test_a_header_with_assembler_and_linkage_needs_nothing_but_what_is_called(
    tmp_path: Path,
) -> None:
    """As CMSIS-NN's: its prototypes are no calls."""
    copy = copy_of(tmp_path).folder
    header = copy / "nova-nn" / "Include" / "nova_nn_functions.h"
    text = header.read_text(encoding="utf-8")
    barrier = 'static inline void nova_hint(void)\n{\n    __asm volatile("nop");\n}\n'
    assert 'extern "C" {\n#endif\n' in text
    text = text.replace('extern "C" {\n#endif\n', f'extern "C" {{\n#endif\n\n{barrier}', 1)
    header.write_text(text, encoding="utf-8")
    tree = source_tree(load_backend_folder(copy))
    assert tree is not None
    sources = needed_files(tree, ["nova_softmax_s8"]).sources
    assert sources == ("Source/Softmax/nova_softmax_s8.c",)


def test_an_onnx_network_and_its_twin_have_the_same_multiply_accumulates(tmp_path: Path) -> None:
    """MLPerf Tiny's ResNet-8 as TensorFlow Lite, and its layers as ONNX in NCHW."""
    nova = load_backend_folder(FOLDER)
    for path in (trained_model(NETWORKS[0]), resnet8(tmp_path)):
        module = import_network(path, rounding="tflm").model.module
        assert partition(module, [nova]).report.offloaded_macs == 12_501_632


# --- from `uma new` -------------------------------------------------------------------------------

CHANGED = ("accel.toml", "backend.py", "pyproject.toml")


def made_again(folder: Path) -> Path:
    """`uma new --kind library` with the library in its place and the example's two files."""
    operators = "conv2d,depthwise,dense,add,multiply,avg_pool2d,max_pool2d"
    flags = {"operators": operators, "layout": "NHWC", "rounding": "tflm"}
    place = new_backend("nova_nn", folder, kind="library", flags=flags).folder
    shutil.rmtree(place / "kernels")
    for name in ("accel.toml", "backend.py", "nova-nn"):
        copy = shutil.copytree if (FOLDER / name).is_dir() else shutil.copy
        copy(FOLDER / name, place / name)
    project = place / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace('"kernels/', '"nova-nn/'), encoding="utf-8")
    return place


def test_it_is_what_uma_new_writes_with_at_most_100_lines_of_its_own(tmp_path: Path) -> None:
    place = made_again(tmp_path)
    written = {
        path: [(place / f"{root}{path}").read_text(encoding="utf-8").splitlines() for root in ROOTS]
        for path in CHANGED
    }
    own = [
        line
        for before, after in written.values()
        for line in difflib.unified_diff(before, after, n=0)
        if line.startswith("+") and not line.startswith("+++")
    ]
    assert 0 < len(own) <= 100
    changed = {
        path.relative_to(place).as_posix()
        for path in place.rglob("*")
        if path.is_file() and ".umakit" not in path.parts and "nova-nn" not in path.parts
        if path.read_bytes() != (place / ROOTS[0] / path.relative_to(place)).read_bytes()
    }
    assert changed == set(CHANGED)
    backend = load_backend_folder(place)
    layers = QuantizedNetwork(8, 6, 8).conv2d(8).residual().conv2d(8).product()
    model = layers.conv2d(8, depthwise=True).pool2d("average").pool2d("max").dense(10).model()
    report = compile_and_run(model, backend, test_dir=tmp_path)
    assert {row.operator for row in report.offload.placements if row.where == "cpu"} == {"reshape"}


@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")
def test_its_projects_tests_pass(tmp_path: Path) -> None:
    check_project(made_again(tmp_path))
