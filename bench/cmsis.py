# SPDX-License-Identifier: Apache-2.0
"""Instructions and code size on Cortex-M4, -M7 and -M55, in comparison with CMSIS-NN.

make bench-cmsis

$CMSIS_NN names a checkout of https://github.com/ARM-software/CMSIS-NN, whose integer functions are
compiled for each CPU with the flags of the exported library. $UMAKIT_MODELS names the folder of the
trained networks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cmsis_network import Network, network_in_c
from tflite_networks import trained_model

import umakit
from umakit.cpu.description import find_cpu
from umakit.devices import Device, execute, find_device
from umakit.devices.build import FLAGS, compile_c, library_sources
from umakit.devices.cpus import cpu_flags, device_for
from umakit.devices.run import run_library
from umakit.library.layout import RUNTIME

OUTPUT = Path("build/bench")
CPUS = ("cortex-m4", "cortex-m7", "cortex-m55")
NETWORKS = {
    "ResNet-8": "pretrainedResnet_quant.tflite",
    "DS-CNN": "kws_ref_model.tflite",
    "autoencoder": "ad01_int8.tflite",
}
INFERENCES = 8
SCRATCH_BYTES = 65536

HEADER = """
#ifndef NETWORK_H
#define NETWORK_H
#include <stdint.h>
extern int8_t *const network_input;
extern const int8_t *const network_output;
int network_prepare(void);
int network_run(void);
void after_layer(int layer);
#endif
"""

MAIN = """
#include "network.h"
#include "umakit_platform.h"

static uint64_t counted[LAYERS];
static uint64_t last;
static bool counts;

void after_layer(int layer)
{
    if (counts) {
        const uint64_t now = umakit_platform_instructions();

        counted[layer] = now - last;
        last = umakit_platform_instructions();
    }
}

static void print(uint64_t number)
{
    umakit_platform_print_number(number);
    umakit_platform_print(" ");
}

int main(int argc, char **argv)
{
    uint64_t total = 0;
    int index;

    if (argc != 3 || !umakit_platform_open(argv[1], argv[2]) || network_prepare() != 0) {
        return 2;
    }
    for (index = 0; index < INFERENCES; index++) {
        uint64_t start;

        if (!umakit_platform_read(network_input, INPUT_BYTES)) {
            return 1;
        }
        start = umakit_platform_instructions();
        if (network_run() != 0) {
            return 3;
        }
        total += umakit_platform_instructions() - start;
        if (!umakit_platform_write(network_output, OUTPUT_BYTES)) {
            return 1;
        }
    }
    print(total / INFERENCES);
    counts = true;
    last = umakit_platform_instructions();
    if (network_run() != 0) {
        return 3;
    }
    for (index = 0; index < LAYERS; index++) {
        print(counted[index]);
    }
    return umakit_platform_close() ? 0 : 1;
}
"""


@dataclass(frozen=True)
class Figures:
    """Of a network on a CPU, by one of both.

    Attributes:
        instructions: of an inference, the mean over all inputs; counted by QEMU.
        code: bytes of machine code of the network and of what it calls, without libc.
        outputs: an array of int8, a row for each input.
        layers: instructions by layer, of one inference.
    """

    instructions: int
    code: int
    outputs: Any
    layers: list[tuple[str, int]]


def code_bytes(
    device: Device, sources: list[Path], flags: list[str], entry: str, folder: Path
) -> int:
    """Return the bytes of machine code that a function needs, without functions of libc."""
    whole = folder / "code.o"
    sections = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", f"-Wl,-e,{entry}"]
    command = [*device.compiler(), *FLAGS, *flags, *sections, "-r", "-nostdlib"]
    subprocess.run([*command, *map(str, sources), "-o", str(whole)], check=True)
    listing = subprocess.run(
        [device.size, "-A", str(whole)], check=True, capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in listing.splitlines() if line.startswith(".text")]
    return sum(int(row[1]) for row in rows)


def built_library(place: Path, cpu: str, folder: Path) -> Path:
    """Compile CMSIS-NN's integer functions for a CPU, and return the library.

    Args:
        place: the checkout.
        cpu: a name in `CPUS`.
        folder: where objects are written.
    """
    compiler = find_device(f"qemu-{cpu}").command
    flags = [*FLAGS, *find_cpu(cpu).flags, "-ffunction-sections", "-fdata-sections"]
    flags += [f"-I{place / 'Include'}", "-DOPTIONAL_RESTRICT_KEYWORD=__restrict"]
    folder.mkdir()

    def compiled(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        subprocess.run([compiler, *flags, "-c", str(source), "-o", str(made)], check=True)
        return made

    every = sorted((place / "Source").glob("*/*.c"))
    sources = [path for path in every if not path.stem.endswith(("_f16", "_f32"))]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        made = list(workers.map(compiled, sources))
    library = folder / "libcmsis-nn.a"
    archiver = f"{compiler.removesuffix('gcc')}ar"
    subprocess.run([archiver, "rcs", str(library), *map(str, made)], check=True)
    return library


def of_cmsis_nn(
    network: Network, cpu: str, place: Path, library: Path, inputs: Any, folder: Path
) -> Figures:
    """Measure a network that calls CMSIS-NN.

    Args:
        network: the network in C.
        cpu: a name in `CPUS`.
        place: the checkout of CMSIS-NN.
        library: what `built_library` returned for the CPU.
        inputs: `INFERENCES` inputs in int8.
        folder: an empty folder.
    """
    device = find_device(f"qemu-{cpu}")
    for name, text in (("main.c", MAIN), ("network.c", network.text), ("network.h", HEADER)):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "in").write_bytes(inputs.tobytes())
    flags = [
        f"-I{place / 'Include'}", f"-I{folder}", f"-DLAYERS={len(network.layers)}",
        f"-DINFERENCES={INFERENCES}", f"-DINPUT_BYTES={network.input_bytes}",
        f"-DOUTPUT_BYTES={network.output_bytes}", f"-DSCRATCH_BYTES={SCRATCH_BYTES}",
        *find_cpu(cpu).flags,
    ]  # fmt: skip
    sources = [folder / "network.c", library]
    main = [folder / "main.c", *device.platform_sources(RUNTIME)]
    compile_c([*main, *sources], folder / "program", [*device.program_flags(), *flags], device)
    result = execute(device, folder / "program", ["in", "out"], folder, timeout=600)
    if result.returncode != 0:
        raise SystemExit(f"CMSIS-NN on {device.name}: {result.returncode} {result.stderr}")
    total, *counted = [int(word) for word in result.stdout.split()]
    outputs = np.frombuffer((folder / "out").read_bytes(), np.int8).reshape(INFERENCES, -1)
    code = code_bytes(device, sources, flags, "network_run", folder)
    return Figures(total, code, outputs, list(zip(network.layers, counted, strict=True)))


def of_umakit(model: Path, cpu: str, inputs: Any, folder: Path) -> Figures:
    """Measure a library that umakit exports for a CPU; arguments as in `of_cmsis_nn`."""
    device = find_device(f"qemu-{cpu}")
    options = umakit.ExportOptions(cpu=cpu)
    library = umakit.compile_model(model, [], folder / "library", options=options)
    description = library.metadata["umakit"]
    (view,) = description["inputs"]
    values = {view["name"]: inputs.reshape(INFERENCES, *view["shape"])}
    whole = run_library(library.path, values, device=device.name)
    profile = run_library(library.path, values, device=device.name, profile=True)
    (outputs,) = whole.outputs.values()
    flags = [f"-I{library.path / 'codegen/host/include'}", *cpu_flags(library.path, device)]
    entry = f"{description['interface']}_run"
    sources = [path for path in library_sources(library.path) if path.suffix == ".c"]
    device = device_for(library.path, device)
    return Figures(
        round(float(np.mean(whole.instructions))),
        code_bytes(device, sources, flags, entry, folder),
        outputs.reshape(INFERENCES, -1),
        [(layer.name, layer.instructions or 0) for layer in profile.layers],
    )


def inputs_of(shape: list[int]) -> Any:
    """Return inputs in int8: half of them uniform, half of them near a mean as samples are."""
    random = np.random.default_rng(5)
    uniform = random.integers(-128, 128, (INFERENCES // 2, *shape))
    near = np.clip(random.normal(0, 20, (INFERENCES - len(uniform), *shape)).round(), -128, 127)
    return np.concatenate([uniform, near]).astype(np.int8)


def differences(left: Any, right: Any) -> str:
    """Say how many values differ and by how much."""
    apart = np.abs(left.astype(int) - right.astype(int))
    count = np.count_nonzero(apart)
    return f"{count} of {apart.size}, by up to {apart.max()}" if count else "none"


def version_of(place: Path) -> str:
    """Return which version a checkout is, for people."""
    command = ["git", "-C", str(place), "log", "-1", "--format=%h of %cs"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "of unknown version"


def markdown(rows: list[tuple[str, str, Figures, Figures, str]], version: str) -> str:
    """Return the table and what its columns mean."""
    lines = [
        "| network | CPU | CMSIS-NN, instructions | umakit | ratio | CMSIS-NN, code B | umakit "
        "| ratio | outputs that differ |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for network, cpu, theirs, ours, apart in rows:
        cells = [network, cpu]
        for base, own in ((theirs.instructions, ours.instructions), (theirs.code, ours.code)):
            cells += [f"{base:,}", f"{own:,}", f"{own / base:.2f}"]
        lines.append(f"| {' | '.join((*cells, apart))} |")
    return "\n".join(lines) + (
        "\n\nInstructions of a whole inference, counted by QEMU, and bytes of machine code without "
        f"libc's, both compiled with `{' '.join(FLAGS)}`; CMSIS-NN {version}. "
        "Ratios are umakit's figures by those of CMSIS-NN.\n"
    )


def main() -> int:
    """Measure all networks and print the table, and CMSIS-NN's instructions by layer."""
    given = os.environ.get("CMSIS_NN", "")
    place = Path(given).resolve()
    if not given or not (place / "Include/arm_nnfunctions.h").is_file():
        raise SystemExit("$CMSIS_NN names no checkout of CMSIS-NN: see docs/cpus.md")
    rows = []
    layers = []
    with tempfile.TemporaryDirectory() as temporary:
        libraries = {cpu: built_library(place, cpu, Path(temporary) / cpu) for cpu in CPUS}
        for name, file in NETWORKS.items():
            model = trained_model(file)
            network = network_in_c(model)
            for cpu in CPUS:
                print(f"{name}: {cpu}", file=sys.stderr, flush=True)
                inputs = inputs_of([network.input_bytes])
                with tempfile.TemporaryDirectory() as folder:
                    theirs = of_cmsis_nn(network, cpu, place, libraries[cpu], inputs, Path(folder))
                    ours = of_umakit(model, cpu, inputs, Path(folder))
                rows.append((name, cpu, theirs, ours, differences(theirs.outputs, ours.outputs)))
                layers += [f"\n{name}, {cpu}, instructions by layer:\n"]
                for title, figures in (("CMSIS-NN", theirs), ("umakit", ours)):
                    each = ", ".join(f"{layer} {count:,}" for layer, count in figures.layers)
                    layers.append(f"- {title}: {each}")
    text = markdown(rows, version_of(place)) + "\n".join(layers) + "\n"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "cmsis.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
