# SPDX-License-Identifier: Apache-2.0
"""The generated header and its functions, as a C and a C++ program see them."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from execution import vanilla
from networks import Graph, onnx_runtime, save
from strict import CPP_WARNINGS, WARNINGS

import umakit
from umakit.devices.unpacked import run_unpacked
from umakit.errors import InputError
from umakit.library.metadata import load_metadata

PROGRAM = """
#include "tvmgen_net.h"
#include <stdio.h>

static const int shape[] = TVMGEN_NET_LEFT_SHAPE;

int main(void)
{
    static float left[TVMGEN_NET_LEFT_ELEMENTS], right[TVMGEN_NET_RIGHT_ELEMENTS];
    static float sum[TVMGEN_NET_TOTAL_ELEMENTS];
    static float memory[TVMGEN_NET_WORKSPACE_SIZE / 4 + 8];
    struct tvmgen_net_workspace_pools pools;
    size_t touched = 0, i;
    struct tvmgen_net_inputs inputs;
    struct tvmgen_net_outputs outputs;

    inputs.left = left;
    inputs.right = right;
    outputs.total = sum;
    printf("%s %s %d %d %d\\n", TVMGEN_NET_LEFT_NAME, TVMGEN_NET_LEFT_DTYPE, TVMGEN_NET_LEFT_RANK,
        (int)(sizeof shape / sizeof shape[0]), shape[3]);
    printf("%d %d\\n", (int)sizeof left == TVMGEN_NET_LEFT_SIZE, shape[2]);
    printf("%d\\n", (int)tvmgen_net_run(&inputs, &outputs));
    printf("%d\\n", (int)tvmgen_net_run(NULL, &outputs));
    for (i = 0; i < TVMGEN_NET_TOTAL_ELEMENTS; i++) {
        sum[i] = 1.0f;
    }
    for (i = 0; i < sizeof memory; i++) {
        ((unsigned char *)memory)[i] = 0x5a;
    }
    printf("%d\\n", (int)tvmgen_net_run_in(&inputs, &outputs, NULL));
    pools.workspace = NULL;
    pools.workspace_size = sizeof memory;
    printf("%d\\n", (int)tvmgen_net_run_in(&inputs, &outputs, &pools));
    pools.workspace = (char *)memory + 1 + (16 - (size_t)memory % 16) % 16;
    printf("%d\\n", (int)tvmgen_net_run_in(&inputs, &outputs, &pools));
    pools.workspace = (char *)pools.workspace - 1;
    pools.workspace_size = TVMGEN_NET_WORKSPACE_SIZE - 1;
    printf("%d\\n", (int)tvmgen_net_run_in(&inputs, &outputs, &pools));
    inputs.right = NULL;
    pools.workspace_size++;
    printf("%d\\n", (int)tvmgen_net_run_in(&inputs, &outputs, &pools));
    for (i = 0; i < sizeof memory; i++) {
        touched += ((unsigned char *)memory)[i] != 0x5a;
    }
    for (i = 0; i < TVMGEN_NET_TOTAL_ELEMENTS; i++) {
        touched += sum[i] < 1.0f || sum[i] > 1.0f;
    }
    printf("%d bytes were touched\\n", (int)touched);
    inputs.right = right;
    printf("%d\\n", (int)tvmgen_net_run_in(&inputs, &outputs, &pools));
    printf("%s\\n%s\\n%s\\n", tvmgen_net_status_string(0), tvmgen_net_status_string(-1),
        tvmgen_net_status_string(7));
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = Graph()
    left, right = graph.input("left", 1, 3, 5, 7), graph.input("right", 1, 3, 5, 7)
    graph.output(graph.node("Add", graph.conv(left, 3, 3), right, name="add"))
    model = graph.model()
    model.graph.output[0].name = model.graph.node[-1].output[0] = "total"
    folder = tmp_path_factory.mktemp("interface")
    umakit.compile_model(save(model, folder), [vanilla()], folder / "library", name="net")
    return folder / "library"


@pytest.mark.parametrize(
    ("compiler", "language"), [("gcc", "c"), ("clang", "c"), ("g++", "c++"), ("clang++", "c++")]
)
def test_a_program_uses_the_interface(
    compiler: str, language: str, library: Path, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / f"main.{language}").write_text(PROGRAM, encoding="utf-8")
    strict = CPP_WARNINGS if language == "c++" else WARNINGS
    sources = sorted((library / "codegen/host/src").rglob("*.c"))
    subprocess.run(["cc", "-std=c99", *WARNINGS, "-c", *sources], cwd=tmp_path, check=True)
    include = f"-I{library / 'codegen/host/include'}"
    program = [compiler, *strict, include, "-x", language, f"main.{language}", "-x", "none"]
    objects = sorted(tmp_path.glob("*.o"))
    subprocess.run([*program, *objects, "-lm", "-o", "program"], cwd=tmp_path, check=True)
    printed = subprocess.run(
        [tmp_path / "program"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed == [
        "left float32 4 4 7",
        "1 5",
        "0",
        "-1",
        *["-1", "-1", "-1", "-2", "-1"],
        "0 bytes were touched",
        "0",
        "ok",
        "a pointer is NULL or misaligned",
        "timeout",
    ]


def test_a_dropped_status_is_a_warning(library: Path, tmp_path: Path) -> None:
    header = library / "codegen/host/include/tvmgen_net.h"
    text = " ".join(header.read_text(encoding="utf-8").replace("\n *", "").split())
    assert "hold nothing of use; the inputs are unchanged" in text
    assert "UMAKIT_STUCK_BUSY" in text  # Vanilla's driver is umakit's
    for function in ("_run(0, 0)", "_run_in(0, 0, 0)", "_run_unpacked(0, 0, 0, 0)"):
        source = (
            f'#include "{header}"\nvoid call(void);\nvoid call(void) {{ tvmgen_net{function}; }}'
        )
        (tmp_path / "call.c").write_text(source, encoding="utf-8")
        command = ["cc", "-std=c99", "-c", "call.c"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "-Wunused-result" in result.stderr


def test_the_readme_of_an_export_names_files_that_it_has(library: Path) -> None:
    text = (library / "README.md").read_text(encoding="utf-8")
    elsewhere = {"docs/misra.md"}
    named = set(re.findall(r"`((?:\w+/)+[\w.]+\.\w+)`", text))
    assert elsewhere < named, "umakit's repository has them"
    found = [library, library / "codegen/host/src"]
    missing = {name for name in named if not any((folder / name).exists() for folder in found)}
    assert missing == elsewhere
    assert all((Path(__file__).parents[1] / name).is_file() for name in elsewhere)
    sentences = " ".join(text.split())
    assert "`docs/misra.md` of umakit's repository, which this folder does not have" in sentences


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="no arm-none-eabi-gcc")
def test_the_command_for_a_board_makes_what_a_program_needs(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(library, folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    (arm-none-eabi-gcc (?:.*\\\n)*.*)$", text, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=folder, check=True)
    (definition,) = re.findall(r"```c\n(.*umakit_memory_mapped_device.*?)```", text, re.DOTALL)
    (folder / "glue.c").write_text(definition, encoding="utf-8")
    linking = ["--specs=nosys.specs", "-nostartfiles", "-Wl,-emain"]
    program = "#include <codegen/host/include/tvmgen_net.h>\nint main(void)\n"
    program += "{ return (int)tvmgen_net_run(NULL, NULL); }\n"
    (folder / "main.c").write_text(program, encoding="utf-8")
    objects = sorted(path.name for path in folder.glob("*.o"))
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", *linking, "-Icodegen/host/src"]
    command += ["-I.", "glue.c", "main.c", *objects, "-lm", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    assert "umakit_simulator.o" not in objects and "umakit_device_memory_mapped.o" in objects


def test_the_readme_of_an_export_says_how_it_is_compiled(library: Path) -> None:
    text = (library / "README.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("    cc ")]
    assert len(lines) == 2 and all(" -ffp-contract=off " in line for line in lines)
    (macro,) = re.findall(r"`-D(\w+_TIMEOUT_CYCLES)=", text)
    driver = library / "codegen/host/src/vanilla_accelerator"
    assert any(f"#ifndef {macro}\n" in path.read_text() for path in driver.glob("*.c"))
    for what in ("heap, recursion", "stack", "byte order", "floating point"):
        assert f"| {what} |" in text


def alignments(source: Path, flags: list[str], section: str, folder: Path) -> list[int]:
    """Alignments of the object file's sections of data whose names begin with a prefix."""
    command = ["cc", "-std=c99", "-Os", "-fdata-sections", *flags, "-c", str(source), "-o", "x.o"]
    subprocess.run([*command, *WARNINGS], cwd=folder, check=True, capture_output=True)
    listing = subprocess.run(
        ["objdump", "-h", "x.o"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    return [
        2 ** int(line.split()[-1].removeprefix("2**"))
        for line in listing.splitlines()
        if line.split()[1:2] and line.split()[1].startswith(section)
    ]


def test_memory_has_the_alignment_that_accelerators_need(library: Path, tmp_path: Path) -> None:
    sources = library / "codegen/host/src"
    found = alignments(sources / "tvmgen_net_constants.c", [], ".rodata.tvmgen_net_", tmp_path)
    text = (sources / "tvmgen_net_constants.c").read_text(encoding="utf-8")
    assert found and all(each >= 4 for each in found) and "ALIGNED(4)\n" in text
    assert "| vanilla_accelerator | 4 |" in (library / "README.md").read_text(encoding="utf-8")
    workspace, macro = sources / "tvmgen_net_workspace.c", "-DTVMGEN_NET_WORKSPACE_ALIGNMENT="
    assert max(alignments(workspace, [f"{macro}128"], ".bss", tmp_path)) == 128
    with pytest.raises(subprocess.CalledProcessError) as caught:
        alignments(workspace, [f"{macro}24"], ".bss", tmp_path)
    assert b"must be a multiple of 16" in caught.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as caught:
        alignments(workspace, [f"{macro}0"], ".bss", tmp_path)
    assert b"must be a multiple of 16" in caught.value.stderr


def test_misaligned_tensors_of_accelerators_are_refused_before_anything_is_written(
    library: Path, tmp_path: Path
) -> None:
    """`left` is read by the accelerator, `right` and `total` are the CPU's alone."""
    header = (library / "codegen/host/include/tvmgen_net.h").read_text(encoding="utf-8")
    assert re.findall(r"#define TVMGEN_NET_(\w+)_ALIGNMENT (\d+)", header) == [
        ("WORKSPACE", "16"),
        ("LEFT", "4"),
    ]
    sources = sorted((library / "codegen/host/src").rglob("*.c"))
    command = ["cc", "-shared", "-fPIC", *map(str, sources), "-lm", "-o", "net.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = ctypes.CDLL(str(tmp_path / "net.so")).tvmgen_net_run_unpacked
    tensors = [np.zeros(1024, np.uint64) for _ in range(3)]
    workspace = np.full(100_000, 0x5A, np.uint8)
    start = workspace.ctypes.data + -workspace.ctypes.data % 16
    left, right, total = (tensor.ctypes.data for tensor in tensors)
    tensors[2][:] = 7
    for excess in (1, 2, 3):
        assert run(*map(ctypes.c_void_p, (left + excess, right, total, start))) == -1
    assert (workspace == 0x5A).all() and (tensors[2] == 7).all()
    assert run(*map(ctypes.c_void_p, (left + 4, right + 4, total + 4, start))) == 0
    assert not (tensors[2] == 7).all()


def test_addresses_of_equal_alignment_are_checked_together(tmp_path: Path) -> None:
    graph = Graph()
    graph.output(graph.conv(graph.input("left", 1, 3, 5, 7), 3, 3))
    graph_path = save(graph.model(), tmp_path)
    umakit.compile_model(graph_path, [vanilla()], tmp_path / "library", name="net")
    text = (tmp_path / "library/codegen/host/src/tvmgen_net.c").read_text(encoding="utf-8")
    assert (
        len(re.findall(r"if \(\(\(uintptr_t\)left \| \(uintptr_t\)\w+\) % 4u != 0u\)", text)) == 1
    )


@pytest.mark.parametrize("is_profiled", [False, True])
def test_the_program_counts_with_a_macro_and_refuses_wrong_arguments(
    is_profiled: bool, library: Path, tmp_path: Path
) -> None:
    readme = (library / "README.md").read_text(encoding="utf-8")
    assert "./a.out INPUTS OUTPUTS COUNT REPEAT\n" in readme
    assert "`-DTVMGEN_NET_PROFILE`" in readme
    sources = sorted(library.rglob("codegen/host/src/**/*.c")) + sorted(library.glob("runtime/*.c"))
    flags = [*WARNINGS, *(["-DTVMGEN_NET_PROFILE"] if is_profiled else [])]
    command = ["cc", "-std=c99", *flags, *map(str, sources), "-lm", "-o", "net"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "in").write_bytes(bytes(2 * 2 * 4 * 105))

    def run(count: str, repeat: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["./net", "in", "out", count, repeat], cwd=tmp_path, capture_output=True, text=True
        )

    done = run("2", "3")
    report = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and done.stdout.count("run ") == 6
    assert any(layer["cycles"] for layer in report["layers"]) == is_profiled
    assert bool(report["layers"]) == is_profiled
    (tmp_path / "out").unlink()
    for count, repeat in [("1", "0"), ("abc", "1"), ("1", "1x"), ("", "1"), ("1", "9" * 20)]:
        refused = run(count, repeat)
        assert (refused.returncode, refused.stdout) == (2, ""), (count, repeat)
        assert refused.stderr.startswith("usage: main INPUTS OUTPUTS COUNT REPEAT")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 3, 5, 6), "float32"), ((1, 3, 5, 7), "float64"), ((2, 1, 3, 5, 7), "float32")],
)
def test_plain_pointers_are_only_given_arrays_of_the_right_size(
    shape: tuple[int, ...], dtype: str, library: Path
) -> None:
    """The C function cannot see how large an array is and would read beyond it."""
    with pytest.raises(InputError):
        run_unpacked(library, {name: np.zeros(shape, dtype) for name in ("left", "right")})


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_macros_put_constants_and_working_memory_into_sections(
    compiler: str, library: Path, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    macros = [
        '-DTVMGEN_NET_CONSTANTS_SECTION=__attribute__((section(".external_flash")))',
        '-DTVMGEN_NET_WORKSPACE_SECTION=__attribute__((section(".bss.fast_ram")))',
    ]
    metadata = load_metadata(library)["umakit"]["memory"]
    sources = sorted((library / "codegen/host/src").glob("tvmgen_net*.c"))
    subprocess.run(
        [
            compiler,
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            *macros,
            "-c",
            *sources,
        ],
        cwd=tmp_path,
        check=True,
    )
    sections = {}
    for path in tmp_path.glob("*.o"):
        listing = subprocess.run(["size", "-A", path], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            words = line.split()
            if len(words) == 3 and words[0] in (".external_flash", ".bss.fast_ram"):
                sections[words[0]] = int(words[1])
    assert sections[".external_flash"] >= metadata["constants_bytes"] > 0
    assert sections[".bss.fast_ram"] >= metadata["arena_bytes"] > 0


def test_constants_of_an_accelerator_have_a_section_of_their_own(tmp_path: Path) -> None:
    """Those that layers on the CPU read stay where constants are."""
    graph = Graph()
    conv = graph.conv(graph.input("x", 1, 3, 8, 8), 4)
    graph.output(graph.node("Mul", conv, graph.random(1, 4, 1, 1)))
    library = umakit.compile_model(
        save(graph.model(), tmp_path), [vanilla()], tmp_path / "net"
    ).path
    (constants,) = (library / "codegen/host/src").glob("tvmgen_*_constants.c")
    name = constants.stem.removesuffix("_constants").upper()
    macro = f'-D{name}_VANILLA_ACCELERATOR_CONSTANTS_SECTION=__attribute__((section(".npu")))'
    output = tmp_path / "constants.o"
    subprocess.run(["cc", "-std=c99", "-Werror", macro, "-c", constants, "-o", output], check=True)
    listing = subprocess.run(["size", "-A", output], capture_output=True, text=True, check=True)
    sizes = {line.split()[0]: int(line.split()[1]) for line in listing.stdout.splitlines()[2:-2]}
    assert (sizes[".npu"], sizes[".rodata"]) == (4 * 27 * 4, 4 * 4)
    assert (
        f"`-D{name}_VANILLA_ACCELERATOR_CONSTANTS_SECTION=" in (library / "README.md").read_text()
    )


def test_two_models_share_a_folder_and_a_program(tmp_path: Path) -> None:
    """Files that both bring have equal names and bytes; no symbol collides."""
    inputs = {"x": np.random.default_rng(2).normal(size=(1, 3, 6, 5)).astype("float32")}
    (tmp_path / "both").mkdir()
    wanted = {}
    for name, channels in (("one", 4), ("other", 6)):
        graph = Graph(seed=channels)
        graph.output(graph.node("Relu", graph.conv(graph.input("x", 1, 3, 6, 5), channels, 3)))
        model = graph.model()
        model.graph.output[0].name = model.graph.node[-1].output[0] = "y"
        (tmp_path / name).mkdir()
        library = tmp_path / name / "library"
        umakit.compile_model(save(model, tmp_path / name), [vanilla()], library, name=name)
        shutil.copytree(library / "codegen/host", tmp_path / "both", dirs_exist_ok=True)
        (wanted[name],) = onnx_runtime(model, inputs).values()
    shared = tmp_path / "both.so"
    sources = sorted((tmp_path / "both/src").rglob("*.c"))
    subprocess.run(
        ["cc", "-std=c99", "-shared", "-fPIC", *sources, "-lm", "-o", shared], check=True
    )
    binary = ctypes.CDLL(str(shared))
    for name, expected in wanted.items():
        result = np.zeros_like(expected)
        tensors = (
            (ctypes.c_void_p * 1)(inputs["x"].ctypes.data),
            (ctypes.c_void_p * 1)(result.ctypes.data),
        )
        assert getattr(binary, f"tvmgen_{name}_run")(*map(ctypes.byref, tensors)) == 0
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
