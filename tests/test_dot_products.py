# SPDX-License-Identifier: Apache-2.0
"""Functions that sum products of integers, of all forms: NumPy says what is right."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cpus_here import (
    PROCESSOR,
    QEMU,
    RUNS,
    SHIM,
    emulator,
    is_emulated,
    need,
    x86_compiler,
)
from dot_product_calls import END, FORMS, HEADER_WORDS, Call, Form, calls, sums_of_products
from hypothesis import given
from hypothesis import strategies as st
from strict import WARNINGS
from umakit.sim import source_directory

from umakit.cpu.description import find_cpu
from umakit.devices import HOST, Device, execute, find_device
from umakit.devices.device import SUPPORT
from umakit.library.layout import RUNTIME
from umakit.operators.kernels import dot_forms
from umakit.operators.numeric.fixed_point import Arithmetic

HERE = Path(__file__).parent
DRIVER = HERE / "dot_products_driver.c"
PLAIN = "-DUMAKIT_PLAIN_DOT_PRODUCTS"
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g0")
SDOT = ("-mcpu=cortex-a76", "-ffp-contract=fast")
MACROS = {
    "avx2": "__AVX2__",
    "vnni": "__AVX512VNNI__",
    "sdot": "__ARM_FEATURE_DOTPROD",
    "smlad": "__ARM_FEATURE_SIMD32",
    "mve": "__ARM_FEATURE_MVE",
    "rvv": "__riscv_vector",
}
"""What compilers define that have the instructions of a form."""

OTHER_COMPILERS = {
    "vnni": ("gcc", "-march=x86-64-v4", "-mavx512vnni"),
    "sdot": (
        "clang", "--target=aarch64-linux-gnu", "-isystem", "/usr/aarch64-linux-gnu/include", *SDOT,
    ),
    "smlad": (
        "clang", "--target=arm-none-eabi", "-isystem", "/usr/include/newlib", "-mcpu=cortex-m4",
        "-mthumb", "-mfloat-abi=hard",
    ),
    "mve": (
        "clang", "--target=arm-none-eabi", "-isystem", "/usr/include/newlib", "-mcpu=cortex-m55",
        "-mthumb", "-mfloat-abi=hard",
    ),
}  # fmt: skip
"""Compilers of forms that do not build programs here."""


@cache
def calls_of(name: str) -> list[Call]:
    return calls(FORMS[name])


def definitions(form: Form) -> list[str]:
    """Macros that name the functions of a form for the driver."""
    described = dot_forms.FORMS[form.name]
    functions = {
        "COPY_INT8": described.function("copy_int8"),
        "COPY_UINT8": described.function("copy_uint8"),
        "FILL": f"umakit_plain_fill_{form.window}",
        "PRODUCTS": described.function("products"),
        "DEPTHWISE_INT8": described.function("depthwise_int8"),
        "DEPTHWISE_UINT8": described.function("depthwise_uint8"),
    }
    for dtype in ("int8", "uint8"):
        added = described.function(f"add_tflm_{dtype}")
        plain = f"{dot_forms.PREFIX}plain_add_tflm_{dtype}"
        functions[f"ADD_{dtype}".upper()] = added if described.adds else plain
    for rounding in (Arithmetic.TFLM, Arithmetic.ORT):
        for dtype in ("int8", "uint8"):
            name = f"RESULTS_{rounding.value}_{dtype}".upper()
            functions[name] = described.results(rounding, dtype)
    numbers = {"CHANNELS": form.channels, "DEPTHWISE_GROUP": form.depthwise_group}
    headers = [f'"umakit/dot_products_{each}.h"' for each in (form.name, described.others)]
    headers[1] = headers[1] if described.others else headers[0]
    values = {
        "HEADER": headers[0],
        "OTHER_HEADER": headers[1],
        "WINDOW_TYPE": f"{form.window}_t",
        **functions,
        **numbers,
    }
    return [f"-DCALL_{name}={value}" for name, value in values.items()]


def run(
    form: Form, compiler: list[str], flags: tuple[str, ...], folder: Path, device: Device = HOST
) -> bytes:
    """What the driver writes for all calls of a form."""
    built = folder / "program"
    # The plain functions would be right as well.
    instructions = [] if PLAIN in flags else [f"-DCALL_INSTRUCTIONS={MACROS[form.name]}"]
    command = [
        *compiler, "-std=c99", *WARNINGS, *flags, *definitions(form), *instructions,
        f"-I{source_directory() / 'include'}", f"-I{RUNTIME}", f"-I{SUPPORT}", str(DRIVER),
        *map(str, device.platform_sources(RUNTIME)), *device.program_flags(),
        "-o", str(built), "-lm",
    ]  # fmt: skip
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (compiled.returncode, compiled.stderr) == (0, ""), compiled.stderr
    end = np.zeros(HEADER_WORDS, np.int32)
    end[0] = END
    content = b"".join(call.content() for call in calls_of(form.name)) + end.tobytes()
    (folder / "in").write_bytes(content)
    done = execute(device, built, ["in", "out"], folder, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return (folder / "out").read_bytes()


def assert_right(form: Form, written: bytes) -> None:
    start = 0
    for number, call in enumerate(calls_of(form.name)):
        size = call.expected.nbytes
        found = np.frombuffer(written[start : start + size], call.expected.dtype)
        np.testing.assert_array_equal(found, call.expected, f"{number}: {call}")
        start += size
    assert start == len(written)


@pytest.mark.parametrize(("number", "name"), list(enumerate(FORMS)))
def test_plain_functions(number: int, name: str, tmp_path: Path) -> None:
    """Those of every form, by one of two compilers."""
    compiler = need(("gcc", "clang")[number % 2])
    assert_right(FORMS[name], run(FORMS[name], [compiler], (*SANITIZED, PLAIN), tmp_path))


@pytest.mark.parametrize(
    ("compiler", "flags"), [("gcc", SANITIZED), ("clang", SANITIZED), ("gcc", ("-O3",))]
)
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "x86-64-v4-vnni"])
def test_x86_64(cpu: str, compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """On this machine if it has the features, else in QEMU, without AddressSanitizer."""
    described = find_cpu(cpu)
    form, lacks = FORMS[described.dot_products], described.missing_here()
    if lacks and not is_emulated(described):
        pytest.skip(f"{lacks}, and QEMU does not emulate {cpu}")
    assert_right(form, run_x86(form, compiler, (*flags, *described.flags), tmp_path, bool(lacks)))
    RUNS.append((cpu, QEMU if lacks else PROCESSOR))


@pytest.mark.parametrize("cpu", ["x86-64-v3"])
def test_qemu_has_the_instructions(cpu: str, tmp_path: Path) -> None:
    """Also where this machine has them: QEMU is what other machines use."""
    form, flags = FORMS["avx2"], ("-O1", *find_cpu(cpu).flags)
    assert_right(form, run_x86(form, "gcc", flags, tmp_path, emulated=True))
    RUNS.append((cpu, QEMU))


def run_x86(form: Form, compiler: str, flags: Sequence[str], folder: Path, emulated: bool) -> bytes:
    """What the functions of a form store, on this machine or in QEMU."""
    compiler, device = x86_compiler() if compiler == "gcc" else need(compiler), HOST
    if emulated:
        device = replace(HOST, run=(*emulator(), "{program}", "{arguments}"))
        flags = [flag for flag in flags if "sanitize" not in flag]
    return run(form, [compiler], tuple(flags), folder, device)


@pytest.mark.parametrize(("compiler", "flags"), [("gcc", SANITIZED), ("clang", ("-O2",))])
def test_vnni_with_emulated_instructions(
    compiler: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """The loops of VNNI on any machine: five functions of the tests replace its instructions."""
    included = [f"-I{HERE / 'emulated_vnni'}", "-D__AVX512F__", "-D__AVX512VNNI__", "-U__AVX2__"]
    written = run(FORMS["vnni"], [need(compiler)], (*flags, *included, "-Wno-psabi"), tmp_path)
    assert_right(FORMS["vnni"], written)
    RUNS.append(("x86-64-v4-vnni", SHIM))


def on(device: str, name: str, folder: Path, *flags: str, emulator: Sequence[str] = ()) -> None:
    """Compare the functions of a form on an emulated device."""
    found = find_device(device)
    if emulator:
        found = replace(found, run=(*emulator, "{program}", "{arguments}"))
    compiler = [need(found.command), *found.architecture]
    need(found.run[0])
    assert_right(FORMS[name], run(FORMS[name], compiler, flags, folder, found))


@pytest.mark.parametrize("optimization", ["-O0", "-O3"])
def test_sdot(optimization: str, tmp_path: Path) -> None:
    on("qemu-aarch64", "sdot", tmp_path, optimization, *SDOT)


@pytest.mark.parametrize("optimization", ["-O1", "-O3"])
def test_smlad_with_linux(optimization: str, tmp_path: Path) -> None:
    """Linux has pages without permissions; all 32-bit Arm for it has the extension."""
    on("qemu-arm", "smlad", tmp_path, optimization)


@pytest.mark.parametrize("bits", [128, 512])
def test_rvv(bits: int, tmp_path: Path) -> None:
    """With vector registers of both sizes."""
    emulator = "qemu-riscv64", "-cpu", f"rv64,v=true,vext_spec=v1.0,vlen={bits}"
    flags = find_cpu("rv64gcv").flags
    on("qemu-riscv64-linux", "rvv", tmp_path, "-O2", *flags, emulator=emulator)


@pytest.mark.parametrize(
    ("name", "device"), [("smlad", "qemu-cortex-m4"), ("mve", "qemu-cortex-m55")]
)
def test_cortex_m(name: str, device: str, tmp_path: Path) -> None:
    """Of loads outside of arrays, those behind the end of memory are seen."""
    on(device, name, tmp_path, "-O3")


@pytest.mark.parametrize("optimization", ["-O0", "-O2"])
@pytest.mark.parametrize(("name", "compiler"), list(OTHER_COMPILERS.items()), ids=OTHER_COMPILERS)
def test_other_compilers_have_no_warnings(
    name: str, compiler: tuple[str, ...], optimization: str, tmp_path: Path
) -> None:
    need(compiler[0])
    command = [
        *compiler, "-std=c99", *WARNINGS, optimization, *definitions(FORMS[name]), "-c",
        f"-I{source_directory() / 'include'}", f"-I{RUNTIME}", f"-I{SUPPORT}", str(DRIVER),
        "-o", str(tmp_path / "driver.o"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@given(outputs=st.integers(1, 70), elements=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_weights_are_packed_as_functions_read_them(outputs: int, elements: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (outputs, elements)).astype(np.int8)
    for name, form in FORMS.items():
        packed = dot_forms.FORMS[name].packed(weights)
        blocks, filled = -(-outputs // form.channels), -(-elements // form.elements) * form.elements
        window = np.zeros((1, filled), np.int64)
        window[0, :elements] = random.integers(-128, 128, elements)
        sums = np.zeros(blocks * form.channels, np.int64)
        sums[:outputs] = weights.astype(np.int64) @ window[0, :elements]
        found = sums_of_products(form, window, packed.reshape(-1), blocks)
        np.testing.assert_array_equal(found[0], sums, name)


def test_every_form_is_compared() -> None:
    assert set(FORMS) == set(dot_forms.FORMS) == set(MACROS)
