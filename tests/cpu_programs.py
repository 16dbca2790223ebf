# SPDX-License-Identifier: Apache-2.0
"""Programs of a network for any CPU that umakit describes, which run in memory of garbage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from comparisons import SANITIZED
from cpus_here import PLAIN, PROCESSOR, QEMU, RUNS, need
from networks import Array

import umakit
from umakit.cpu.description import find_cpu
from umakit.devices import Device, build, execute, find_device
from umakit.devices.build import compile_c, library_sources
from umakit.library.layout import RUNTIME
from umakit.library.metadata import load_metadata

DEVICES = {
    "generic": "host",
    "x86-64-v3": "host",
    "x86-64-v4": "host",
    "x86-64-v4-vnni": "host",
    "cortex-a76": "qemu-aarch64",
    "cortex-m3": "qemu-cortex-m3",
    "cortex-m4": "qemu-cortex-m4",
    "cortex-m7": "qemu-cortex-m7",
    "cortex-m55": "qemu-cortex-m55",
    "rv32imac": "qemu-riscv32",
    "rv64gcv": "qemu-riscv64-linux",
}
"""Devices that run libraries for a CPU, by the CPU."""

NO_LIMIT = 1000
"""Percent by which the arena may be larger than for any CPU; the most that is allowed."""

MAIN = """
#include "tvmgen_net.h"
#include "umakit_platform.h"
#include <string.h>

#define ALIGNED __attribute__((aligned(64)))

{arrays}

int main(int argc, char **argv)
{{
    int has_run = 0;

    if (argc != 3 || !umakit_platform_open(argv[1], argv[2])) {{
        return 2;
    }}
    while ({read}) {{
{poison}
        if (tvmgen_net_run_unpacked({arguments}) != 0 || !({write})) {{
            return 3;
        }}
        has_run = 1;
    }}
    return has_run && umakit_platform_close() ? 0 : 1;
}}
"""


def main_of(library: Path) -> str:
    """A program that runs each inference in memory of 0xFF."""
    description = load_metadata(library)["umakit"]
    inputs, outputs = description["inputs"], description["outputs"]
    sizes = {f"in_{each['c_name']}": each["size_bytes"] for each in inputs}
    stored = {f"out_{each['c_name']}": each["size_bytes"] for each in outputs}
    stored |= {f"pool_{p['name']}": p["used_bytes"] for p in description["memory"]["pools"]}
    written = [f"out_{each['c_name']}" for each in outputs]
    every = [*sizes, *stored]
    return MAIN.format(
        arrays="\n".join(
            f"static unsigned char {name}[{max(1, size)}] ALIGNED;"
            for name, size in (sizes | stored).items()
        ),
        read=" && ".join(f"umakit_platform_read({name}, {size})" for name, size in sizes.items())
        or "!has_run",
        poison="\n".join(f"        memset({name}, 0xFF, sizeof {name});" for name in stored),
        arguments=", ".join(f"(void *){name}" for name in every),
        write=" && ".join(f"umakit_platform_write({n}, {stored[n]})" for n in written),
    )


def device_of(cpu: str) -> tuple[Device, tuple[str, ...], tuple[str, ...]]:
    """The device for libraries of a CPU, and compiler flags: all, and those for instructions.

    This machine runs the kernels of all of its kind: without the instructions, as plain C.
    """
    device, described = find_device(DEVICES[cpu]), find_cpu(cpu)
    if not device.is_host:
        need(device.command)
        need(device.run[0])
        RUNS.append((cpu, QEMU))
        return device, ("-std=c99", "-O1"), described.flags
    lacks = described.missing_here()
    RUNS.append((cpu, PLAIN if lacks else PROCESSOR))
    if not lacks:
        return device, SANITIZED, described.flags
    pretended = [f"-D{macro}" for macro in described.macros]
    return device, SANITIZED, ("-DUMAKIT_PLAIN_DOT_PRODUCTS", *pretended)


def run_on_garbage(
    content: bytes, suffix: str, inputs: Mapping[str, Array], cpu: str, folder: Path
) -> dict[str, Array]:
    """Outputs of a model file, compiled for a CPU; the library stays in `folder/library`.

    Args:
        content, suffix: of the file.
        inputs: by name, one row for each inference.
        cpu: one that umakit describes.
        folder: an empty one.
    """
    device, flags, instructions = device_of(cpu)
    path = folder / f"net{suffix}"
    path.write_bytes(content)
    # Above the limit of the arena kernels would be those for any CPU.
    options = umakit.ExportOptions(
        cpu=cpu, pools=(umakit.MemoryPool("sram"),), scratch_limit=NO_LIMIT
    )
    library = umakit.compile_model(path, [], folder / "library", options=options)
    (folder / "main.c").write_text(main_of(library.path), encoding="utf-8")
    (folder / "in").write_bytes(
        b"".join(
            np.ascontiguousarray(rows[i]).tobytes()
            for i in range(len(next(iter(inputs.values()), ())))
            for rows in inputs.values()
        )
    )
    headers = library.path / "codegen/host/include"
    sources = [folder / "main.c", *library_sources(library.path), *device.platform_sources(RUNTIME)]
    more = [f"-I{headers}", *device.program_flags(), *instructions]
    with mock.patch.object(build, "FLAGS", flags):
        compile_c(sources, folder / "program", more, device)
    done = execute(device, folder / "program", ["in", "out"], folder, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return outputs_of(library.metadata["umakit"], (folder / "out").read_bytes())


def outputs_of(description: Mapping[str, Any], content: bytes) -> dict[str, Array]:
    """Arrays by name, one row for each inference."""
    outputs = description["outputs"]
    size = sum(each["size_bytes"] for each in outputs)
    assert content and len(content) % size == 0
    rows: dict[str, list[Array]] = {each["name"]: [] for each in outputs}
    for start in range(0, len(content), size):
        for each in outputs:
            part = content[start : start + each["size_bytes"]]
            rows[each["name"]].append(np.frombuffer(part, each["dtype"]).reshape(each["shape"]))
            start += each["size_bytes"]
    return {name: np.stack(arrays) for name, arrays in rows.items()}
