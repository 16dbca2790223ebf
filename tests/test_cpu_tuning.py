# SPDX-License-Identifier: Apache-2.0
"""`uma tune --cpu` and what comes of it: the search, records, refusals, libraries.

In most tests a fake meter says how long layers take, so that the result is known. Kernels are those
for x86-64-v3 whatever this machine is: nothing is run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from cpus_here import cpu_here
from networks import Graph, normal
from strict import WARNINGS
from test_tuning_records import change, put
from umakit.cli.main import run_command

from umakit import ExportOptions, compile_model, find_backend
from umakit.devices import find_device
from umakit.devices.run import run_library
from umakit.devices.unpacked import TimedLibrary, take_turns
from umakit.errors import RecordsError
from umakit.frontend import Model
from umakit.library.cpu_sections import section_for
from umakit.library.export import Library
from umakit.library.metadata import load_metadata
from umakit.pipeline import export_program, import_network
from umakit.records.kernels import Origin, Times
from umakit.records.tilings import read_records
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.cpu_tuning import CpuEffort, CpuProgress, TunedCpu, trials, tune_cpu
from umakit.tools.cpu_tuning.search import difference, is_faster, times_of

CPU = "x86-64-v3"
QUIETEST = Origin("times", "host", "a machine", "a compiler")


@dataclass
class Opened:
    """A library that a fake meter was given: its number, and its layers."""

    number: int
    layers: list[str]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)


class FakeMeter:
    """Layers take 1 s with the rules' own choices, others as long as a test says.

    Args:
        seconds: by number of the library (0 is that with the rules' own choices) and name of the
            layer; anything else takes `usual`.
        figures: `times` or `instructions`.
        usual: seconds of others.
        differing: number of the library whose outputs differ.
        interrupted: number of the library at which Ctrl-C is pressed.
    """

    weights: Literal["c", "blob"] = "blob"

    def __init__(
        self,
        seconds: Mapping[tuple[int, str], float],
        figures: Literal["times", "instructions"] = "times",
        *,
        usual: float = 1.1,
        differing: int = -1,
        interrupted: int = -1,
    ) -> None:
        self.origin = replace(QUIETEST, figures=figures)
        self._seconds, self._usual = seconds, usual
        self._differing, self._interrupted = differing, interrupted
        self.opened = 0

    def open(self, library: Path, inputs: object, folder: Path) -> Opened:
        number, self.opened = self.opened, self.opened + 1
        if number == self._interrupted:
            raise KeyboardInterrupt
        value = np.array([1.0, 2.0 if number == self._differing else 1.0], "float32")
        layers = [layer["name"] for layer in load_metadata(library)["umakit"]["layers"]]
        return Opened(number, layers, {"y": value})

    def figures(self, subjects: Sequence[Opened], rounds: int) -> np.ndarray:
        scale = 1000 if self.origin.figures == "instructions" else 1
        rows = [[self._of(each.number, name) * scale for name in each.layers] for each in subjects]
        # What else the machine does falls on both alike.
        noise = 1 + 0.5 * np.random.default_rng(4).random((1, rounds, 1))
        return np.array(rows)[:, None, :] * (noise if rounds > 1 else 1)

    def _of(self, number: int, layer: str) -> float:
        return self._seconds.get((number, layer), self._usual) if number else 1.0


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Libraries with the same choices are exported once."""
    place, kept = tmp_path_factory.mktemp("exports"), dict[object, Library]()

    def export(
        model: Model, partitioned: object, backends: object, out: Path, options: ExportOptions
    ) -> Library:
        key = (model.fingerprint, options.cpu, frozenset(options.choices.items()))
        if key not in kept:
            folder = place / str(len(kept))
            kept[key] = export_program(model, partitioned, backends, folder, options)  # type: ignore[arg-type]
        shutil.copytree(kept[key].path, out)
        return replace(kept[key], path=out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "export_program", export)
        yield


@pytest.fixture(scope="module")
def model(exports: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two different convolutions, of which the first is there twice, and a product."""
    graph = Graph(seed=5)
    x = graph.input("x", 1, 8, 12, 12)
    for number in range(2):
        x = graph.node("Relu", graph.conv(x, 8, 3, bias=True), name=f"relu{number}")
    x = graph.node("Relu", graph.conv(x, 16, 1, bias=True))
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.dense(x, 16, 24))
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(graph.model(), str(path))
    return path


def tuned(model: Path, path: Path, meter: FakeMeter, trials: int = 3, **others: Any) -> TunedCpu:
    effort = CpuEffort(trials, 1e6)
    return tune_cpu(import_network(model), CPU, path, meter, effort=effort, **others)


def layers_of(model: Path, folder: Path) -> list[str]:
    """Names of the layers that have a choice: twice the same one, another, and the product."""
    options = ExportOptions(cpu=CPU)
    library = compile_model(model, [], folder / "layers", options=options)
    assert library.program is not None
    known = library.program.choices.kernels
    layers = library.metadata["umakit"]["layers"]
    return [layer["name"] for layer in layers if layer["kernel"] in known]


@pytest.fixture(scope="module")
def layers(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    found = layers_of(model, tmp_path_factory.mktemp("layers"))
    assert len(found) == 4
    return found


def all_libraries(name: str, seconds: Sequence[float]) -> dict[tuple[int, str], float]:
    """Times of a layer in the libraries with other choices, from the first."""
    return {(number, name): value for number, value in enumerate(seconds, 1)}


def test_the_fastest_choice_of_each_kernel_is_recorded(
    model: Path, layers: list[str], tmp_path: Path
) -> None:
    first, second, other, product = layers
    seconds = {
        # Of the layer that is there twice, only the sum counts: 0.9, 0.8 and 0.95 of two.
        **all_libraries(first, [0.8, 1.0, 1.2, 1.0]), **all_libraries(second, [1.0, 0.6, 0.7, 0.6]),
        **all_libraries(other, [1.5, 1.2, 0.7, 0.7]),
        # Less than 2 % is not enough.
        **all_libraries(product, [0.99, 0.985, 0.99, 1.0]),
    }  # fmt: skip
    path, said = tmp_path / "records.json", list[CpuProgress]()
    result = tuned(model, path, FakeMeter(seconds), done=said.append)
    by_layer = {each.record.operators: each for each in result.kernels}
    twice, once, kept = by_layer[(first, second)], by_layer[(other,)], by_layer[(product,)]
    made = {each.record.kernel: each for each in result.kernels}
    assert len(made) == 3 and result.trials == 3 and result.is_complete
    assert twice.record.times == Times(0.8, 0.8, 0.8) and twice.record.ratio == 0.8
    assert once.record.times == Times(0.7, 0.7, 0.7) and once.record.trials == 3
    assert kept.record.choice == kept.record.own and kept.record.times is None
    assert twice.record.choice != twice.record.own
    assert [each.faster for each in said] == [1, 1, 2]
    # Of the whole network, with layers that have no choice: each takes 1.1 s, and 1 s before.
    assert result.total.times is not None and 0.8 < result.total.times.median < 1.05
    records = read_records(path)
    assert {r.kernel: r for r in records.kernels} == {k: e.record for k, e in made.items()}
    records.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    again = tmp_path / "second.json"
    tuned(model, again, FakeMeter(seconds))
    assert again.read_bytes() == path.read_bytes()


def test_choices_that_are_not_faster_together_are_given_up(
    model: Path, layers: list[str], tmp_path: Path
) -> None:
    *_, other, product = layers
    # Library 2 has all choices at once, 3 those that are left.
    seconds = {
        **all_libraries(other, [0.8, 1.01, 1.0]), **all_libraries(product, [0.9, 0.95, 0.94])
    }  # fmt: skip
    result = tuned(model, tmp_path / "records.json", FakeMeter(seconds), trials=1)
    found = {each.record.operators[0]: each.record for each in result.kernels}
    assert found[other].choice == found[other].own and found[other].times is None
    assert found[product].times == Times(0.94, 0.94, 0.94)


def test_instructions_are_compared_exactly(model: Path, layers: list[str], tmp_path: Path) -> None:
    *_, other, product = layers
    seconds = {**all_libraries(other, [0.999, 0.999]), **all_libraries(product, [1.0, 1.0])}
    meter = FakeMeter(seconds, "instructions", usual=1.0)
    result = tuned(model, tmp_path / "records.json", meter, trials=1)
    found = {each.record.operators[0]: each.record for each in result.kernels}
    assert (found[other].instructions, found[other].own_instructions) == (999, 1000)
    assert found[other].times is None and found[product].instructions is None
    total = result.total
    assert total.own_instructions == (total.instructions or 0) + 1


def test_a_trial_whose_outputs_differ_is_not_used(
    model: Path, layers: list[str], tmp_path: Path
) -> None:
    said: list[CpuProgress] = []
    meter = FakeMeter({}, usual=0.5, differing=1)
    result = tuned(model, tmp_path / "records.json", meter, trials=1, done=said.append)
    assert "floats of output y differ" in said[0].differs and said[0].faster == 0
    assert all(each.record.choice == each.record.own for each in result.kernels)


def test_tuning_goes_on_where_it_stopped(model: Path, layers: list[str], tmp_path: Path) -> None:
    path, whole = tmp_path / "records.json", tmp_path / "whole.json"
    seconds = {(2, layers[2]): 0.9, (3, layers[2]): 0.8, (4, layers[2]): 0.8}
    with pytest.raises(KeyboardInterrupt):
        tuned(model, path, FakeMeter(seconds, interrupted=3))
    kept = {each.operators[0]: each for each in read_records(path).kernels}
    assert kept[layers[2]].times == Times(0.9, 0.9, 0.9) and kept[layers[2]].trials == 2
    # What is left is one trial, and all choices together.
    rest = FakeMeter({(1, layers[2]): 0.8, (2, layers[2]): 0.8})
    tuned(model, path, rest)
    assert rest.opened == 3
    tuned(model, whole, FakeMeter(seconds))
    assert whole.read_bytes() == path.read_bytes()
    nothing = FakeMeter({})
    assert tuned(model, path, nothing).trials == 0 and nothing.opened == 1
    afresh = FakeMeter({})
    assert tuned(model, path, afresh, again=True).trials == 3
    assert all(each.choice == each.own for each in read_records(path).kernels)


def test_a_trial_above_the_limit_of_the_arena_is_not_used(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, said = trials.Trials.build, list[CpuProgress]()

    def build(self: trials.Trials, choices: Any) -> trials.Built:
        built = whole(self, choices)
        return replace(built, layers=(None, *built.layers[1:], None)) if choices else built

    monkeypatch.setattr(trials.Trials, "build", build)
    meter = FakeMeter({}, usual=0.5)
    tuned(model, tmp_path / "records.json", meter, trials=1, done=said.append)
    assert "above the limit" in said[0].differs and said[0].faster == 0


def test_no_trial_begins_after_the_time(model: Path, tmp_path: Path) -> None:
    now = iter(range(0, 10_000, 60))
    result = tune_cpu(
        import_network(model), CPU, tmp_path / "records.json", FakeMeter({}),
        effort=CpuEffort(3, 100.0), clock=lambda: float(next(now)),
    )  # fmt: skip
    assert result.trials == 2 and not result.is_complete


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.97] * 11, True), ([0.99] * 11, False), ([0.95] * 8 + [1.3] * 3, False),
        ([0.97] * 9 + [1.5] * 2, True), ([1.0] * 11, False),
    ],
)  # fmt: skip
def test_faster_is_what_most_rounds_say(ratios: list[float], expected: bool) -> None:
    own = np.linspace(1, 2, 11)
    assert is_faster(times_of(own * ratios, own)) is expected


def test_times_of_nothing_are_unknown() -> None:
    assert times_of(np.zeros(3), np.ones(3)) is None and not is_faster(None)
    assert difference({"y": np.array([1, 2])}, {"y": np.array([1, 3])})
    assert not difference({"y": np.array([np.nan, 1.00001])}, {"y": np.array([np.nan, 1.0])})


# --- libraries and refusals ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(model: Path, layers: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with another choice for each kernel."""
    path = tmp_path_factory.mktemp("records") / "records.json"
    tuned(model, path, FakeMeter({}, usual=0.5), trials=1)
    assert all(each.choice != each.own for each in read_records(path).kernels)
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*")) if path.is_file()
    }  # fmt: skip


def test_a_library_has_the_choices_of_its_records(
    model: Path, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["compile", str(model), "--cpu", CPU, "--records", str(records), "-o"]
    assert run_command([*call, str(tmp_path / "one")]) == 0
    assert "tuned choices for 3 of 3 kernels" in capsys.readouterr().out
    assert run_command([*call, str(tmp_path / "two")]) == 0
    found = files_of(tmp_path / "one")
    assert found == files_of(tmp_path / "two")
    plain = compile_model(model, [], tmp_path / "plain", options=ExportOptions(cpu=CPU))
    assert "choices" not in plain.metadata["umakit"]
    assert load_metadata(tmp_path / "one")["umakit"]["choices"] == {"kernels": 3, "tuned": 3}
    source = "codegen/host/src/tvmgen_net.c"
    assert found[source] != (plain.path / source).read_bytes()


@pytest.mark.parametrize("others", ["generic", "cortex-a76"])
def test_of_several_cpus_one_has_the_choices(
    others: str, model: Path, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["compile", str(model), "--cpu", f"{CPU},{others}", "--records", str(records), "-o"]
    assert run_command([*call, str(tmp_path / "several")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "choices" in line]
    assert lines == [f"{CPU}: tuned choices for 3 of 3 kernels, the rules' own for the rest"]
    description = load_metadata(tmp_path / "several")["umakit"]
    tuned = section_for(description, CPU)
    assert tuned["choices"] == {"kernels": 3, "tuned": 3}
    assert "choices" not in section_for(description, others)


def choice(value: Any, **changed: Any) -> None:
    value["kernels"][0]["choice"].update(changed)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "CPU": (
        lambda v: put(v, "cortex-a76", "owner", "cpu", "name"),
        "records are of cortex-a76, not of x86-64-v3; tune for this CPU, into another file",
    ),
    "figures of the CPU": (
        lambda v: put(v, 32, "owner", "cpu", "vector_registers"),
        "records are for a CPU with vector_registers 32, x86-64-v3 has 16; tune again",
    ),
    "model": (
        lambda v: put(v, "0" * 64, "owner", "model", "sha256"),
        r"records are of net \(SHA-256 000000000000\.\.\.\), not of",
    ),
    "kernel": (
        lambda v: put(v, [1, 99, 12, 8], "kernels", 0, "kernel", "data"),
        r"the network has no kernel .* 1x99x12x8 .* for x86-64-v3; tune with the same --input-s",
    ),
    "choice": (
        lambda v: choice(v, positions=999),
        r"kernel .* cannot have the choice 999x.*; tune again, into another file",
    ),
    "key": (lambda v: choice(v, depth=3), r"kernels\.0\.choice\.depth"),
    "number": (lambda v: choice(v, positions="3"), r"kernels\.0\.choice\.positions"),
    "no origin": (lambda v: put(v, None, "origin"), "records of a CPU have an origin"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_records_are_refused(name: str, model: Path, records: Path, tmp_path: Path) -> None:
    edit, message = REFUSED[name]
    path = change(records, tmp_path / "records.json", edit)
    options = ExportOptions(cpu=CPU, records=path)
    with pytest.raises(RecordsError, match=message):
        compile_model(model, [], tmp_path / "library", options=options)
    assert not (tmp_path / "library").exists()


def test_mistakes_are_one_sentence(
    model: Path, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, here = str(tmp_path / "new.json"), cpu_here(CPU)
    tune = ["tune", str(model), "-o"]
    chocolate = ["-b", "chocolate_accelerator"]
    compiling = ["compile", str(model), "-o", str(tmp_path / "library"), "--records", str(records)]
    for arguments, message in (
        ([*tune, new], "there is neither --backend nor --cpu"),
        ([*tune, new, "--cpu", CPU, *chocolate], "there is both --backend and --cpu"),
        ([*tune, new, "--cpu", CPU, "--workers", "2"], "--workers has no meaning with --cpu"),
        ([*tune, new, *chocolate, "--trials", "2"], "--trials has no meaning with --backend"),
        ([*tune, new, "--cpu", "pdp-11"], "there is no CPU 'pdp-11'"),
        (
            [*tune, new, "--cpu", "cortex-m4"],
            "kernels for cortex-m4 cannot be tuned here: this machine is x86-64; choose --device "
            "qemu-cortex-m4",
        ),
        (
            [*tune, new, "--cpu", "cortex-a76", "--device", "qemu-aarch64"],
            "qemu-aarch64 has no times, and does not count instructions; tune where this CPU is",
        ),
        ([*tune, new, "--cpu", "generic"], "no kernel of net has a choice on generic"),
        ([*tune, str(tmp_path / "no" / "r.json"), "--cpu", here], "no such folder"),
        ([*tune, str(model), "--cpu", here], "is an input"),
        (
            ["tune", str(model), "-r", str(records), *chocolate, "--simulate", "0"],
            "records are of x86-64-v3, not of chocolate_accelerator",
        ),
        (compiling, "records are of x86-64-v3, not of generic; give --cpu x86-64-v3"),
        ([*compiling, "--cpu", "cortex-a76"], "records are of x86-64-v3, not of cortex-a76"),
    ):
        assert run_command(arguments) == 2, arguments
        said = capsys.readouterr().err
        assert message in " ".join(said.split()) and "Traceback" not in said, said
    assert not list(tmp_path.iterdir())


def test_figures_of_another_machine_are_refused(model: Path, records: Path, tmp_path: Path) -> None:
    path = change(records, tmp_path / "r.json", lambda v: put(v, "another", "origin", "machine"))
    with pytest.raises(RecordsError, match="its machine is 'another', not 'a machine'; tune again"):
        tuned(model, path, FakeMeter({}))


def test_kernels_that_an_accelerator_left_have_their_choices(
    model: Path, records: Path, tmp_path: Path
) -> None:
    options = ExportOptions(cpu=CPU, records=records)
    backend = find_backend("vanilla_accelerator")
    library = compile_model(model, [backend], tmp_path / "library", options=options)
    found = library.metadata["umakit"]["choices"]
    assert library.report.offloaded and 0 < found["tuned"] == found["kernels"] < 3


def test_records_of_which_an_accelerator_took_all_kernels_are_refused(tmp_path: Path) -> None:
    network = QuantizedNetwork(8, 8, 4).conv2d(8).conv2d(12, kernel=1).model("quantized")
    path = tmp_path / "records.json"
    tune_cpu(import_network(network.module), CPU, path, FakeMeter({}), effort=CpuEffort(1))
    assert len(read_records(path).kernels) == 2
    options = ExportOptions(cpu=CPU, records=path)
    backend = find_backend("chocolate_accelerator")
    with pytest.raises(RecordsError, match=r"no kernel .*; leave the records out if accelerators"):
        compile_model(network.module, [backend], tmp_path / "library", options=options)


# --- whole tuning --------------------------------------------------------------------------------


def test_times_are_measured_on_this_machine(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cpu = tmp_path / "records.json", cpu_here("x86-64-v3")
    call = ["tune", str(model), "--cpu", cpu, "-o", str(path), "--trials", "1"]
    assert run_command([*call, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "trial 1 of 1: " in printed.err
    assert found["origin"]["figures"] == "times" and found["origin"]["device"] == "host"
    assert found["instructions"] is None and found["trials"] == 1 and found["is_complete"]
    assert found["origin"]["compiler"] and len(found["kernels"]) == 3
    for kernel in found["kernels"]:
        assert (kernel["times"] is None) == (kernel["choice"] == kernel["own"])
    assert run_command(call) == 0
    printed = capsys.readouterr()
    assert f"All is in {path}" in printed.out
    assert f"Next: uma compile {model} --cpu {cpu} --records {path} -o" in printed.out
    library = tmp_path / "library"
    assert run_command([*printed.out.split("uma ")[1].split()[:-1], str(library)]) == 0
    value = {"x": normal(1, 8, 12, 12)}
    plain = compile_model(model, [], tmp_path / "plain", options=ExportOptions(cpu="generic"))
    (wanted,) = run_library(plain.path, value).outputs.values()
    (got,) = run_library(library, value).outputs.values()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_c_that_measures_has_no_warnings(
    compiler: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    cpu = cpu_here("x86-64-v3")
    options = ExportOptions(cpu=cpu, weights="blob")
    library = compile_model(model, [], tmp_path / "library", options=options)
    # Without the CPU's instructions, functions of a file return vectors in the compiler's own way.
    vectors = [] if cpu == "x86-64-v3" else ["-Wno-psabi"]
    monkeypatch.setenv("CC", " ".join([compiler, "-std=c99", *WARNINGS, *vectors]))
    timed = TimedLibrary(library.path, {"x": normal(1, 8, 12, 12)}, tmp_path)
    times = take_turns([timed, timed], 2)
    assert times.shape == (2, 2, len(library.metadata["umakit"]["layers"])) and (times >= 0).all()
    assert timed.repeats > 1 and times.sum() > 0


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")),
    reason="needs a compiler and QEMU for Cortex-M",
)
def test_instructions_are_counted_on_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = QuantizedNetwork(6, 6, 4).conv2d(8, kernel=3).dense(20).model("quantized")
    module = tmp_path / "net.json"
    from umakit import tvm_api

    module.write_text(tvm_api.tvm.ir.save_json(network.module), encoding="utf-8")
    path = tmp_path / "records.json"
    call = [
        "tune", str(module), "--cpu", "cortex-m4", "--device", "qemu-cortex-m4", "-o", str(path),
        "--json", "--trials", "2",
    ]  # fmt: skip
    assert run_command(call) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["origin"]["figures"] == "instructions" and found["times"] is None
    device = find_device("qemu-cortex-m4").name
    records = read_records(path)
    assert records.origin is not None and records.origin.device == device
    for record in records.kernels:
        assert record.times is None
        assert (record.instructions is None) == (record.choice == record.own)
        if record.instructions is not None:
            assert record.instructions < (record.own_instructions or 0)
