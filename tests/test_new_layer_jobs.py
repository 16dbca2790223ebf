# SPDX-License-Identifier: Apache-2.0
"""The simulator of `uma new --kind layer` refuses what no driver asks for.

Jobs are written register by register, as the map lists them, and run under the sanitizers: a size
of 0 or a wrong shift ends with an error, and nothing is stored.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from comparisons import LINKER

from umakit import sim
from umakit.tools.scaffold import new_backend

OPERATORS = "conv2d,depthwise,dense,add,multiply,avg_pool2d,max_pool2d"
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *LINKER]

SOUND = {
    "DATA_ADDRESS": 0, "WEIGHTS_ADDRESS": 0x1000, "RIGHT_ADDRESS": 0x1000, "BIAS_ADDRESS": 0x2000,
    "MULTIPLIERS_ADDRESS": 0x2000, "SHIFTS_ADDRESS": 0x2000, "RESULT_ADDRESS": 0x8000,
    "BATCH": 2, "INPUT_HEIGHT": 4, "INPUT_WIDTH": 5, "INPUT_CHANNELS": 6, "OUTPUT_HEIGHT": 2,
    "OUTPUT_WIDTH": 3, "OUTPUT_CHANNELS": 6, "GROUPS": 1, "ELEMENTS": 11, "SCALES": 6,
    "INPUT_ZERO_POINT": 1, "RIGHT_ZERO_POINT": 2, "OUTPUT_ZERO_POINT": 3, "LEFT_SHIFT": 20,
    "LEFT_MULTIPLIER": 1 << 30, "LEFT_MULTIPLIER_SHIFT": 0, "RIGHT_MULTIPLIER": 1 << 30,
    "RIGHT_MULTIPLIER_SHIFT": 0, "MULTIPLIER": 1 << 30, "SHIFT": 2**32 - 19, "ROUNDING": 0,
    "WINDOW": 0x00030003, "STRIDE": 0x00010001, "PADDING": 0, "DILATION": 0x00010001, "LAYOUT": 0,
    "CLIP": 0x007F0080,
}  # fmt: skip
"""Values of registers of a layer with 2 x 2 x 3 x 6 results, of 12 of a fully connected one, and of
11 of an element-wise one."""

IMAGES = ("conv2d", "depthwise", "avg_pool2d", "max_pool2d")
WEIGHTED = ("conv2d", "depthwise", "dense")
WINDOWED = ("conv2d", "depthwise")
PAIRS = ("add", "multiply")
NOT_POOLS = (*WEIGHTED, *PAIRS)
NEGATIVE = 2**32 - 1

WRONG: dict[str, tuple[tuple[str, ...], Mapping[str, int]]] = {
    "no images": (IMAGES, {"BATCH": 0}),
    "no rows": ((*IMAGES, "dense"), {"INPUT_HEIGHT": 0, "OUTPUT_HEIGHT": 0}),
    "no columns": (IMAGES, {"INPUT_WIDTH": 0}),
    "no rows of the result": (IMAGES, {"OUTPUT_HEIGHT": 0}),
    "no columns of the result": (IMAGES, {"OUTPUT_WIDTH": 0}),
    "no input channels": ((*IMAGES, "dense"), {"INPUT_CHANNELS": 0, "OUTPUT_CHANNELS": 0}),
    "no output channels": (WEIGHTED, {"OUTPUT_CHANNELS": 0, "SCALES": 1}),
    "more than 31 bits of rows": (IMAGES, {"INPUT_HEIGHT": 1 << 31}),
    "more rows than 32 bits count": (IMAGES, {"OUTPUT_HEIGHT": 1 << 30, "STRIDE": 0x00010004}),
    "no elements": (PAIRS, {"ELEMENTS": 0}),
    "no groups": (WINDOWED, {"GROUPS": 0}),
    "groups that do not divide": (WINDOWED, {"GROUPS": 4}),
    "no scales": (WEIGHTED, {"SCALES": 0}),
    "two scales of six": (WEIGHTED, {"SCALES": 2}),
    "a window of no rows": (IMAGES, {"WINDOW": 0x00030000}),
    "a window of no columns": (IMAGES, {"WINDOW": 0x00000003}),
    "no stride": (IMAGES, {"STRIDE": 0x00010000}),
    "no dilation": (WINDOWED, {"DILATION": 0x00010000}),
    "a shift of 31": (PAIRS, {"SHIFT": 31}),
    "a shift of -32": (PAIRS, {"SHIFT": 2**32 - 32}),
    "a shift of 2^31": (PAIRS, {"SHIFT": 1 << 31}),
    "a shift of an operand": (("add",), {"LEFT_MULTIPLIER_SHIFT": 31}),
    "a shift of the other operand": (("add",), {"RIGHT_MULTIPLIER_SHIFT": NEGATIVE - 31}),
    "a shift of both operands": (("add",), {"LEFT_SHIFT": 32}),
    "a negative multiplier": (PAIRS, {"MULTIPLIER": NEGATIVE}),
    "shifts of 1 become 127": (WEIGHTED, {"SHIFTS_ADDRESS": 0x7F00}),
    "a zero point of no int8": (NOT_POOLS, {"OUTPUT_ZERO_POINT": 128}),
    "a zero point of 2^31": (NOT_POOLS, {"INPUT_ZERO_POINT": 1 << 31}),
    "one of the other operand": (PAIRS, {"RIGHT_ZERO_POINT": 1 << 31}),
    "no such rounding": (NOT_POOLS, {"ROUNDING": 3}),
    "clip: lowest above highest": ((*IMAGES, *NOT_POOLS), {"CLIP": 0x00020003}),
    "no such operation": (("none",), {}),
}  # fmt: skip

Run = Callable[[list[Mapping[str, int]]], list[tuple[str, int]]]


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], Run]:
    """Numbers of operations by name, and what runs jobs given by their registers."""
    folder = tmp_path_factory.mktemp("jobs")
    flags = {"operators": OPERATORS}
    written = new_backend("my_npu", folder, kind="layer", flags=flags).folder
    offsets: dict[str, int] = {}
    numbers: dict[str, int] = {"none": 99}
    described = tomllib.loads((written / "registers.toml").read_text(encoding="utf-8"))
    for register in described["register"]:
        offsets[register["name"]] = register["offset"]
        if register["name"] == "OPERATION":
            numbers |= {name: int(text) for name, text in register["operand"].items()}
    assert {*SOUND} == {*offsets} - {"ID", "CONTROL", "STATUS", "ERROR", "OPERATION"}
    program, simulator = folder / "jobs", written / "simulator" / "my_npu_simulator.c"
    subprocess.run(
        ["cc", "-std=c99", "-g", "-DBYTES_PER_CYCLE=8", "-DMACS_PER_CYCLE=8", *SANITIZED,
         f"-I{written}", f"-I{sim.source_directory() / 'include'}", f'-DSIMULATOR="{simulator}"',
         f"-DERROR_OFFSET={offsets['ERROR']}u", Path(__file__).with_name("layer_jobs.c"),
         "-o", program],
        check=True,
    )  # fmt: skip

    def run(jobs: list[Mapping[str, int]]) -> list[tuple[str, int]]:
        lines = [
            " ".join(
                f"{offsets[name]:x}={value:x}" for name, value in {**job, "CONTROL": 1}.items()
            )
            for job in jobs
        ]
        ended = subprocess.run(
            [program], input="\n".join(lines), capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        answers = [line.rpartition(" ") for line in ended.stdout.splitlines()]
        return [(error, int(stored)) for error, _, stored in answers]

    return numbers, run


def test_sound_jobs_store_their_results(operations: tuple[dict[str, int], Run]) -> None:
    numbers, run = operations
    stored = {"conv2d": 72, "depthwise": 72, "avg_pool2d": 72, "max_pool2d": 72, "dense": 12,
              "add": 11, "multiply": 11}  # fmt: skip
    jobs = [{"OPERATION": numbers[name], **SOUND} for name in stored]
    assert run(jobs) == [("0", count) for count in stored.values()]


def test_what_no_driver_asks_for_is_refused(operations: tuple[dict[str, int], Run]) -> None:
    numbers, run = operations
    tried = [(what, name) for what, (names, _) in WRONG.items() for name in names]
    jobs = [{"OPERATION": numbers[name], **SOUND, **WRONG[what][1]} for what, name in tried]
    answers = dict(zip(tried, run(jobs), strict=True))
    assert {each for each, (error, stored) in answers.items() if error == "0" or stored} == set()
