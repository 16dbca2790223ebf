# SPDX-License-Identifier: Apache-2.0
"""Runs of several libraries in several threads and inside each other, watched by ThreadSanitizer.

What they yield is compared with one run alone in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execution import vanilla
from integer_backend import DRIVERS, Npu, network, pool
from networks import Graph
from strict import WARNINGS

import umakit
from umakit import UMABackend, find_backend, patterns
from umakit.library.export import Library
from umakit.testing.example_networks import QuantizedNetwork

STRICT = ["-std=c99", "-O1", "-g", "-D_POSIX_C_SOURCE=200809L", *WARNINGS]

ADAPTER = """
#include "{prefix}.h"

static const {input_type} input_{number}[] = {{{input}}};
static const {output_type} right_{number}[] = {{{right}}};
static int32_t run_{number}(void *memory, void *output)
{{
    const struct {prefix}_inputs inputs = {{.{input_name} = input_{number}}};
    const struct {prefix}_outputs outputs = {{.{output_name} = output}};
    const struct {prefix}_workspace_pools pools = {{memory, {upper}_WORKSPACE_SIZE}};
    return {prefix}_run_in(&inputs, &outputs, &pools);
}}

void {prefix}_after_layer(int32_t layer)
{{
    if (layer == 0) {{
        nest();
    }}
}}
"""

PROGRAM = """
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(includes)s

/* A run inside another one, as from an interrupt handler: which network, and what it returned. */
static __thread int nested = -1;
static __thread int32_t nested_status;
static void nest(void);
%(adapters)s

static const struct {
    int32_t (*run)(void *memory, void *output);
    const void *right;
    size_t size;
    size_t memory;
    int32_t busy;
} networks[] = {%(networks)s};

/* 0: right; 1: busy, nothing written; 2: a wrong result; 3: busy, but something was written. */
static int try_once(int number, int32_t *status)
{
    const size_t size = networks[number].size;
    void *const memory = malloc(networks[number].memory);
    unsigned char *const output = malloc(2u * size);
    int result = 2;

    memset(output, 0x55, 2u * size);
    *status = networks[number].run(memory, output);
    if (*status == 0) {
        result = memcmp(output, networks[number].right, size) == 0 ? 0 : 2;
    } else if (*status == networks[number].busy) {
        result = memcmp(output, output + size, size) == 0 ? 1 : 3;
    }
    free(memory);
    free(output);
    return result;
}

static void nest(void)
{
    const int number = nested;

    if (number >= 0) {
        int32_t status;

        nested = -1;
        nested_status = try_once(number, &status);
    }
}

struct thread {
    pthread_t thread;
    int network;
    int results[4];
};

static void *work(void *data)
{
    struct thread *const own = data;

    while (own->results[0] < %(rounds)d && own->results[2] == 0) {
        int32_t status;

        ++own->results[try_once(own->network, &status)];
        sched_yield();
    }
    return NULL;
}

int main(void)
{
    static struct thread threads[] = {%(threads)s};
    const int count = (int)(sizeof threads / sizeof threads[0]);
    int i, inner;

    for (i = 0; i < count; ++i) {
        if (pthread_create(&threads[i].thread, NULL, work, &threads[i]) != 0) {
            return 1;
        }
    }
    for (i = 0; i < count; ++i) {
        pthread_join(threads[i].thread, NULL);
    }
    for (i = 0; i < count; ++i) {
        const int *const r = threads[i].results;

        printf("[\\"thread\\", %%d, %%d, %%d, %%d]\\n", r[0], r[1], r[2], r[3]);
    }
    for (i = 0; i < (int)(sizeof networks / sizeof networks[0]); ++i) {
        for (inner = 0; inner < (int)(sizeof networks / sizeof networks[0]); ++inner) {
            int32_t status;
            int outer;

            nested = inner;
            nested_status = -1;
            outer = try_once(i, &status);
            printf("[\\"nested\\", %%d, %%d, %%d, %%d]\\n", i, inner, outer, (int)nested_status);
        }
    }
%(faults)s
    return 0;
}
"""

FAULT = """
    {
        const struct umakit_fault fault = {
            .kind = UMAKIT_FAULT_BUS_ERROR, .bytes = UINT32_MAX, .count = 1u};
        int32_t status;

        if (umakit_simulator_inject(%(device)s_device(), &fault) != 0) {
            return 1;
        }
        (void)try_once(0, &status);
        printf("[\\"fault\\", %%d, ", (int)status);
        umakit_simulator_remove_faults(%(device)s_device());
        printf("%%d, 0, 0]\\n", try_once(0, &status));
    }
"""

RIGHT, BUSY = 0, 1
TYPES = {"int8": "int8_t", "float32": "float"}


def literals(array: Any) -> str:
    return ", ".join(float(v).hex() if array.dtype.kind == "f" else str(v) for v in array.flat)


def adapter(number: int, library: Library) -> str:
    description = library.metadata["umakit"]
    (source,), (result,) = description["inputs"], description["outputs"]
    data = np.random.default_rng(number).integers(-100, 100, source["shape"])
    data = data.astype(source["dtype"])
    (right,) = umakit.run_library(library.path, {source["name"]: data}).outputs.values()
    assert len(np.unique(right)) > 3
    prefix = description["interface"]
    return ADAPTER.format(
        number=number,
        prefix=prefix,
        upper=prefix.upper(),
        input_type=TYPES[source["dtype"]],
        output_type=TYPES[result["dtype"]],
        input=literals(data),
        right=literals(right),
        input_name=source["c_name"],
        output_name=result["c_name"],
    )


def entry(number: int, library: Library) -> str:
    upper = library.metadata["umakit"]["interface"].upper()
    header = library.path / f"codegen/host/include/{upper.lower()}.h"
    busy = f"{upper}_BUSY" if f"{upper}_BUSY" in header.read_text() else "INT32_MIN"
    memory = f"{upper}_WORKSPACE_SIZE + 16u"
    right = f"right_{number}"
    return f"{{run_{number}, {right}, sizeof {right}, {memory}, {busy}}}"


def run_together(
    folder: Path,
    libraries: Sequence[Library],
    threads: Sequence[int],
    *,
    rounds: int = 20,
    fault_of: str = "",
) -> dict[str, list[list[int]]]:
    """What a program of several libraries prints, built with ThreadSanitizer.

    Args:
        libraries: that are linked into it; files of equal names are equal.
        threads: for each, the number of the library that it runs.
        rounds: right results that each thread waits for.
        fault_of: a simulated accelerator of the first library, which fails once at the end.
    """
    sources: dict[str, Path] = {}
    flags = []
    for library in libraries:
        code = library.path / "codegen/host"
        for path in (code / "src").rglob("*.c"):
            name = str(path.relative_to(code / "src"))
            other = sources.setdefault(name, path)
            assert other.read_bytes() == path.read_bytes(), name
        prefix = library.metadata["umakit"]["interface"].upper()
        flags += [f"-D{prefix}_PROFILE", f"-I{code / 'include'}", f"-I{code / 'src'}"]
    program = folder / "program.c"
    program.write_text(
        PROGRAM
        % {
            "includes": f'#include "{fault_of}/{fault_of}_device.h"' if fault_of else "",
            "adapters": "".join(adapter(n, library) for n, library in enumerate(libraries)),
            "networks": ", ".join(entry(n, library) for n, library in enumerate(libraries)),
            "threads": ", ".join(f"{{.network = {number}}}" for number in threads),
            "rounds": rounds,
            "faults": FAULT % {"device": fault_of} if fault_of else "",
        },
        encoding="utf-8",
    )
    built = folder / "program"
    subprocess.run(
        ["gcc", *STRICT, "-fsanitize=thread", *flags, program, *sources.values(), "-o", built,
         "-pthread", "-lm"],
        check=True,
    )  # fmt: skip
    # ThreadSanitizer of GCC 12 wants addresses where they are without randomization.
    ended = subprocess.run(
        ["setarch", "-R", built], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[:4000]
    found: dict[str, list[list[int]]] = {"thread": [], "nested": [], "fault": []}
    for kind, *values in map(json.loads, ended.stdout.splitlines()):
        found[kind].append(values)
    for right, _, wrong, written in found["thread"]:
        assert (right, wrong, written) == (rounds, 0, 0)
    for outer, inner, result, _ in found["nested"]:
        assert result == RIGHT, (outer, inner)
    return found


def nested(found: dict[str, list[list[int]]]) -> dict[tuple[int, int], int]:
    """What a run inside of another one said, by the outer and the inner library."""
    return {(outer, inner): status for outer, inner, _, status in found["nested"]}


def floats(folder: Path, name: str, backends: Sequence[UMABackend], seed: int = 0) -> Library:
    graph = Graph(name, seed=seed)
    x = graph.conv(graph.input("x", 1, 3, 9, 9), 6, name="first")
    graph.output(graph.conv(graph.node("Relu", x), 5, name="second"))
    path = folder / f"{name}.onnx"
    path.write_bytes(graph.model().SerializeToString())
    return umakit.compile_model(path, backends, folder / name)


def integers(folder: Path, name: str, backend: str, seed: int = 0) -> Library:
    """Layers whose results stay in the scratchpad from one to the next."""
    chain = QuantizedNetwork(8, 7, 5, seed=seed).conv2d(10).conv2d(10, depthwise=True).conv2d(7)
    return umakit.compile_model(
        chain.model().module, [find_backend(backend)], folder / name, name=name
    )


def test_libraries_for_the_cpu_run_in_any_number_of_threads(tmp_path: Path) -> None:
    library = floats(tmp_path, "plain", [])
    header = (library.path / "codegen/host/include/tvmgen_plain.h").read_text()
    assert "reentrant. Any number of them" in header and "BUSY" not in header
    assert not list((library.path / "codegen/host/src").glob("umakit_lock*"))
    found = run_together(tmp_path, [library], [0, 0, 0])
    assert [busy for _, busy, _, _ in found["thread"]] == [0, 0, 0]
    assert nested(found) == {(0, 0): RIGHT}


def test_two_networks_share_an_accelerator_and_leave_others_alone(tmp_path: Path) -> None:
    backends = ["strawberry_accelerator", "strawberry_accelerator", "chocolate_accelerator"]
    libraries = [
        *(integers(tmp_path, f"net{number}", name, number) for number, name in enumerate(backends)),
        floats(tmp_path, "on_vanilla", [vanilla()]),
        floats(tmp_path, "plain", [], seed=1),
    ]
    found = run_together(tmp_path, libraries, [0, 1, 2, 3, 3, 4], fault_of="strawberry_accelerator")
    # Alone on their accelerators, or on the CPU.
    assert found["thread"][2][1] == found["thread"][5][1] == 0
    devices = [*backends, "vanilla_accelerator", "cpu"]
    for (outer, inner), result in nested(found).items():
        same = devices[outer] == devices[inner] != "cpu"
        assert result == (BUSY if same else RIGHT), (outer, inner)
    # A run that fails gives the accelerator back.
    assert found["fault"] == [[8, RIGHT, 0, 0]]


class StatefulNpu(Npu):
    """A backend of somebody else, through the public interface alone; its driver keeps state."""

    def __init__(self, folder: Path, *, reentrant: bool) -> None:
        super().__init__(folder, [patterns.qmax_pool2d()], {"qmax_pool2d": "stateful_pool"})
        declaration = patterns.c_declaration("stateful_pool", patterns.qmax_pool2d())
        names = ", ".join(re.findall(r"(\w+)(?=\s*[,)])", declaration))
        state = "" if reentrant else "static int32_t calls;\n"
        body = f"return {DRIVERS['qmax_pool2d']}({names});"
        if state:
            body = (
                "int32_t status;\n++calls;\n"
                f"status = {DRIVERS['qmax_pool2d']}({names});\n"
                "return --calls == 0 ? status : 99;"
            )
        text = f'#include "stateful.h"\n#include "integer_driver.h"\n{state}'
        text += f"{declaration.rstrip(';')}\n{{\n{body}\n}}\n"
        (self.folder / "stateful.c").write_text(text)
        header = f"#pragma once\n#include <stdint.h>\n{declaration}\n"
        (self.folder / "stateful.h").write_text(header)
        self._register_codegen(includes=lambda: '#include "stateful.h"')
        self._register_driver(
            ["integer_driver.c", "stateful.c"],
            ["integer_driver.h", "stateful.h"],
            reentrant=reentrant,
        )


@pytest.mark.parametrize("reentrant", [False, True], ids=["stateful", "reentrant"])
def test_drivers_of_others_are_called_once_at_a_time_unless_they_are_reentrant(
    reentrant: bool, tmp_path: Path
) -> None:
    npu = StatefulNpu(tmp_path, reentrant=reentrant)
    module = network(lambda _, x: pool(x, window=3, stride=1), (1, 12, 12, 8))
    libraries = [
        umakit.compile_model(module, [npu], tmp_path / name, name=name) for name in ("one", "two")
    ]
    assert {row.where for row in libraries[0].report.placements} == {npu.target_name}
    locks = list((libraries[0].path / "codegen/host/src").glob("umakit_lock*"))
    assert len(locks) == (0 if reentrant else 2)
    found = run_together(tmp_path, libraries, [0, 0, 1])
    assert set(nested(found).values()) == {RIGHT if reentrant else BUSY}
