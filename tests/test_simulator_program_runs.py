# SPDX-License-Identifier: Apache-2.0
"""Backends whose simulator is a program: networks run on them, and what users are told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.helper
import pytest
from strict import CPP_WARNINGS

from umakit import compile_model, find_backend, run_library, sim
from umakit.backend import UMABackend
from umakit.devices.run import LayerProfile, RunResult
from umakit.errors import AcceleratorConfigError, BuildError, DeviceError
from umakit.tools.diff import diff_model

ROOT = Path(__file__).parents[1]
BACKEND = ROOT / "tests" / "programs" / "relu_npu"
MODULE = ROOT / "umakit" / "testing" / "simulator_program.py"
PROGRAM = 'program = ["python3", "model.py"]'

SIZE = 20_000
"""Elements of the network's tensors, which are more bytes than a frame holds."""

INPUTS = np.random.default_rng(3).normal(size=(3, 1, SIZE)).astype("float32")


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    """A backend's folder, with the module next to its model."""
    folder = tmp_path / "relu_npu"
    shutil.copytree(BACKEND, folder)
    shutil.copy(MODULE, folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """ReLU, negation on the CPU, ReLU."""
    return save_network(tmp_path, ["Relu", "Neg", "Relu"])


def save_network(folder: Path, operators: list[str]) -> Path:
    names = ["x", *(f"t{index}" for index in range(1, len(operators))), "y"]
    nodes = [
        onnx.helper.make_node(operator, [names[index]], [names[index + 1]], name=f"layer{index}")
        for index, operator in enumerate(operators)
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, SIZE]) for name in "xy"
    )
    graph = onnx.helper.make_graph(nodes, "network", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    path = folder / "network.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def edit(folder: Path, old: str, new: str, name: str = "accel.toml") -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def export(model: Path, *folders: Path, output: str = "library") -> Path:
    backends = [find_backend(folder) for folder in folders]
    path = model.parent / output
    library = compile_model(model, backends, path)
    assert {row.where for row in library.report.placements} >= {
        each.target_name for each in backends
    }
    return path


def run(library: Path) -> RunResult:
    return run_library(library, {"x": INPUTS}, profile=True, record_commands=True)


def figures(layer: LayerProfile) -> dict[str, Any]:
    """What the simulator says of a layer."""
    names = "clock_cycles cycles array_cycles dma_cycles device_macs moved_bytes".split()
    commands = [(each.stream, each.label, each.start, each.completion) for each in layer.commands]
    return {**{name: getattr(layer, name) for name in names}, "commands": commands}


def expected(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.maximum(-np.maximum(x, 0), 0)


def test_one_process_runs_all_layers_and_inferences(backend: Path, model: Path) -> None:
    started = model.parent / "started"
    note = (
        f"import os\nwith open({str(started)!r}, 'a') as file:\n    print(os.getpid(), file=file)\n"
    )
    edit(backend, "import array", f"{note}import array", "model.py")
    edit(backend, "[max(v, 0.0) for v in values]", "[max(v, 0.5) for v in values]", "model.py")
    result = run(export(model, backend))
    first = np.maximum(INPUTS, np.float32(0.5))
    np.testing.assert_array_equal(result.outputs["y"], np.maximum(-first, np.float32(0.5)))
    (process,) = started.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def test_figures_are_those_of_the_program(backend: Path, model: Path) -> None:
    """Four values in a cycle, a cycle for each write; what it does not count is unknown."""
    result = run(export(model, backend))
    np.testing.assert_array_equal(result.outputs["y"], expected(INPUTS))
    first, negation, second = result.layers
    assert (first.where, negation.where, second.where) == ("relu_npu", "cpu", "relu_npu")
    for layer in (first, second):
        assert figures(layer) == {
            "clock_cycles": SIZE // 4 + 4,
            "cycles": None,
            "array_cycles": SIZE // 4,
            "dma_cycles": None,
            "device_macs": None,
            "moved_bytes": None,
            "commands": [("relu", "values", 4, SIZE // 4 + 4)],
        }
        assert layer.register_writes == 4
    assert (negation.register_reads, negation.register_writes) == (0, 0)


def test_libraries_that_count_no_accesses_to_registers_run(backend: Path, model: Path) -> None:
    """As umakit exported them before it counted these."""
    library = export(model, backend)
    (main,) = library.rglob("main.c")
    text = main.read_text()
    assert text.count('"register_') == 2
    main.write_text(text.replace('"register_', '"other_'))
    for layer in run(library).layers:
        assert layer.register_reads is None and layer.register_writes is None
        assert layer.clock_cycles is not None


def test_a_simulator_in_cxx_is_linked_or_started(backend: Path, model: Path) -> None:
    include = sim.source_directory() / "include"
    flags = ["-std=c++11", "-DIS_PROGRAM", *CPP_WARNINGS, f"-I{include}", "-o", "model", "model.cc"]
    subprocess.run(["c++", *flags], check=True, cwd=backend)
    results = []
    for section in ('program = ["./model"]', 'sources = ["model.cc"]'):
        edit(backend, PROGRAM, section)
        results.append(run(export(model, backend, output=f"library{len(results)}")))
        edit(backend, section, PROGRAM)
    for result in results:
        np.testing.assert_array_equal(result.outputs["y"], expected(INPUTS))
    started, linked = ([figures(layer) for layer in result.layers] for result in results)
    assert started == linked and started[0]["clock_cycles"] == SIZE // 4 + 4


def test_two_programs_run_in_one_library(backend: Path, model: Path) -> None:
    other = backend.with_name("neg_npu")
    shutil.copytree(backend, other)
    for path in [path for path in other.iterdir() if path.is_file()]:
        text = path.read_text().replace("relu_npu", "neg_npu").replace("RELU_NPU", "NEG_NPU")
        path.rename(other / path.name.replace("relu_npu", "neg_npu")).write_text(text)
    edit(other, "relax.nn.relu", "relax.negative", "backend.py")
    edit(other, "ReluNpu", "NegNpu", "backend.py")
    edit(other, "max(v, 0.0)", "-v", "model.py")
    result = run(export(model, backend, other))
    np.testing.assert_array_equal(result.outputs["y"], expected(INPUTS))
    assert [layer.where for layer in result.layers] == ["relu_npu", "neg_npu", "relu_npu"]
    assert all(layer.clock_cycles == SIZE // 4 + 4 for layer in result.layers)


def test_diff_compares_layers_of_a_program(backend: Path, model: Path) -> None:
    edit(backend, "max(v, 0.0)", "max(v, 0.25)", "model.py")
    found = diff_model(model, [find_backend(backend)])
    assert next(layer.name for layer in found.layers if not layer.agrees) == "layer0"


def failure(library: Path) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        run(library)
    assert caught.value.exit_code == 1
    return caught.value


@pytest.mark.parametrize(
    ("fault", "job", "message"),
    [
        ("exit", 0, "ended with exit code 1 instead of answering WRIT; its last lines: the weights "
         "are missing"),
        ("raise", 1, r"ended with exit code 1 instead of answering WRIT; its last lines: .* \| "
         "ValueError: no such mode"),
        ("print", 0, r'sent "a job begins" instead of answering WRIT, which is no frame of the '
         r"protocol; is it printed to standard output\?"),
        ("fail", 5, "gave up at WRIT: the machine is on fire"),
        ("outside", 0, "ended with exit code 1 instead of answering WRIT; its last lines: .* "
         r"simulator_program.HostMemoryError: status 3 for 65536 bytes at bus address 0x\w+"),
        ("sleep", 1, r"did not answer \w+ within 1.5 s \(\[simulator\] timeout in accel.toml\) and "
         "was stopped; let the program answer, or give it more time with timeout"),
    ],
)  # fmt: skip
def test_a_program_that_errs_is_told_in_one_sentence(
    fault: str, job: int, message: str, backend: Path, model: Path
) -> None:
    timeout = "\ntimeout = 1.5" if fault == "sleep" else ""
    edit(backend, PROGRAM, f'program = ["python3", "model.py", "{fault}", "{job}"]{timeout}')
    text = str(failure(export(model, backend)))
    start = f"the simulator of relu_npu failed: python3 model.py {fault} {job} "
    assert re.fullmatch(rf"inference \d: {re.escape(start)}{message}", text), text
    assert "\n" not in text


def test_a_program_that_is_gone(backend: Path, model: Path) -> None:
    (backend / "tool").write_text("#!/bin/sh\n")
    (backend / "tool").chmod(0o755)
    edit(backend, PROGRAM, 'program = ["./tool"]')
    library = export(model, backend)
    (backend / "tool").unlink()
    assert f"./tool cannot be started in {backend}"[:60] in str(failure(library))


@pytest.mark.skipif(
    not (shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc")),
    reason="needs qemu-system-arm and arm-none-eabi-gcc",
)
def test_a_program_runs_on_the_host_only(backend: Path, model: Path) -> None:
    with pytest.raises(BuildError) as caught:
        run_library(export(model, backend), {"x": INPUTS[0]}, device="qemu-cortex-m3")
    assert str(caught.value) == (
        "the simulator of relu_npu is a program, python3, which the host starts, not "
        "qemu-cortex-m3; run it with --device host, or simulate the accelerator in C"
    )


def test_a_word_may_hold_anything(backend: Path, model: Path) -> None:
    word = '"\\ ?? \u00e9 $(x) %s'
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    edit(
        backend, PROGRAM, f'program = ["python3", "model.py", "", "{escaped}"]'.replace(' "",', "")
    )
    edit(backend, "JOB = int", f"assert sys.argv[1] == {word!r}\nJOB = int", "model.py")
    result = run(export(model, backend))
    np.testing.assert_array_equal(result.outputs["y"], expected(INPUTS))


def test_a_word_may_name_figures(backend: Path, model: Path) -> None:
    word = '{data.size},${data.size},{"a": {}}'
    memory = (
        '[[memory]]\nname = "data"\nsize = 64\naddress = "offset"\nreachable_by = ["accelerator"]'
    )
    edit(backend, PROGRAM, f"program = ['python3', 'model.py', '{word}']\n{memory}")
    filled = '64,${data.size},{"a": {}}'
    edit(backend, "JOB = int", f"assert sys.argv[1] == {filled!r}\nJOB = int", "model.py")
    result = run(export(model, backend))
    np.testing.assert_array_equal(result.outputs["y"], expected(INPUTS))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('program = []', "simulator: needs sources or a program"),
        ('program = [""]', "simulator.program.0: '' cannot be a program or an argument"),
        ('program = ["./none"]', "program: there is no file ./none in the backend's folder"),
        ('program = ["./model.py"]', "simulator.program: ./model.py is not executable"),
        ('program = ["no-such-program"]', "simulator.program: no-such-program is not installed"),
        ('program = ["cat"]\nsources = ["model.cc"]',
         "simulator: has sources and a program, and can have one of them only"),
        ('program = ["cat", "--rows={row}"]',
         "simulator.program: there is no figure row; figures are none"),
        ('program = ["cat"]\ndefines = ["A"]', "defines is for sources, not for a program"),
        ('sources = ["model.cc"]\ntimeout = 0.0',
         "simulator.timeout: Input should be greater than or equal to 0.001"),
        ('program = ["cat"]\ntimeout = 0.0',
         "simulator.timeout: Input should be greater than or equal to 0.001"),
    ],
)  # fmt: skip
def test_sections_that_are_refused(section: str, message: str, backend: Path) -> None:
    edit(backend, PROGRAM, section)
    with pytest.raises(AcceleratorConfigError) as caught:
        backend_of(backend)
    assert message in str(caught.value)


def backend_of(folder: Path) -> UMABackend:
    found = find_backend(folder)
    _ = found.configuration
    return found
