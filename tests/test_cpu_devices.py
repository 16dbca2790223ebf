# SPDX-License-Identifier: Apache-2.0
"""Libraries for the CPUs of devices: which runs where, and with which flags."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from networks import Graph, onnx_runtime, save
from umakit.cli.main import run_command

import umakit
from umakit.cpu.description import Cpu, cpu_names, find_cpu
from umakit.devices import DEVICES, find_device
from umakit.devices.cpus import what_lacks
from umakit.devices.run import run_library
from umakit.errors import BuildError

RUNS = {
    "armv6-m": "m3 m4 m7 m55",
    "cortex-m3": "m3 m4 m7 m55",
    "cortex-m4": "m4 m7 m55",
    "cortex-m7": "m7 m55",
    "armv8-m": "m55",
    "cortex-m55": "m55",
}
"""The Cortex-M on which code for a CPU or an architecture runs."""

OWN = {
    "no-fpu": 'architecture = "armv7e-m"\nfeatures = ["dsp"]\nflags = ["-mcpu=cortex-m4"]',
    "softfp": 'architecture = "armv7e-m"\nfeatures = ["dsp", "fp32"]\nflags = '
    '["-mcpu=cortex-m4", "-mfloat-abi=softfp", "-mfpu=fpv4-sp-d16"]',
    "no-flags-of-a-processor": 'architecture = "armv7-m"\nflags = ["-mthumb"]',
}
"""Descriptions that a user may write, each of which a Cortex-M4 runs."""


def network(folder: Path) -> tuple[Path, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A network in float32, an input, and what ONNX Runtime makes of it."""
    graph = Graph(seed=11)
    x = graph.node("Relu", graph.conv(graph.input("x", 1, 4, 6, 6), 8, bias=True))
    graph.output(graph.dense(graph.node("Flatten", x), 8 * 36, 5))
    model = graph.model()
    x_value = np.random.default_rng(3).standard_normal((1, 4, 6, 6)).astype("float32")
    return save(model, folder), {"x": x_value}, onnx_runtime(model, {"x": x_value})


def export(model: Path, cpu: str, folder: Path) -> Path:
    options = umakit.ExportOptions(cpu=cpu)
    out = folder / f"library_{Path(cpu).stem}"
    return Path(umakit.compile_model(model, [], out, options=options).path)


@pytest.mark.parametrize("name", RUNS)
def test_code_runs_on_the_same_processor_and_on_larger_ones(name: str) -> None:
    cpu = find_cpu(name) if name in cpu_names() else Cpu(name=name, architecture=name)
    arms = [each for each in DEVICES if each.name.startswith("qemu-cortex-m")]
    found = [each.name.removeprefix("qemu-cortex-") for each in arms if not what_lacks(cpu, each)]
    assert found == RUNS[name].split()
    assert what_lacks(cpu, find_device("qemu-riscv32"))
    assert what_lacks(cpu, find_device("qemu-aarch64")) and what_lacks(cpu, find_device("qemu-arm"))


@pytest.mark.parametrize(
    ("cpu", "fitting"),
    [
        ("rv32imac", "qemu-riscv32"),
        ("rv64gcv", "qemu-riscv64-linux"),
        ("cortex-a76", "qemu-aarch64"),
    ],
)
def test_other_processors_run_on_the_device_of_their_kind(cpu: str, fitting: str) -> None:
    emulated = [device for device in DEVICES if not device.is_host]
    assert [d.name for d in emulated if not what_lacks(find_cpu(cpu), d)] == [fitting]
    vectors = Cpu(name="x", architecture="riscv32", features=("v",))
    assert what_lacks(vectors, find_device("qemu-riscv32")) == "qemu-riscv32 has no v"


@pytest.mark.parametrize(
    ("cpu", "device"),
    [
        *((cpu, f"qemu-cortex-{m}") for cpu in RUNS if "cortex" in cpu for m in RUNS[cpu].split()),
        ("rv32imac", "qemu-riscv32"), ("rv64gcv", "qemu-riscv64-linux"),
        *((cpu, "qemu-cortex-m4") for cpu in OWN),
    ],
)  # fmt: skip
def test_results_are_those_of_onnx_runtime(cpu: str, device: str, tmp_path: Path) -> None:
    """Whole programs, with the floating-point convention of the CPU."""
    if not shutil.which(find_device(device).command):
        pytest.skip(f"{device} is not installed")
    model, inputs, expected = network(tmp_path)
    if cpu in OWN:
        path = tmp_path / "own.toml"
        path.write_text(f'name = "{cpu}"\n{OWN[cpu]}\n', encoding="utf-8")
        cpu = str(path)
    outputs = run_library(export(model, cpu, tmp_path), inputs, device=device).outputs
    for name, wanted in expected.items():
        np.testing.assert_allclose(outputs[name], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in cpu_names() if n.startswith(("cortex-m", "rv"))])
def test_descriptions_are_true_of_their_flags(name: str, tmp_path: Path) -> None:
    """The compiler's own macros say what code with these flags may use."""
    cpu = find_cpu(name)
    is_arm = name.startswith("cortex")
    compiler = "arm-none-eabi-gcc" if is_arm else "riscv64-unknown-elf-gcc"
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    line = [compiler, *cpu.flags, "-dM", "-E", "-xc", "/dev/null"]
    text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    macros = {word[1]: word[-1] for word in map(str.split, text.splitlines())}
    assert not set(cpu.macros) - macros.keys()
    bits = int(macros.get("__ARM_FP", "0"), 0)
    uses = {
        "dsp": "__ARM_FEATURE_DSP" in macros,
        "fp32": bool(bits & 4),
        "fp64": bool(bits & 8),
        "mve": "__ARM_FEATURE_MVE" in macros,
        "v": "__riscv_vector" in macros,
    }
    assert [feature for feature, is_used in uses.items() if is_used] == list(cpu.features)


@pytest.mark.parametrize("cpu", ["cortex-m3", "rv32imac"])
def test_without_vectors_and_dot_products_c_is_that_of_generic(cpu: str, tmp_path: Path) -> None:
    model, _, _ = network(tmp_path)
    libraries = [export(model, each, tmp_path) for each in ("generic", cpu)]
    texts = []
    for library in libraries:
        source = next(library.rglob("codegen/host/src/tvmgen_*.c")).read_text("utf-8")
        start, _, rest = source.partition("/* Kernels are scheduled for")
        texts.append(start + (rest.partition("#endif\n\n")[2] if rest else ""))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("command", ["run", "size"])
def test_a_library_for_a_microcontroller_names_the_devices(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, inputs, _ = network(tmp_path)
    library = export(model, "cortex-m7", tmp_path)
    np.savez(tmp_path / "in.npz", **inputs)
    words = ["--inputs", str(tmp_path / "in.npz")] if command == "run" else []
    assert run_command([command, str(library), *words]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "the library is for cortex-m7: this machine is" in error
    assert "--device qemu-cortex-m7 or qemu-cortex-m55, or export it" in error
    with pytest.raises(BuildError, match="qemu-cortex-m4 has no fp64"):
        run_library(library, inputs, device="qemu-cortex-m4")
    with pytest.raises(BuildError, match="qemu-cortex-m3 runs code for armv6-m and armv7-m"):
        run_library(library, inputs, device="qemu-cortex-m3")
