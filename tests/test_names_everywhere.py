# SPDX-License-Identifier: Apache-2.0
"""One name of a layer in all commands, whatever the names in the file, and over two exports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import Graph
from trace_rules import read_trace
from umakit.cli.main import run_command

import umakit
from umakit.frontend import import_model
from umakit.library.identities import identities_of
from umakit.library.metadata import load_metadata
from umakit.text.identities import matched_layers, unique_labels
from umakit.tools.page import make_page
from umakit.tools.trace import write_trace
from umakit.tools.trace.reported import trace_of_report

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
CHOCOLATE, VANILLA = "chocolate_accelerator", "vanilla_accelerator"
ODD = {"a": 'a/b:0 "x" & <é>', "b": "twin", "c": "twin", "d": ""}


def renamed(path: Path, nodes: dict[str, str], tensor: Callable[[str], str] = str) -> Path:
    """A copy of the network of digits whose nodes and tensors have other names."""
    model = onnx.load(DIGITS / "digits_int8.onnx")
    graph = model.graph
    ends = {each.name for each in (*graph.input, *graph.output)}

    def changed(name: str) -> str:
        return tensor(name) if name and name not in ends else name

    for node in graph.node:
        node.name = nodes.get(node.name, node.name)
        node.input[:] = [changed(name) for name in node.input]
        node.output[:] = [changed(name) for name in node.output]
    for each in (*graph.initializer, *graph.value_info):
        each.name = changed(each.name)
    onnx.save(model, path)
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert run_command([*map(str, words), "--json"]) == 0
    view: dict[str, Any] = json.loads(capsys.readouterr().out)
    return view


def test_all_commands_call_layers_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph()
    x = graph.input("image", 1, 2, 6, 6)
    for name in ODD:
        x = graph.conv(x, 2, name=name, bias=True)
    graph.output(graph.node("Softmax", x, name="softmax"))
    network = graph.model()
    for node, name in zip([n for n in network.graph.node if n.op_type == "Conv"], ODD, strict=True):
        node.name = ODD[name]
    model = tmp_path / "odd.onnx"
    onnx.save(network, model)
    library, traces = tmp_path / "library", [tmp_path / "a.json", tmp_path / "b.json"]
    umakit.compile_model(model, [umakit.find_backend(VANILLA)], library)
    inputs = tmp_path / "in.npz"
    np.savez(inputs, image=np.zeros((1, 2, 6, 6), np.float32))
    known = [each.as_json() for each in identities_of(load_metadata(library)["umakit"])]
    keys = [each["key"] for each in known]
    assert {ODD["a"], f"{ODD['a']} #2", "twin", "twin #2"} < set(keys)
    assert len(set(keys)) == len(keys)
    given = [operator["given"] for each in known for operator in each["operators"]]
    assert given.count("twin") >= 2 and "" in given
    views = {
        "size": printed(capsys, "size", library),
        "profile": printed(capsys, "run", library, "-i", inputs, "-o", tmp_path / "out.npz",
                           "--profile", "--trace", traces[0]),
        "report": printed(capsys, "report", model, "-b", VANILLA, "--trace", traces[1]),
        "diff": printed(capsys, "diff", model, "--library", library, "--most", "1"),
    }  # fmt: skip
    for name, view in views.items():
        assert [each["identity"] for each in view["layers"]] == known, name
        assert [each["name"] for each in view["layers"]] == keys, name
    rows = views["report"]["accounting"]["rows"]
    assert [row["identity"] for row in rows if row["identity"]] == known
    for path in traces:
        shown = read_trace(path)
        for process in {process for process, _ in shown.tracks}:
            slices = shown.tracks[process, "layers"][1:] + shown.instants[process, "CPU"]
            assert {each["name"] for each in slices} == set(keys)
            assert all(each["args"]["identity"] in known for each in slices)
            assert all(each["args"]["identity"]["key"] == each["name"] for each in slices)


def test_other_names_of_tensors_change_no_identity(tmp_path: Path) -> None:
    """As two tools export a network: its nodes are called alike, its tensors are not."""
    plain = import_model(DIGITS / "digits_int8.onnx").sources
    other = import_model(renamed(tmp_path / "other.onnx", {}, lambda name: f"t/{name}")).sources
    assert plain == other


def test_layers_of_a_renamed_operator_are_not_matched(tmp_path: Path) -> None:
    umakit.compile_model(DIGITS / "digits_int8.onnx", [], tmp_path / "one")
    umakit.compile_model(renamed(tmp_path / "m.onnx", {"conv4_1x1": "new"}), [], tmp_path / "two")
    one, two = (identities_of(load_metadata(tmp_path / n)["umakit"]) for n in ("one", "two"))
    matches = matched_layers(one, two)
    alone = [match for match in matches if not all(match)]
    assert len(matches) - len(alone) >= 5
    assert all(set(mine) <= set(range(len(one))) for mine, _ in matches)
    assert sorted(number for mine, _ in matches for number in mine) == [*range(len(one))]
    assert sorted(number for _, yours in matches for number in yours) == [*range(len(two))]


def test_labels_are_numbered_until_they_are_unique() -> None:
    assert unique_labels(["a", "a", "a #2", "a", ""]) == ["a", "a #2", "a #2 #2", "a #3", ""]


def test_a_trace_shows_two_accelerators(tmp_path: Path) -> None:
    found = [umakit.find_backend("strawberry_accelerator"), umakit.find_backend(CHOCOLATE)]
    path = tmp_path / "trace.json"

    def observe(*ran: Any) -> None:
        write_trace(path, trace_of_report(found, *ran))

    page = make_page(
        DIGITS / "digits_int8.onnx", found,
        observe=observe,
    )  # fmt: skip
    shown = read_trace(path)  # no two slices of a track overlap
    spans = {
        each["args"]["layer"]: (each["ts"], each["ts"] + each["dur"])
        for each in shown.tracks["Simulated", "layers"][1:]
    }
    for backend in found:
        name = backend.target_name
        own = {layer.number for layer in page.layers if layer.where == name}
        slices = [
            each
            for (process, track), all_ in shown.tracks.items()
            if process == "Simulated" and track.startswith(f"{name}: ")
            for each in all_
        ]
        assert own and {each["args"]["layer"] for each in slices} == own
        for each in slices:
            begin, end = spans[each["args"]["layer"]]
            assert begin <= each["ts"] and each["ts"] + each["dur"] <= end
        values = [value for _, value in shown.counters["Simulated", f"{name}_scratchpad in use"]]
        assert {number for number, value in enumerate(values, start=1) if value} <= own
        assert max(values) > 0
