# SPDX-License-Identifier: Apache-2.0
"""What backends say about the device of a board, in the README of a library."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.helper
import pytest

from umakit import compile_model, find_backend
from umakit.backend import BoardNotes, DeviceUse
from umakit.errors import BackendError
from umakit.machine import Dataflow, Kind, Layer, Tiling

PAGE = (Path(__file__).parents[1] / "docs" / "backends-api.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"`my_npu/([\w.]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
SECTION = PAGE.partition("### What a library needs of a board")[2]
NOTES = re.findall(r"```python\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)[0]

Readme = Callable[..., str]


@pytest.fixture
def readme(tmp_path: Path) -> Readme:
    """Compiles a ReLU for the small backend of the page, with a function `board_notes`."""

    def text_of(notes: str = "", *, driver: str = "", configuration: str = "") -> str:
        folder = tmp_path / "my_npu"
        folder.mkdir()
        added = {"my_npu.c": driver, "accel.toml": configuration, "backend.py": f"\n\n{notes}"}
        for name, text in FILES.items():
            (folder / name).write_text(text + added.get(name, ""), encoding="utf-8")
        if notes:
            text, registration = (
                (folder / "backend.py").read_text(),
                "        self._register_driver(",
            )
            assert registration in text
            hook = "        self._register_board_notes(board_notes)\n"
            (folder / "backend.py").write_text(text.replace(registration, hook + registration))
        tensor, float32 = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        node = onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")
        ends = [tensor("x", float32, (1, 12))], [tensor("y", float32, (1, 12))]
        model = onnx.helper.make_model(
            onnx.helper.make_graph([node], "relu", *ends),
            opset_imports=[onnx.helper.make_opsetid("", 17)],
        )
        onnx.save(model, tmp_path / "relu.onnx")
        compile_model(tmp_path / "relu.onnx", [find_backend(folder)], tmp_path / "library")
        return (tmp_path / "library" / "README.md").read_text(encoding="utf-8")

    return text_of


def test_the_page_says_how(readme: Readme) -> None:
    text = readme(NOTES, driver="#define MY_NPU_POLLS 1000u\n")
    assert "\n| time limit of my_npu | 1000 polls of `STATUS` |\n" in text
    assert "\n\n## my_npu on hardware\n\nIt needs 0 bytes of local memory.\n\n## Several" in text


def test_a_time_limit_is_one_line_and_text_is_as_it_is(readme: Readme) -> None:
    text = readme(
        "from umakit.backend import BoardNotes\n"
        "def board_notes(use):\n"
        "    return BoardNotes(device='{{ name }}: <&> `x`\\n\\n- y', time_limit='1\\n s')\n"
    )
    assert "| time limit of my_npu | 1 s |\n" in text
    assert "## my_npu on hardware\n\n{{ name }}: <&> `x`\n\n- y\n\n## Several" in text


def test_nothing_is_said_of_what_nobody_knows(readme: Readme) -> None:
    text = readme()
    assert "time limit" not in text and "on hardware" not in text


@pytest.mark.parametrize("defined", [True, False])
def test_the_time_limit_of_a_driver_is_the_one_that_it_defines(
    defined: bool, readme: Readme
) -> None:
    """Of a driver with a simulator; the program that would answer is not started here."""
    driver = "#define MY_NPU_TIMEOUT_CYCLES 250000000u\n" if defined else ""
    own = '\n[device]\nsimulator = "own"\n[simulator]\nprogram = ["true"]\n'
    text = readme(driver=driver, configuration=own)
    limit = "`-DMY_NPU_TIMEOUT_CYCLES=...` for its driver, in cycles of the device; 250000000 by "
    assert (f"| time limit of my_npu | {limit}default, which is 2.5 seconds" in text) == defined
    assert ("TIMEOUT_CYCLES" in text) == defined


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    return 'text'\n", "board_notes returned str, which is not a BoardNotes"),
        ("    return use.bytes\n", r"board_notes raised AttributeError: .*backend.py:\d+"),
    ],
)
def test_what_a_function_does_wrong_is_named(body: str, message: str, readme: Readme) -> None:
    with pytest.raises(BackendError, match=message):
        readme(f"def board_notes(use):\n{body}")


def notes_of(backend: str, use: DeviceUse) -> BoardNotes:
    """What the board.py of a reference backend says."""
    found = find_backend(backend)
    module = importlib.import_module(type(found).__module__.rpartition(".")[0] + ".board")
    notes = module.board_notes(found.configuration, use)
    assert isinstance(notes, BoardNotes)
    return notes


def registers(notes: BoardNotes) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", notes.device, re.MULTILINE))


CONVOLUTION = Layer(Kind.CONVOLUTION, 1, (4, 4), (4, 4), 8, 8, (1, 1), stored_channels=8)
DEPTHWISE = Layer(Kind.DEPTHWISE, 1, (4, 4), (4, 4), 8, 8, (1, 1), stored_channels=8)
POOL = Layer(Kind.MAX_POOL, 1, (4, 4), (4, 4), 8, 8, (1, 1), scales=0, stored_channels=8)
ALL = "OUTPUT_STATIONARY, WEIGHT_STATIONARY, INPUT_STATIONARY, DEPTHWISE, POOLING"


@pytest.mark.parametrize(
    ("layers", "features"),
    [
        ((), "none"),
        ((POOL,), "POOLING"),
        ((CONVOLUTION, POOL), "OUTPUT_STATIONARY, POOLING"),
        ((DEPTHWISE,), "OUTPUT_STATIONARY, DEPTHWISE"),
        ((CONVOLUTION, None), f"those that layers use of {ALL}"),
    ],
)
def test_features_are_those_of_the_layers(layers: tuple[Layer | None, ...], features: str) -> None:
    notes = notes_of("chocolate_accelerator", DeviceUse(layers))
    assert registers(notes)["FEATURES"] == features


def test_features_of_a_tiled_layer_are_those_of_its_tiling() -> None:
    from umakit.machine import Hardware, tiles_on

    hardware = Hardware.of(find_backend("chocolate_accelerator").configuration)
    flow = Dataflow.WEIGHT_STATIONARY
    tiling = Tiling(flow, 4, 4, 16, 8, ("output_channels", "rows", "columns", "input_channels"), 1)
    use = DeviceUse((CONVOLUTION,), (tiles_on(CONVOLUTION, tiling, hardware),), 4096, 64, 70)
    notes = notes_of("chocolate_accelerator", use)
    found = registers(notes)
    assert found["FEATURES"] == "WEIGHT_STATIONARY"
    assert found["SCRATCHPAD_BYTES"] == "at least 4096"
    assert found["ACCUMULATOR_BYTES"] == "at least 64"
    assert found["VERSION"] == "the driver's major version"  # no source says which


def test_registers_without_sums_and_the_drivers_numbers() -> None:
    macros = {"SUPPORTED_MAJOR_VERSION": 3, "STRAWBERRY_ACCELERATOR_TIMEOUT_CYCLES": 50_000_000}
    notes = notes_of("strawberry_accelerator", DeviceUse(cycles=70, macros=macros))
    assert "ACCUMULATOR_BYTES" not in registers(notes)
    assert registers(notes)["VERSION"] == "major 3"
    assert "50000000 by default, which is 0.5 seconds at 100 MHz" in notes.time_limit
    assert "more than the 70 cycles that the longest layer takes" in notes.time_limit
