# SPDX-License-Identifier: Apache-2.0
"""Settings of `uma sim`: keys and values of accel.toml in texts, and the file that they make."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from umakit.errors import InputError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.tools.sweeps.machines import machine_with
from umakit.tools.sweeps.settings import (
    configured,
    parse_settings,
    parse_sweeps,
    read_configuration,
)

BACKENDS = Path(__file__).parents[1] / "backends"
CHOCOLATE = read_configuration(BACKENDS / "chocolate_accelerator")

DESCRIBED: dict[str, Any] = tomllib.loads(
    """
    [accelerator]
    name = "described"
    [machine]
    macs_per_cycle = "lanes * 4"
    bytes_per_cycle = 8
    figures = { lanes = 4 }
    units = { rows = 2 }
    [[machine.engine]]
    name = "array"
    does = ["convolution"]
    busy = "k"
    [[machine.engine]]
    name = "dma"
    does = ["data", "weights", "parameters", "result"]
    busy = "bytes"
    [[memory]]
    name = "data"
    size = 4096
    address = "offset"
    reachable_by = ["accelerator"]
    [[memory]]
    name = "array"
    size = 1024
    address = "offset"
    reachable_by = ["accelerator"]
    """
)


def test_the_described_machine_is_one() -> None:
    AcceleratorConfig.model_validate(DESCRIBED)


@pytest.mark.parametrize(
    ("text", "key", "value", "path"),
    [
        ("array.rows=32", "array.rows", 32, "array rows"),
        (" array.rows = 1_0 ", "array.rows", 10, "array rows"),
        ("array.rows=0x10", "array.rows", 16, "array rows"),
        ("array.preload=false", "array.preload", False, "array preload"),
        ("array.dataflow=weight_stationary", "array.dataflow", "weight_stationary",
         "array dataflow"),
        ('array.dataflows=["weight_stationary"]', "array.dataflows", ["weight_stationary"],
         "array dataflows"),
        ("scratchpad.size=32K", "scratchpad.size", 32768, "memory 0 size"),
        ("memory.scratchpad.size=1M", "scratchpad.size", 1048576, "memory 0 size"),
        ("memory.0.size=5B", "memory.0.size", 5, "memory 0 size"),
        ("accelerator.description=16K", "accelerator.description", "16K",
         "accelerator description"),
        ("rtl.parameters.ROWS=4", "rtl.parameters.ROWS", 4, "rtl parameters ROWS"),
    ],
)  # fmt: skip
def test_a_value_is_read_by_the_schema(text: str, key: str, value: object, path: str) -> None:
    settings = parse_settings([text], CHOCOLATE)
    assert settings == {key: value} and type(settings[key]) is type(value)
    found: Any = configured(CHOCOLATE, settings)
    for part in path.split():
        found = found[int(part) if part.isdigit() else part]
    assert found == value


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("machine.figures.lanes=8", ("machine", "figures", "lanes"), 8),
        ("machine.figures.new=8", ("machine", "figures", "new"), 8),
        ("machine.macs_per_cycle=2K", ("machine", "macs_per_cycle"), 2048),
        ("machine.macs_per_cycle=lanes * 8", ("machine", "macs_per_cycle"), "lanes * 8"),
        ("machine.engine.dma.busy=2 * bytes", ("machine", "engine", 1, "busy"), "2 * bytes"),
        ("machine.engine.1.depth=2", ("machine", "engine", 1, "depth"), 2),
        ("machine.engine.dma.costs.data.busy=3", ("machine", "engine", 1, "costs", "data", "busy"),
         3),
        ("data.banks=4", ("memory", 0, "banks"), 4),
        ("memory.array.size=2K", ("memory", 1, "size"), 2048),
        ("array.rows=4", ("array", "rows"), 4),  # the section, not the memory of its name
    ],
)  # fmt: skip
def test_keys_of_a_described_machine(text: str, path: tuple[Any, ...], value: object) -> None:
    found: Any = configured(DESCRIBED, parse_settings([text], DESCRIBED))
    for part in path:
        found = found[part]
    assert found == value


def test_nothing_else_changes() -> None:
    changed = configured(CHOCOLATE, parse_settings(["scratchpad.size=32K"], CHOCOLATE))
    assert changed["memory"][0].pop("size") == 32768
    assert CHOCOLATE["memory"][0]["size"] == 131072
    changed["memory"][0]["size"] = 131072
    assert changed == CHOCOLATE
    assert configured(CHOCOLATE, {}) == CHOCOLATE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("array.row=3", "array has no row; write rows"),
        ("aray.rows=3", "there is no aray; write array"),
        ("scratchpat.size=3", "there is no scratchpat; write scratchpad"),
        ("rows=3", "accel.toml has no key rows; sections and memories are accelerator, "),
        ("array=3", "array is a section, not a value; its keys are rows, columns, "),
        ("memory=3", "memory is a section, not a value; its keys are scratchpad"),
        ("scratchpad=3", "section, not a value; its keys are name, size"),
        ("array.rows.x=3", "array.rows is a value, which has no keys"),
        ("memory.other.size=1", "memory has no other; keys of memory are scratchpad"),
        ("machine.unit.rows=1", "machine has no unit; write units"),
        ("machine.units.row=1", "machine.units.row: row: Input should be 'rows'"),
        ("array.rows=x", "array.rows=x: Input should be a valid integer"),
        ("array.rows=2K", "array.rows=2048: Input should be less than or equal to 1024"),
        ("array.rows=1.5", "array.rows=1.5: Input should be a valid integer"),
        ("array.preload=1", "array.preload=1: Input should be a valid boolean"),
        ("array.dataflow=fast", "Input should be 'output_stationary', 'weight_stationary' or"),
        ("array.rows", "'array.rows' is not of the form KEY=VALUE"),
        ("array.rows=", "'array.rows=' is not of the form KEY=VALUE"),
        ("=3", "'=3' is not of the form KEY=VALUE"),
    ],
)
def test_mistakes_name_the_nearest(text: str, message: str) -> None:
    for parse in (parse_settings, lambda texts, it: parse_sweeps(texts, it, {})):
        with pytest.raises(InputError) as caught:
            parse([text], CHOCOLATE)
        assert message in str(caught.value)


def test_sweeps_are_combined() -> None:
    given = parse_settings(["array.columns=8"], CHOCOLATE)
    texts = ["scratchpad.size=32K,64K", "array.rows=1, 2,3"]
    assert parse_sweeps(texts, CHOCOLATE, given) == [
        {"array.columns": 8, "scratchpad.size": size, "array.rows": rows}
        for size in (32768, 65536)
        for rows in (1, 2, 3)
    ]
    (lists,) = [parse_sweeps(['array.dataflows=["weight_stationary"],[]'], CHOCOLATE, {})]
    assert [each["array.dataflows"] for each in lists] == [["weight_stationary"], []]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["array.rows=1,2,1"], "array.rows: 1 is given twice"),
        (["scratchpad.size=1K,1024"], "scratchpad.size: 1024 is given twice"),
        (["array.rows=1", "array.rows=2"], "array.rows is given twice"),
        (["array.columns=1,2"], "array.columns is given twice"),
        (["memory.scratchpad.size=1", "scratchpad.size=2"], "scratchpad.size is given twice"),
        (["array.rows=1,,2"], "'1,,2' has an empty value"),
        ([f"{key}={','.join(map(str, range(1, 200)))}" for key in ("array.rows", "dma.alignment",
          "dma.bytes_per_cycle")], "7,880,599 machines are more than 10,000"),
    ],
)  # fmt: skip
def test_sweeps_that_are_mistakes(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sweeps(texts, CHOCOLATE, {"array.columns": 8})
    assert message in str(caught.value)


@pytest.mark.parametrize("folder", sorted(path.parent for path in BACKENDS.glob("*/accel.toml")))
def test_files_of_copies_say_the_same_but_for_what_is_set(folder: Path) -> None:
    written = tomllib.loads((folder / "accel.toml").read_text(encoding="utf-8"))
    with machine_with(folder, {}) as backend:
        copy = (backend.folder / "accel.toml").read_text(encoding="utf-8")
        assert tomllib.loads(copy) == written
    written["array"]["rows"] = 32
    with machine_with(folder, {"array.rows": 32}) as backend:
        copy = (backend.folder / "accel.toml").read_text(encoding="utf-8")
        assert tomllib.loads(copy) == written
