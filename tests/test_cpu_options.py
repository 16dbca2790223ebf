# SPDX-License-Identifier: Apache-2.0
"""`--cpu` of commands, libraries for several CPUs, and the limit of the arena of one CPU.

ONNX Runtime says what is right, and the preprocessor of gcc which CPU a library chooses.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cmake_builds
import numpy as np
import onnx
import pytest
from comparisons import examples
from cpus_here import VECTOR_CPUS, cpu_here, device_here, need, x86_compiler
from hypothesis import given
from hypothesis import strategies as st
from networks import Array, Graph, onnx_runtime, random_inputs, save
from strict import WARNINGS
from umakit.cli.main import run_command

import umakit
from umakit.backend.registry import find_backend
from umakit.codegen.several_cpus import generate_for_cpus
from umakit.cpu.description import Cpu, cpu_names, find_cpu
from umakit.cpu.several import choices_of
from umakit.devices import HOST, execute, find_device
from umakit.devices.cpus import cpu_flags, description_for
from umakit.devices.unpacked import run_unpacked
from umakit.errors import BuildError, InputError, LibraryError, MemoryPlanError
from umakit.library.metadata import load_metadata
from umakit.library.options import ExportOptions
from umakit.pipeline import partition_model, plan_program
from umakit.tools.size import library_size

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"


def small_network(seed: int = 1) -> onnx.ModelProto:
    """Convolutions whose rows are padded, a residual addition, a pool and a dense layer."""
    graph = Graph("net", seed=seed)
    x = graph.node("Relu", graph.conv(graph.input("input", 1, 3, 9, 9), 16, 3, bias=True))
    y = graph.conv(graph.node("Relu", graph.conv(x, 16, 3)), 16, 1)
    x = graph.node("Relu", graph.node("Add", y, x))
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.dense(x, 16, 10))
    return graph.model()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(small_network(), tmp_path_factory.mktemp("model"), "net")


@pytest.fixture(scope="module")
def several(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library for x86-64-v3, cortex-a76 and any CPU."""
    out = tmp_path_factory.mktemp("several") / "library"
    options = ExportOptions(cpu="generic,x86-64-v3,cortex-a76")
    umakit.compile_model(model, [], out, options=options)
    return out


def assert_right(model: Path, inputs: Mapping[str, Array], found: Mapping[str, Array]) -> None:
    for name, wanted in onnx_runtime(onnx.load(str(model)), inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-5)


def header(library: Path) -> Path:
    (found,) = (library / "codegen/host/include").iterdir()
    return found


def macros(library: Path, command: list[str]) -> dict[str, str]:
    """What a compiler defines behind the header of a library."""
    line = [*command, "-E", "-dM", "-include", str(header(library)), "-x", "c", "/dev/null"]
    text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return dict(([*line.split(maxsplit=2), ""])[1:3] for line in text.splitlines())


# --- which CPU a library chooses ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "cpu"),
    [
        (["gcc"], "generic"),
        (["gcc", "-mavx2"], "generic"),  # without FMA
        (["gcc", "-march=x86-64-v3"], "x86-64-v3"),
        (["gcc", "-march=x86-64-v4"], "x86-64-v3"),
        (["gcc", "-march=x86-64-v3", "-DUMAKIT_CPU_GENERIC"], "generic"),
        (["gcc", "-DUMAKIT_CPU_X86_64_V3"], "x86-64-v3"),
        (["aarch64-linux-gnu-gcc"], "cortex-a76"),
        (["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb"], "generic"),
    ],
)
def test_a_compiler_chooses_by_its_macros(command: list[str], cpu: str, several: Path) -> None:
    command = [x86_compiler() if command[0] == "gcc" else need(command[0]), *command[1:]]
    defined = macros(several, command)
    assert {name for name in defined if name.startswith("TVMGEN_NET_FOR_")} == {
        f"TVMGEN_NET_FOR_{cpu.upper().replace('-', '_')}"
    }
    described = {each["cpu"]["name"]: each for each in load_metadata(several)["umakit"]["cpus"]}
    size = described[cpu]["memory"]["arena_bytes"]
    assert defined["TVMGEN_NET_WORKSPACE_SIZE"] == str(size)


def test_only_code_and_constants_of_the_chosen_cpu_are_compiled(
    several: Path, tmp_path: Path
) -> None:
    sources = sorted((several / "codegen/host/src").glob("*.c"))
    assert len(sources) == 7
    for flags, chosen in (
        (["-DUMAKIT_CPU_GENERIC"], "generic"),
        *((find_cpu(name).flags, "x86_64_v3") for name in ("x86-64-v3", "x86-64-v4")),
    ):
        line = [x86_compiler(), "-O1", *flags, "-c", *map(str, sources)]
        subprocess.run(line, cwd=tmp_path, check=True)
        for source in sources:
            line = ["nm", "--defined-only", str(tmp_path / f"{source.stem}.o")]
            symbols = subprocess.run(line, capture_output=True, text=True, check=True).stdout
            of_all = source.stem.endswith("_workspace")
            assert bool(symbols) == (of_all or chosen in source.stem), source.name


def test_each_cpu_computes_what_onnx_runtime_does(several: Path, model: Path) -> None:
    inputs, device = random_inputs(onnx.load(str(model))), device_here("x86-64-v3")
    for cpu in ("generic", "x86-64-v3", ""):
        found = umakit.run_library(several, inputs, device=device, cpu=cpu).outputs
        assert_right(model, inputs, found)
    assert description_for(several, find_device(device))["cpu"]["name"] == "x86-64-v3"
    if device == "host":
        assert_right(model, inputs, run_unpacked(several, inputs))
    if shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-gcc"):
        arm = umakit.run_library(several, inputs, device="qemu-aarch64", profile=True)
        assert_right(model, inputs, arm.outputs)
        device = find_device("qemu-aarch64")
        layers = description_for(several, device)["layers"]
        assert [each.name for each in arm.layers] == [each["name"] for each in layers]
        # Every compiler for it defines the macros of Cortex-A76.
        flags = cpu_flags(several, device, "generic")
        chosen = macros(several, ["aarch64-linux-gnu-gcc", *flags])
        assert "TVMGEN_NET_FOR_GENERIC" in chosen and "TVMGEN_NET_FOR_CORTEX_A76" not in chosen


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "x86-64-v4-vnni"])
def test_integers_are_the_same_for_each_cpu(name: str, tmp_path: Path) -> None:
    cpus, device = ("generic", name), device_here(name)
    options = ExportOptions(cpu=",".join(cpus))
    out = tmp_path / "library.tar"
    umakit.compile_model(DIGITS / "digits_int8.onnx", [], out, options=options)
    with np.load(DIGITS / "held_out.npz") as arrays:
        inputs = {"image": arrays["image"][:20]}
    found = [umakit.run_library(out, inputs, device=device, cpu=cpu).outputs for cpu in cpus]
    for output, array in found[0].items():
        np.testing.assert_array_equal(found[1][output], array)


def test_microcontrollers_choose_their_own_code(tmp_path: Path) -> None:
    out = tmp_path / "library"
    options = ExportOptions(cpu="cortex-m4,cortex-m55,generic", scratch_limit=1000)
    umakit.compile_model(DIGITS / "digits_int8.onnx", [], out, options=options)
    with np.load(DIGITS / "held_out.npz") as arrays:
        inputs = {"image": arrays["image"][:1]}
    wanted = run_unpacked(out, inputs)
    devices = {
        "qemu-cortex-m3": ("generic", ["-mcpu=cortex-m3"]),
        "qemu-cortex-m4": ("cortex-m4", ["-mcpu=cortex-m4"]),
        "qemu-cortex-m55": ("cortex-m55", ["-mcpu=cortex-m55", "-mfloat-abi=hard"]),
    }
    for name, (cpu, flags) in devices.items():
        described = description_for(out, find_device(name))
        assert described["suffix"] == cpu.replace("-", "_")
        if not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"):
            continue
        assert f"TVMGEN_DIGITS_INT8_FOR_{cpu.upper().replace('-', '_')}" in macros(
            out, ["arm-none-eabi-gcc", "-mthumb", *flags]
        )
        found = umakit.run_library(out, inputs, device=name).outputs
        for output, array in wanted.items():
            np.testing.assert_array_equal(found[output].reshape(array.shape), array)


CALLER = """
#include "tvmgen_net.h"
static float input[243], output[10];
static _Alignas(64) unsigned char memory[65536];
int main(void)
{
    struct tvmgen_net_inputs inputs = {input};
    struct tvmgen_net_outputs outputs = {output};
    struct tvmgen_net_workspace_pools pools = {memory, SIZE};
#ifdef UNPACKED
    return tvmgen_net_run_unpacked(input, output, memory);
#else
    return tvmgen_net_run_in(&inputs, &outputs, &pools) == EXPECTED ? 0 : 1;
#endif
}
"""


def test_a_caller_for_another_cpu_is_not_linked_or_told(several: Path, tmp_path: Path) -> None:
    compiler, device = x86_compiler(), find_device(device_here("x86-64-v3"))
    caller = tmp_path / "caller.c"
    caller.write_text(CALLER.replace("output[10]", "output[10]"), encoding="utf-8")
    sources = [str(path) for path in (several / "codegen/host/src").glob("*.c")]
    flags = list(find_cpu("x86-64-v3").flags)
    subprocess.run([compiler, "-O1", *flags, "-c", *sources], cwd=tmp_path, check=True)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    needed = description_for(several, HOST, "x86-64-v3")["memory"]["arena_bytes"]

    def linked(*options: str) -> subprocess.CompletedProcess[str]:
        line = [
            compiler,
            *device.linking,
            f"-I{header(several).parent}",
            *options,
            str(caller),
            *objects,
            "-lm",
        ]
        line += ["-Wno-unused", "-o", "caller"]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)

    def runs(size: int, expected: str, *options: str) -> bool:
        made = linked(f"-DSIZE={size}", f"-DEXPECTED={expected}", *options)
        assert made.returncode == 0, made.stderr
        return execute(device, tmp_path / "caller", [], tmp_path).returncode == 0

    assert runs(needed, "TVMGEN_NET_OK")
    assert runs(needed - 1, "TVMGEN_NET_WORKSPACE_TOO_SMALL")
    assert linked("-DSIZE=0", "-DEXPECTED=0", "-DUNPACKED", *flags).returncode == 0
    other = linked("-DSIZE=0", "-DEXPECTED=0", "-DUNPACKED")
    assert other.returncode and "tvmgen_net_run_unpacked_generic" in other.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("cpu", ["generic", "x86-64-v3"])
def test_c_of_each_choice_is_clean(compiler: str, cpu: str, several: Path) -> None:
    compiler = need(compiler) if compiler == "clang" else x86_compiler()
    sources = [*map(str, (several / "codegen").rglob("*.c")), str(several / "runtime/main.c")]
    line = [compiler, "-std=c99", "-O1", *WARNINGS, "-fsyntax-only", *find_cpu(cpu).flags]
    made = subprocess.run(
        [*line, "-DTVMGEN_NET_PROFILE", *sources], capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    line = [each for each in line if each not in find_cpu(cpu).flags]
    refused = subprocess.run(
        [*line, "-DUMAKIT_CPU_X86_64_V3", *sources], capture_output=True, text=True, check=False
    )
    assert refused.returncode and "this C is for x86-64-v3: compile it with" in refused.stderr


def test_cmake_compiles_for_the_cpu_without_flags_of_the_user(model: Path, tmp_path: Path) -> None:
    options = ExportOptions(cpu="x86-64-v3")
    umakit.compile_model(model, [], tmp_path / "lib", options=options)
    cmake, environment = cmake_builds.program(), cmake_builds.environment(quick=True)
    for words in (["-S", "lib", "-B", "build"], ["--build", "build"]):
        subprocess.run([cmake, *words], cwd=tmp_path, env=environment, check=True)


def test_cmake_builds_it_without_changes(several: Path, model: Path, tmp_path: Path) -> None:
    cmake, environment = cmake_builds.program(), cmake_builds.environment(quick=True)
    for line in (
        [cmake, "-S", str(several), "-B", str(tmp_path)],
        [cmake, "--build", str(tmp_path)],
    ):
        subprocess.run(line, env=environment, check=True, capture_output=True)
    inputs = random_inputs(onnx.load(str(model)))
    (tmp_path / "in").write_bytes(inputs["input"].tobytes())
    subprocess.run(
        [str(tmp_path / "tvmgen_net_main"), "in", "out", "1", "1"], cwd=tmp_path, check=True
    )
    found = np.frombuffer((tmp_path / "out").read_bytes(), np.float32).reshape(1, 10)
    assert_right(model, inputs, {"output": found} | dict.fromkeys(onnx_outputs(model), found))


def onnx_outputs(model: Path) -> list[str]:
    return [each.name for each in onnx.load(str(model)).graph.output]


def test_sizes_are_those_of_the_cpu_and_name_its_flags(several: Path, model: Path) -> None:
    device = find_device(device_here("x86-64-v3"))
    sections = {each["cpu"]["name"]: each for each in load_metadata(several)["umakit"]["cpus"]}
    assert list(sections) == ["x86-64-v3", "cortex-a76", "generic"]
    for name in ("generic", "x86-64-v3"):
        sizes = library_size(several, device=device, cpu=name)
        memory = sections[name]["memory"]
        assert sizes.arena_bytes == memory["arena_bytes"]
        assert sizes.constants_bytes == memory["constants_bytes"]
        assert 0 <= sizes.read_only_bytes < 1000  # texts: no constants of another CPU
        assert ("-march=x86-64-v3" in sizes.compiler) == (name != "generic")
        assert [each.name for each in sizes.layers] == [
            each["name"] for each in sections[name]["layers"]
        ]


def test_accelerators_are_shared_or_refused(model: Path, tmp_path: Path) -> None:
    backend = find_backend("vanilla_accelerator")
    options = ExportOptions(cpu="generic,x86-64-v3")
    library = umakit.compile_model(
        DIGITS / "digits.onnx", [backend], tmp_path / "library", options=options
    )
    drivers = library.metadata["umakit"]["sources"]["drivers"]
    assert list(drivers) == ["vanilla_accelerator"]
    with np.load(DIGITS / "held_out.npz") as arrays:
        inputs = {"image": arrays["image"][:2]}
    ran = umakit.run_library(library.path, inputs, cpu="generic").outputs
    for name, wanted in onnx_runtime(onnx.load(str(DIGITS / "digits.onnx")), inputs).items():
        np.testing.assert_allclose(ran[name].reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
    networks = []
    generic, avx = choices_of([find_cpu("generic"), find_cpu("x86-64-v3")])[::-1]
    for choice, backends in ((avx, []), (generic, [backend])):
        network, partitioned = partition_model(DIGITS / "digits.onnx", backends)
        planned = plan_program(network.model, partitioned, backends, ExportOptions())
        networks.append(replace(planned, choice=choice))
    with pytest.raises(LibraryError, match="other layers for x86-64-v3 than for generic"):
        generate_for_cpus(networks, planned.backends)


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ("generic,generic", "names generic twice"),
        ("generic,z80", "there is no CPU 'z80'"),
        ("generic,", "there is no CPU|cannot be read"),
        ("cortex-a76,a72.toml", "macros do not tell cortex-a72 from cortex-a76|from cortex-a72"),
        ("generic,bare.toml", "no macro tells a compiler that it compiles for bare"),
    ],
)
def test_cpus_that_cannot_be_told_apart(
    cpus: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a72.toml").write_text('name = "cortex-a72"\nmacros = ["__ARM_NEON"]', encoding="utf-8")
    Path("bare.toml").write_text('name = "bare"', encoding="utf-8")
    with pytest.raises(InputError, match=message):
        ExportOptions(cpu=cpus)


def test_what_is_of_one_cpu_is_refused(
    model: Path, several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LibraryError, match="a weights blob holds the constants of one CPU"):
        ExportOptions(cpu="generic,x86-64-v3", weights="blob")
    out = tmp_path / "library"
    words = ["compile", str(model), "--cpu", "generic,x86-64-v3", "-o", str(out)]
    assert run_command([*words, "--memory-map", str(tmp_path / "map.svg")]) == 2
    assert "draws the arena of one CPU" in capsys.readouterr().err and not out.exists()
    with pytest.raises(InputError, match="names several CPUs"):
        find_cpu("generic,x86-64-v3")
    with pytest.raises(InputError, match="and not for x86-64-v4"):
        library_size(several, cpu="x86-64-v4")
    with pytest.raises(InputError, match="has code for generic, and not for x86-64-v3"):
        umakit.compile_model(model, [], out)
        umakit.run_library(out, random_inputs(onnx.load(str(model))), cpu="x86-64-v3")


def test_a_library_for_none_of_a_device_says_why(model: Path, tmp_path: Path) -> None:
    options = ExportOptions(cpu="x86-64-v3,cortex-a76")
    library = umakit.compile_model(model, [], tmp_path / "library", options=options).path
    with pytest.raises(
        BuildError, match=r"no code for qemu-cortex-m3: x86-64-v3: qemu-cortex-m3 runs"
    ):
        library_size(library, device=find_device("qemu-cortex-m3"))
    line = ["cc", "-E", "-U__AVX2__", "-U__ARM_NEON", str(header(library))]
    made = subprocess.run(line, capture_output=True, text=True, check=False)
    assert "this library has code for x86-64-v3, compiled with -march=x86-64-v3" in made.stderr


# --- order of CPUs --------------------------------------------------------------------------------

COMPILERS = {
    "x86-64": "x86_64-linux-gnu-gcc", "aarch64": "aarch64-linux-gnu-gcc",
    "armv7-m": "arm-none-eabi-gcc", "armv7e-m": "arm-none-eabi-gcc",
    "armv8.1-m": "arm-none-eabi-gcc", "riscv32": "riscv64-unknown-elf-gcc",
    "riscv64": "riscv64-unknown-elf-gcc",
}  # fmt: skip


def test_compilers_choose_the_cpu_whose_flags_they_get() -> None:
    alike = {"cortex-m7"}  # its macros are those of a Cortex-M4
    cpus = [find_cpu(name) for name in cpu_names() if name not in alike]
    order = choices_of(cpus)
    for cpu in cpus:
        compiler = COMPILERS.get(cpu.architecture, "gcc")
        if shutil.which(compiler) is None:
            continue
        line = [compiler, *cpu.flags, "-E", "-dM", "-x", "c", "/dev/null"]
        made = subprocess.run(line, capture_output=True, text=True, check=False)
        if made.returncode:
            continue  # it does not know the processor
        defined = {each.split()[1].partition("(")[0] for each in made.stdout.splitlines()}
        found = next(each.cpu for each in order if {*each.cpu.macros} <= defined)
        assert found is cpu


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 16, 32, 64]), st.sets(st.sampled_from("ABCD"), min_size=1)),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_every_cpu_of_an_export_is_chosen_by_a_compiler_for_it(
    drawn: list[tuple[int, set[str]]],
) -> None:
    cpus = [Cpu(name="generic")]
    for number, (size, names) in enumerate(drawn):
        registers = 16 if size else 0
        cpus.append(
            Cpu(name=f"cpu-{number}", vector_bytes=size, vector_registers=registers,
                macros=tuple(sorted(names)))
        )  # fmt: skip
    try:
        order = choices_of(cpus)
    except InputError:
        assert any(a <= b for n, (_, a) in enumerate(drawn) for m, (_, b) in enumerate(drawn)
                   if n != m)  # fmt: skip
        return
    for cpu in cpus:  # the first one whose macros are all defined
        found = next(each.cpu for each in order if {*each.cpu.macros} <= {*cpu.macros})
        assert found is cpu
    assert order[-1].cpu.name == "generic" and len({each.suffix for each in order}) == len(order)


# --- the limit of the arena -----------------------------------------------------------------------


@examples(2)
@given(
    percent=st.sampled_from([0, 1, 10, 25, 100]), seed=st.integers(0, 3),
    cpu=st.sampled_from(VECTOR_CPUS),
)  # fmt: skip
def test_the_arena_is_within_the_limit_and_results_are_right(
    percent: int, seed: int, cpu: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("limit")
    model = save(small_network(seed), folder, "net")
    generic = umakit.compile_model(model, [], folder / "generic").metadata["umakit"]["memory"]
    options = ExportOptions(cpu=cpu_here(cpu), scratch_limit=percent)
    library = umakit.compile_model(model, [], folder / "library", options=options)
    memory = library.metadata["umakit"]["memory"]
    scratch = memory["scratch"]
    assert scratch["generic_arena_bytes"] == generic["arena_bytes"]
    assert "scratch" not in generic
    assert memory["arena_bytes"] <= scratch["limit_bytes"]
    if percent == 0:
        assert scratch["limit_bytes"] == generic["arena_bytes"]
    else:
        bound = max(generic["live_set_bound_bytes"], bound_without_scratch(memory))
        limit = max(generic["arena_bytes"], bound + max(bound * percent // 100, 2048))
        assert scratch["limit_bytes"] == limit
    inputs = random_inputs(onnx.load(str(model)))
    assert_right(model, inputs, run_unpacked(library.path, inputs))


def bound_without_scratch(memory: Mapping[str, Any]) -> int:
    """Most bytes of tensors that are alive at a time, counted step by step."""
    tensors = [t for pool in memory["pools"] for t in pool["tensors"] if t["role"] != "scratch"]
    last = max(each["last_layer"] for each in tensors)
    return max(
        sum(each["size_bytes"] for each in tensors
            if each["first_layer"] <= step <= each["last_layer"])
        for step in range(last + 1)
    )  # fmt: skip


def test_layers_above_the_limit_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compile", str(DIGITS / "digits_int8.onnx"), "--cpu", "x86-64-v3", "-o"]
    assert run_command([*words, str(tmp_path / "free"), "--scratch-limit", "1000"]) == 0
    free = load_metadata(tmp_path / "free")["umakit"]
    text = " ".join(capsys.readouterr().out.split())
    generic = free["memory"]["scratch"]["generic_arena_bytes"]
    more = free["memory"]["arena_bytes"] - generic
    assert more > 0 and f"{more:,} B more than for generic, {generic:,} B; most scratch: " in text
    largest = max(free["layers"], key=lambda each: each["scratch_bytes"])
    assert f"most scratch: {largest['name']} {largest['scratch_bytes']:,} B" in text
    assert run_command([*words, str(tmp_path / "none"), "--scratch-limit", "0"]) == 0
    memory = load_metadata(tmp_path / "none")["umakit"]["memory"]
    text = " ".join(capsys.readouterr().out.split())
    assert memory["arena_bytes"] <= generic and "because of --scratch-limit 0" in text
    (layer,) = memory["scratch"]["generic_layers"]
    assert (layer["name"], memory["scratch"]["keeps_layout"]) == ("conv2", False)
    assert f"{layer['name']} {layer['scratch_bytes']:,} B" in text


@pytest.mark.parametrize(
    ("name", "layers"), [("x86-64-v3", ["conv2"]), ("x86-64-v4", ["conv2"]), ("x86-64-v4-vnni", [])]
)
def test_integer_kernels_above_the_limit_are_those_for_any_cpu(
    name: str, layers: list[str], tmp_path: Path
) -> None:
    """Windows of VNNI have 8 bits and not 16: none of this network's kernels needs more scratch."""
    model = DIGITS / "digits_int8.onnx"
    with np.load(DIGITS / "held_out.npz") as arrays:
        inputs = {"image": arrays["image"][:1]}
    found: dict[str, tuple[Any, Any]] = {}
    cpu = cpu_here(name)
    for each, percent in (("generic", 25), (cpu, 1000), (cpu, 0)):
        options = ExportOptions(cpu=each, scratch_limit=percent)
        out = tmp_path / f"library_{len(found)}"
        memory = umakit.compile_model(model, [], out, options=options).metadata["umakit"]["memory"]
        found[out.name] = memory, run_unpacked(out, inputs)
    (generic, wanted), (free, _), (none, _) = found.values()
    for _, outputs in found.values():
        for output, array in wanted.items():
            np.testing.assert_array_equal(outputs[output], array)
    assert none["arena_bytes"] <= generic["arena_bytes"] <= free["arena_bytes"]
    assert (free["arena_bytes"] > generic["arena_bytes"]) == bool(layers)
    assert [each["name"] for each in none["scratch"]["generic_layers"]] == layers


@pytest.mark.parametrize("percent", [-1, 1001])
def test_limits_that_are_none(percent: int) -> None:
    with pytest.raises(MemoryPlanError, match="out of range"):
        ExportOptions(scratch_limit=percent)


# --- models in the place of libraries -------------------------------------------------------------


def test_run_compiles_a_model_for_this_machine(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = random_inputs(onnx.load(str(model)))
    np.savez(tmp_path / "in.npz", **inputs)
    words = ["run", str(model), "--inputs", str(tmp_path / "in.npz"), "--profile", "--json"]
    for more, cpu in ([], find_cpu("native").name), (["--cpu", "generic"], "generic"):
        out = tmp_path / f"{len(more)}.npz"
        assert run_command([*words, *more, "--outputs", str(out)]) == 0
        said = capsys.readouterr()
        report = json.loads(said.out)
        assert report["cpu"] == cpu and report["layers"] and report["accounting"]
        assert (f"note: compiled for {cpu}: integers" in said.err) == (cpu != "generic")
        with np.load(out) as found:
            assert_right(model, inputs, found)
    assert run_command([*words, "--force", "--outputs", str(model)]) == 2
    assert onnx.load(str(model)).graph.node  # still there


def test_size_compiles_a_model_for_any_cpu_unless_told(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, cpu in ([], "generic"), (["--cpu", "x86-64-v3"], "x86-64-v3"):
        device = [] if cpu == "generic" else ["--device", device_here(cpu)]
        assert run_command(["size", str(model), *more, *device, "--json"]) == 0
        compiler = json.loads(capsys.readouterr().out)["compiler"]
        assert ("-march=x86-64-v3" in compiler) == (cpu != "generic")


def test_diff_compares_kernels_for_a_cpu(
    model: Path, several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cpu = cpu_here("x86-64-v3")
    assert run_command(["diff", str(model), "--cpu", cpu, "--most", "1"]) == 0
    assert run_command(["diff", str(model), "--library", str(several), "--most", "1"]) == 0
    words = ["diff", str(model), "--library", str(several), "--cpu", cpu]
    assert run_command(words) == 2
