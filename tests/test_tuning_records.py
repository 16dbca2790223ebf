# SPDX-License-Identifier: Apache-2.0
"""`uma tune` and what comes of it: records, resuming, refusals, libraries, workers."""

from __future__ import annotations

import json
import multiprocessing
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from umakit.cli.main import run_command

from umakit import compile_model, run_library
from umakit.backend.registry import find_backend
from umakit.errors import RecordsError
from umakit.machine import Tiles, Tiling
from umakit.pipeline import ExportOptions, import_network
from umakit.records.tilings import add_record
from umakit.text.escaping import shown
from umakit.tools.tuning import (
    Effort,
    Records,
    cluster_workers,
    local_workers,
    read_records,
    tune_model,
)
from umakit.tools.tuning.tune import tiled_layers

CHOCOLATE = "chocolate_accelerator"
MODEL = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
QUICK = Effort(clock=8, simulate=0)
CALL = ["tune", str(MODEL), "-b", CHOCOLATE, "--clock", "8", "--simulate", "0", "--records"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the model."""
    path = tmp_path_factory.mktemp("tuned") / "records.json"
    tune_model(import_network(MODEL), find_backend(CHOCOLATE), path, effort=QUICK)
    return path


def test_records_have_each_layer_of_the_model(tuned: Path) -> None:
    layers = tiled_layers(import_network(MODEL), find_backend(CHOCOLATE))
    records = read_records(tuned)
    assert {record.layer: record.operators for record in records.layers} == layers
    for record in records.layers:
        assert record.bound <= record.predicted <= record.default
        assert (record.effort, record.simulated) == (QUICK, None)
    # Written again they are the same bytes.
    again = tuned.with_name("again.json")
    records.write(again)
    assert again.read_bytes() == tuned.read_bytes()


def forced(tuned: Path, path: Path) -> Records:
    """Records with another tiling than the default for each layer."""
    records, planner = read_records(tuned), find_backend(CHOCOLATE).tiling
    assert planner is not None
    for record in records.layers:
        new = Tiling(
            record.tiling.dataflow, 1, record.layer.output_size[1],
            min(16, record.layer.output_channels), record.layer.input_channels,
            ("rows", "output_channels", "columns"), 1,
        )  # fmt: skip
        records = records.with_record(type(record)(**{**vars(record), "tiling": new}))
    records.write(path)
    return records


def test_a_library_is_cut_as_its_records_say(tuned: Path, tmp_path: Path) -> None:
    backend = find_backend(CHOCOLATE)
    planner = backend.tiling
    assert planner is not None
    records = forced(tuned, tmp_path / "forced.json")
    plain = compile_model(MODEL, [backend], tmp_path / "plain")
    options = ExportOptions(records=tmp_path / "forced.json")
    cut = compile_model(MODEL, [backend], tmp_path / "cut", options=options)
    layers = sum(len(record.operators) for record in records.layers)
    assert cut.metadata["umakit"]["tilings"] == {"layers": layers, "tuned": layers}
    assert plain.metadata["umakit"]["tilings"] is None
    (input_view,) = cut.metadata["umakit"]["inputs"]
    random = np.random.default_rng(3)
    inputs = {
        input_view["name"]: random.normal(0, 1, (4, *input_view["shape"])).astype(
            input_view["dtype"]
        )
    }
    results = [run_library(each.path, inputs, profile=True) for each in (plain, cut)]
    for name, values in results[0].outputs.items():
        np.testing.assert_array_equal(results[1].outputs[name], values)
    # The device takes what the cost model says of these tilings, and of no others.
    predicted = sum(
        len(record.operators)
        * planner.predict(Tiles(record.layer, record.tiling, planner.hardware)).cycles
        for record in records.layers
    )
    assert sum(layer.clock_cycles for layer in results[1].layers) == predicted
    assert sum(layer.clock_cycles for layer in results[0].layers) < predicted
    # Nothing of it is left for the next library of this process.
    again = compile_model(MODEL, [backend], tmp_path / "again")
    source = "codegen/host/src"
    for file in sorted((plain.path / source).iterdir()):
        if file.is_file():
            assert (again.path / source / file.name).read_bytes() == file.read_bytes()


def change(path: Path, target: Path, edit: Callable[[Any], Any]) -> Path:
    value = json.loads(path.read_text())
    target.write_text(json.dumps(edit(value) or value))
    return target


def put(value: Any, new: Any, *keys: Any) -> None:
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = new


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "model": (
        lambda v: put(v, "0" * 64, "owner", "model", "sha256"),
        r"records are of digits_int8 \(SHA-256 000000000000\.\.\.\), not of .*tune this model",
    ),
    "backend": (
        lambda v: put(v, "other_npu", "owner", "backend", "name"),
        "records are of other_npu, not of chocolate_accelerator",
    ),
    "hardware": (
        lambda v: put(v, 8, "owner", "backend", "hardware", "bytes_per_cycle"),
        "for hardware with bytes_per_cycle 8, chocolate_accelerator has 32; tune again",
    ),
    "driver": (
        lambda v: put(v, 99, "owner", "backend", "driver", "job"),
        "for driver with job 99, chocolate_accelerator has",
    ),
    "cost model": (
        lambda v: put(v, 0, "owner", "cost_model"), "of version 0 of the cost model, this is",
    ),
    "version": (lambda v: put(v, 2, "version"), "is of version 2, this umakit reads 1"),
    "no records": (lambda v: {"layers": []}, "holds no tuning records"),
    "a word": (lambda v: put(v, "3", "layers", 0, "tiling", "rows"), r"layers\.0\.tiling\.rows"),
    "a key": (lambda v: put(v, 3, "layers", 0, "tiling", "depth"), r"layers\.0\.tiling\.depth"),
    "a size": (
        lambda v: put(v, 10_000, "layers", 0, "tiling", "rows"),
        r"the tiling of layer 0 \(.*\) does not fit: rows is 10000, the layer has",
    ),
    "an order": (
        lambda v: put(v, ["rows", "rows", "columns"], "layers", 0, "tiling", "order"),
        "order is rows, rows, columns, not each of",
    ),
    "buffers": (lambda v: put(v, 3, "layers", 0, "tiling", "buffers"), "buffers is 3, not one of"),
    "no layer": (lambda v: put(v, [], "layers"), "has none of the network's"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_records_are_refused(name: str, tuned: Path, tmp_path: Path) -> None:
    edit, message = REFUSED[name]
    path = change(tuned, tmp_path / "records.json", edit)
    with pytest.raises(RecordsError, match=message):
        compile_model(
            MODEL, [find_backend(CHOCOLATE)], tmp_path / "library",
            options=ExportOptions(records=path),
        )  # fmt: skip
    assert not (tmp_path / "library").exists()


def test_the_command_line_says_what_is_wrong_with_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tuned: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": ')
    compiling = ["compile", str(MODEL), "-o", str(tmp_path / "library"), "--records"]
    for arguments, message in (
        ([*compiling, str(broken), "-b", CHOCOLATE], "is not valid JSON"),
        ([*compiling, str(tmp_path / "no.json"), "-b", CHOCOLATE], "no such file; `uma tune"),
        ([*compiling, str(tuned)], "no backend that cuts layers into tiles was given"),
        ([*CALL, str(broken)], "exists and is not a file of tuning records"),
        ([*CALL, str(tmp_path / "no" / "r.json")], "no such folder"),
        (
            ["tune", str(MODEL), "-b", "strawberry_accelerator", "-r", str(tmp_path / "new.json")],
            "strawberry_accelerator: does not cut layers into tiles",
        ),
    ):
        assert run_command(arguments) == 2
        assert message in capsys.readouterr().err
    assert broken.read_text() == '{"format": '
    assert sorted(tmp_path.iterdir()) == [broken]


def test_processes_that_write_one_file_lose_nothing(tuned: Path, tmp_path: Path) -> None:
    """Each adds layers that the other does not have, one by one and at the same time."""
    records = read_records(tuned)
    first, path = records.layers[0], tmp_path / "records.json"
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(2)

    def add(numbers: range) -> None:
        begin.wait(60)
        for number in numbers:
            layer = replace(first.layer, images=number)
            add_record(path, records.owner, replace(first, layer=layer))

    processes = [context.Process(target=add, args=(range(n, 60, 2),)) for n in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(record.layer.images for record in read_records(path).layers) == [*range(1, 60)]
    assert [*tmp_path.iterdir()] == [path]


def test_a_record_that_another_process_wrote_meanwhile_stays(tuned: Path, tmp_path: Path) -> None:
    records = read_records(tuned)
    first, path = records.layers[0], tmp_path / "records.json"
    measured = {"simulated": first.predicted, "default_simulated": first.default}
    better = replace(first, effort=Effort(64, 3), **measured)
    records.with_record(better).write(path)
    assert add_record(path, records.owner, first, instead_of=None).of(first.layer) == better
    assert read_records(path).of(first.layer) == better
    # What was there when the search began is what it replaces.
    assert add_record(path, records.owner, first, instead_of=better).of(first.layer) == first
    assert read_records(path) == records


HOSTILE = [
    "two\nlines",
    "[red]x[/]",
    "[/]",
    "q\"'`$(x)",
    "*/ \\",
    "\x1b[31m",
    "</script>",
    "\u202e\u2028",
]


@pytest.mark.parametrize("terminal", [False, True])
def test_layers_may_have_any_names(
    terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    proto = onnx.load(MODEL)
    for number, node in enumerate(proto.graph.node):
        node.name = f"{HOSTILE[number % len(HOSTILE)]}{number}"
    model, path = tmp_path / "[bold] '\".onnx", tmp_path / "[red] '$(x).json"
    model.write_bytes(proto.SerializeToString())
    call = ["tune", str(model), "-b", CHOCOLATE, "--clock", "1", "--simulate", "0", "-r", str(path)]
    with monkeypatch.context() as patched:
        patched.setattr("sys.stderr.isatty", lambda: terminal)
        assert run_command(call) == 0
    printed = capsys.readouterr()
    records = read_records(path)
    names = [name for record in records.layers for name in record.operators]
    assert {node.name for node in proto.graph.node} >= set(names) and len(set(names)) > 3
    if not terminal:
        # One line for each layer, with its name as it is but for what no line can hold.
        told = [line for line in printed.err.splitlines() if " tilings, best " in line]
        assert len(told) == len(records.layers)
        for record in records.layers:
            assert any(line.startswith(f"{shown(record.operators[0])}: ") for line in told)
    for text in (printed.out, printed.err):
        assert not re.search("\x1b\\[31m|[\u202e\u2028]", text)
    # The command for what comes next is a line of a shell.
    following = printed.out.split("Next: ", 1)[1]
    assert shlex.split(following)[:3] == ["uma", "compile", str(model)]
    assert shlex.split(following)[6] == str(path)
    options = ExportOptions(records=path)
    library = compile_model(model, [find_backend(CHOCOLATE)], tmp_path / "library", options=options)
    assert library.metadata["umakit"]["tilings"] == {"layers": len(names), "tuned": len(names)}


def test_tune_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tuned: Path, monkeypatch: Any
) -> None:
    from umakit.tools.tuning import tune

    path, searched = tmp_path / "records.json", []
    whole = tune.search

    def search(problem: Any, *others: Any) -> Any:
        searched.append(problem.layer)
        if len(searched) == 2:
            raise KeyboardInterrupt
        return whole(problem, *others)

    monkeypatch.setattr(tune, "search", search)
    assert run_command([*CALL, str(path)]) == 130
    assert "interrupted; 1 layers are in" in capsys.readouterr().err
    assert len(read_records(path).layers) == 1
    assert run_command([*CALL, str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    count = len(found["layers"])
    assert len(searched) == 1 + count  # one of them was begun twice, none that was done
    assert path.read_bytes() == tuned.read_bytes()
    assert run_command([*CALL, str(path)]) == 0
    assert f"All is in {path}" in capsys.readouterr().out
    assert len(searched) == 1 + count
    assert run_command([*CALL, str(path), "--again"]) == 0
    assert len(searched) == 1 + 2 * count
    assert path.read_bytes() == tuned.read_bytes()


def test_the_simulator_takes_the_cycles_that_were_predicted(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    tune_model(
        import_network(MODEL), find_backend(CHOCOLATE), path, effort=Effort(clock=8, simulate=1)
    )
    for record in read_records(path).layers:
        assert record.simulated == record.predicted, record.layer


@pytest.fixture
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as local:
        yield local.scheduler_address


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_any_workers_find_the_same(cluster: str, tuned: Path, tmp_path: Path) -> None:
    network, backend = import_network(MODEL), find_backend(CHOCOLATE)
    for workers in (local_workers(2), cluster_workers(cluster)):
        path = tmp_path / "records.json"
        path.unlink(missing_ok=True)
        with workers as pool:
            tune_model(network, backend, path, effort=QUICK, workers=pool)
        assert path.read_bytes() == tuned.read_bytes()


def test_backends_elsewhere_have_their_own_records(tuned: Path, tmp_path: Path) -> None:
    """The same accelerator with a wider DMA engine."""
    folder = tmp_path / CHOCOLATE
    shutil.copytree(find_backend(CHOCOLATE).folder, folder)
    config = folder / "accel.toml"
    config.write_text(config.read_text().replace("bytes_per_cycle = 32", "bytes_per_cycle = 64"))
    with pytest.raises(RecordsError, match="bytes_per_cycle 32, chocolate_accelerator has 64"):
        tune_model(import_network(MODEL), find_backend(folder), tuned, effort=QUICK)
