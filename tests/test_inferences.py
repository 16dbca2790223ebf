# SPDX-License-Identifier: Apache-2.0
"""Several inferences in one process: the first one, each later one, and all together.

The oracle of what a device counts is a C program of its own, which calls the library several times
and reads the counters itself. A machine that keeps weights is made from a library by hand: its
loads of weights are left out from the second inference on.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from test_owners import DIGITS, TYPES, check_sums
from umakit.cli.main import run_command

import umakit
from umakit.devices import HOST
from umakit.devices.inferences import Spread, inferences_of
from umakit.devices.inputs import first_inferences
from umakit.devices.run import RunResult
from umakit.errors import InputError, LibraryError
from umakit.library.metadata import load_metadata
from umakit.machine.bounds import EngineLimit, Limits
from umakit.machine.bounds.inferences import inferences_bound, layers_that_fit
from umakit.machine.bounds.network import Read, Step
from umakit.tools.inferences.figures import measured_inferences

CHOCOLATE = "chocolate_accelerator"
MODEL = DIGITS / "digits_int8.onnx"
COUNT = 4

PROGRAM = """
#include "{interface}.h"
#include "{backend}/{backend}_device.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

{buffers}

int main(void)
{{
    const struct {interface}_inputs inputs = {{{inputs}}};
    const struct {interface}_outputs outputs = {{{outputs}}};
    for (int number = 0; number < {count}; ++number) {{
        struct umakit_simulator_counters before, after;
        (void){backend}_device();
        memset({first}_bytes, number, sizeof {first}_bytes);
        {backend}_counters(&before);
        if ({interface}_run(&inputs, &outputs) != 0) {{
            return 1;
        }}
        {backend}_counters(&after);
        printf("%" PRIu64 " %" PRIu64 "\\n", after.clock - before.clock,
               after.bytes_read + after.bytes_written - before.bytes_read - before.bytes_written);
    }}
    return 0;
}}
"""


def counted(library: Path, backend: str, count: int) -> list[tuple[int, int]]:
    """Cycles and bytes that the device counts in each inference."""
    view = load_metadata(library)["umakit"]
    text = PROGRAM.format(
        interface=view["interface"],
        backend=backend,
        count=count,
        first=view["inputs"][0]["c_name"],
        buffers="\n".join(
            f"_Alignas(64) static {TYPES[each['dtype']]} {each['c_name']}_bytes"
            f"[{int(np.prod(each['shape']))}];"
            for each in (*view["inputs"], *view["outputs"])
        ),
        inputs=", ".join(f"{each['c_name']}_bytes" for each in view["inputs"]),
        outputs=", ".join(f"{each['c_name']}_bytes" for each in view["outputs"]),
    )
    folder = library.parent / f"{library.name}_oracle"
    folder.mkdir()
    (folder / "oracle.c").write_text(text)
    sources = library / "codegen" / "host" / "src"
    command = ["cc", "-std=c11", "-O0", "-w", f"-I{sources}", f"-I{library}/codegen/host/include"]
    command += ["-o", str(folder / "oracle"), str(folder / "oracle.c")]
    subprocess.run([*command, *map(str, sources.rglob("*.c")), "-lm"], check=True)
    lines = subprocess.run([folder / "oracle"], check=True, capture_output=True, text=True).stdout
    return [(int(cycles), int(moved)) for cycles, moved in map(str.split, lines.splitlines())]


def images(count: int) -> dict[str, Any]:
    """Different images."""
    random = np.random.default_rng(7)
    return {"image": random.uniform(0, 1, (count, 1, 1, 8, 8)).astype(np.float32)}


def run(library: Path, count: int = COUNT) -> RunResult:
    return umakit.run_library(
        library, images(count), profile=True, record_commands=True, each_inference=True
    )


@pytest.fixture(scope="module")
def chocolate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("chocolate") / "library"
    umakit.compile_model(MODEL, [umakit.find_backend(CHOCOLATE)], library)
    return library


@pytest.fixture(scope="module")
def keeping(chocolate: Path) -> Path:
    """The library with loads of weights, bias, multipliers and shifts in the first inference only.

    Their places are behind all that the plan uses, one behind the other. The 6 tiles of the weights
    of conv2 take turns in 4 places, and get 2 more.
    """
    library = chocolate.parent / "keeping"
    shutil.copytree(chocolate, library, ignore=shutil.ignore_patterns("build"))
    (scratchpad,) = load_metadata(library)["umakit"]["memory"]["scratchpads"]
    sizes = {each["c_name"].upper(): each["size_bytes"] for each in scratchpad["tensors"]}
    sizes["CONV2_WEIGHTS_LOCAL"] = sizes["CONV2_WEIGHTS_LOCAL"] // 4 * 6
    end = scratchpad["used_bytes"]

    def moved(found: re.Match[str]) -> str:
        nonlocal end
        start, end = end, end + sizes[found[1]]
        return f"#define {found[1]}_OFFSET {start}u"

    source = next((library / "codegen" / "host" / "src").glob("tvmgen_*digits_int8.c"))
    text = source.read_text()
    text, places = re.subn(r"#define (\w+_(?:WEIGHTS|PARAMETERS)_LOCAL)_OFFSET +\d+u?", moved, text)
    text, loads = re.subn(
        r"status = (\w+_load\(\w+_(?:WEIGHTS|BIAS|MULTIPLIERS|SHIFTS),)",
        r"status = !is_first ? 0 : \1",
        text,
    )
    text, turns = re.subn(r"& 3\) \* WEIGHTS_PLACE_BYTES", "& 7) * WEIGHTS_PLACE_BYTES", text)
    assert (places, loads, turns) == (10, 20, 1) and end <= scratchpad["size_bytes"]
    source.write_text(f"extern int is_first;\n{text}")
    main = library / "runtime" / "main.c"
    call = r"(    status = \w+_run\([^;]*;)"
    text, changes = re.subn(call, r"\1 is_first = 0;", main.read_text())
    assert changes == 1
    main.write_text(f"int is_first = 1;\n{text}")
    return library


@pytest.mark.parametrize(("name", "backend"), [
    ("digits_int8.onnx", CHOCOLATE), ("digits.onnx", "vanilla_accelerator"),
])  # fmt: skip
def test_each_inference_is_what_the_device_counts(
    name: str, backend: str, chocolate: Path, tmp_path: Path
) -> None:
    library = chocolate
    if backend != CHOCOLATE:
        library = tmp_path / "library"
        umakit.compile_model(DIGITS / name, [umakit.find_backend(backend)], library)
    each = counted(library, backend, COUNT)
    result = run(library)
    several = measured_inferences(load_metadata(library)["umakit"], result)
    found = result.inferences
    assert found is not None and several.count == COUNT and several.steady is not None
    assert list(zip(found.clock_cycles, found.moved_bytes, strict=True)) == each
    cycles, moved = zip(*each, strict=True)
    assert (several.first.clock_cycles, several.first.moved_bytes) == (
        Spread(cycles[0], cycles[0]), Spread(moved[0], moved[0]),
    )  # fmt: skip
    assert several.steady.clock_cycles == Spread(min(cycles[1:]), max(cycles[1:]))
    assert several.steady.moved_bytes == Spread(min(moved[1:]), max(moved[1:]))
    assert (several.clock_cycles, several.moved_bytes) == (sum(cycles), sum(moved))
    for part in (several.first, several.steady):
        assert part.accounting is not None
        check_sums(part.accounting)
        assert part.accounting.clock_cycles == part.clock_cycles.least


def test_outputs_are_those_of_single_runs(chocolate: Path) -> None:
    together = run(chocolate).outputs["logits"]
    inputs = images(COUNT)["image"]
    apart = [umakit.run_library(chocolate, {"image": x}).outputs["logits"] for x in inputs]
    assert np.array_equal(together, np.stack(apart))
    assert len({row.tobytes() for row in together}) > 1


def test_a_machine_that_keeps_weights_is_told_apart(
    chocolate: Path, keeping: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its steady cycles are those that the kit predicts for the original, if weights stayed."""
    result = run(keeping)
    assert np.array_equal(result.outputs["logits"], run(chocolate).outputs["logits"])
    several = measured_inferences(load_metadata(keeping)["umakit"], result)
    assert several.steady is not None and several.steady.accounting is not None
    first, steady = several.first.clock_cycles, several.steady.clock_cycles
    assert first.equal and steady.equal and steady.least is not None and first.least is not None
    assert steady.least < first.least
    for part in (several.first, several.steady):
        assert part.accounting is not None
        check_sums(part.accounting)
    assert (
        run_command(["sim", str(MODEL), "-b", CHOCOLATE, "--inferences", str(COUNT), "--json"]) == 0
    )
    predicted = json.loads(capsys.readouterr().out)["inferences"]
    weights = predicted["accelerators"][0]["weights"]
    assert weights["could_stay_bytes"] == weights["stored_bytes"] > 0
    assert weights["layers"] == ["conv1", "conv2", "conv3_stride2", "conv4_1x1", "dense"]
    # Two places a layer, in banks of 4,096 bytes; the 9 x 16 x 32 weights of conv3 take two.
    assert weights["taken_bytes"] == (2 * 5 + 1) * 4096 and weights["alignment_bytes"] == 4096
    assert predicted["first"]["predicted_cycles"] == first.least
    assert weights["steady_cycles"] == steady.least
    saved = (several.first.moved_bytes.least or 0) - (several.steady.moved_bytes.least or 0)
    assert weights["saved_bytes"] == saved > 0
    np.savez(tmp_path / "in.npz", **images(COUNT))
    command = ["run", str(keeping), "-i", str(tmp_path / "in.npz"), "--profile", "--inferences"]
    assert run_command([*command, "3"]) == 0
    text = capsys.readouterr().out
    assert "first inference:" in text and "later ones:" in text
    assert f"3 inferences: {first.least + 2 * steady.least:,} cycles" in text


def test_report_predicts_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["report", str(MODEL), "-b", CHOCOLATE, "--inferences", "3", "--json"]
    assert run_command(command) == 0
    found = json.loads(capsys.readouterr().out)["inferences"]
    assert found["count"] == 3 and found["steady"] is not None
    for part in ("first", "steady", "all"):
        assert found[part]["clock_cycles"] == found[part]["predicted_cycles"] > 0
        assert found[part]["moved_bytes"] == found[part]["predicted_bytes"] > 0
    for layer in (*found["first"]["layers"], *found["steady"]["layers"]):
        if layer["where"] != "cpu":
            assert layer["clock_cycles"] == layer["predicted_cycles"]
            assert layer["moved_bytes"] == layer["predicted_bytes"]
    bounds = found["accelerators"][0]["bounds"]
    # 180,480 MACs on 256 cells; an image of 64 bytes and 10 results, 10,314 bytes of constants.
    assert bounds["nothing_stays"]["all"]["cycles"] == 3 * 180_480 // 256
    assert [bounds["nothing_stays"][p]["bytes"] for p in ("first", "steady", "all")] == [
        10_388, 10_388, 3 * 10_388,
    ]  # fmt: skip
    assert [bounds["weights_stay"][p]["bytes"] for p in ("first", "steady", "all")] == [
        10_388, 74, 10_388 + 2 * 74,
    ]  # fmt: skip


def test_one_inference_has_no_steady_figures(
    chocolate: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", **images(2))
    command = ["run", str(chocolate), "-i", str(tmp_path / "in.npz"), "--json"]
    assert run_command([*command, "--profile", "--inferences", "1"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["runs"] == view["inferences"]["count"] == 1
    assert view["inferences"]["steady"] is None
    assert view["inferences"]["all"]["clock_cycles"] == view["accounting"]["clock_cycles"]
    assert view["inferences"]["first"]["predicted_bytes"] is None
    assert run_command([*command, "--profile"]) == 0
    assert json.loads(capsys.readouterr().out)["inferences"] is None
    for words, sentence in [
        (["--inferences", "2"], "add --profile"),
        (["--profile", "--inferences", "2", "--repeat", "2"], "leave one of them out"),
        (["--profile", "--inferences", "3"], "there are 2"),
    ]:
        assert run_command([*command, *words]) == 2
        assert sentence in capsys.readouterr().err
    sweep = ["sim", str(MODEL), "-b", CHOCOLATE, "--inferences", "2", "--sweep", "array.rows=8,16"]
    assert run_command(sweep) == 2 and "--inferences is of one machine" in capsys.readouterr().err


def test_machines_without_a_cost_model_predict_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["sim", str(DIGITS / "digits.onnx"), "-b", "vanilla_accelerator", "--inferences", "2"]
    assert run_command([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["inferences"]
    assert found["all"] == dict.fromkeys(
        ("clock_cycles", "predicted_cycles", "moved_bytes", "predicted_bytes")
    )
    (each,) = found["accelerators"]
    assert each["weights"]["could_stay_bytes"] is each["weights"]["room_bytes"] is None
    assert each["bounds"]["weights_stay"]["steady"]["bytes"] is None
    assert any("no scratchpad" in text for text in each["weights"]["unknown"])


# --- parts of it ----------------------------------------------------------------------------------


def lines_of(sums: list[list[list[int]]], wholes: list[int]) -> list[str]:
    """What a program prints: sums over all inferences up to each."""
    lines = []
    for layers, whole in zip(sums, wholes, strict=True):
        lines.append("run 5 0")
        lines += [f"sum {n} {' '.join(map(str, row))}" for n, row in enumerate(layers)]
        lines.append(f"whole {whole}")
    return lines


NAMES = ("clock_cycles", "cycles", "array_cycles", "moved_bytes", "nanoseconds", "instructions")


def printed(rows: list[list[list[int]]], wholes: list[int]) -> tuple[dict[str, Any], list[str]]:
    """The report and the lines of inferences with these figures each."""
    sums = np.cumsum(np.array(rows), axis=0).tolist()
    report = {
        "layers": [dict(zip(NAMES, row, strict=True)) for row in sums[-1]],
        "inference": {"clock_cycles": sum(wholes)},
        "unknown": {},
    }
    return report, lines_of(sums, np.cumsum(wholes).tolist())


def described(view: dict[str, Any], layers: int) -> dict[str, Any]:
    """Metadata with the first layers on the accelerator only."""
    own = [layer for layer in view["layers"] if layer["where"] != "cpu"][:layers]
    return {**view, "layers": own}


def test_figures_that_differ_have_least_and_highest(chocolate: Path) -> None:
    view = described(load_metadata(chocolate)["umakit"], 2)
    random = Random(3)
    for _ in range(40):
        count = random.randrange(2, 6)
        rows = [
            [[c + 9, c + 4, c, random.randrange(50), 7, 0] for c in random.choices(range(60), k=2)]
            for _ in range(count)
        ]
        wholes = [sum(layer[0] for layer in row) + random.randrange(3) for row in rows]
        report, lines = printed(rows, wholes)
        found = inferences_of(HOST, view, report, lines)
        assert found.clock_cycles == tuple(wholes) and found.later is not None
        assert found.moved_bytes == tuple(row[0][3] + row[1][3] for row in rows)
        assert found.later.clock_cycles == Spread(min(wholes[1:]), max(wholes[1:]))
        for index in range(2):
            cycles = [row[index][0] for row in rows[1:]]
            assert found.later.layer_cycles[index] == Spread(min(cycles), max(cycles))
            assert found.first.layers[index].clock_cycles == rows[0][index][0]
        mean = sum(layer.clock_cycles or 0 for layer in found.later.layers)
        assert found.later.whole.clock_cycles == mean + (found.later.whole.between_cycles or 0)
        assert abs((found.later.whole.clock_cycles or 0) * (count - 1) - sum(wholes[1:])) < count


def test_lost_counters_are_unknown_and_old_programs_are_refused(chocolate: Path) -> None:
    view = described(load_metadata(chocolate)["umakit"], 1)
    report, lines = printed([[[9, 4, 1, 5, 7, 0]], [[-3, 4, 1, 5, 7, 0]]], [9, -3])
    found = inferences_of(HOST, view, report, lines)
    assert found.clock_cycles == (None, None) and found.moved_bytes == (5, 5)
    assert found.first.layer_cycles == (Spread(None, None),)
    with pytest.raises(LibraryError, match="tells inferences only together"):
        inferences_of(HOST, view, report, ["run 5 0", "run 5 0"])


def test_inputs_of_the_first_inferences() -> None:
    image = {"name": "x", "c_name": "x", "shape": [2], "dtype": "int8"}
    state = {"name": "s", "c_name": "s", "shape": [1], "dtype": "int8", "next_state": "t"}
    x, s = np.arange(10, dtype=np.int8).reshape(5, 2), np.ones(1, np.int8)
    taken = first_inferences([image, state], {"x": x, "s": s}, 3)
    assert np.array_equal(taken["x"], x[:3]) and taken["s"].shape == (1,)
    both = first_inferences([image, state], {"x": x, "s": np.ones((5, 1), np.int8)}, 2)
    assert both["s"].shape == (2, 1)
    assert np.array_equal(first_inferences([image], {"x": x}, len(x))["x"], x)
    with pytest.raises(InputError, match="there is 1"):
        first_inferences([image], {"x": x[0]}, 2)


def test_bounds_of_inferences_against_all_choices_of_what_stays() -> None:
    """All sets of bytes of weights that a memory may have at the end of each inference."""
    for weights, kept, count, data in product((0, 1, 3, 4), (0, 1, 2, 5), (1, 2, 3), (0, 2)):
        layer = Step("l", "npu", 24, (Read("x", data, data),), {"y": 1}, weights, 0,
                     {"w": weights})  # fmt: skip
        sets = [
            set(chosen)
            for size in range(min(kept, weights) + 1)
            for chosen in combinations(range(weights), size)
        ]
        least = min(
            weights + sum(weights - len(stays) for stays in ends)
            for ends in product(sets, repeat=count - 1)
        )
        for engines in ((), (EngineLimit("l", 1, frozenset({"weights"})),)):
            limits = Limits(10, 2, None, engines)
            found = inferences_bound([layer], frozenset({"y"}), "npu", limits, count, kept)
            assert found.all.bytes == least + count * (data + 1)
            assert found.all.compute == -(-24 * count // 10)
            assert found.first.bytes == weights + data + 1
            assert found.all.memory is not None
            assert found.all.memory >= -(-found.all.bytes // 2)
            assert found.all.memory <= max(-(-found.all.bytes // 2), least)
            if count == 1:
                assert found.all == found.first
            unknown = inferences_bound([layer], frozenset({"y"}), "npu", limits, count, None)
            assert unknown.all.bytes is None and unknown.first == found.first


def test_chosen_layers_fit_and_save_the_most_loads() -> None:
    """Against all sets of layers."""
    random, below = Random(11), 0
    for _ in range(300):
        places = {
            layer: [random.randrange(1, 40) for _ in range(random.randrange(1, 3))]
            for layer in range(random.randrange(7))
        }
        room, alignment = random.randrange(120), random.choice((1, 4, 16))

        def needed(chosen: Any, places: Any = places, unit: int = alignment) -> int:
            return sum(-(-size // unit) * unit for layer in chosen for size in places[layer])

        worth = {layer: random.randrange(1, 5) * sum(places[layer]) for layer in places}

        def size(chosen: Any, worth: Any = worth) -> int:
            return sum(worth[layer] for layer in chosen)

        sets = [c for n in range(len(places) + 1) for c in combinations(places, n)]
        best = max(size(chosen) for chosen in sets if needed(chosen) <= room)
        found = layers_that_fit(places, worth, room, alignment)
        assert needed(found) <= room and size(found) == best
        below += best < size(places)
    assert below > 100
