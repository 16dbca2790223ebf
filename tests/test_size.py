# SPDX-License-Identifier: Apache-2.0
"""What a library needs, against binutils, a painted stack, and C with known frames."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from diff_sweep import onnx_batches
from execution import VANILLA, vanilla
from networks import Graph, mobilenet_v1, save
from tflite_networks import trained_model
from umakit.cli.main import run_command
from umakit.cli.size import size_notes

import umakit
from umakit.errors import BuildError, LibraryError
from umakit.library.metadata import load_metadata
from umakit.library.schema import Description
from umakit.tools.size import LayerSize, LibrarySize, library_size

FLAGS = "-std=c99 -Os -ffunction-sections"
ARM = "arm-none-eabi-gcc -mcpu=cortex-m3 -mthumb"
RISC_V = "riscv64-unknown-elf-gcc -march=rv32imac_zicsr -mabi=ilp32 --specs=picolibc.specs"
COMPILERS = {"gcc": "size", "clang": "size", ARM: "arm-none-eabi-size", RISC_V: "size"}
SIMULATOR = {
    "umakit_faults",
    "umakit_host",
    "umakit_mac_array",
    "umakit_mac_array_convolution",
    "umakit_mac_array_job",
    "umakit_simulator",
    "umakit_systolic_cycles",
    "umakit_windows",
    f"{VANILLA}_device",
}


@dataclass(frozen=True)
class Exported:
    """A library, and what it was exported from."""

    path: Path
    model: Path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Two layers share the driver, one copies into local memory, one needs expf."""
    graph = Graph()
    x = graph.conv(graph.input("image", 1, 2, 6, 6), 4, name="first")
    x = graph.conv(graph.node("Relu", x), 4, name="second")
    x = graph.conv(x, 4, strides=[2, 2], name="third")
    graph.output(graph.node("Softmax", graph.node("Flatten", x), name="last"))
    folder = tmp_path_factory.mktemp("size")
    model = save(graph.model(), folder)
    umakit.compile_model(model, [vanilla()], folder / "library", name="net")
    return Exported(folder / "library", model)


@pytest.fixture(scope="module")
def on_host(exported: Exported) -> LibrarySize:
    return library_size(exported.path, ["gcc"])


def named(sizes: LibrarySize, name: str) -> LayerSize:
    return next(layer for layer in sizes.layers if layer.name == name)


def sources(library: Path) -> list[Path]:
    return sorted((library / "codegen/host/src").rglob("*.c"))


def compiler_or_skip(command: str) -> list[str]:
    if shutil.which(shlex.split(command)[0]) is None:
        pytest.skip(f"{command} is not installed")
    return shlex.split(command)


def printed(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# --- Code, against binutils ---------------------------------------------------------------------


@pytest.mark.parametrize("compiler", COMPILERS)
def test_code_is_what_binutils_count(compiler: str, exported: Exported, tmp_path: Path) -> None:
    command = compiler_or_skip(compiler)
    sizes = library_size(exported.path, command)
    text, simulator, read_only = 0, 0, 0
    for source in sources(exported.path):
        target = tmp_path / f"{source.stem}.o"
        subprocess.run([*command, *FLAGS.split(), "-c", source, "-o", target], check=True)
        for line in printed(COMPILERS[compiler], "-A", target).splitlines():
            section, *numbers = line.split() or [""]
            is_simulator = source.stem in SIMULATOR
            simulator += int(numbers[0]) if section.startswith(".text") and is_simulator else 0
            text += int(numbers[0]) if section.startswith(".text") and not is_simulator else 0
            data = section.startswith((".rodata", ".srodata")) and not is_simulator
            read_only += int(numbers[0]) if data else 0
    assert (sizes.text_bytes, sizes.simulator_text_bytes) == (text, simulator)
    assert sizes.constants_bytes + sizes.read_only_bytes == read_only
    assert min(text, simulator, read_only) > 500


def symbols(target: Path) -> dict[str, int]:
    """Bytes of each function of an object file, as `nm` sees them."""
    rows = [line.split() for line in printed("nm", "-S", target).splitlines()]
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "tT"}


def test_a_layers_code_is_its_kernel_and_the_driver_it_calls(
    exported: Exported, on_host: LibrarySize, tmp_path: Path
) -> None:
    files = {}
    for name in ("tvmgen_net", "vanilla_accelerator/conv2dnchw"):
        source = exported.path / f"codegen/host/src/{name}.c"
        target = tmp_path / f"{source.stem}.o"
        subprocess.run(["gcc", *FLAGS.split(), "-c", source, "-o", target], check=True)
        files[name] = symbols(target)
    driver = sum(files["vanilla_accelerator/conv2dnchw"].values())
    described = load_metadata(exported.path)["umakit"]["layers"]
    for layer, entry in zip(on_host.layers, described, strict=True):
        # gcc appends .constprop.0 to what it made for constant arguments.
        kernel = re.compile(rf"{entry['function']}(\..*)?")
        network = files["tvmgen_net"].items()
        own = sum(size for name, size in network if kernel.fullmatch(name))
        assert own > 40
        assert layer.text_bytes == own + (driver if layer.where == VANILLA else 0), layer.name
    offloaded = [layer for layer in on_host.layers if layer.where == VANILLA]
    assert len(offloaded) == 2, "two layers share the driver"
    kernels = sum(layer.text_bytes for layer in on_host.layers) - driver
    assert on_host.text_bytes == kernels + on_host.shared_text_bytes
    assert on_host.common_text_bytes == {VANILLA: driver}
    for layer in on_host.layers:
        assert layer.own_text_bytes == layer.text_bytes - (layer.where == VANILLA) * driver


# --- What compilers inline, clone, merge and remove ----------------------------------------------

MERGED = """
#include <stdint.h>
#define KERNEL __attribute__((noinline))
KERNEL static int32_t tvmgen_hand_first_kernel(const int32_t *x, int32_t *y, int n)
{ for (int i = 0; i < n; ++i) y[i] = x[i] / 3; return n > 5; }
KERNEL static int32_t tvmgen_hand_second_kernel(const int32_t *x, int32_t *y, int n)
{ for (int i = 0; i < n; ++i) y[i] = x[i] / 3; return n > 5; }
KERNEL static void tvmgen_hand_third_kernel(const int8_t *x, int8_t *y)
{ volatile char frame[200]; for (int i = 0; i < 64; ++i) { frame[i] = x[i]; y[i] = frame[i]; } }
KERNEL static void tvmgen_hand_fourth_kernel(const int8_t *x, int8_t *y)
{ volatile char frame[200]; for (int i = 0; i < 64; ++i) { frame[i] = x[i]; y[i] = frame[i]; } }
KERNEL static void tvmgen_hand_nothing_kernel(float *restrict y)
{ for (int i = 0; i < 64; ++i) y[i] = y[i]; }
static void tvmgen_hand_inlined_kernel(float *y)
{ for (int i = 0; i < 64; ++i) y[i] = 3 * y[i]; }
int32_t tvmgen_hand_run_unpacked(int32_t *v, int8_t *x, float *y)
{
    if (tvmgen_hand_first_kernel(v, v + 100, 9)) return 1;
    tvmgen_hand_third_kernel(x, x + 64);
    tvmgen_hand_fourth_kernel(x + 64, x);
    tvmgen_hand_nothing_kernel(y);
    tvmgen_hand_inlined_kernel(y);
    return tvmgen_hand_second_kernel(v + 100, v, 9);
}
int32_t tvmgen_hand_run_in(int32_t *v) { return tvmgen_hand_run_unpacked(v, 0, 0); }
int32_t tvmgen_hand_run(int32_t *v) { return tvmgen_hand_run_in(v); }
"""


@pytest.mark.parametrize("level", ["-Os", "-O2", "-O3"])
def test_kernels_that_gcc_merges_removes_or_inlines_are_accounted_for(
    level: str, tmp_path: Path
) -> None:
    names = ("first", "second", "third", "fourth", "nothing", "inlined")
    library = by_hand(tmp_path, MERGED, "int other;", layers=names)
    sizes = library_size(library, ["gcc", level])
    assert [word for word in sizes.compiler.split() if word.startswith("-O")] == [level]
    first, second, third, fourth, nothing, inlined = (each.text_bytes for each in sizes.layers)
    assert first == second > 0 and third == fourth > 0, "two functions of the same code are one"
    assert nothing == inlined == 0
    assert sizes.text_bytes == first + third + sizes.shared_text_bytes
    assert sizes.common_text_bytes == {"cpu": first + third}
    stacks = [each.stack_bytes or 0 for each in sizes.layers]
    assert stacks[2] == stacks[3] >= 200 and stacks[4:] == [0, 0]
    assert sizes.stack_bytes is not None and sizes.stack_bytes > stacks[2]
    assert sizes.stack_external_calls == ()
    (note,) = (line for line in size_notes(sizes) if "no code" in line)
    assert note.startswith("no code of their own: nothing, inlined; ")


class Binutils:
    """Sections of code, and what refers to what, as binutils see a library.

    Args:
        prefix: of the names of the programs.
        command: a compiler, with its flags.
        library: what it compiles; without the simulator.
    """

    def __init__(self, prefix: str, command: list[str], library: Path, folder: Path) -> None:
        described = Description.model_validate(load_metadata(library)["umakit"])
        simulated = described.sources.simulated
        self.sizes: dict[str, int] = {}
        self._references: dict[str, set[str]] = {}
        for source in sources(library):
            name = str(source.relative_to(library / "codegen/host/src"))
            if name in simulated:
                continue
            target = folder / f"{name.replace('/', '_')}.o"
            line = [*command, "-std=c99", "-ffunction-sections", "-fno-lto", "-c", source]
            subprocess.run([*line, "-o", target], check=True)
            self._read(prefix, target, name)

    def _read(self, prefix: str, target: Path, file: str) -> None:
        for line in printed(f"{prefix}size", "-A", target).splitlines():
            if line.startswith(".text"):
                section, size, *_ = line.split()
                self.sizes[f"{file} {section}"] = int(size)
        homes = {}
        for line in printed(f"{prefix}nm", "-f", "sysv", target).splitlines():
            fields = [field.strip() for field in line.split("|")]
            if len(fields) == 7 and fields[6].startswith(".text"):
                key = fields[0] if fields[2] in ("T", "W") else f"{file} {fields[0]}"
                homes[fields[0]] = f"{file} {fields[6]}"
                self._references.setdefault(key, set()).add(homes[fields[0]])
        for block in printed(f"{prefix}objdump", "-r", target).split("RELOCATION RECORDS FOR [")[
            1:
        ]:
            section, _, rest = block.partition("]:")
            for line in rest.splitlines()[2:]:
                value = re.split(r"[-+]0x", (line.split() or [""])[-1])[0]
                other = homes.get(value) or (f"{file} {value}" if value[:1] == "." else value)
                self._references.setdefault(f"{file} {section}", set()).add(other)

    def of(self, file: str, function: str) -> set[str]:
        """Sections of a function, its clones and all that they refer to; none if it has no code."""
        own = [function, f"{file} {function}"]
        starts = [
            key for key in self._references
            if key in own or key.startswith(tuple(f"{name}." for name in own))
        ]  # fmt: skip
        found, waiting = set(starts), starts
        while waiting:
            more = self._references.get(waiting.pop(), set()) - found
            found |= more
            waiting += more
        return {key for key in found if key in self.sizes}


LEVELS = ("-Os", "-O2", "-O3")
SIZED = {"gcc": "", "clang": "", ARM: "arm-none-eabi-"}
NETWORKS = (
    "pretrainedResnet.tflite", "pretrainedResnet_quant.tflite", "ad01_int8.tflite",
    "kws_ref_model.tflite", "str_ww_ref_model.tflite", "vww_96_int8.tflite", "digits.onnx",
    "digits_int8.onnx", "mobilenet_v1", "operators.onnx",
)  # fmt: skip
ACCELERATORS = ("", VANILLA, "strawberry_accelerator", "chocolate_accelerator")


def network_file(name: str, folder: Path) -> Path:
    """A trained model, an example, or a network of the tests."""
    if name.endswith(".tflite"):
        return trained_model(name)
    if name == "mobilenet_v1":
        return save(mobilenet_v1(0.25, size=32), folder)
    if name == "operators.onnx":
        (folder / name).write_bytes(next(onnx_batches(1, ())).content)
        return folder / name
    return Path(__file__).parents[1] / "examples/digits" / name


@pytest.fixture(scope="module")
def library_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A library of a network for an accelerator, which several tests measure."""

    @cache
    def export(network: str, backend: str) -> Path:
        folder = tmp_path_factory.mktemp("sized")
        backends = [umakit.find_backend(backend)] if backend else []
        umakit.compile_model(
            network_file(network, folder), backends, folder / "library", name="net"
        )
        return folder / "library"

    return export


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compiler", SIZED)
@pytest.mark.parametrize("backend", ACCELERATORS)
@pytest.mark.parametrize("network", NETWORKS)
def test_parts_add_up_to_what_binutils_count(
    network: str, backend: str, compiler: str, level: str, tmp_path: Path,
    library_for: Callable[[str, str], Path], record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    """Each layer has the code that its functions refer to, and all parts are the whole."""
    command = [*compiler_or_skip(compiler), level]
    library = library_for(network, backend)
    described = load_metadata(library)["umakit"]["layers"]
    if backend and not any(entry["where"] == backend for entry in described):
        pytest.skip(f"{backend} takes nothing of {network}")
    sizes = library_size(library, command)
    seen = Binutils(SIZED[compiler], command, library, tmp_path)
    assert sizes.text_bytes == sum(seen.sizes.values())
    reached: set[str] = set()
    merged = 0
    for layer, entry in zip(sizes.layers, described, strict=True):
        own = seen.of("tvmgen_net.c", entry["function"]) if entry["function"] else set()
        reached |= own
        merged += bool(layer.text_bytes and not own)
        if own or not layer.text_bytes:
            assert layer.text_bytes == sum(seen.sizes[key] for key in own), layer.name
    assert sizes.shared_text_bytes == sizes.text_bytes - sum(seen.sizes[key] for key in reached)
    lost = sum(bool(layer.kernel and not layer.text_bytes) for layer in sizes.layers)
    layers = f"{len(described)} layers, {lost} without code, {merged} merged"
    record_property("covered", f"uma size of {network} {backend} {compiler} {level}: {layers}")


# --- Arena and constants ------------------------------------------------------------------------


def test_arena_and_constants_of_each_layer(on_host: LibrarySize) -> None:
    floats = {
        "first": (4 * 36, 4 * 2 * 9),
        "second": (2 * 4 * 36, 4 * 4 * 9),
    }
    for name, (arena, constants) in floats.items():
        layer = named(on_host, name)
        assert (layer.arena_bytes, layer.constants_bytes) == (4 * arena, 4 * constants), name
    assert max(layer.arena_bytes for layer in on_host.layers) == on_host.live_set_bound_bytes
    assert on_host.arena_bytes >= on_host.live_set_bound_bytes
    assert on_host.constants_bytes == 4 * (4 * 2 * 9 + 2 * 4 * 4 * 9)


# --- Stack, against a painted one ---------------------------------------------------------------

PAINTED = """
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include "tvmgen_net.h"

static unsigned char stack[1 << 18];
static float input[TVMGEN_NET_IMAGE_ELEMENTS], output[4096];
static _Alignas(64) unsigned char workspace[TVMGEN_NET_WORKSPACE_SIZE];
static ucontext_t here, there;

static int used(unsigned char pattern)
{
    size_t untouched = 0;

    memset(stack, pattern, sizeof stack);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, (void (*)(void))tvmgen_net_run_unpacked, 3, input, output, workspace);
    swapcontext(&here, &there);
    while (stack[untouched] == pattern) {
        ++untouched;
    }
    return (int)(sizeof stack - untouched);
}

int main(void)
{
    const int first = used(0xA5), second = used(0x5A);

    printf("%d", first > second ? first : second);
    return 0;
}
"""

ENTRY_BYTES = 32
"""What `makecontext` itself leaves at the top of the stack."""

RED_ZONE = 128


def painted(library: Path, folder: Path) -> int:
    """Bytes of stack that a call really touched, of gcc's -Os code on this machine."""
    (folder / "painted.c").write_text(PAINTED, encoding="utf-8")
    program = folder / "painted"
    subprocess.run(
        ["gcc", *FLAGS.split(), "-w", "-Wl,-z,now", f"-I{library / 'codegen/host/include'}",
         folder / "painted.c", *sources(library), "-o", program, "-lm"],
        check=True,
    )  # fmt: skip
    return int(printed(program))


def test_the_stack_of_a_library_without_external_functions_is_exact(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.conv(graph.input("image", 1, 3, 9, 9), 4, strides=[2, 2], bias=True)
    x = graph.node("MaxPool", graph.node("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    graph.output(graph.node("GlobalAveragePool", x))
    library = tmp_path / "library"
    umakit.compile_model(save(graph.model(), tmp_path), [], library, name="net")
    sizes = library_size(library, ["gcc"])
    assert sizes.stack_bytes is not None and sizes.stack_external_calls == ()
    measured = painted(library, tmp_path)
    assert measured - ENTRY_BYTES <= sizes.stack_bytes <= measured + RED_ZONE


def test_the_stack_with_simulator_and_libm_is_a_bound(
    exported: Exported, on_host: LibrarySize, tmp_path: Path
) -> None:
    assert on_host.stack_bytes is not None and on_host.stack_with_simulator_bytes is not None
    assert {"expf", "umakit_device_map"} <= set(on_host.stack_external_calls)
    measured = painted(exported.path, tmp_path)
    libm = 256
    assert on_host.stack_bytes < measured <= on_host.stack_with_simulator_bytes + libm
    assert on_host.stack_with_simulator_bytes <= 2 * measured


# --- Stack, of C with known frames --------------------------------------------------------------

CHAIN = """
#include <stdint.h>
void other(int n);
static int __attribute__((noinline)) shared_name(int n)
{ volatile char frame[1000]; frame[n] = 1; return frame[n / 2]; }
static int __attribute__((noinline)) shallow(int n)
{ volatile char frame[3000]; frame[n] = 1; return frame[n / 2]; }
__attribute__((noinline)) int32_t tvmgen_hand_kernel(int n)
{ volatile char frame[500]; other(n); frame[n] = 1; return shared_name(n) + frame[n / 2]; }
int32_t tvmgen_hand_run_unpacked(int n)
{ return tvmgen_hand_kernel(n) + shallow(n); }
int32_t tvmgen_hand_run_in(int n) { return tvmgen_hand_run_unpacked(n) + 1; }
int32_t tvmgen_hand_run(int n) { return tvmgen_hand_run_in(n) + 1; }
"""
OTHER = """
static int __attribute__((noinline)) shared_name(int n)
{ volatile char frame[4000]; frame[n] = 1; return frame[n / 2]; }
void other(int n) { volatile int sink = shared_name(n); (void)sink; }
"""

TABLE = """
static int deep(int n)
{ volatile char frame[4000]; frame[n] = 1; return frame[n / 2]; }
static int flat(int n) { return n; }
static int (*const table[2])(int) = {deep, flat};
void other(int n) { volatile int sink = table[n & 1](n); (void)sink; }
"""


def by_hand(
    folder: Path, network: str, other: str = OTHER, simulator: str = "",
    layers: Sequence[str] = ("",),
) -> Path:  # fmt: skip
    """A library of hand-written C, with a layer `layer` or layers of some names."""
    described = []
    for name in layers:
        function = f"tvmgen_hand_{name}_kernel" if name else "tvmgen_hand_kernel"
        layer = {"name": name or "layer", "where": "cpu", "kernel": "kernel", "macs": 0}
        layer |= {"function": function, "arena_bytes": 0, "constants_bytes": 0}
        layer |= {"operators": [], "inputs": [], "outputs": [], "scratch_bytes": 0}
        described.append(layer)
    memory = {"arena_bytes": 0, "live_set_bound_bytes": 0, "constants_bytes": 0}
    memory |= {"planner": "optimal", "traffic": None, "pools": [], "scratchpads": []}
    sources = {key: [] for key in ("model", "static_workspace", "status")}
    sources |= {"simulator": [simulator] if simulator else []}
    sources |= {key: {} for key in ("kinds", "drivers", "devices", "simulated_as", "headers")}
    description = {
        "name": "hand", "weights": "c", "interface": "tvmgen_hand",
        "inputs": [], "outputs": [], "backends": [],
        "layers": described, "memory": memory, "sources": sources,
        "version": "1", "model_sha256": "0" * 64, "tilings": None, "operators": [], "notices": [],
    }  # fmt: skip
    source = folder / "codegen/host/src"
    source.mkdir(parents=True)
    (folder / "metadata.json").write_text(
        json.dumps({"version": 7, "modules": {}, "umakit": description}), encoding="utf-8"
    )
    (source / "tvmgen_hand.c").write_text(network, encoding="utf-8")
    (source / "other.c").write_text(other, encoding="utf-8")
    return folder


@pytest.mark.parametrize("compiler", ["gcc", ARM, RISC_V])
def test_the_deepest_path_counts_and_static_functions_of_a_name_are_two(
    compiler: str, tmp_path: Path
) -> None:
    sizes = library_size(by_hand(tmp_path, CHAIN), compiler_or_skip(compiler))
    stack, kernel = sizes.stack_bytes, sizes.layers[0].stack_bytes
    assert stack is not None and kernel is not None
    assert 4500 <= kernel < stack <= 4500 + 400, "500 of the kernel and 4000 of the other file"
    names = ["tvmgen_hand_run_unpacked", "tvmgen_hand_kernel", "other"]
    assert list(sizes.stack_chain)[:3] == names and sum(sizes.stack_chain.values()) == stack
    depths = [
        sizes.stack_bytes_of[f"tvmgen_hand_run{end}"] or 0 for end in ("_unpacked", "_in", "")
    ]
    assert depths == sorted(depths) and depths[0] == stack
    assert sizes.stack_external_calls == () and sizes.stack_findings == ()


def test_tables_of_the_simulator_do_not_end_the_search(tmp_path: Path) -> None:
    """A device's operations are called through pointers; the deepest may be the one."""
    sizes = library_size(by_hand(tmp_path, CHAIN, TABLE, simulator="other.c"), ["gcc"])
    assert sizes.stack_bytes is not None and sizes.stack_bytes < 4000
    assert sizes.stack_external_calls == ("other",)
    assert sizes.stack_with_simulator_bytes is not None
    assert 4500 <= sizes.stack_with_simulator_bytes <= 4500 + 400


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("volatile char f[n]; f[n - 1] = 1; return;", "other (other.c:2) has a frame of variable"),
        ("extern int tvmgen_hand_run_unpacked(int); if (n) tvmgen_hand_run_unpacked(n - 1);",
         "recursion: "),
        ("extern void (*pointer)(int); pointer(n);", "other (other.c:2) calls through a function"),
    ],
    ids=["variable array", "recursion", "function pointer"],
)  # fmt: skip
def test_what_has_no_bound_gets_none_and_a_sentence(
    body: str, finding: str, tmp_path: Path
) -> None:
    other = f"void (*pointer)(int);\nvoid other(int n) {{ {body} }}\n"
    sizes = library_size(by_hand(tmp_path, CHAIN, other), ["gcc"])
    assert sizes.stack_bytes is None and sizes.layers[0].stack_bytes is None
    assert len(sizes.stack_findings) == 1
    assert sizes.stack_findings[0].startswith(finding)
    if finding == "recursion: ":
        for name in ("tvmgen_hand_run_unpacked", "tvmgen_hand_kernel", "other"):
            assert name in sizes.stack_findings[0]


def test_external_functions_are_named_even_if_only_assembly_calls_them(tmp_path: Path) -> None:
    other = """
    float expf(float);
    void other(int n) { volatile float sink = expf((float)n); __asm__("call helper"); (void)sink; }
    """
    sizes = library_size(by_hand(tmp_path, CHAIN, other), ["gcc"])
    assert sizes.stack_external_calls == ("expf", "helper")
    assert sizes.stack_bytes is not None


def test_a_compiler_without_call_graph_is_said_to_have_none(exported: Exported) -> None:
    sizes = library_size(exported.path, compiler_or_skip("clang"))
    assert sizes.stack_bytes is None and sizes.text_bytes > 0
    assert sizes.stack_findings == ("the compiler writes no call graph; use gcc 10 or later",)


# --- The command --------------------------------------------------------------------------------


def test_the_command_prints_a_table(
    exported: Exported,
    on_host: LibrarySize,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "gcc")
    monkeypatch.setenv("COLUMNS", "200")
    assert run_command(["size", str(exported.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for layer in on_host.layers:
        row = next(line for line in lines if line.startswith(f"{layer.name} "))
        numbers = layer.own_text_bytes, layer.arena_bytes, layer.stack_bytes
        assert {f"{number:,}" for number in numbers} <= set(row.split())
    total = next(line for line in lines if line.startswith("total")).split()
    assert total[-4:] == [
        f"{number:,}"
        for number in (
            on_host.text_bytes, on_host.constants_bytes, on_host.arena_bytes, on_host.stack_bytes
        )
    ]  # fmt: skip
    rows = lines[2 : lines.index(next(line for line in lines if line.startswith("total"))) - 1]
    codes = [line[lines[0].index("where") : lines[0].index("code B") + 6].split() for line in rows]
    assert sum(int(words[-1].replace(",", "")) for words in codes) == on_host.text_bytes
    assert [words for line, words in zip(rows, codes, strict=True) if "share" in line] == [
        [where, f"{size:,}"] for where, size in on_host.common_text_bytes.items()
    ]
    (note,) = (line for line in lines if line.startswith("stack: ") and "=" in line)
    total_stack, *parts = (int(each) for each in re.findall(r"\b(\d+) (?:B|of)\b", note))
    assert total_stack == on_host.stack_bytes == sum(parts) and len(parts) == 2
    deepest = next(layer for layer in on_host.layers if note.endswith(f" of {layer.name}"))
    assert parts[-1] == deepest.stack_bytes == max(each.stack_bytes for each in on_host.layers)
    assert any("expf" in line for line in lines)
    assert any(f"{on_host.simulator_text_bytes:,} B of simulator code" in line for line in lines)


def test_the_command_prints_json(
    exported: Exported,
    on_host: LibrarySize,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "gcc")
    assert run_command(["size", str(exported.path), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values.pop("unused_backends") == []
    assert values == on_host.as_json()
    described = json.loads((exported.path / "metadata.json").read_text())["umakit"]["layers"]
    own = sum(layer["own_text_bytes"] for layer in values["layers"])
    common = sum(values["common_text_bytes"].values())
    assert own + common + values["shared_text_bytes"] == values["text_bytes"]
    assert sum(values["stack_chain"].values()) == values["stack_bytes"]
    assert [layer["identity"] for layer in values["layers"]] == [
        layer["identity"] for layer in described
    ]
    assert {
        "arena_bytes", "live_set_bound_bytes", "constants_bytes", "text_bytes", "stack_bytes",
        "simulator_text_bytes", "stack_external_calls", "layers",
    } <= set(values)  # fmt: skip
    assert set(values["layers"][0]) == {
        "name", "where", "kernel", "text_bytes", "own_text_bytes", "constants_bytes",
        "arena_bytes", "stack_bytes", "identity",
    }  # fmt: skip


def test_mistakes_are_one_sentence(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("CC", "no_such_compiler")
    for library, wanted in ((exported.path, "cannot run no_such_compiler"), (tmp_path, "is no")):
        assert run_command(["size", str(library)]) == 2
        error = capsys.readouterr().err
        assert wanted in error and error.count("\n") == 1


def test_a_library_that_lacks_a_kernel_or_does_not_compile_is_refused(tmp_path: Path) -> None:
    lacking = by_hand(tmp_path / "lacking", CHAIN.replace("hand_kernel", "hand_lost"))
    with pytest.raises(LibraryError, match="does not define tvmgen_hand_kernel"):
        library_size(lacking, ["gcc"])
    with pytest.raises(BuildError, match=r"gcc refused: .*tvmgen_hand\.c:1:1: error"):
        library_size(by_hand(tmp_path / "broken", "not C"), ["gcc"])


def test_a_library_of_an_older_version_is_refused(tmp_path: Path) -> None:
    library = by_hand(tmp_path, CHAIN)
    data = json.loads((library / "metadata.json").read_text())
    del data["umakit"]["layers"][0]["function"]
    (library / "metadata.json").write_text(json.dumps(data))
    with pytest.raises(LibraryError, match="another version"):
        library_size(library, ["gcc"])
