# SPDX-License-Identifier: Apache-2.0
"""What `accel.toml` says of the systolic array's queue, pipelines and accumulator."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from systolic_device import OFFSETS

from umakit import sim
from umakit.devices.build import compile_c
from umakit.errors import AcceleratorConfigError
from umakit.machine.accelerator_config import AcceleratorConfig, load_accelerator_config
from umakit.text.rendering import render

DEFAULTS = {"array": "", "dma": "", "device": ""}
MEMORY = """
[[memory]]
name = "scratchpad"
size = 4096
address = "offset"
banks = 4
reachable_by = ["accelerator"]
"""


def load(folder: Path, simulator: str = "systolic_array", **sections: str) -> AcceleratorConfig:
    """The configuration with lines added to its sections."""
    lines = DEFAULTS | sections
    path = folder / "accel.toml"
    path.write_text(
        f'[accelerator]\nname = "n"\n[array]\nrows = 4\ncolumns = 2\n{lines["array"]}\n'
        f'[dma]\n{lines["dma"]}\n[device]\nsimulator = "{simulator}"\n{lines["device"]}\n{MEMORY}',
        encoding="utf-8",
    )
    return load_accelerator_config(path)


def test_defaults_are_a_device_without_any_of_it(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert not (config.array.preload or config.array.pack_columns or config.dma.outstanding)
    assert config.array.accumulator_bytes == config.device.command_queue == 0
    assert config.array.allowed_dataflows == ["output_stationary"]
    assert config.device.completion == "interrupt"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"array": "preload = 1"}, "array.preload: Input should be a valid boolean"),
        ({"array": "accumulator_bytes = 6"}, "array.accumulator_bytes: .* multiple of 4"),
        ({"array": 'dataflows = ["os"]'}, "array.dataflows.0"),
        ({"array": 'dataflows = ["weight_stationary"]'}, "output_stationary. is not one of"),
        ({"array": 'dataflows = ["output_stationary", "output_stationary"]'}, "twice"),
        (
            {"array": 'dataflow = "weight_stationary"\npack_columns = true'},
            "pack_columns needs output_stationary among the dataflows",
        ),
        ({"dma": "outstanding = 3"}, "dma.outstanding"),
        ({"device": "command_queue = 33"}, "device.command_queue: .* less than or equal to 32"),
        ({"device": 'completion = "signal"'}, "device.completion: .*'interrupt' or 'polling'"),
    ],
)
def test_what_cannot_be_is_named(sections: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(AcceleratorConfigError, match=message):
        load(tmp_path, **sections)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("array", "preload = true"),
        ("array", "preload_rows = 2"),
        ("array", "pack_columns = true"),
        ("array", "accumulator_bytes = 64"),
        ("array", 'dataflows = ["output_stationary", "input_stationary"]'),
        ("dma", "outstanding = true"),
        ("device", "command_queue = 1"),
    ],
)
def test_only_the_systolic_array_can_do_it(section: str, line: str, tmp_path: Path) -> None:
    load(tmp_path, **{section: line})
    with pytest.raises(AcceleratorConfigError, match='needs simulator = "systolic_array"'):
        load(tmp_path, simulator="mac_array", **{section: line})


def registers(config: AcceleratorConfig, folder: Path) -> dict[str, int]:
    """What the device of an export says that it is."""
    for suffix in ("c", "h"):
        text = render(
            f"device/systolic_array_device.{suffix}.j2", name="n", array=config.array,
            dma=config.dma, device=config.device, scratchpad=config.scratchpads[0],
        )  # fmt: skip
        (folder / f"n_device.{suffix}").write_text(text, encoding="utf-8")
    root = sim.source_directory()
    names = [*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES, *sim.KINDS["systolic_array"].sources]
    target = folder / "device.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{root}/include"]
    compile_c([folder / "n_device.c", *(root / name for name in names)], target, flags)
    loaded = ctypes.CDLL(str(target))
    loaded.n_device.restype = ctypes.c_void_p
    loaded.umakit_device_read32.restype = ctypes.c_uint32
    device = ctypes.c_void_p(loaded.n_device())
    assert device.value
    wanted = ("FEATURES", "QUEUE_DEPTH", "ACCUMULATOR_BYTES", "SCRATCHPAD_BYTES")
    return {
        name: loaded.umakit_device_read32(device, ctypes.c_uint32(OFFSETS[name])) for name in wanted
    }


def test_the_device_of_an_export_has_it(tmp_path: Path) -> None:
    plain = registers(load(tmp_path), tmp_path)
    assert plain == {
        "FEATURES": 1, "QUEUE_DEPTH": 0, "ACCUMULATOR_BYTES": 0, "SCRATCHPAD_BYTES": 4096,
    }  # fmt: skip
    (tmp_path / "all").mkdir()
    config = load(
        tmp_path,
        array='dataflow = "weight_stationary"\npreload = true\npack_columns = true\n'
        'dataflows = ["output_stationary", "weight_stationary"]\naccumulator_bytes = 64',
        dma="outstanding = true",
        device='command_queue = 8\ncompletion = "polling"',
    )
    assert registers(config, tmp_path / "all") == {
        "FEATURES": 3, "QUEUE_DEPTH": 8, "ACCUMULATOR_BYTES": 64, "SCRATCHPAD_BYTES": 4096,
    }  # fmt: skip
    text = (tmp_path / "all/n_device.c").read_text(encoding="utf-8")
    for name in ("preload", "pack_columns", "dma_outstanding"):
        assert f".{name} = true," in text
