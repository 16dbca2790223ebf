# SPDX-License-Identifier: Apache-2.0
"""A C program that runs two libraries of a network, of which one is computed in parts.

Threads of `parallel_pool.c` compute the parts. The program compares all outputs, bit by bit, and
fills outputs and working memory with another byte before each run.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
from networks import random_inputs
from strict import WARNINGS

import umakit
from umakit.library.export import Library
from umakit.library.options import ExportOptions
from umakit.lower import parts as parts_of_kernels

HERE = Path(__file__).parent
THREADS = (1, 2, 3)
PROGRAM = """
#include "tvmgen_plain.h"
#include "tvmgen_split.h"
#include "parallel_pool.h"
#include <stdio.h>
#include <string.h>

static _Alignas(64) uint8_t plain_memory[TVMGEN_PLAIN_WORKSPACE_SIZE + 1];
static _Alignas(64) uint8_t split_memory[TVMGEN_SPLIT_WORKSPACE_SIZE + 1];
%(declarations)s
static int check(
    const struct tvmgen_split_inputs *inputs, const struct tvmgen_split_parallel *parallel)
{
    struct tvmgen_split_outputs outputs = {%(split_outputs)s};
    struct tvmgen_split_workspace_pools pools = {split_memory, TVMGEN_SPLIT_WORKSPACE_SIZE};

    memset(split_memory, 0xff, sizeof split_memory);
    %(poison)s
    if (tvmgen_split_run_parallel(inputs, &outputs, &pools, parallel) != 0) {
        return 1;
    }
    if (split_memory[TVMGEN_SPLIT_WORKSPACE_SIZE] != 0xff) {
        return 1;
    }
    return %(comparison)s;
}

int main(void)
{
    struct tvmgen_plain_inputs plain_inputs = {%(inputs)s};
    struct tvmgen_plain_outputs plain_outputs = {%(plain_outputs)s};
    struct tvmgen_split_inputs inputs = {%(inputs)s};
    struct tvmgen_plain_workspace_pools pools = {plain_memory, TVMGEN_PLAIN_WORKSPACE_SIZE};
    const int threads[] = {%(threads)s};
    int32_t calls = 0;

    %(reading)s
    memset(plain_memory, 0xff, sizeof plain_memory);
    if (tvmgen_plain_run_in(&plain_inputs, &plain_outputs, &pools) != 0 || check(&inputs, NULL)) {
        puts("without threads");
        return 1;
    }
    for (unsigned number = 0; number < sizeof threads / sizeof threads[0]; ++number) {
        for (int order = FORWARD; order <= INTERLEAVED; ++order) {
            struct pool pool;
            struct tvmgen_split_parallel parallel = {parallel_for, &pool};

            if (start_pool(&pool, threads[number], (enum order)order) != 0) {
                return 1;
            }
            for (int turn = 0; turn < 3; ++turn) {
                if (check(&inputs, &parallel)) {
                    printf("%%d threads, order %%d\\n", threads[number], order);
                    return 1;
                }
            }
            calls = pool.calls / 3;
            end_pool(&pool);
        }
    }
    printf("%%d\\n", (int)calls);
    return 0;
}
"""


def split_library(
    model: Path, folder: Path, options: ExportOptions, *, everything: bool = True
) -> Library:
    """Export a network as `split` in parts, and without parts as `plain`.

    Args:
        model: the file.
        folder: of both libraries.
        options: with a number of parts.
        everything: whether kernels are cut that are too small for it.
    """
    umakit.compile_model(
        model, [], folder / "plain", name="plain",
        options=umakit.ExportOptions(cpu=options.cpu, weights=options.weights),
    )  # fmt: skip
    least = 0 if everything else parts_of_kernels.LEAST_WORK
    share = 0.999 if everything else parts_of_kernels.LARGEST_SHARE
    with (
        mock.patch.object(parts_of_kernels, "LEAST_WORK", least),
        mock.patch.object(parts_of_kernels, "LARGEST_SHARE", share),
    ):
        return umakit.compile_model(model, [], folder / "split", name="split", options=options)


def run_both(
    library: Library, model: Path, flags: Sequence[str] = (), threads: Iterable[int] = THREADS
) -> int:
    """Compile and run a library and the one without parts next to it; return how many layers were
    computed in parts. Outputs must be equal.

    Args:
        library: of `split_library`.
        model: the file of the network, or one with its inputs.
        flags: of gcc, `-fsanitize=thread` for example.
        threads: numbers of threads.
    """
    folder = library.path.parent
    description = library.metadata["umakit"]
    (folder / "main.c").write_text(_program(description, threads), encoding="utf-8")
    inputs = _inputs(description, model)
    cpu = (description.get("cpu") or {}).get("flags", [])
    sources = [
        str(path)
        for name in ("plain", "split")
        for path in sorted((folder / name / "codegen/host/src").glob("*.c"))
    ]
    include = [f"-I{folder / name}/codegen/host/include" for name in ("plain", "split")]
    command = [
        "gcc", "-std=c11", *WARNINGS, "-O2", "-g", *cpu, *flags, f"-I{HERE}", *include,
        str(folder / "main.c"), str(HERE / "parallel_pool.c"), *sources, "-pthread", "-lm",
        "-o", str(folder / "main"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
    done = subprocess.run([folder / "main"], input=inputs, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return int(done.stdout)


def _inputs(description: dict[str, object], model: Path) -> bytes:
    if model.suffix == ".onnx":
        values = random_inputs(onnx.load(str(model)))
        return b"".join(values[each["name"]].tobytes() for each in description["inputs"])  # type: ignore[attr-defined]
    size = sum(each["size_bytes"] for each in description["inputs"])  # type: ignore[attr-defined]
    return np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()


def _program(description: dict[str, object], threads: Iterable[int]) -> str:
    inputs: list[dict[str, object]] = description["inputs"]  # type: ignore[assignment]
    outputs: list[dict[str, object]] = description["outputs"]  # type: ignore[assignment]
    arrays = [(f"in_{each['c_name']}", each["size_bytes"]) for each in inputs]
    arrays += [
        (f"{part}_{each['c_name']}", each["size_bytes"])
        for part in ("plain", "split")
        for each in outputs
    ]
    names = [each["c_name"] for each in outputs]
    return PROGRAM % {
        "declarations": "".join(f"static _Alignas(64) uint8_t {n}[{s}];\n" for n, s in arrays),
        "inputs": ", ".join(f"(const void *)in_{each['c_name']}" for each in inputs),
        "plain_outputs": ", ".join(f"(void *)plain_{name}" for name in names),
        "split_outputs": ", ".join(f"(void *)split_{name}" for name in names),
        "poison": "\n    ".join(f"memset(split_{n}, 0xff, sizeof split_{n});" for n in names),
        "comparison": " || ".join(
            f"memcmp(plain_{n}, split_{n}, sizeof plain_{n}) != 0" for n in names
        ),
        "reading": "\n    ".join(
            f"if (fread(in_{n}, 1, sizeof in_{n}, stdin) != sizeof in_{n}) {{ return 1; }}"
            for n in (each["c_name"] for each in inputs)
        ),
        "threads": ", ".join(map(str, threads)),
    }
