# SPDX-License-Identifier: Apache-2.0
"""Exported libraries on accelerators that fail: every status reaches the caller, at every moment of
an inference, and no output that is wrong comes with status 0."""

from __future__ import annotations

import string
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unittest import mock

import pytest
from accelerators import accelerator_with
from comparisons import LINKER, some
from execution import vanilla
from networks import Graph, save

import umakit
from umakit.backend.registry import find_backend
from umakit.devices import build
from umakit.testing.example_networks import QuantizedNetwork

SANITIZED = (
    "-std=c99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *LINKER,
)  # fmt: skip

# Statuses of umakit/status.h.
OK, INVALID_ARGUMENT, BUS_ERROR, DMA_STOPPED = 0, 1, 8, 12
PARITY_ERROR, LOST_INTERRUPT, STUCK_BUSY = 13, 14, 15

PROGRAM = string.Template("""
#include "${accelerator}/${accelerator}_device.h"
#include "tvmgen_net.h"
#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static $input_type input[TVMGEN_NET_${INPUT}_ELEMENTS];
static $output_type right[TVMGEN_NET_${OUTPUT}_ELEMENTS], output[TVMGEN_NET_${OUTPUT}_ELEMENTS];
static struct umakit_fault pending;
static int32_t flips_after = -1;
static uint32_t events; /* that the last inference had for the fault */

/* Called after each layer: a bit may flip while the network is half way. */
void tvmgen_net_after_layer(int32_t layer)
{
    if (layer == flips_after && umakit_simulator_inject(${accelerator}_device(), &pending) != 0) {
        printf("cannot inject\\n");
    }
}

static int run($output_type *result)
{
    struct tvmgen_net_inputs inputs;
    struct tvmgen_net_outputs outputs;

    memset(result, 0x55, sizeof(output));
    inputs.$input = input;
    outputs.$output = result;
    return (int)tvmgen_net_run(&inputs, &outputs);
}

static int is_right(void)
{
    return memcmp(output, right, sizeof(output)) == 0;
}

/* fault, event or layer, status, whether the output is right; the same without fault. */
static int report(int number, int moment)
{
    const int status = run(output), equal = is_right();

    events = ${accelerator}_device()->faults[0].events;
    flips_after = -1;
    umakit_simulator_remove_faults(${accelerator}_device());
    printf("%d %d %d %d ", number, moment, status, equal);
    printf("%d ", run(output));
    printf("%d\\n", is_right());
    return status;
}

/* Each fault at the first event, at the second, until an inference has no more. */
static void sweep(const struct umakit_fault *faults, int count)
{
    int number;

    for (number = 0; number < count; ++number) {
        uint32_t skip;

        for (skip = 0u; skip < 2000u; ++skip) {
            pending = faults[number];
            pending.skip = skip;
            pending.count = 1u;
            if (umakit_simulator_inject(${accelerator}_device(), &pending) != 0) {
                printf("cannot inject\\n");
            }
            if (report(number, (int)skip) == 0 && events <= skip) {
                break;
            }
        }
    }
}

/* Forget flipped bits that nothing was written over. */
static int power_cycle(void)
{
    $power_cycle
}

static void flip_bits(int32_t layers, uint32_t bytes)
{
    int32_t layer;
    uint32_t offset;

    for (layer = 0; layer < layers; ++layer) {
        for (offset = 0u; offset < bytes; offset += 13u) {
            memset(&pending, 0, sizeof(pending));
            pending.kind = UMAKIT_FAULT_SCRATCHPAD_BIT;
            pending.address = offset;
            pending.bit = offset % 8u;
            flips_after = layer;
            report(100, (int)layer);
            if (power_cycle() != 0) {
                printf("cannot start again\\n");
            }
        }
    }
}

int main(void)
{
    static const struct umakit_fault faults[] = {$faults};
    int i;

    for (i = 0; i < TVMGEN_NET_${INPUT}_ELEMENTS; ++i) {
        input[i] = ($input_type)(i * 89 % 251 - 125);
    }
    if (run(right) != 0) {
        return 1;
    }
    sweep(faults, COUNT(faults));
    flip_bits($layers, ${bytes}u);
    return 0;
}
""")

EVERYWHERE = ".kind = UMAKIT_FAULT_BUS_ERROR, .bytes = UINT32_MAX"
LOST = ".kind = UMAKIT_FAULT_LOST_INTERRUPT"
COMMON = {
    EVERYWHERE: BUS_ERROR,
    LOST: LOST_INTERRUPT,
    ".kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_ARRAY": STUCK_BUSY,
}
STOPS = ".kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 0, .ending = UMAKIT_FAULT_ENDS_"
ENDS_DONE = f"{STOPS}DONE"
OF_A_DMA_ENGINE = {
    ".kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_DMA": STUCK_BUSY,
    **{f"{STOPS}{ending}": DMA_STOPPED for ending in ("BUSY", "IN_ERROR", "DONE")},
}


POWER_CYCLE = string.Template("""
    struct umakit_systolic_array *array =
        (struct umakit_systolic_array *)(void *)${accelerator}_device();
    const struct umakit_systolic_array_config config = array->config;

    return umakit_systolic_array_init(array, &config);
""")


class Line(NamedTuple):
    """What an inference with a fault, and the one after it, had to say."""

    fault: int
    moment: int
    status: int
    is_right: bool
    status_after: int
    is_right_after: bool


def run_with_faults(
    library: umakit.Library,
    faults: dict[str, int],
    layers: int = 0,
    size: int = 0,
    flags: tuple[str, ...] = (),
) -> list[Line]:
    """Build a library with a program that injects faults, with sanitizers, and run it.

    Args:
        layers, size: after how many of its layers, and in how many bytes of the scratchpad, bits
            flip; 0 on a device without one.
        flags: for the compiler.
    """
    (accelerator,) = {row["where"] for row in library.metadata["umakit"]["layers"]} - {"cpu"}
    description = library.metadata["umakit"]
    (source,), (result,) = description["inputs"], description["outputs"]
    types = {"int8": "int8_t", "float32": "float"}
    text = PROGRAM.substitute(
        accelerator=accelerator,
        faults=", ".join(f"{{{fault}}}" for fault in faults),
        layers=layers,
        bytes=size,
        power_cycle=POWER_CYCLE.substitute(accelerator=accelerator) if size else "return 0;",
        input=source["c_name"],
        output=result["c_name"],
        input_type=types[source["dtype"]],
        output_type=types[result["dtype"]],
        INPUT=source["c_name"].upper(),
        OUTPUT=result["c_name"].upper(),
    )
    program = library.path / "faults.c"
    program.write_text(text, encoding="utf-8")
    code = library.path / "codegen/host"
    built = library.path / "faults"
    includes = [f"-I{code / 'include'}", f"-I{code / 'src'}"]
    sources = [program, *build.library_sources(library.path)]
    with mock.patch.object(build, "FLAGS", SANITIZED):
        build.compile_c(sources, built, ["-DTVMGEN_NET_PROFILE", *flags, *includes])
    output = subprocess.run([built], check=True, capture_output=True, text=True, timeout=120).stdout
    rows = [[int(word) for word in line.split()] for line in output.splitlines()]
    return [Line(*row[:3], bool(row[3]), row[4], bool(row[5])) for row in rows]


def check(
    lines: list[Line],
    faults: dict[str, int],
    least: int,
    also: Mapping[str, set[int]] = MappingProxyType({}),
) -> None:
    """Every event of every fault has its status, and the device works again.

    Args:
        least: events of each fault.
        also: other statuses of some events of a fault.
    """
    for line in lines:
        assert (line.status_after, line.is_right_after) == (OK, True), line
        assert line.status != OK or line.is_right, line
    for number, (fault, expected) in enumerate(faults.items()):
        statuses = [line.status for line in lines if line.fault == number]
        assert statuses[-1] == OK, "the fault came after the last event"
        assert set(statuses[:-1]) - also.get(fault, set()) == {expected}, fault
        assert len(statuses) > least, fault


@pytest.fixture(scope="module")
def strawberry(tmp_path_factory: pytest.TempPathFactory) -> umakit.Library:
    """Four layers, tensors between them in the scratchpad."""
    network = QuantizedNetwork(8, 7, 5).conv2d(10).conv2d(10, depthwise=True).conv2d(7).dense(6)
    model, folder = network.model(), tmp_path_factory.mktemp("faults")
    backend = find_backend("strawberry_accelerator")
    return umakit.compile_model(model.module, [backend], folder / "library", name="net")


def test_strawberry_answers_every_fault_of_every_transfer_and_job(
    strawberry: umakit.Library,
) -> None:
    faults = {**COMMON, **OF_A_DMA_ENGINE}
    lines = run_with_faults(strawberry, faults, layers=4, size=4096)
    check(lines, faults, least=3)
    flips = [line for line in lines if line.fault == 100]
    assert {line.status for line in flips} == {OK, PARITY_ERROR}
    assert {line.moment for line in flips if line.status} >= {0, 1}, "of tensors between layers"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("completion", "queue"), some([("polling", 2), ("interrupt", 16), ("interrupt", 0)], 3)
)
def test_chocolate_answers_every_fault_of_every_command(
    completion: str, queue: int, tmp_path: Path
) -> None:
    """Layers of many tiles each; a flipped bit is a matter of the driver's own tests, because no
    tensor is left in the scratchpad between layers."""
    values = {
        "array.rows": 4, "array.columns": 4, "array.accumulator_bytes": 512,
        "device.command_queue": queue, "device.completion": completion,
        "memory.size": 1536, "memory.banks": 24, "memory.alignment": 64,
    }  # fmt: skip
    backend = accelerator_with(tmp_path, "chocolate", values)
    network = QuantizedNetwork(11, 9, 8).conv2d(8).residual().conv2d(8, depthwise=True)
    model = network.pool2d("max").dense(6).model()
    library = umakit.compile_model(model.module, [backend], tmp_path / "library", name="net")
    assert {row.operator for row in library.report.placements if row.where == "cpu"} == {"reshape"}
    faults = {**COMMON, **OF_A_DMA_ENGINE}
    if completion == "polling":
        del faults[LOST]
    also = {
        LOST: {OK} if queue else set(),  # a command that ends later wakes the driver too
        ENDS_DONE: {INVALID_ARGUMENT},  # of a job on shifts that were not copied
    }
    # Asked so often, a device that hangs is given up in a moment.
    flags = ("-DEDITED_POLLS=5000u",)
    check(run_with_faults(library, faults, flags=flags), faults, least=6, also=also)


def test_vanilla_answers_every_fault_of_every_job(tmp_path: Path) -> None:
    graph = Graph()
    hidden = graph.conv(graph.input("x", 1, 3, 6, 5), 4, 3)
    graph.output(graph.conv(graph.conv(hidden, 4, 3), 3, 3))
    library = umakit.compile_model(
        save(graph.model(), tmp_path), [vanilla()], tmp_path / "library", name="net"
    )
    lines = run_with_faults(library, COMMON)
    check(lines, COMMON, least=3)
