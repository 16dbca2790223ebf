# SPDX-License-Identifier: Apache-2.0
"""Every device runs what the host runs: the same integers, nearly the same floats."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import cmake_builds
import numpy as np
import pytest
from device_programs import (
    BLOCK,
    COUNTING_PROGRAM,
    FAILURES,
    FUNCTION_PROGRAM,
    FUNCTIONS,
    READING_PROGRAM,
)
from execution import vanilla
from networks import Array, Graph, onnx_runtime, save
from onnx import ModelProto, TensorProto
from strict import WARNINGS
from tflite_networks import tflite_micro, trained_model
from umakit.cli.main import run_command

import umakit
from umakit.devices import DEVICES, HOST, Device, execute, find_device
from umakit.devices.build import compile_c
from umakit.devices.device import SUPPORT
from umakit.devices.run import RunResult, load_inputs, run_library, select_inputs
from umakit.errors import BuildError, DeviceError, InputError, MissingProgramError
from umakit.library.layout import RUNTIME

EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
MOST_ULP = 2
INSTRUCTIONS_A_TICK = 40
"""Most that the counter of the start-up code cortex_m counts at a time."""

Folder = pytest.TempPathFactory


def installed(device: Device) -> bool:
    programs = [device.command, device.size, *device.run[:1]]
    return all(shutil.which(program) for program in programs if program)


def is_cortex_m(device: Device) -> bool:
    return SUPPORT / "cortex_m.c" in device.sources


def parameters(devices: list[Device]) -> list[object]:
    """On CI `conftest.py` sees to it that all are installed."""
    return [
        pytest.param(
            device,
            id=device.name,
            marks=pytest.mark.skipif(not installed(device), reason="is not installed"),
        )
        for device in devices
    ]


OTHERS = parameters([device for device in DEVICES if device is not HOST])
BARE_METAL = parameters([device for device in DEVICES if device.is_bare_metal])


def ulp_distance(left: Array, right: Array) -> int:
    """How many float32 values lie between two arrays where they are furthest apart.

    Two NaNs are equal, a NaN and a number are as far apart as can be.
    """
    assert left.dtype == right.dtype == np.float32 and left.shape == right.shape
    places = []
    for array in (left, right):
        bits = np.ascontiguousarray(array).view(np.int32).astype(np.int64)
        places.append(np.where(bits < 0, -(bits & 0x7FFFFFFF), bits))
    distance = np.abs(places[0] - places[1])
    nans = np.isnan(left), np.isnan(right)
    distance[nans[0] & nans[1]] = 0
    distance[nans[0] ^ nans[1]] = 1 << 32
    return int(distance.max())


def test_ulp_distance_counts_floats() -> None:
    one = np.float32([1.0, -0.0, np.nan])
    assert ulp_distance(one, np.float32([1.0, 0.0, np.nan])) == 0
    assert ulp_distance(one, np.nextafter(one, np.float32(2))) == 1
    assert ulp_distance(np.float32([-1e-45]), np.float32([1e-45])) == 2
    assert ulp_distance(np.float32([np.nan]), np.float32([1])) > 1 << 30


# --- integers -----------------------------------------------------------------------------------


def integer_network() -> ModelProto:
    graph = Graph("integers")
    shape = (1, 4, 6, 6)
    a, b = (graph.input(name, *shape, dtype=TensorProto.INT32) for name in "ab")
    byte = graph.input("byte", *shape, dtype=TensorProto.UINT8)
    small = graph.input("small", *shape, dtype=TensorProto.INT8)
    wide = graph.input("wide", *shape, dtype=TensorProto.INT64)
    scale, zero = graph.constant(0.1), graph.constant(3, "uint8")
    real = graph.node("DequantizeLinear", byte, scale, zero)
    graph.output(
        graph.node("Add", a, b, name="add"),
        graph.node("Sub", a, b, name="sub"),
        graph.node("Mul", a, b, name="mul"),
        graph.node("Div", a, graph.constant([7], "int32"), name="div"),
        graph.node("Mod", wide, graph.constant([-13], "int64"), name="mod"),
        graph.node("Mul", wide, wide, name="square"),
        graph.node("BitShift", byte, graph.constant([3], "uint8"), direction="RIGHT", name="shift"),
        graph.node("MatMul", a, b, name="matmul"),
        graph.node("MatMulInteger", small, small, name="product"),
        graph.node("Max", a, b, name="max"),
        graph.node("Abs", small, name="abs"),
        graph.node("Cast", a, to=TensorProto.INT8, name="wrap"),
        graph.node("ArgMax", a, axis=1, name="argmax"),
        graph.node("Less", a, b, name="less"),
        graph.node("MaxPool", small, kernel_shape=[2, 2], name="pool"),
        graph.node("Where", graph.node("Greater", a, b), a, b, name="where"),
        graph.node("Transpose", small, perm=[0, 2, 3, 1], name="transpose"),
        graph.node("QuantizeLinear", real, graph.constant(0.3), zero, name="quantize"),
    )
    return graph.model()


@pytest.fixture(scope="module")
def integers(tmp_path_factory: Folder) -> tuple[Path, dict[str, Array], dict[str, Array]]:
    """A library, inputs for three inferences, and what ONNX Runtime makes of them."""
    folder, model, random = tmp_path_factory.mktemp("integers"), integer_network(), np.random
    values = random.default_rng(1)
    shape = (3, 1, 4, 6, 6)
    inputs = {
        "a": values.integers(-(2**31), 2**31, shape).astype("int32"),
        "b": values.integers(-(2**31), 2**31, shape).astype("int32"),
        "byte": values.integers(0, 256, shape).astype("uint8"),
        "small": values.integers(-128, 128, shape).astype("int8"),
        "wide": values.integers(-(2**62), 2**62, shape),
    }
    rows = [onnx_runtime(model, {n: array[i] for n, array in inputs.items()}) for i in range(3)]
    expected = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return umakit.compile_model(save(model, folder), [], folder / "library").path, inputs, expected


@pytest.mark.parametrize("device", [HOST, *OTHERS])
def test_integers_are_those_of_onnx_runtime(
    device: Device, integers: tuple[Path, dict[str, Array], dict[str, Array]]
) -> None:
    library, inputs, expected = integers
    outputs = run_library(library, inputs, device=device.name).outputs
    assert list(outputs) == list(expected)
    for name, wanted in expected.items():
        np.testing.assert_array_equal(outputs[name], wanted, err_msg=name, strict=True)


# --- floats -------------------------------------------------------------------------------------


def float_network() -> ModelProto:
    """Many operators, each an output of its own."""
    graph = Graph("floats", seed=3)
    x, y = graph.input("x", 1, 4, 12, 12), graph.input("y", 1, 4, 12, 12)
    positive = graph.node("Abs", x, name="abs")
    graph.output(
        positive,
        *(
            graph.node(operator, x, name=operator.lower())
            for operator in (
                "Exp Tanh Sigmoid Erf Softplus Elu LeakyRelu HardSigmoid Reciprocal Relu Neg Floor "
                "Sin Cos".split()
            )
        ),
        graph.node("Sqrt", positive, name="sqrt"),
        graph.node("Log", positive, name="log"),
        graph.node("Pow", positive, y, name="pow"),
        graph.node("Add", x, y, name="add"),
        graph.node("Mul", x, y, name="mul"),
        graph.node("Div", x, y, name="div"),
        graph.node("Softmax", x, axis=1, name="softmax"),
        graph.node("Softmax", x, axis=3, name="softmax_of_rows"),
        graph.node("LogSoftmax", x, axis=1, name="logsoftmax"),
        graph.conv(x, 6, 3, bias=True, name="conv"),
        graph.conv(x, 4, 3, group=0, name="depthwise"),
        graph.batch_norm(x, name="batch_norm"),
        graph.node("AveragePool", x, kernel_shape=[3, 3], name="average_pool"),
        graph.node("MaxPool", x, kernel_shape=[2, 2], name="max_pool"),
        graph.node("GlobalAveragePool", x, name="global_average_pool"),
        graph.node("MatMul", x, y, name="matmul"),
        graph.node("ReduceMean", x, name="mean", keepdims=1),
    )
    return graph.model()


@pytest.fixture(scope="module")
def floats(tmp_path_factory: Folder) -> tuple[Path, dict[str, Array], RunResult]:
    """A library, inputs of five magnitudes, and the host's results."""
    folder, random = tmp_path_factory.mktemp("floats"), np.random.default_rng(2)
    library = umakit.compile_model(save(float_network(), folder), [], folder / "library").path
    magnitudes = np.array([0.01, 0.3, 1, 3, 30]).reshape(5, 1, 1, 1, 1)
    inputs = {
        "x": (random.standard_normal((5, 1, 4, 12, 12)) * magnitudes).astype("float32"),
        "y": random.standard_normal((5, 1, 4, 12, 12)).astype("float32"),
    }
    return library, inputs, run_library(library, inputs)


@pytest.mark.parametrize("device", OTHERS)
def test_operators_are_within_two_ulp_of_the_host(
    device: Device, floats: tuple[Path, dict[str, Array], RunResult]
) -> None:
    library, inputs, host = floats
    result = run_library(library, inputs, device=device.name)
    far = {name: ulp_distance(result.outputs[name], host.outputs[name]) for name in host.outputs}
    assert {name: ulp for name, ulp in far.items() if ulp > MOST_ULP} == {}


def functions_of(device: Device, folder: Path) -> Array:
    """Each function of `FUNCTION_PROGRAM` at 65,536 places, most of them small."""
    random = np.random.default_rng(0)
    parts = [random.uniform(-10, 10, 8 * BLOCK), random.standard_normal(8 * BLOCK) * 0.3]
    values = np.concatenate(parts).astype("float32")
    # Where tanhf of glibc for aarch64 is 3 ULP off.
    values[:2] = [float.fromhex("0x1.efce86p-5"), float.fromhex("0x1.aaa7fcp-4")]
    (folder / "in").write_bytes(values.tobytes())
    (folder / "main.c").write_text(FUNCTION_PROGRAM, encoding="utf-8")
    sources = [folder / "main.c", *device.platform_sources(RUNTIME)]
    compile_c(sources, folder / "program", device.program_flags(), device)
    result = execute(device, folder / "program", ["in", "out"], folder, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    read = np.frombuffer((folder / "out").read_bytes(), "float32")
    return read.reshape(-1, len(FUNCTIONS), BLOCK).swapaxes(0, 1).copy()


@pytest.fixture(scope="module")
def functions_of_host(tmp_path_factory: Folder) -> Array:
    return functions_of(HOST, tmp_path_factory.mktemp("functions"))


@pytest.mark.parametrize("device", OTHERS)
def test_functions_are_within_two_ulp_of_the_host(
    device: Device, functions_of_host: Array, tmp_path: Path
) -> None:
    rows = zip(functions_of(device, tmp_path), functions_of_host, strict=True)
    far = dict(zip(FUNCTIONS, (ulp_distance(*pair) for pair in rows), strict=True))
    assert {function: ulp for function, ulp in far.items() if ulp > MOST_ULP} == {}


def test_exp_of_small_processors_rounds_as_the_host_does(tmp_path: Path) -> None:
    """`expf.c` against the host's, at every 1,009th float of all."""
    source = (SUPPORT / "expf.c").read_text(encoding="utf-8").replace("float expf(", "float own(")
    main = """
    #include <stdio.h>
    int main(void)
    {
        unsigned long different = 0, most = 0;
        uint64_t number;
        for (number = 0; number < (1ull << 32); number += 1009) {
            const uint32_t bits = (uint32_t)number;
            uint32_t mine, hosts;
            float x, a, b;
            memcpy(&x, &bits, sizeof x);
            a = own(x);
            b = expf(x);
            memcpy(&mine, &a, sizeof mine);
            memcpy(&hosts, &b, sizeof hosts);
            if (mine != hosts && !(isnan(a) && isnan(b))) {
                const uint32_t far = mine > hosts ? mine - hosts : hosts - mine;
                different++;
                most = far > most ? far : most;
            }
        }
        printf("%lu %lu", different, most);
        return 0;
    }
    """
    (tmp_path / "main.c").write_text(source + main, encoding="utf-8")
    compile_c([tmp_path / "main.c"], tmp_path / "program", [])
    printed = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    different, most = map(int, printed.stdout.split())
    # musl and glibc since 2.28 agree but for two floats; older ones are half an ULP away.
    assert different <= 4 and most <= 1


# --- an accelerated network, and instructions ---------------------------------------------------


@pytest.fixture(scope="module")
def digits(tmp_path_factory: Folder) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "library"
    umakit.compile_model(EXAMPLES / "digits.onnx", [vanilla()], folder)
    return folder


@cache
def run_digits(library: Path, name: str) -> RunResult:
    images = select_inputs(library, load_inputs(EXAMPLES / "held_out.npz"))
    few = {key: array[:4] for key, array in images.items()}
    return run_library(library, few, profile=True, device=name)


@pytest.mark.parametrize("device", OTHERS)
def test_an_accelerated_network_computes_and_counts_as_on_the_host(
    device: Device, digits: Path
) -> None:
    host, there = run_digits(digits, "host"), run_digits(digits, device.name)
    np.testing.assert_array_equal(there.outputs["logits"], host.outputs["logits"])
    assert sum(layer.cycles for layer in host.layers) == 3080
    for mine, hosts in zip(there.layers, host.layers, strict=True):
        assert (mine.cycles, mine.device_macs) == (hosts.cycles, hosts.device_macs)
        assert mine.seconds is None, "time under emulation says nothing"
        assert (mine.instructions is not None) == device.counts_instructions
    assert there.times == ()
    assert len(there.instructions) == (4 if device.counts_instructions else 0)


@pytest.mark.optimized  # counters are read between layers, which takes long without optimization
@pytest.mark.parametrize("device", BARE_METAL)
def test_instructions_are_reproducible_and_grow_with_work(device: Device, digits: Path) -> None:
    run_digits.cache_clear()  # what other tests ran is not optimized
    first = run_digits(digits, device.name)
    run_digits.cache_clear()
    again = run_digits(digits, device.name)
    assert (again.instructions, again.layers) == (first.instructions, first.layers)
    per_layer = {layer.name: layer.instructions or 0 for layer in first.layers}
    # 16 times the multiply-accumulates of conv1, and 36 times those of conv4.
    assert 10 < per_layer["conv2"] / per_layer["conv1"] < 20
    assert 5 < per_layer["conv2"] / per_layer["conv4_1x1"] < 50
    whole = np.mean(first.instructions)
    # What is counted before and after each layer takes some instructions itself.
    between = max(0.01 * whole, 1_500 * len(per_layer))
    assert 0 <= whole - sum(per_layer.values()) < between


def program(device: Device, text: str, folder: Path, *flags: str) -> list[int]:
    """The numbers that a C program for a device's platform prints."""
    source, built = folder / "main.c", folder / "program"
    source.write_text(text, encoding="utf-8")
    sources = [source, *device.platform_sources(RUNTIME)]
    compile_c(sources, built, [*device.program_flags(), *flags], device)
    result = execute(device, built, [], folder, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    return [int(word) for word in result.stdout.split()]


@pytest.mark.optimized
@pytest.mark.parametrize("device", BARE_METAL)
def test_a_loop_of_known_length_counts_so_many_instructions(device: Device, tmp_path: Path) -> None:
    """Loops of two instructions, 0, 1,000 and 1,000,000 times."""
    empty, short, long = program(device, COUNTING_PROGRAM, tmp_path)
    tolerance = INSTRUCTIONS_A_TICK if is_cortex_m(device) else 0
    assert 0 <= empty <= 20 + tolerance
    assert abs(short - empty - 2_000) <= tolerance
    assert abs(long - empty - 2_000_000) <= tolerance


@pytest.mark.optimized
@pytest.mark.skipif(not installed(find_device("qemu-cortex-m3")), reason="is not installed")
@pytest.mark.parametrize(
    ("name", "tick"), [("cortex-m3", 40), ("cortex-m55", 31.25)], ids=lambda value: str(value)
)
def test_the_counter_of_a_cortex_m_survives_overflows(
    name: str, tick: float, tmp_path: Path
) -> None:
    """The counter overflows after 256 ticks instead of 16,777,216."""
    device, period = find_device(f"qemu-{name}"), 256
    flags = [f"-DUMAKIT_SYSTICK_PERIOD={period}u", f"-DPERIOD={int(period * tick)}u"]
    empty, _, long = program(device, COUNTING_PROGRAM, tmp_path, *flags)
    handler = 30 * 2_000_000 / (period * tick)  # an interrupt's instructions count
    assert 2_000_000 - INSTRUCTIONS_A_TICK <= long - empty <= 2_000_000 + handler
    backwards, largest, overflows = program(device, READING_PROGRAM, tmp_path, *flags)
    assert (backwards, overflows) == (0, 200)
    assert largest <= 4 * INSTRUCTIONS_A_TICK
    # One overflow of the real period.
    if name == "cortex-m3":
        empty, _, long = program(device, COUNTING_PROGRAM, tmp_path, "-DTIMES=340000000")
        assert abs(long - empty - 680_000_000) <= 2 * INSTRUCTIONS_A_TICK
        assert 0x1000000 * INSTRUCTIONS_A_TICK < 680_000_000


@pytest.mark.parametrize("device", BARE_METAL)
def test_bare_metal_programs_have_no_heap_and_no_stdio(device: Device, digits: Path) -> None:
    run_digits(digits, device.name)
    newest = max((digits / "build" / device.name).glob("run-*"), key=lambda p: p.stat().st_mtime)
    nm = device.size.removesuffix("size") + "nm"
    listing = subprocess.run([nm, newest], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listing.splitlines()}
    assert "tvmgen_digits_run" in names
    assert not {name for name in names if re.search(r"alloc|sbrk|printf|fopen|^_write$", name)}


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failing(tmp_path_factory: Folder) -> Path:
    """A library whose program fails in the way that its input asks for."""
    folder = tmp_path_factory.mktemp("failing")
    graph = Graph("failing")
    graph.output(graph.node("Neg", graph.input("how", 1), name="neg"))
    library = umakit.compile_model(save(graph.model(), folder), [], folder / "library").path
    main = library / "runtime" / "main.c"
    text = main.read_text(encoding="utf-8")
    call = "status = tvmgen_network_run(&inputs, &outputs);"
    assert call in text
    text = text.replace(call, f"{call}\n    status = fail((int)how_data[0], status);")
    text = text.replace("static int32_t run_once", f"{FAILURES}\nstatic int32_t run_once", 1)
    main.write_text(text, encoding="utf-8")
    return library


def fail(library: Path, device: Device, how: int, timeout: float = 60) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        run_library(library, {"how": np.float32([how])}, device=device.name, timeout=timeout)
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("device", OTHERS)
def test_a_drivers_status_comes_back(device: Device, failing: Path) -> None:
    assert fail(failing, device, 5).status == 7
    assert fail(failing, device, 6).status == -1
    done = run_library(failing, {"how": np.float32([0])}, device=device.name)
    assert done.outputs["neg"] == 0


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize(
    ("how", "cortex", "riscv"),
    [
        (1, r"HardFault \(at 0x[0-9a-f]+, accessing 0x10, ", r"store access fault .*sing 0x10,"),
        (2, r"HardFault \(at 0x[0-9a-f]+, fault status 0x10000\)", "illegal instruction|breakp"),
        (3, r"stack overflow \(", r"stack overflow \("),
    ],
    ids=["null", "trap", "stack"],
)
def test_a_crash_says_what_happened(
    device: Device, how: int, cortex: str, riscv: str, failing: Path
) -> None:
    error = str(fail(failing, device, how))
    assert device.name in error
    if not device.is_bare_metal:
        assert "the program was stopped by signal" in error
    else:
        wanted = cortex if is_cortex_m(device) else riscv
        assert re.search(f"the program was stopped by (a )?({wanted})", error), error


@pytest.mark.parametrize("device", OTHERS)
def test_a_program_that_hangs_is_ended(device: Device, failing: Path) -> None:
    run_library(failing, {"how": np.float32([0])}, device=device.name)  # it is built
    error = fail(failing, device, 4, timeout=0.2)
    assert "did not end within 0.2 s" in error.what and "--timeout" in error.fix


@pytest.mark.parametrize("device", BARE_METAL)
def test_a_program_that_is_too_large_says_by_how_much(
    device: Device, digits: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(digits, tmp_path / "copy", ignore=shutil.ignore_patterns("build"))
    source = copy / "runtime" / "main.c"
    text = source.read_text(encoding="utf-8")
    overflows = []
    for size in (256 << 20, (256 << 20) + 4096):
        source.write_text(text.replace("image_data[64]", f"image_data[{size // 4}]"))
        with pytest.raises(BuildError, match=f"is too large for {device.name}") as caught:
            run_library(copy, {"image": np.zeros((1, 1, 8, 8), "float32")}, device=device.name)
        found = re.search(r"it overflows RAM by ([\d,]+) bytes", caught.value.what)
        assert found, caught.value
        overflows.append(int(found[1].replace(",", "")))
    assert overflows[1] - overflows[0] == 4096
    assert overflows[0] > 100 << 20


def test_an_unknown_device_is_refused_with_the_known_ones(failing: Path) -> None:
    with pytest.raises(InputError, match="there is no device 'pdp11'; devices are host, qemu-aa"):
        run_library(failing, {"how": np.float32([0])}, device="pdp11")


@pytest.mark.parametrize("device", OTHERS)
def test_a_missing_toolchain_or_emulator_names_its_packages(
    device: Device,
    failing: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez(tmp_path / "in.npz", how=np.float32([0]))
    command = ["run", str(failing), "--inputs", str(tmp_path / "in.npz"), "--device", device.name]
    emulator = shutil.which(device.run[0])
    assert emulator
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (error,) = _errors(command, capsys)
    assert f"{device.name} needs {device.run[0]}, which is not installed" in error
    assert f"apt-get install {' '.join(device.packages)}" in error
    (tmp_path / "bin" / device.run[0]).symlink_to(emulator)
    (error,) = _errors(command, capsys)
    assert f"{device.name} needs {device.command}, which is not installed" in error
    with pytest.raises(MissingProgramError, match=device.command):
        device.compiler()


@pytest.mark.parametrize("words", ["needs a program", "says nothing of what is not installed"])
def test_tests_are_skipped_by_the_class_of_an_error(
    words: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not by its words; on CI nothing is skipped."""
    files = (Path(__file__).with_name("conftest.py"),)
    (conftest,) = (
        each
        for each in request.config.pluginmanager.get_plugins()
        if Path(str(getattr(each, "__file__", ""))) in files
    )

    def ended_by(error: BuildError) -> None:
        call = conftest.pytest_pyfunc_call()
        next(call)
        call.throw(error)

    monkeypatch.delenv("UMAKIT_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=words):
        ended_by(MissingProgramError(words))
    with pytest.raises(BuildError):
        ended_by(BuildError(f"the device needs a program, which is not installed: {words}"))
    monkeypatch.setenv("UMAKIT_CI", "1")
    with pytest.raises(MissingProgramError):
        ended_by(MissingProgramError(words))


def _errors(command: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run_command(command) == 2
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]


# --- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", BARE_METAL)
def test_instructions_are_never_called_cycles_or_time(
    device: Device, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held_out = str(EXAMPLES / "held_out.npz")
    small = digits.parent / "few.npz"
    np.savez(small, **{name: array[:2] for name, array in load_inputs(Path(held_out)).items()})
    command = ["run", str(digits), "--inputs", str(small), "--profile", "--device", device.name]
    assert run_command(command) == 0
    table = capsys.readouterr().out
    header = "layer where MACs cycles MACs/cycle CPU instructions simulator instructions"
    assert header in " ".join(table.split())
    assert re.search(r"^pool1\s+cpu\s+-\s+[\d,]{5,}\s*$", table, re.M), "the CPU has no cycles"
    assert run_command([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == [
        "outputs", "mean_instructions", "runs", "layers", "totals", "accounting", "inferences",
        "events", "wave", "cpu", "unused_backends",
    ]  # fmt: skip
    assert report["runs"] == 2
    pool = next(layer for layer in report["layers"] if layer["name"] == "pool1")
    assert pool["instructions"] > 1000 and pool["cycles"] == 0 and "seconds" not in pool
    assert run_command([*command, "--print-time"]) == 2
    assert "has no time of its own" in capsys.readouterr().err


# --- what is shipped ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", OTHERS)
def test_support_files_are_clean(device: Device, tmp_path: Path) -> None:
    sources = device.platform_sources(RUNTIME)
    command = [
        *device.compiler(),
        "-std=c99",
        "-O2",
        *WARNINGS,
        "-Wmissing-prototypes",
        "-c",
        f"-I{RUNTIME}",
    ]
    subprocess.run([*command, *sources], cwd=tmp_path, check=True)
    for path in (*SUPPORT.iterdir(), *RUNTIME.iterdir()):
        assert "SPDX-License-Identifier: Apache-2.0" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("device", OTHERS)
def test_a_toolchain_file_builds_the_same_program(
    device: Device, digits: Path, tmp_path: Path
) -> None:
    toolchain = device.toolchain_file
    assert toolchain is not None
    text = toolchain.read_text(encoding="utf-8")
    assert f"set(CMAKE_C_COMPILER {device.command})" in text
    assert " ".join(device.architecture) in text
    cmake, build = cmake_builds.program(), tmp_path / "build"
    configure = [cmake, "-S", digits, "-B", build, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"]
    environment = cmake_builds.environment(quick=True)
    for command in (configure, [cmake, "--build", build]):
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
    images = load_inputs(EXAMPLES / "held_out.npz")["image"][:1]
    (tmp_path / "in").write_bytes(images.tobytes())
    words = ["in", "out", "1", "1"]
    ended = execute(device, build / "tvmgen_digits_main", words, tmp_path, 60)
    assert ended.returncode == 0, ended.stderr
    logits = np.frombuffer((tmp_path / "out").read_bytes(), "float32").reshape(1, 10)
    np.testing.assert_array_equal(logits, run_digits(digits, "host").outputs["logits"][0])


def test_devices_need_no_tvm() -> None:
    text = "import sys, umakit.devices, umakit.devices.run; print('tvm' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert printed.stdout == "False\n"


def test_devices_are_listed_once_each_with_packages() -> None:
    names = [device.name for device in DEVICES]
    assert len(set(names)) == len(names) > 1 and names[0] == "host"
    assert all(device.packages and device.description for device in DEVICES)
    ci = (Path(__file__).parents[1] / ".ci" / "run").read_text(encoding="utf-8")
    for device in DEVICES[1:]:
        assert all(package in ci for package in device.packages), device.name


@pytest.mark.parametrize("device", OTHERS)
@pytest.mark.parametrize("name", ["ad01_int8.tflite", "kws_ref_model.tflite"])
def test_trained_int8_models_give_the_same_bits(name: str, device: Device, folder: Path) -> None:
    library, inputs, expected = int8_model(name, folder)
    result = run_library(library, inputs, device=device.name)
    np.testing.assert_array_equal(next(iter(result.outputs.values())), expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Folder) -> Path:
    return tmp_path_factory.mktemp("int8")


@cache
def int8_model(name: str, folder: Path) -> tuple[Path, dict[str, Array], Array]:
    """A library, inputs, and what TensorFlow Lite Micro makes of them."""
    path = trained_model(name)
    library = umakit.compile_model(path, [], folder / path.stem)
    (input_view,) = library.metadata["umakit"]["inputs"]
    noise = np.random.default_rng(11).integers(-128, 128, (2, *input_view["shape"])).astype("int8")
    return library.path, {input_view["name"]: noise}, tflite_micro(path.read_bytes(), noise)
