# SPDX-License-Identifier: Apache-2.0
"""`umakit.torch.offload` and `torch.compile(backend="umakit")`, against PyTorch's own results."""

from __future__ import annotations

import copy
import importlib.util
import operator
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st

import umakit
from umakit.errors import InputError, ModelError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")

from torch import nn  # noqa: E402  needs torch
from torch_networks import Function, randomize, tensor  # noqa: E402  needs torch

import umakit.torch  # noqa: E402  needs torch
from umakit.torch.regions import clusters, copy_shared_operands, extract  # noqa: E402

ROOT = Path(__file__).parents[1]
VANILLA, STRAWBERRY, CHOCOLATE = (
    f"{name}_accelerator" for name in ("vanilla", "strawberry", "chocolate")
)
needs_torchao = pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="needs torchao"
)


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def assert_same(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(umakit_leaves(found), umakit_leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def umakit_leaves(value: Any) -> list[Any]:
    return list(torch.utils._pytree.tree_leaves(value))


def conv(channels: int = 8) -> Any:
    return nn.Conv2d(channels, channels, 3, padding=1, bias=False)


class Residual(nn.Module):  # type: ignore[misc]
    """Convolutions that Vanilla takes, and what it does not take between and around them."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first, self.second = conv(channels), conv(channels)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        return self.act(self.norm(self.first(x))) + self.second(x)


def residual() -> Any:
    return randomize(Residual())


# --- offload --------------------------------------------------------------------------------------


def test_what_an_accelerator_takes_is_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    module, x = residual(), tensor(1, 8, 6, 6)
    offloaded = umakit.torch.offload(module, VANILLA, x)
    assert_same(offloaded(x), module(x))
    calls = [str(node.target) for node in offloaded.network.graph.nodes]
    assert not any("conv2d" in each for each in calls), calls
    assert sum(each.startswith("region_") for each in calls) == len(offloaded.regions) == 1
    where = {row.name: (row.where, row.reason) for row in offloaded.offload.placements}
    assert where["first"] == where["second"] == (VANILLA, "")
    assert where["act"] == ("pytorch", "no pattern covers nn.relu")
    macs = 2 * 8 * 8 * 9 * 36
    assert offloaded.offload.offloaded_macs == offloaded.offload.partitioned_macs == macs
    assert "2 of 6 operators offloaded, 100.0 % of 41,472 MACs" in str(offloaded.offload)
    assert capfd.readouterr() == ("", "")


def test_nothing_to_offload_leaves_all_to_pytorch() -> None:
    module, x = nn.Linear(3, 4).eval(), tensor(2, 3)
    offloaded = umakit.torch.offload(module, VANILLA, x)
    assert torch.equal(offloaded(x), module(x)) and not offloaded.regions
    assert offloaded.offload.offloaded_macs == 0


def test_arguments_results_and_exported_programs_are_as_in_the_module() -> None:
    class Pair(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = conv()

        def forward(self, x: Any, *, scale: Any, parts: dict[str, Any]) -> dict[str, Any]:
            y = self.conv(x) * scale
            return {"sum": y + parts["a"], "pair": (y, self.conv(parts["b"]))}

    module = randomize(Pair())
    x, a, b = tensor(1, 8, 5, 5), tensor(1, 8, 5, 5, seed=2), tensor(1, 8, 5, 5, seed=3)
    keywords = {"scale": tensor(1), "parts": {"a": a, "b": b}}
    wanted = module(x, **keywords)
    made = umakit.torch.offload(module, [VANILLA], (x,), keywords=keywords)
    program = torch.export.export(module, (x,), keywords)
    other = umakit.torch.offload(program, umakit.find_backend(VANILLA), (x,), keywords=keywords)
    for offloaded in (made, other):
        found = offloaded(x, **keywords)
        assert found.keys() == wanted.keys() and isinstance(found["pair"], tuple)
        assert_same(found, wanted)
        assert len(offloaded.regions) == 1


def test_operators_that_umakit_does_not_import_stay_with_their_reason() -> None:
    def forward(self: Any, x: Any) -> Any:
        y = self.first(x)
        spectrum = torch.fft.fft(y).real
        half = (y.half() * 2).float()
        distinct, places = torch.unique(y.round(), return_inverse=True)
        chosen = torch.cond(y.sum() > 0, lambda t: t + 1, lambda t: t - 1, (spectrum + half,))
        return self.second(chosen), distinct, places

    module = Function(forward, first=randomize(conv()), second=randomize(conv(), 1)).eval()
    x = tensor(1, 8, 6, 6)
    offloaded = umakit.torch.offload(module, VANILLA, x)
    assert_same(offloaded(x), module(x), 1e-4)
    assert len(offloaded.regions) == 2
    reasons = {row.operator: row.reason for row in offloaded.offload.placements}
    assert "complex64" in reasons["aten.fft_fft.default"]
    assert "cannot be given a static type" in reasons["aten._unique2.default"]
    assert "float16" in reasons["aten._to_copy.default"]
    assert any("is not supported" in reason for name, reason in reasons.items() if "cond" in name)
    assert offloaded.offload.offloaded_macs == 2 * 8 * 8 * 9 * 36


def test_buffers_that_a_network_writes_are_written() -> None:
    class Counting(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return super().forward(x) * self.calls

    module, x = randomize(Counting()), tensor(1, 8, 6, 6)
    module.calls.zero_()
    offloaded = umakit.torch.offload(module, VANILLA, x)
    for _ in range(3):
        assert_same(offloaded(x), module(x))
    assert len(offloaded.regions) == 1


def test_regions_are_compiled_again_for_other_shapes() -> None:
    module, x = residual(), tensor(1, 8, 6, 6)
    size = torch.export.Dim("size", min=4, max=64)
    offloaded = umakit.torch.offload(module, VANILLA, x, dynamic_shapes={"x": {2: size, 3: size}})
    for extent in (6, 9, 7, 9):
        y = tensor(1, 8, extent, extent)
        assert_same(offloaded(y), module(y))
    (region,) = offloaded.regions
    assert list(region.libraries) == [((1, 8, extent, extent),) for extent in (6, 9, 7)]
    assert all(library is not None for library in region.libraries.values())


def test_offloaded_modules_are_saved_and_loaded_in_another_process(tmp_path: Path) -> None:
    module, x = residual(), tensor(1, 8, 6, 6)
    offloaded = umakit.torch.offload(module, VANILLA, x)
    torch.save(offloaded, tmp_path / "network.pt")
    torch.save((x, offloaded(x)), tmp_path / "pair.pt")
    script = (
        "import torch, umakit.torch\n"
        "network = torch.load('network.pt', weights_only=False)\n"
        "x, wanted = torch.load('pair.pt')\n"
        "assert torch.equal(network(x), wanted) and len(network.regions) == 1\n"
        "print(network.offload.offloaded_macs)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "41472\n"


def test_offloaded_modules_are_exported() -> None:
    module, x = residual(), tensor(1, 8, 6, 6)
    offloaded = umakit.torch.offload(module, VANILLA, x)
    exported = torch.export.export(offloaded, (x,))
    assert torch.equal(exported.module()(x), offloaded(x))
    assert "umakit.region_0_" in str(exported.graph)
    y = tensor(1, 8, 7, 7)
    with pytest.raises(Exception, match="call the module with such tensors before"):
        torch.export.export(offloaded.network.region_0, (y,))


def test_a_comparison_says_what_differs_and_how_long_it_takes() -> None:
    module, x = residual(), tensor(1, 8, 6, 6)
    offloaded = umakit.torch.offload(module, VANILLA, x)
    compared = offloaded.compare(x, repeats=2)
    whole = compared.differences[-1]
    assert whole.where == "whole network" and whole.shape == (1, 8, 6, 6)
    difference = float((offloaded(x) - module(x)).abs().max())
    assert whole.largest == pytest.approx(difference, abs=1e-6)
    assert compared.differences[0].where == "region_0: first + second"
    assert compared.eager_seconds > 0 and compared.offloaded_seconds > 0
    assert "PyTorch alone" in str(compared)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((nn.Linear(2, 2), "nowhere_accelerator", torch.zeros(1, 2)), "nowhere_accelerator"),
        ((nn.Linear(2, 2), [], torch.zeros(1, 2)), "no backend is given"),
        ((nn.Linear(2, 2), [3], torch.zeros(1, 2)), "3 is not a backend"),
        (("model.pt", VANILLA, torch.zeros(1, 2)), "str is not a module of PyTorch"),
        ((nn.Linear(2, 2), VANILLA, torch.zeros(1, 3)), "torch cannot export the module"),
    ],
)
def test_mistakes_are_told_in_one_sentence(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(umakit.UmakitError, match=said) as raised:
        umakit.torch.offload(*arguments)
    assert len(str(raised.value).splitlines()) == 1


def test_records_of_tuning_are_refused() -> None:
    options = umakit.ExportOptions(records="records.json")
    with pytest.raises(InputError, match="records of tuning belong to whole networks"):
        umakit.torch.offload(residual(), VANILLA, tensor(1, 8, 6, 6), options=options)


def test_data_dependent_control_flow_cannot_be_exported() -> None:
    module = Function(lambda _, x: x + 1 if x.sum() > 0 else x - 1)
    with pytest.raises(ModelError, match="torch cannot export the module"):
        umakit.torch.offload(module, VANILLA, tensor(2, 3))


# --- quantized networks ---------------------------------------------------------------------------


@needs_torchao
@pytest.mark.parametrize(("backend", "per_channel"), [(STRAWBERRY, False), (CHOCOLATE, True)])
def test_layers_of_torchao_are_within_one_lsb(backend: str, per_channel: bool) -> None:
    from test_torch_quantized import normalized_block, pt2e, quantizer_of

    x = tensor(1, 3, 8, 8)
    quantizer = quantizer_of("xnnpack", is_per_channel=per_channel)
    program = pt2e(normalized_block(), x, quantizer)
    offloaded = umakit.torch.offload(program, backend, x)
    offload = offloaded.offload
    assert offload.offloaded_macs == offload.partitioned_macs > 0
    parts = [row for row in offloaded.compare(x, repeats=1).differences if "region" in row.where]
    assert {row.dtype for row in parts} == {"int8"}
    assert max(row.largest for row in parts) <= 1


# --- sweeps ---------------------------------------------------------------------------------------


@st.composite
def drawn_networks(draw: st.DrawFn) -> Any:
    """A graph of operators that read any earlier results, some of which accelerators take."""
    steps: list[tuple[str, list[int]]] = []
    kinds = [
        "conv",
        "conv",
        "wide",
        "relu",
        "relu_",
        "add",
        "mul",
        "fft",
        "norm",
        "chunk",
        "unique",
    ]
    for number in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(kinds))
        steps.append((kind, [draw(st.integers(0, number)) for _ in range(2)]))
    outputs = draw(st.lists(st.integers(0, len(steps)), min_size=1, max_size=3))
    return steps, outputs


def network_of(steps: Any, outputs: Any) -> Any:
    layers = {
        f"{kind}_{number}": nn.BatchNorm2d(4) if kind == "norm" else
        nn.Conv2d(4, 4, 3, padding=1, bias=kind == "wide", groups=1)
        for number, (kind, _) in enumerate(steps) if kind in ("conv", "wide", "norm")
    }  # fmt: skip

    def forward(self: Any, x: Any) -> Any:
        values = [x]
        for number, (kind, (one, other)) in enumerate(steps):
            a, b = values[one], values[other]
            if kind in ("conv", "wide", "norm"):
                made = getattr(self, f"{kind}_{number}")(a)
            elif kind == "relu_":
                made = torch.relu_(a.clone())
            elif kind == "fft":
                made = torch.fft.fft(a).real
            elif kind == "chunk":
                made = torch.cat([torch.tanh(p) for p in reversed(a.chunk(2, 1))], 1)
            elif kind == "unique":
                made = a + torch.unique(b.sign()).sum()
            else:
                made = {"relu": torch.relu(a), "add": a + b, "mul": torch.tanh(a) * b}[kind]
            values.append(made / 2)
        return tuple(values[each] for each in outputs)

    return randomize(Function(forward, **layers))


@examples(5)
@given(drawn_networks())
def test_drawn_networks_are_computed_as_by_pytorch(drawn: Any) -> None:
    module, x = network_of(*drawn), tensor(1, 4, 5, 5)
    with torch.no_grad():
        offloaded = umakit.torch.offload(module, VANILLA, x)
        for y in (x, tensor(1, 4, 5, 5, seed=9)):
            assert_same(offloaded(y), module(y), 1e-4)
    offload = offloaded.offload
    assert offload.offloaded_macs >= 0.9 * offload.partitioned_macs
    used = [row for row in offload.placements if row.where == VANILLA]
    assert bool(used) == bool(offloaded.regions)


@examples(10)
@given(drawn_networks(), st.data())
def test_groups_of_any_nodes_are_extracted(drawn: Any, data: st.DataObject) -> None:
    """Each node belongs to at most one group, and the graph computes the same."""
    module, x = network_of(*drawn), tensor(1, 4, 5, 5)
    with torch.no_grad():
        program = torch.export.export(module, (x,)).run_decompositions({})
        graph = program.module()
        copy_shared_operands(graph.graph)
        tensors = [
            node.name
            for node in graph.graph.nodes
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
            and node.target is not operator.getitem
        ]  # fmt: skip
        names = data.draw(st.sets(st.sampled_from(tensors))) if tensors else set()
        groups = clusters(graph.graph, lambda node: node.name in names)
        outer, regions = extract(graph, groups)
        assert_same(outer(x), module(x), 1e-5)
    inside = [node for group in groups for node in group]
    assert len(inside) == len(set(inside)) and {node.name for node in inside} <= names
    assert len(regions) == len(groups)


# --- torch.compile --------------------------------------------------------------------------------


def compiled(module: Any, reports: list[Any], **options: Any) -> Any:
    options = {"accelerators": VANILLA, "report": reports.append, **options}
    return torch.compile(module, backend="umakit", options=options)


def test_torch_finds_the_backend_by_its_name() -> None:
    assert "umakit" in torch.compiler.list_backends()


def test_graphs_are_offloaded_for_each_shape() -> None:
    module, reports = residual(), []
    function = compiled(module, reports)
    for size in (6, 7, 8, 6):
        x = tensor(1, 8, size, size)
        assert_same(function(x), module(x))
    macs = [report.offload.offloaded_macs for report in reports]
    assert macs[:3] == [2 * 8 * 8 * 9 * size**2 for size in (6, 7, 8)]
    assert {row.name for row in reports[0].offload.placements} >= {"first", "second", "act"}


def test_graph_breaks_leave_what_is_between_to_python() -> None:
    first, second = randomize(conv()), randomize(conv(), 1)

    def forward(self: Any, x: Any) -> Any:
        y = self.first(x)
        torch._dynamo.graph_break()
        return self.second(y)

    module, reports = Function(forward, first=first, second=second).eval(), []
    x = tensor(1, 8, 6, 6)
    assert_same(compiled(module, reports)(x), module(x))
    assert [report.offload.offloaded_macs for report in reports] == [20736, 20736]
    assert any("graph_break" in each for report in reports for each in report.graph_breaks)
    reports.clear()
    compiled(randomize(conv()), reports)(x)
    assert [report.graph_breaks for report in reports] == [()]


def test_gradients_and_dtypes_are_left_to_pytorch_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, reports = residual(), []
    function, x = compiled(module, reports, explain=True), tensor(1, 8, 6, 6)
    with torch.enable_grad():
        function(x).sum().backward()
    assert module.first.weight.grad is not None
    assert reports[-1].reason == "gradients are needed: call it under torch.no_grad()"
    half = residual().half()
    assert torch.equal(compiled(half, reports)(x.half()), half(x.half()))
    assert "float16" in reports[-1].offload.placements[0].reason
    assert "gradients are needed" in capsys.readouterr().err


def test_changed_weights_are_used() -> None:
    module, reports, x = residual(), [], tensor(1, 8, 6, 6)
    function = compiled(module, reports)
    assert_same(function(x), module(x))
    module.first.weight.mul_(2)
    assert_same(function(x), module(x))
    module.load_state_dict(randomize(Residual(), 5).state_dict())
    assert_same(function(x), module(x))
    assert len(reports) == 3


class Accumulating(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(1, 8, 6, 6))

    def forward(self, x: Any) -> Any:
        self.sum.add_(self.first(x))
        return self.sum * 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Function(lambda self, x: self.conv(x.mul_(2)), conv=conv()),
            "an input is changed",
        ),
        (Accumulating, "a buffer or weight is changed"),
        (lambda: Residual().train(), "a buffer or weight is changed"),
        (lambda: nn.Sequential(conv(), nn.Dropout()).train(), "draws random numbers"),
        (
            lambda: nn.Sequential(conv(), nn.InstanceNorm2d(8, track_running_stats=True)).train(),
            "normalizes with the statistics",
        ),
    ],
    ids=["input", "buffer", "training", "dropout", "instance norm"],
)
def test_effects_happen_once_for_each_call(make: Any, said: str) -> None:
    torch.manual_seed(3)
    module = make()
    other = copy.deepcopy(module)
    reports: list[Any] = []
    function = compiled(module, reports)
    for call in range(2):
        x, y = tensor(1, 8, 6, 6), tensor(1, 8, 6, 6)
        torch.manual_seed(call)
        wanted = other(x)
        torch.manual_seed(call)
        assert torch.equal(function(y), wanted) and torch.equal(x, y)
    assert_same(dict(module.named_buffers()), dict(other.named_buffers()), 0)
    assert len(reports) == 1 and said in reports[0].reason


def test_an_analysis_changes_nothing() -> None:
    """The schema of instance_norm does not say that it writes running statistics."""
    norm = nn.InstanceNorm2d(8, track_running_stats=True).train()
    module, x = nn.Sequential(conv(), norm), tensor(1, 8, 6, 6)
    before = copy.deepcopy(dict(module.named_buffers()))
    umakit.torch.offload(module, VANILLA, x)
    assert_same(dict(module.named_buffers()), before, 0)


def test_weights_of_inference_mode_are_left_to_pytorch() -> None:
    reports: list[Any] = []
    with torch.inference_mode():
        module, x = residual(), tensor(1, 8, 6, 6)
        function = compiled(module, reports)
        assert torch.equal(function(x), module(x))
    assert "torch.inference_mode" in reports[0].reason


def test_threads_compile_and_offload_at_the_same_time() -> None:
    module, reports, x = residual(), [], tensor(1, 8, 6, 6)
    function = compiled(module, reports)
    found: list[Any] = []

    def work(number: int) -> None:
        with torch.no_grad():
            if number % 2:
                found.append(umakit.torch.offload(module, VANILLA, x)(x))
            else:
                found.append(function(x))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert_same(found, [module(x)] * 4)
    assert not torch.compiler.is_exporting()


def test_results_are_constants_to_autograd(recwarn: pytest.WarningsRecorder) -> None:
    module, x = residual(), tensor(1, 8, 6, 6).requires_grad_()
    offloaded = umakit.torch.offload(module, VANILLA, x.detach())
    with torch.enable_grad():
        part = offloaded.regions[0](x)
    assert not any(each.requires_grad for each in umakit_leaves(part))
    assert not [each for each in recwarn if "autograd" in str(each.message)]


def test_other_shapes_and_other_types_are_one_sentence() -> None:
    offloaded = umakit.torch.offload(residual(), VANILLA, tensor(1, 8, 6, 6))
    with pytest.raises(InputError, match="was exported for other inputs: Guard failed"):
        offloaded(tensor(1, 8, 7, 7))
    with pytest.raises(InputError, match="was exported for other inputs: Guard failed"):
        offloaded.compare(tensor(1, 8, 7, 7))
    with pytest.raises(InputError, match="an argument is a ndarray of NumPy"):
        offloaded(tensor(1, 8, 6, 6).numpy())
    (library,) = offloaded.regions[0].libraries.values()
    with pytest.raises(InputError, match="the value is a ndarray, not a tensor"):
        library(tensor(1, 8, 6, 6).numpy())
    with pytest.raises(InputError, match="options are a dict"):
        umakit.torch.offload(residual(), VANILLA, tensor(1, 8, 6, 6), options={})
    with pytest.raises(InputError, match="3 is not a backend"):
        umakit.torch.offload(residual(), 3, tensor(1, 8, 6, 6))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accelerators": VANILLA, "report": 3}, "report is not a function"),
        ({}, "no accelerator is given"),
        ({"accelerators": VANILLA, "speed": 1}, "there is no option 'speed'"),
        ({"accelerators": "nowhere_accelerator"}, "nowhere_accelerator"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], said: str) -> None:
    function = torch.compile(nn.Linear(2, 2), backend="umakit", options=options)
    with pytest.raises(Exception, match=said):
        function(torch.zeros(1, 2))


# --- the page -------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?")


def without_numbers(text: str) -> str:
    """A text with each number as `#`, without the spaces and lines that depend on its length."""
    return re.sub(r"[ \u2500]+", " ", NUMBER.sub("#", text))


@needs_torchao
@pytest.mark.page
def test_programs_of_the_tutorial_print_what_it_shows(tmp_path: Path) -> None:
    """Figures of trained networks differ from machine to machine; what is offloaded does not."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = (ROOT / "docs/pytorch-tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL)
    program = "\n".join(text for language, text in blocks if language == "python")
    shown = "".join(text for language, text in blocks if language == "text")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert without_numbers(ended.stdout) == without_numbers(shown)
    assert re.findall(r"[\d.]+ % of [\d,]+ MACs", ended.stdout) == re.findall(
        r"[\d.]+ % of [\d,]+ MACs", shown
    )
    rights = [int(count) for count in re.findall(r"(\d+) of 140 are right", ended.stdout)]
    assert rights[0] > 125 and rights[1] < rights[0] and rights[2] > 125
    noise = [float(each) for each in re.findall(r"relu_1 +([\d.]+) dB", ended.stdout)]
    assert noise[1] > noise[0] + 3
