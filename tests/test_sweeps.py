# SPDX-License-Identifier: Apache-2.0
"""`uma sim MODEL`: a network on one machine, and on the machines of a sweep."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from umakit.cli.main import run_command

import umakit
from umakit.errors import InputError, LoweringError, OutputError, RecordsError
from umakit.pipeline import import_network
from umakit.tools.page import make_page
from umakit.tools.sweeps import (
    PredictedMachine,
    Source,
    Sweep,
    SweptMachine,
    machine_with,
    points,
    predict_network,
    sweep_machines,
)
from umakit.tools.sweeps.columns import notes_of
from umakit.tools.sweeps.plot import check_plot, draw_sweep
from umakit.tools.sweeps.sweep import Offer, pareto_front
from umakit.tools.tuning.workers import cluster_workers

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
CHOCOLATE, STRAWBERRY = "chocolate_accelerator", "strawberry_accelerator"
SETTINGS: list[dict[str, Any]] = [
    {"array.rows": rows, "scratchpad.size": size} for rows in (8, 16) for size in (3000, 65536)
]
"""Those with 3,000 bytes are refused: they are not 32 equal banks."""

SWEEP = ["--sweep", "array.rows=8,16", "--sweep", "scratchpad.size=3000,64K"]
CALL = ["sim", str(DIGITS), "-b", CHOCOLATE]


def source(**options: Any) -> Source:
    return Source.of(DIGITS, umakit.find_backend(CHOCOLATE).folder, **options)


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The JSON that a call prints."""

    def call(*words: str) -> Any:
        assert run_command([*CALL, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one sentence of a call with exit code 2."""

    def call(*words: str) -> str:
        assert run_command(list(words)) == 2
        printed = capsys.readouterr()
        lines = [line for line in printed.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "Traceback" not in printed.err and not printed.out
        return lines[0].removeprefix("error: ")

    return call


# --- one machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [CHOCOLATE, STRAWBERRY])
def test_layers_and_predictions_are_those_of_the_report(backend: str) -> None:
    """Bytes are those that the simulator counts."""
    found = umakit.find_backend(backend)
    page = make_page(DIGITS, [found])
    network = predict_network(import_network(DIGITS), found)
    assert [(layer.name, layer.where, layer.macs) for layer in network.layers] == [
        (layer.name, layer.where, layer.macs) for layer in page.layers
    ]
    for mine, its in zip(network.layers, page.layers, strict=True):
        tiled = its.tiled
        assert mine.predicted_cycles == (None if tiled is None else tiled.predicted_cycles)
        assert mine.bound == (None if tiled is None else tiled.bound)
        assert mine.as_json()["identity"] == its.as_json()["identity"] is not None
        assert mine.predicted_bytes == (None if tiled is None else its.moved_bytes)
    assert network.totals.predicted_cycles == page.cycles.predicted_cycles
    assert network.offloaded_share == page.offloaded_share
    if backend == CHOCOLATE:
        assert network.cycles == page.cycles.predicted_cycles
        assert network.moved_bytes == page.moved_bytes
    else:
        assert network.cycles is network.moved_bytes is network.utilisation is None


def test_figures_of_a_layer(answer: Callable[..., Any]) -> None:
    found = answer()
    layer = next(each for each in found["layers"] if each["name"] == "conv2")
    assert layer["macs"] == 147456 and layer["where"] == CHOCOLATE
    assert layer["utilisation"] == layer["macs"] / (layer["cycles"] * 256)
    assert layer["cycles"] >= layer["bound"] >= layer["macs"] / 256
    assert 0 < layer["scratchpad_bytes"] <= 131072 and layer["scratchpad_bytes"] % 4096 == 0
    cpu = found["layers"][0]
    assert cpu["where"] == "cpu"
    for key in ("cycles", "moved_bytes", "bound", "scratchpad_bytes", "utilisation"):
        assert cpu[key] is None
    own = [each for each in found["layers"] if each["where"] == CHOCOLATE]
    for key in ("cycles", "moved_bytes"):
        assert found[key] == sum(each[key] for each in own)
    assert found["cells"] == 256 and found["scratchpad_bytes"] == 131072
    assert found["largest_scratchpad_bytes"] == max(each["scratchpad_bytes"] for each in own)


def test_a_machine_in_accel_toml_is_that_of_set(answer: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / CHOCOLATE
    shutil.copytree(umakit.find_backend(CHOCOLATE).folder, folder)
    file = folder / "accel.toml"
    file.write_text(
        file.read_text()
        .replace("rows = 16 ", "rows = 4 ")
        .replace("bytes_per_cycle = 32", "bytes_per_cycle = 2")
    )
    edited = predict_network(import_network(DIGITS), umakit.find_backend(folder))
    given_ = answer("--set", "array.rows=4", "--set", "dma.bytes_per_cycle=2")
    assert given_["settings"] == {"array.rows": 4, "dma.bytes_per_cycle": 2}
    for key, value in edited.as_json().items():
        assert given_[key] == value, key
    found = predict_network(import_network(DIGITS), umakit.find_backend(CHOCOLATE))
    assert found.cells == 256 and given_["cycles"] > (found.cycles or 0)


def test_what_was_loaded_of_a_copy_is_gone(tmp_path: Path) -> None:
    import sys

    modules = set(sys.modules)
    folder = umakit.find_backend(CHOCOLATE).folder
    with machine_with(folder, {"array.rows": 4}) as machine:
        copy = machine.folder
        assert machine.configuration.array.rows == 4 and copy != folder
    assert not copy.exists()
    assert not [name for name in set(sys.modules) - modules if name.startswith("umakit_backend_")]


def test_without_a_cost_model_one_sentence_says_so(
    capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = ["sim", str(DIGITS), "-b", STRAWBERRY]
    assert run_command(words) == 0
    printed = capsys.readouterr()
    sentence = f"{STRAWBERRY} predicts no cycles: it registers no planner that cuts layers"
    assert f"note: {sentence}\n" in printed.err
    assert "on the accelerator (0 of 5 predicted)" in printed.out
    error = refused(*words, "--sweep", "array.rows=4,8")
    assert error == f"{sentence}; `uma report` counts them where a simulator answers"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give either a network or --gemm M,N,K"),
        ([str(DIGITS), "--gemm", "1,2,3"], "give either a network or --gemm M,N,K, not both"),
        ([str(DIGITS)], "a network needs an accelerator; name it with --backend"),
        (["--gemm", "1,2,3", "--set", "array.rows=3"], "--set goes with a network only"),
        (["--gemm", "1,2,3", "-j", "2"], "--workers goes with a network only"),
        ([*CALL[1:], "--rows", "16"], "--rows goes with --gemm only"),
        ([*CALL[1:], "--simulate"], "--records, --plot and --simulate go with --sweep only"),
        ([*CALL[1:], "--plot", "x.svg"], "--records, --plot and --simulate go with --sweep only"),
        ([*CALL[1:], "--plot", "x.gif"], "x.gif: a sweep is drawn as SVG, PNG or PDF"),
        ([*CALL[1:], "--cost", "area"], "--cost 'area' is not one of cells, scratchpad and both"),
        ([*CALL[1:], "--set", "array.row=3"], "array.row: array has no row; write rows"),
        (
            [*CALL[1:], "--set", "scratchpad.size=3000"],
            "memory.0.size: scratchpad: 3000 bytes are not 32 banks",
        ),
        ([*CALL[1:], "--set", "accelerator.name=other"], "describes other, the backend is choc"),
    ],
)
def test_mistakes(words: list[str], message: str, refused: Callable[..., str]) -> None:
    assert refused("sim", *words).startswith(message)


# --- sweeps ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of all machines."""
    return tmp_path_factory.mktemp("sweep") / "sweep.jsonl"


@pytest.fixture(scope="module")
def swept(whole: Path) -> Any:
    return sweep_machines(source(), SETTINGS, records=whole)


def test_a_machine_that_is_refused_has_a_reason_and_no_figures(swept: Any) -> None:
    assert [bool(each.machine.refused) for each in swept.machines] == [True, False] * 2
    for each in swept.refused:
        view = each.as_json()
        known = {key for key, value in view.items() if value not in (None, [], False)}
        assert known == {"settings", "refused"}
        assert "scratchpad: 3000 bytes are not 32 banks of whole 32-bit words" in view["refused"]


def test_a_machine_of_a_sweep_is_that_of_set(swept: Any, answer: Callable[..., Any]) -> None:
    for each in swept.machines:
        if each.machine.refused:
            continue
        words = [f"{key}={value}" for key, value in each.machine.settings.items()]
        alone = answer("--set", words[0], "--set", words[1])
        view = each.as_json()
        shared = alone.keys() & view.keys()
        assert len(shared) >= 10
        for key in shared - {"layers"}:
            assert view[key] == alone[key], key
        assert view["layers"] == alone["cycle_totals"]["layers"]


def test_a_smaller_machine_that_leaves_work_to_the_cpu_beats_no_other() -> None:
    """Without a pooling stage there are fewer cycles of the accelerator, and more of the CPU."""
    lanes = [{"array.pooling_lanes": 0}, {"array.pooling_lanes": 16}]
    less, all_ = sweep_machines(source(), lanes).machines
    assert (less.machine.cycles or 0) < (all_.machine.cycles or 0)
    assert set(less.machine.offloaded) < set(all_.machine.offloaded)
    assert less.on_front and all_.on_front


def test_a_sweep_goes_on_where_it_stopped(
    tmp_path: Path, swept: Any, whole: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "sweep.jsonl"
    asked: list[Any] = []
    predict = points.predict_machine

    def interrupted(source_: Source, settings: Any) -> Any:
        asked.append(settings)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return predict(source_, settings)

    monkeypatch.setattr("umakit.tools.sweeps.sweep.predict_machine", interrupted)
    assert run_command([*CALL, *SWEEP, "--records", str(path)]) == 130
    assert f"interrupted; the same command goes on with {path}" in capsys.readouterr().err
    assert whole.read_bytes().startswith(path.read_bytes()) and len(asked) == 3
    again = sweep_machines(source(), SETTINGS, records=path)
    assert asked[3:] == SETTINGS[2:]
    assert path.read_bytes() == whole.read_bytes() and again == swept
    other = [dict(reversed(each.items())) for each in reversed(SETTINGS)]
    turned = sweep_machines(source(), other, records=path)
    assert asked[5:] == [] and path.read_bytes() == whole.read_bytes()
    assert [each.machine.settings for each in turned.machines] == other
    assert [list(each.machine.settings) for each in turned.machines] == [list(o) for o in other]
    assert list(turned.machines) == list(reversed(swept.machines))


@pytest.mark.parametrize("simulate", [False, True])
def test_what_failed_when_ctrl_c_was_pressed_is_no_refusal(
    simulate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """TVM turns an interrupt in a pass into a RuntimeError, which is a reason to refuse."""
    path, name = tmp_path / "sweep.jsonl", "_run" if simulate else "predict_network"

    def interrupted(*_: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise LoweringError("a pass failed: RuntimeError") from None

    monkeypatch.setattr(points, name, interrupted)
    words = ["--sweep", "array.rows=8,16", "--records", str(path), *["--simulate"] * simulate]
    before = signal.getsignal(signal.SIGINT)
    assert run_command([*CALL, *words]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert f"interrupted; the same command goes on with {path}" in capsys.readouterr().err
    assert not path.exists() or "a pass failed" not in path.read_text("utf-8")
    monkeypatch.undo()
    found = sweep_machines(source(), [{"array.rows": 8}, {"array.rows": 16}], records=path)
    assert not found.refused


def test_records_are_of_one_backend_model_and_way(tmp_path: Path) -> None:
    folder = tmp_path / CHOCOLATE
    shutil.copytree(umakit.find_backend(CHOCOLATE).folder, folder)
    model = shutil.copy(DIGITS, tmp_path / "model.onnx")
    records = folder / "sweep.jsonl"

    def of(**options: Any) -> Source:
        return Source.of(Path(model), folder, others=[records], **options)

    first = of()
    keys = [first.key({"array.rows": 8}, "predicted"), first.key({}, "predicted")]
    keys += [of(rounding="tflm").key({}, "predicted"), of(keep_layout=True).key({}, "predicted")]
    keys += [of(shapes={"image": [2, 1, 8, 8]}).key({}, "predicted"), first.key({}, "simulated")]
    records.write_text("")
    assert of() == first, "what a sweep writes does not count"
    (folder / "data").mkdir()
    (folder / "data" / "costs.csv").write_text("1")
    keys.append(of().key({}, "predicted"))
    with pytest.raises(RecordsError, match="is not what it was when the sweep began"):
        points.predict_machine(first, {})
    with Path(model).open("ab") as stream:
        stream.write(b"\0")
    keys.append(of().key({}, "predicted"))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine", "exists and is not a file of sweep records;"),
        ("{}\n", "exists and is not a file of sweep records;"),
        ('{"format": "umakit sweep records", "version": 2}\n', "begin as sweep records of version"),
        ('{"format": "umakit sweep records", "version": 1}\nx\n', "sweep.jsonl:2: is damaged: "),
        ('{"format": "umakit sweep records", "version": 1}\n{"key": 1, "answer": {}}\n',
         "sweep.jsonl:2: is damaged: "),
        ('{"format": "umakit sweep records", "version": 1}\n{"key": "KEY", "answer": {}}\n',
         "sweep.jsonl: a record is damaged: settings: Field required"),
    ],
)  # fmt: skip
def test_damaged_records(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    text = text.replace("KEY", source().key(SETTINGS[1], "predicted"))
    path.write_text(text)
    with pytest.raises(RecordsError) as caught:
        sweep_machines(source(), SETTINGS[1:2], records=path)
    assert message in str(caught.value) and path.read_text() == text


def test_what_one_machine_alone_says_is_beside_it() -> None:
    def machine(rows: int, *notices: str, refused: str = "") -> SweptMachine:
        settings = {"array.rows": rows}
        found = PredictedMachine(settings, refused, cycles=rows, layers=1, notices=list(notices))
        return SweptMachine(found)

    machines = machine(1, "all", "one"), machine(2, "all"), machine(3, refused="no")
    sweep = Sweep("npu", "net", ("cells",), machines)
    assert sweep.notices == ("all", "one") and sweep.common_notices == ("all",)
    assert notes_of(sweep) == ["one", "refused: no"]


def test_settings_of_python_are_checked() -> None:
    for wrong, message in (
        ({"array.row": 3}, "write rows"),
        ({"array.rows": "3"}, "valid integer"),
    ):
        with pytest.raises(InputError, match=message):
            sweep_machines(source(), [{"array.rows": 4}, wrong])
    with pytest.raises(InputError, match="there is no cost 'area'; costs are cells, scratchpad"):
        sweep_machines(source(), SETTINGS, costs=["area"])  # type: ignore[list-item]


@pytest.fixture
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as local:
        yield local.scheduler_address


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_cluster_finds_the_same(cluster: str, swept: Any, whole: Path, tmp_path: Path) -> None:
    """`tests/test_sweeps_page.py` has processes."""
    path = tmp_path / "sweep.jsonl"
    with cluster_workers(cluster) as workers:
        found = sweep_machines(source(), SETTINGS, records=path, workers=workers)
    assert found == swept and path.read_bytes() == whole.read_bytes()


def test_machines_of_the_front_are_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All digits are there on a narrow terminal too."""
    monkeypatch.setenv("COLUMNS", "40")
    words = [*CALL, *SWEEP, "--cost", "scratchpad", "--simulate"]
    words += ["--records", str(tmp_path / "r.jsonl"), "--plot", str(tmp_path / "p.svg")]
    assert run_command(words) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.startswith("*") for line in table[3:7]] == [False, False, False, True]
    assert table[6].rstrip().endswith("+0.00 %")
    text = " ".join(line.strip() for line in table)
    assert "(1) refused: memory.0.size: scratchpad: 3000 bytes are not 32 banks" in text
    assert "4 machines, 2 predicted, 2 refused" in text
    assert "1 is on the front of cycles against bytes of scratchpads (marked *)" in text
    picture = (tmp_path / "p.svg").read_text()
    assert "array.rows=16 scratchpad.size=65536" in picture and "bytes of scratchpads" in picture
    assert run_command([*words, "--json"]) == 0
    *others, best = json.loads(capsys.readouterr().out)["points"]
    assert best["simulated_cycles"] == best["cycles"] and best["difference_percent"] == 0
    assert best["simulated_moved_bytes"] == best["moved_bytes"]
    assert all(each["simulated_cycles"] is None for each in others)
    assert (tmp_path / "p.svg").read_text() == picture


def test_a_plot_replaces_only_plots(tmp_path: Path, swept: Any) -> None:
    for suffix in (".svg", ".png", ".pdf"):
        path = tmp_path / f"plot{suffix}"
        draw_sweep(swept, path)
        content = path.read_bytes()
        check_plot(path)
        path.write_bytes(b"mine")
        with pytest.raises(OutputError, match="is not a plot of a sweep of umakit"):
            draw_sweep(swept, path)
        assert path.read_bytes() == b"mine"
        check_plot(path, force=True)
    draw_sweep(swept, path, force=True)
    assert path.read_bytes() == content


def test_where_nothing_simulates_the_difference_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*CALL, "--set", "device.simulator=none", "--sweep", "array.rows=16", "--simulate"]
    assert run_command([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["points"]
    assert found["cycles"] > 0 and found["on_front"]
    assert found["simulated_cycles"] is found["difference_percent"] is None
    assert found["simulation_failed"] == "nothing simulates the accelerator"


# --- the front ------------------------------------------------------------------------------------

OFFERS = st.lists(
    st.none()
    | st.builds(
        Offer,
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),
        st.frozensets(st.integers(0, 2)),
    ),
    max_size=12,
)


def without_better(offers: Sequence[Offer | None]) -> list[bool]:
    """The front by its definition, of figures of which more is better."""

    def figures(offer: Offer) -> list[int]:
        return [*(-cost for cost in offer.costs), *(int(n in offer.work) for n in range(3))]

    def is_worse(mine: list[int], its: list[int]) -> bool:
        return mine != its and [max(pair) for pair in zip(mine, its, strict=True)] == its

    known = [figures(each) for each in offers if each is not None]
    return [
        each is not None and not any(is_worse(figures(each), its) for its in known)
        for each in offers
    ]


@given(offers=OFFERS)
def test_the_front_is_that_of_all_comparisons(offers: list[Offer | None]) -> None:
    assert pareto_front(offers) == without_better(offers)


def test_a_front() -> None:
    def offer(*costs: int) -> Offer:
        return Offer(costs, frozenset({1}))

    offers = [offer(5, 1), offer(5, 1), offer(4, 2), offer(4, 3), None, offer(6, 1)]
    assert pareto_front(offers) == [True, True, True, False, False, False]
