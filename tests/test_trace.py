# SPDX-License-Identifier: Apache-2.0
"""Traces: the rules of their format, and their times against the counters of simulators."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Graph, save
from trace_rules import Shown, read_trace
from umakit.cli.main import run_command

import umakit
import umakit.devices.run
from umakit.devices.run import CommandTimes, LayerProfile, RunResult
from umakit.errors import InputError, OutputError
from umakit.tools.page import make_page
from umakit.tools.trace import trace_of_run, write_trace
from umakit.tools.trace.reported import trace_of_report

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
INTEGER = DIGITS / "digits_int8.onnx"
CHOCOLATE = "chocolate_accelerator"


def uma(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert run_command([*map(str, words), "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """The number of cycles in at least one span, counted one by one."""
    return len({cycle for begin, end in spans for cycle in range(begin, end)})


# --- a network on the simulator ------------------------------------------------------------------


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shown, Path]:
    """The trace of a report, and the library that it is of."""
    folder = tmp_path_factory.mktemp("report")
    found = [umakit.find_backend(CHOCOLATE)]

    def observe(made: Path, *ran: Any) -> None:
        shutil.copytree(made, folder / "library")
        write_trace(folder / "trace.json", trace_of_report(found, made, *ran))

    make_page(INTEGER, found, observe=observe)
    return read_trace(folder / "trace.json"), folder / "library"


@pytest.fixture
def library(reported: tuple[Shown, Path]) -> Path:
    return reported[1]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "inputs.npz"
    held_out = np.load(DIGITS / "held_out.npz")["image"]
    np.savez(path, image=held_out[:2])
    return path


def engines_of(shown: Shown, process: str, layer: str, *engines: str) -> list[tuple[int, int]]:
    """When commands of some engines were not complete in a layer."""
    tracks = {f"{CHOCOLATE}: {engine}" for engine in engines}
    return [
        (each["ts"], each["ts"] + each["dur"])
        for (where, track), slices in shown.tracks.items()
        if where == process and track.partition(",")[0].partition(" (")[0] in tracks
        for each in slices
        if each["args"]["layer_name"] == layer
    ]


def test_cycles_of_engines_are_those_that_the_simulator_counted(
    library: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, outputs = inputs.with_name("trace.json"), inputs.with_name("outputs.npz")
    printed = uma(capsys, "run", library, "-i", inputs, "-o", outputs, "--profile", "--trace", path)
    shown = read_trace(path)
    assert printed["trace"]["dropped_commands"] == 0
    assert np.load(outputs)["logits"].shape[0] == 2
    slices = {each["name"]: each for each in shown.tracks["Simulated", "layers"][1:]}
    offloaded = [layer for layer in printed["layers"] if layer["where"] != "cpu"]
    assert [*slices] == [layer["name"] for layer in offloaded]
    for layer in offloaded:
        name, args = layer["name"], slices[layer["name"]]["args"]
        assert slices[name]["dur"] == layer["clock_cycles"] == args["clock_cycles"]
        moving = engines_of(shown, "Simulated", name, "load", "store")
        assert covered(moving) == layer["dma_cycles"]
        assert covered(engines_of(shown, "Simulated", name, "array")) == layer["array_cycles"]
    on_cpu = [layer["name"] for layer in printed["layers"] if layer["where"] == "cpu"]
    assert [each["name"] for each in shown.instants["Simulated", "CPU"]] == on_cpu
    assert all(each["args"]["host_seconds"] >= 0 for each in shown.instants["Simulated", "CPU"])


def test_memory_in_use_is_that_of_the_plan(reported: tuple[Shown, Path]) -> None:
    shown, library = reported
    memory = json.loads((library / "metadata.json").read_text())["umakit"]["memory"]
    for pool in (*memory["pools"], *memory["scratchpads"]):
        for process in ("Simulated", "Predicted"):
            values = [value for _, value in shown.counters[process, f"{pool['name']} in use"]]
            for step, value in enumerate(values):
                live = [
                    (each["offset_bytes"], each["offset_bytes"] + each["size_bytes"])
                    for each in pool["tensors"]
                    if each["first_layer"] <= step <= each["last_layer"]
                ]
                assert value == covered(live)
            assert max(values) == pool["used_bytes"]


def test_simulated_commands_say_what_they_moved(reported: tuple[Shown, Path]) -> None:
    shown, _ = reported
    layers = {each["name"]: each["args"] for each in shown.tracks["Simulated", "layers"][1:]}
    moved = dict.fromkeys(layers, 0)
    for (process, track), slices in shown.tracks.items():
        if process == "Simulated" and track != "layers" and ", tail" not in track:
            for each in slices:
                args = each["args"]
                moved[args["layer_name"]] += args.get("bytes", 0)
                assert args["command"] >= 0 and args["memory"] == "scratchpad"
    assert moved == {name: args["moved_bytes"] for name, args in layers.items()}


def test_what_was_waited_for_had_ended_when_a_command_began(
    reported: tuple[Shown, Path],
) -> None:
    shown, _ = reported
    for process in ("Simulated", "Predicted"):
        commands = {
            (each["args"]["layer"], each["args"]["command"]): each
            for (where, track), slices in shown.tracks.items()
            if where == process and track.startswith(CHOCOLATE) and "busy_cycles" in str(slices)
            for each in slices
            if ", tail" not in track and "waited_for" in each["args"] and "queue" not in track
        }
        waits = 0
        for (layer, _), each in commands.items():
            waited = each["args"]["waited_for"]
            if waited is None or waited == "driver":
                continue
            number = int(waited.split(":")[0].split()[1])
            other = commands[layer, number]
            free = other["ts"] + other["dur"]
            assert each["ts"] in (free, free + other["args"]["tail_cycles"])
            waits += 1
        assert waits > 10


def test_the_prediction_is_a_process_of_its_own(reported: tuple[Shown, Path]) -> None:
    shown, _ = reported
    assert {process for process, _ in shown.tracks} == {"Simulated", "Predicted"}
    both = [
        [(each["name"], each["dur"]) for each in shown.tracks[process, "layers"][1:]]
        for process in ("Simulated", "Predicted")
    ]
    assert both[0] == both[1]  # Chocolate is predicted to the cycle
    tracks = {track for process, track in shown.tracks if process == "Predicted"}
    assert {f"{CHOCOLATE}: {each}" for each in ("driver", "dma", "array")} < tracks
    assert any(track.startswith(f"{CHOCOLATE}: queue") for track in tracks)
    # Without waits for a queue, each cycle of the driver is an access of a register.
    for each in shown.tracks["Predicted", f"{CHOCOLATE}: driver"]:
        if each["args"].get("waited_for_entry_of") is None:
            assert each["dur"] >= each["args"]["register_accesses"]


def test_commands_that_were_not_recorded_are_said(
    library: Path,
    inputs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(umakit.devices.run, "MOST_COMMANDS", 3)
    path = inputs.with_name("trace.json")
    capsys.readouterr()
    assert run_command(["run", str(library), "-i", str(inputs), "--trace", str(path)]) == 0
    about = read_trace(path).about
    (left_out,) = about["commands_not_recorded"].values()
    assert about["dropped_commands"] == sum(left_out.values()) > 20
    assert f"lacks {about['dropped_commands']} commands" in capsys.readouterr().err


def test_without_a_clock_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph()
    graph.output(graph.node("Relu", graph.input("x", 1, 4)))
    umakit.compile_model(save(graph.model(), tmp_path), [], tmp_path / "library")
    np.savez(tmp_path / "in.npz", x=np.ones((1, 4), np.float32))
    before = sorted(tmp_path.iterdir())
    words = ["run", "library", "-i", "in.npz", "-o", "outputs.npz", "--trace", "trace.json"]
    files = [str(tmp_path / each) if each[0] != "-" else each for each in words[1:]]
    assert run_command([words[0], *files]) == 2
    error = capsys.readouterr().err
    assert "nothing to trace" in error and error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_trace_of_an_emulated_device_is_refused(
    library: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = inputs.with_name("trace.json")
    words = ["run", str(library), "-i", str(inputs), "--device", "qemu-cortex-m3"]
    assert run_command([*words, "--trace", str(path)]) == 2
    assert "qemu-cortex-m3" in capsys.readouterr().err
    assert not path.exists()


# --- drawn runs ----------------------------------------------------------------------------------

NAMES = st.text(min_size=1, max_size=8)
WHERE = st.sampled_from(["cpu", "npu", "dsp"])


@st.composite
def commands(draw: st.DrawFn) -> CommandTimes:
    """A command that may last longer than its layer, and overlap with others of its engine."""
    begin = draw(st.integers(0, 60))
    busy_end = begin + draw(st.integers(0, 20))
    engine, label = draw(st.sampled_from(["dma", "dma (2)", "array"])), draw(st.text(max_size=5))
    return CommandTimes(engine, begin, busy_end, busy_end + draw(st.integers(0, 9)), label)


@st.composite
def layers(draw: st.DrawFn) -> LayerProfile:
    where = draw(WHERE)
    cycles = None if where == "cpu" else draw(st.none() | st.integers(0, 70))
    recorded = draw(st.lists(commands(), max_size=12)) if cycles is not None else []
    return LayerProfile(
        draw(NAMES), where, 1, None, cycles, None, None, None, None, draw(st.none() | st.just(0.5)),
        None, tuple(sorted(recorded, key=lambda each: each.start)), draw(st.integers(0, 2)),
    )  # fmt: skip


def description_of(profiles: list[LayerProfile]) -> dict[str, Any]:
    tensors = [
        {"offset_bytes": 8 * (n % 3), "size_bytes": 12, "first_layer": n, "last_layer": n + 1}
        for n in range(len(profiles))
    ]
    return {
        "name": "drawn",
        "model_sha256": "",
        "layers": [{"name": each.name} for each in profiles],
        "memory": {"pools": [{"name": "arena", "tensors": tensors}], "scratchpads": []},
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(layers(), max_size=6))
def test_traces_of_drawn_runs_keep_the_rules(profiles: list[LayerProfile]) -> None:
    result = RunResult({}, (), tuple(profiles), (), 1)
    if all(each.clock_cycles is None for each in profiles):
        with pytest.raises(InputError, match="nothing to trace"):
            trace_of_run(description_of(profiles), result)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        summary = write_trace(path, trace_of_run(description_of(profiles), result))
        shown = read_trace(path)
    clocks = [each for each in profiles if each.clock_cycles is not None]
    unknown = [each for each in profiles if each.clock_cycles is None and each.where != "cpu"]
    assert sum(map(len, summary.without_cycles.values())) == len(unknown)
    assert sum(map(len, shown.instants.values())) == len(profiles) - len(clocks) - len(unknown)
    expected, outside = 0, 0
    for layer in clocks:
        end = layer.clock_cycles or 0
        for each in layer.commands:
            if each.start < end:
                expected += min(each.busy_end, end) - each.start
            outside += each.start > end or (each.start == end < each.busy_end)
    busy = sum(
        each["dur"]
        for (_, track), slices in shown.tracks.items()
        if track.startswith(("npu: ", "dsp: ")) and ", tail" not in track
        for each in slices
    )
    assert busy == expected
    # Each tensor but the first shares the step of its layer with the one before.
    places = [range(8 * (n % 3), 8 * (n % 3) + 12) for n in range(len(profiles))]
    live = [{*places[max(n - 1, 0)], *place} for n, place in enumerate(places)]
    in_use = [value for _, value in shown.counters["Simulated", "arena in use"]]
    assert in_use == [len(each) for each in live]
    assert summary.outside >= outside
    known = {
        "Simulated": {
            f"{i} {e.name}": e.commands_left_out
            for i, e in enumerate(profiles, 1)
            if e.commands_left_out and e.clock_cycles is not None
        }
    }
    assert summary.left_out == (known if known["Simulated"] else {})


def test_an_accelerator_with_overlapping_commands_gets_more_tracks(tmp_path: Path) -> None:
    times = [
        CommandTimes("dma", 0, 8, 8),
        CommandTimes("dma", 3, 9, 9),
        CommandTimes("dma", 8, 9, 9),
    ]
    profile = LayerProfile(
        "l", "npu", 1, None, 10, None, None, None, None, None, None, tuple(times)
    )
    path = tmp_path / "trace.json"
    result = RunResult({}, (), (profile,), (), 1)
    write_trace(path, trace_of_run(description_of([profile]), result))
    shown = read_trace(path)
    assert {t: len(s) for (_, t), s in shown.tracks.items()} == {
        "layers": 2, "npu: dma": 2, "npu: dma (2)": 1,
    }  # fmt: skip


def test_a_file_of_others_is_refused_and_a_trace_is_replaced(tmp_path: Path) -> None:
    profile = LayerProfile("l", "npu", 1, None, 10, None, None, None, None, None, None)
    result = RunResult({}, (), (profile,), (), 1)
    path = tmp_path / "trace.json"
    path.write_text("{}")
    with pytest.raises(OutputError, match="not a trace of umakit"):
        write_trace(path, trace_of_run(description_of([profile]), result))
    path.unlink()
    for _ in range(2):
        write_trace(path, trace_of_run(description_of([profile]), result))
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]
