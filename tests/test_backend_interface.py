# SPDX-License-Identifier: Apache-2.0
"""What a backend registers is what happens: UMA v1's interface on Relax, piece by piece."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from umakit.backends.vanilla_accelerator.backend import VanillaAcceleratorBackend
from umakit.backends.vanilla_accelerator.patterns import conv2d_pattern
from umakit.cli.main import run_command

from umakit import (
    OpStrategy,
    PassPhase,
    UMABackend,
    compile_model,
    import_model,
    run_library,
    tir,
    tvm_api,
)
from umakit.errors import BackendError, DeviceError, InputError, LoweringError
from umakit.library.export import Library
from umakit.partition.partitioner import partition
from umakit.partition.report import OperatorPlacement
from umakit.registration.registered import RELAX_PHASES
from umakit.testing.harness import AOTModel, compile_and_run

relax, tirx, topi = tvm_api.relax, tvm_api.tirx, tvm_api.topi
is_op, wildcard = tvm_api.is_op, tvm_api.wildcard
Array = npt.NDArray[Any]

CONFIGURATION = """\
[accelerator]
name = "NAME"

[array]
rows = 4
columns = 4
"""

_numbers = itertools.count()


class Npu(UMABackend):
    """A backend without a driver: what it takes runs as plain loops."""

    def __init__(
        self, folder: Path | None = None, name: str = "", merge_compiler_regions: bool = True
    ) -> None:
        self._name = name or f"npu{next(_numbers)}"
        self._folder = folder
        super().__init__(merge_compiler_regions)

    @property
    def target_name(self) -> str:
        return self._name

    @property
    def folder(self) -> Path:
        assert self._folder is not None
        (self._folder / "accel.toml").write_text(CONFIGURATION.replace("NAME", self._name))
        return self._folder


def convolution() -> Any:
    return is_op("relax.nn.conv2d")(wildcard(), wildcard())


def convolution_relu() -> Any:
    return is_op("relax.nn.relu")(convolution())


@pytest.fixture
def npu(tmp_path: Path) -> Npu:
    """A backend that takes every convolution."""
    backend = make_npu(tmp_path)
    backend._register_pattern("conv2d", convolution())
    return backend


def make_npu(folder: Path, name: str = "") -> Npu:
    chosen = folder / (name or "backend")
    chosen.mkdir(exist_ok=True)
    return Npu(chosen, name)


# --- networks -----------------------------------------------------------------------------------

random = np.random.default_rng(0)
IMAGE = random.standard_normal((1, 2, 6, 6)).astype("float32")
WEIGHTS = random.standard_normal((4, 2, 3, 3)).astype("float32")
MORE_WEIGHTS = random.standard_normal((3, 4, 1, 1)).astype("float32")


def network(build: Callable[[Any, Any], Any], image: Array = IMAGE) -> Any:
    """A Relax module that `build(builder, x)` fills."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(image.shape, str(image.dtype)))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x), "result")
        builder.emit_func_output(result)
    return builder.get()


def conv(builder: Any, x: Any, name: str, weights: Array = WEIGHTS, **attributes: Any) -> Any:
    weight = relax.const(weights, str(weights.dtype))
    return builder.emit(relax.op.nn.conv2d(x, weight, **attributes), name)


def one_convolution(**attributes: Any) -> Any:
    return network(lambda b, x: conv(b, x, "conv", **attributes))


def conv_relu_conv() -> Any:
    """conv1 -> relu1 -> conv2 -> add1."""

    def build(builder: Any, x: Any) -> Any:
        x = builder.emit(relax.op.nn.relu(conv(builder, x, "conv1", padding=1)), "relu1")
        x = conv(builder, x, "conv2", MORE_WEIGHTS)
        return builder.emit(relax.op.add(x, relax.const(1.0)), "add1")

    return network(build)


def reference(module: Any) -> Array:
    """TVM's LLVM build."""
    return tvm_api.llvm_executable(module)["main"](tvm_api.to_device(IMAGE)).numpy()


def library_of(module: Any, backends: Sequence[UMABackend], folder: Path) -> Library:
    return compile_model(module, backends, folder / "library", name="net")


def result_of(library: Library) -> Array:
    (output,) = run_library(library.path, {"x": IMAGE}).outputs.values()
    return output


def run(module: Any, backends: Sequence[UMABackend], folder: Path) -> Array:
    return result_of(library_of(module, backends, folder))


def model_source(library: Library) -> str:
    return (library.path / "codegen/host/src/tvmgen_net.c").read_text(encoding="utf-8")


def composites(module: Any) -> list[str]:
    """Names of the composite functions of a partitioned module."""
    return sorted(re.findall(r'"Composite": "([^"]+)"', module.script()))


def placements(module: Any, *backends: UMABackend) -> dict[str, OperatorPlacement]:
    """Rows of the offload report by the operator's name in the network."""
    partitioned = partition(import_model(module).module, backends)
    return {row.name: row for row in partitioned.report.placements}


def assert_close(got: Array, wanted: Array) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


# --- passes -------------------------------------------------------------------------------------


def what(function: Any) -> str:
    """What a TIR pass was given: the composite's name."""
    return tir.composite_name(function)


def test_passes_run_phase_by_phase_and_in_order_of_registration(npu: Npu, tmp_path: Path) -> None:
    seen: list[tuple[PassPhase, int]] = []

    def recorder(phase: PassPhase, number: int) -> Any:
        def note(item: Any) -> Any:
            seen.append((phase, number))
            return item

        return note if phase in RELAX_PHASES else tir.prim_func_pass("note", note)

    for phase in reversed(PassPhase):
        register = npu._register_relax_pass if phase in RELAX_PHASES else npu._register_tir_pass
        for number in (1, 2, 3):
            register(phase, recorder(phase, number))
    run(one_convolution(), [npu], tmp_path)
    assert seen == [(phase, number) for phase in PassPhase for number in (1, 2, 3)]


def test_relax_passes_see_the_network_as_their_phase_promises(npu: Npu, tmp_path: Path) -> None:
    seen: dict[PassPhase, Any] = {}
    for phase in RELAX_PHASES:
        npu._register_relax_pass(phase, lambda module, phase=phase: seen.setdefault(phase, module))
    run(conv_relu_conv(), [npu], tmp_path)

    def attributes(phase: PassPhase, name: str) -> list[str]:
        functions = [function for _, function in tvm_api.relax_functions(seen[phase])]
        found = [tvm_api.function_attribute(function, name) for function in functions]
        return [str(value) for value in found if value is not None]

    pre, post_0, post_1 = RELAX_PHASES
    assert [str(v.name_hint) for v, _ in tvm_api.relax_functions(seen[pre])] == ["main"]
    assert composites(seen[pre]) == []
    assert composites(seen[post_0]) == [f"{npu.target_name}.conv2d"] * 2
    assert attributes(post_0, "Codegen") == [npu.target_name] * 2
    assert attributes(post_1, "Codegen") == []
    assert attributes(post_1, "Composite") == [f"{npu.target_name}.conv2d"] * 2


def test_tir_passes_see_the_loops_as_their_phase_promises(npu: Npu, tmp_path: Path) -> None:
    seen: dict[PassPhase, Any] = {}

    def unroll_kernel(schedule: Any) -> None:
        block = schedule.get_child_blocks(schedule.get_sblock("root"))[-1]
        schedule.unroll(schedule.get_loops(block)[-1])

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        chosen = OpStrategy()
        chosen.add_implementation(plain_convolution, unroll_kernel)
        return chosen

    npu._register_operator_strategy("nn.conv2d", strategy)
    phases = [phase for phase in PassPhase if phase not in RELAX_PHASES]
    for phase in phases:
        note = tir.prim_func_pass("note", lambda f, phase=phase: seen.setdefault(phase, f))
        npu._register_tir_pass(phase, note)
    run(one_convolution(), [npu], tmp_path)

    blocks = {p: tvm_api.collect(seen[p].body, tvm_api.s_tir.SBlock) for p in phases}
    loops = {p: tvm_api.collect(seen[p].body, tirx.For) for p in phases}
    unrolled = {p: [x for x in loops[p] if x.kind == tirx.ForKind.UNROLLED] for p in phases}
    ranks = {
        p: {len(s.indices) for s in tvm_api.collect(seen[p].body, tirx.BufferStore)} for p in phases
    }
    zero, one, two, three = phases
    assert [len(tir.buffer_shape(p)) for p in seen[zero].params] == [4, 4, 4]
    assert blocks[zero] and not any(blocks[phase] for phase in (one, two, three))
    assert ranks[zero] == {4} and ranks[one] == ranks[two] == ranks[three] == {1}
    assert unrolled[zero] and unrolled[one] and not unrolled[two] and not unrolled[three]


def test_tir_passes_run_on_prim_funcs_of_their_own_backend_only(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    small, other = make_npu(tmp_path, "small_npu"), make_npu(tmp_path, "other_npu")
    for backend, kernel in ((small, 1), (other, 3)):

        def predicate(context: Any, kernel: int = kernel) -> bool:
            return tvm_api.static_shape(context.matched_expr.args[1])[-1] == kernel

        def note(function: Any, name: str = backend.target_name) -> Any:
            seen.append((name, what(function)))
            return function

        backend._register_pattern("conv2d", convolution(), predicate)
        backend._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("note", note))
    module = conv_relu_conv()
    assert_close(run(module, [small, other], tmp_path), reference(module))
    assert sorted(seen) == [("other_npu", "other_npu.conv2d"), ("small_npu", "small_npu.conv2d")]


@tvm_api.mutator
class _WithoutRelu(tvm_api.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        return call.args[0] if tvm_api.operator_name(call) == "nn.relu" else call


def without_relu(module: Any) -> Any:
    """A Relax pass that removes every relu of `main`."""
    mutator = _WithoutRelu(module)
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return mutator.builder_.get()


@tvm_api.mutator
class _WithNegation(tvm_api.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if tvm_api.operator_name(call) != "nn.relu":
            return call
        return relax.op.negative(self.builder_.emit(relax.op.abs(call.args[0])))


def with_negation(module: Any) -> Any:
    """A Relax pass that puts two operators in the place of each relu of `main`."""
    mutator = _WithNegation(module)
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return mutator.builder_.get()


@pytest.mark.parametrize("change", [without_relu, with_negation])
@pytest.mark.parametrize("phase", RELAX_PHASES, ids=lambda phase: phase.name)
def test_what_a_relax_pass_changes_is_what_runs(
    phase: PassPhase, change: Any, npu: Npu, tmp_path: Path
) -> None:
    npu._register_relax_pass(phase, change)
    module = conv_relu_conv()
    library = library_of(module, [npu], tmp_path)
    assert_close(result_of(library), reference(change(module)))
    where = {row.name: row.where for row in library.report.placements}
    assert where["conv1"] == where["conv2"] == npu.target_name


@pytest.mark.parametrize(
    "phase", [p for p in PassPhase if p not in RELAX_PHASES], ids=lambda phase: phase.name
)
def test_what_a_tir_pass_changes_is_what_runs(phase: PassPhase, npu: Npu, tmp_path: Path) -> None:
    def start_at_one(function: Any) -> Any:
        def one(number: Any) -> Any:
            return tirx.FloatImm("float32", 1.0) if float(number.value) == 0.0 else number

        body = tvm_api.rewrite(function.body, [(tirx.FloatImm, one)])
        return tir.with_body(function, body)

    npu._register_tir_pass(phase, tir.prim_func_pass("start_at_one", start_at_one))
    module = one_convolution()
    assert_close(run(module, [npu], tmp_path), reference(module) + 1)


def test_a_pass_of_the_wrong_kind_is_refused(npu: Npu) -> None:
    for phase in PassPhase:
        if phase in RELAX_PHASES:
            with pytest.raises(BackendError, match=f"{phase.name} is a Relax phase; .*_relax_pass"):
                npu._register_tir_pass(phase, None)
        else:
            with pytest.raises(BackendError, match=f"{phase.name} is a TIR phase; .*_tir_pass"):
                npu._register_relax_pass(phase, None)
    assert not any(npu.passes.values())


def test_a_tir_pass_that_fails_is_named_with_its_phase(npu: Npu, tmp_path: Path) -> None:
    def fail(function: Any) -> Any:
        raise KeyError("weights")

    npu._register_tir_pass(PassPhase.TIR_PHASE_1, tir.prim_func_pass("fail", fail))
    with pytest.raises(LoweringError, match=r"TIR_PHASE_1 failed: .*weights") as caught:
        library_of(one_convolution(), [npu], tmp_path)
    assert npu.target_name in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "library").exists()


@pytest.mark.parametrize("phase", RELAX_PHASES, ids=lambda phase: phase.name)
def test_a_relax_pass_that_fails_is_named_with_its_phase(
    phase: PassPhase, npu: Npu, tmp_path: Path
) -> None:
    def fail(module: Any) -> Any:
        raise KeyError("weights")

    npu._register_relax_pass(phase, fail)
    with pytest.raises((BackendError, LoweringError), match=phase.name) as caught:
        library_of(one_convolution(), [npu], tmp_path)
    assert npu.target_name in str(caught.value) and "\n" not in str(caught.value)


# --- patterns and predicates --------------------------------------------------------------------


@pytest.mark.parametrize("first", ["conv2d_relu", "conv2d"])
def test_patterns_are_tried_in_order_of_registration(first: str, tmp_path: Path) -> None:
    patterns = {"conv2d_relu": convolution_relu(), "conv2d": convolution()}
    backend = make_npu(tmp_path)
    for name in sorted(patterns, key=lambda name: name != first):
        backend._register_pattern(name, patterns[name])
    target, module = backend.target_name, conv_relu_conv()
    rows = placements(module, backend)
    assert composites(backend.partition(module)) == [f"{target}.conv2d", f"{target}.{first}"]
    assert (rows["conv1"].where, rows["conv2"].where) == (target, target)
    if first == "conv2d_relu":
        assert (rows["relu1"].where, rows["relu1"].reason) == (target, "")
    else:
        assert rows["relu1"].where == "cpu"
        assert rows["relu1"].reason == "no pattern covers nn.relu"
    assert_close(run(module, [backend], tmp_path), reference(module))


def test_a_pattern_is_registered_once(npu: Npu) -> None:
    with pytest.raises(BackendError, match="pattern 'conv2d' is registered twice"):
        npu._register_pattern("conv2d", convolution())


def offered(predicate: Any, folder: Path) -> tuple[Npu, OperatorPlacement]:
    """A backend with a predicate, and the fate of a convolution."""
    backend = make_npu(folder)
    backend._register_pattern("conv2d", convolution(), predicate)
    return backend, placements(one_convolution(), backend)["conv"]


@pytest.mark.parametrize("answer", [True, np.True_])
def test_a_predicate_accepts_with_true(answer: Any, tmp_path: Path) -> None:
    backend, row = offered(lambda context: answer, tmp_path)
    assert (row.where, row.reason) == (backend.target_name, "")


def test_without_a_predicate_every_match_is_accepted(tmp_path: Path) -> None:
    backend, row = offered(None, tmp_path)
    assert row.where == backend.target_name


NO_REASON = (
    r"conv2d: refused without a reason: let its predicate \(\S+/test_backend_interface\.py:\d+\) "
    "return a sentence instead of False"
)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, NO_REASON),
        ("kernel 3x3: only 1x1 fits", "kernel 3x3: only 1x1 fits"),
        ("", NO_REASON),
    ],
)
def test_a_predicate_refuses_with_false_or_a_sentence(
    answer: Any, reason: str, tmp_path: Path
) -> None:
    backend, row = offered(lambda context: answer, tmp_path)
    assert row.where == "cpu" and re.fullmatch(reason, row.reason)
    module = one_convolution()
    assert composites(backend.partition(module)) == []
    assert_close(run(module, [backend], tmp_path), reference(module))


@pytest.mark.parametrize("answer", [None, 1, 0, 1.0, b"no", ["no"], (True,)])
def test_a_predicate_that_returns_something_else_is_an_error(answer: Any, tmp_path: Path) -> None:
    message = f"predicate of pattern 'conv2d' returned {type(answer).__name__}; return True, or a"
    with pytest.raises(BackendError, match=message):
        offered(lambda context: answer, tmp_path)


def test_a_predicate_that_raises_is_an_error(tmp_path: Path) -> None:
    def predicate(context: Any) -> bool:
        return bool(1 / 0)

    message = "predicate of pattern 'conv2d' raised ZeroDivisionError: .division by zero"
    backend = make_npu(tmp_path)
    backend._register_pattern("conv2d", convolution(), predicate)
    for use in (
        lambda: partition(one_convolution(), [backend]),
        lambda: backend.partition(one_convolution()),
        lambda: library_of(one_convolution(), [backend], tmp_path),
    ):
        with pytest.raises(BackendError, match=message) as caught:
            use()
        assert backend.target_name in str(caught.value)


def test_a_predicate_sees_the_match(tmp_path: Path) -> None:
    seen: list[Any] = []
    weights = wildcard()

    def predicate(context: Any) -> bool:
        seen.append(
            (
                tvm_api.operator_name(context.matched_expr),
                [int(stride) for stride in context.matched_expr.attrs.strides],
                tvm_api.static_shape(context.annotated_expr["weights"]),
            )
        )
        return True

    backend = make_npu(tmp_path)
    pattern = is_op("relax.nn.conv2d")(wildcard(), weights)
    backend._register_pattern("conv2d", pattern, predicate, {"weights": weights})
    partition(one_convolution(strides=2), [backend])
    assert set(map(str, seen)) == {str(("nn.conv2d", [2, 2], WEIGHTS.shape))}


def test_reasons_of_several_patterns_are_all_given(tmp_path: Path) -> None:
    backend = make_npu(tmp_path)
    backend._register_pattern("conv2d_relu", convolution_relu(), lambda context: "no fused relu")
    backend._register_pattern("conv2d", convolution(), lambda context: "no plain convolution")
    reason = placements(conv_relu_conv(), backend)["conv1"].reason
    assert set(reason.split("; ")) == {"no fused relu", "no plain convolution"}


def test_an_intermediate_that_leaks_out_of_a_pattern_is_refused(tmp_path: Path) -> None:
    def build(builder: Any, x: Any) -> Any:
        first = conv(builder, x, "conv")
        return relax.op.add(builder.emit(relax.op.nn.relu(first), "relu"), first)

    backend = make_npu(tmp_path)
    backend._register_pattern("conv2d_relu", convolution_relu())
    module = network(build)
    rows = placements(module, backend)
    leak = "conv2d_relu: a result inside the pattern is used elsewhere too"
    assert {(rows[name].where, rows[name].reason) for name in ("conv", "relu")} == {("cpu", leak)}
    assert_close(run(module, [backend], tmp_path), reference(module))


def test_an_operator_that_no_pattern_covers_says_so(npu: Npu) -> None:
    rows = placements(conv_relu_conv(), npu)
    assert rows["relu1"].reason == "no pattern covers nn.relu"


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("build", [conv_relu_conv, one_convolution])
def test_partitioning_is_what_tvms_own_passes_do(merge: bool, build: Any, tmp_path: Path) -> None:
    backend = Npu(tmp_path, merge_compiler_regions=merge)
    backend._register_pattern("conv2d_relu", convolution_relu())
    backend._register_pattern("conv2d", convolution(), lambda context: True)
    target, transform = backend.target_name, tvm_api.relax_transform
    plain = [
        (f"{target}.conv2d_relu", convolution_relu(), {}, lambda context: True),
        (f"{target}.conv2d", convolution(), {}, lambda context: True),
    ]
    module = transform.ConvertToDataflow(min_size=1)(build())
    wanted = transform.FuseOpsByPattern(plain, bind_constants=False, annotate_codegen=not merge)(
        module
    )
    if merge:
        wanted = transform.MergeCompositeFunctions()(wanted)
    got = backend.partition(build())
    names = {v.name_hint: v for v in got.functions}
    assert set(names) == {v.name_hint for v in wanted.functions}
    for variable, function in wanted.functions.items():
        mine = got[names[variable.name_hint]]
        assert tvm_api.tvm_ffi.structural_equal(mine, function, map_free_vars=True)


def test_partition_binds_parameters_first(npu: Npu) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE.shape, "float32"))
    w = relax.Var("w", relax.TensorType(WEIGHTS.shape, "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.conv2d(x, w))
        builder.emit_func_output(result)
    partitioned = npu.partition(builder.get(), {"w": WEIGHTS})
    assert [parameter.name for parameter in partitioned["main"].params] == ["x"]
    assert composites(partitioned) == [f"{npu.target_name}.conv2d"]


# --- two backends -------------------------------------------------------------------------------


def two_backends(folder: Path) -> tuple[Npu, Npu]:
    """One for kernels of 1x1, one for every convolution of stride 1."""
    small, large = make_npu(folder, "small_npu"), make_npu(folder, "large_npu")

    def only_one(context: Any) -> bool | str:
        kernel = tvm_api.static_shape(context.matched_expr.args[1])[-1]
        return True if kernel == 1 else f"kernel {kernel}: not 1"

    def only_stride_one(context: Any) -> bool | str:
        stride = int(context.matched_expr.attrs.strides[0])
        return True if stride == 1 else f"stride {stride}: not 1"

    small._register_pattern("conv2d", convolution(), only_one)
    large._register_pattern("conv2d", convolution(), only_stride_one)
    return small, large


@pytest.mark.parametrize("small_first", [True, False])
def test_the_first_of_two_backends_takes_what_it_can(small_first: bool, tmp_path: Path) -> None:
    small, large = two_backends(tmp_path)
    backends = [small, large] if small_first else [large, small]
    module = conv_relu_conv()
    library = library_of(module, backends, tmp_path)
    where = {row.name: row.where for row in library.report.placements}
    assert where["conv1"] == "large_npu"
    assert where["conv2"] == ("small_npu" if small_first else "large_npu")
    assert_close(result_of(library), reference(module))
    named = {item["name"] for item in library.metadata["umakit"]["backends"]}
    assert named == set(where.values()) - {"cpu"}


def test_the_reasons_of_both_backends_are_named(tmp_path: Path) -> None:
    rows = placements(one_convolution(strides=2), *two_backends(tmp_path))
    assert rows["conv"].reason == "small_npu: kernel 3: not 1; large_npu: stride 2: not 1"


@pytest.mark.parametrize("merged", [(True, False), (False, True), (False, False)])
def test_backends_that_merge_and_that_do_not_share_a_network(
    merged: tuple[bool, bool], tmp_path: Path
) -> None:
    small, large = two_backends(tmp_path)
    small.merge_compiler_regions, large.merge_compiler_regions = merged
    module = conv_relu_conv()
    library = library_of(module, [small, large], tmp_path)
    where = {row.name: row.where for row in library.report.placements}
    assert (where["conv1"], where["conv2"]) == ("large_npu", "small_npu")
    assert_close(result_of(library), reference(module))


# --- operator strategies ------------------------------------------------------------------------


def plain_convolution(attrs: Any, inputs: list[Any], out_type: Any) -> Any:
    padding = [int(pad) for pad in attrs.padding]
    return topi.nn.conv2d_nchw(*inputs, [int(s) for s in attrs.strides], padding, 1)


def plus(number: float) -> Callable[..., Any]:
    """The compute of a convolution that adds a number, to see that it is the one used."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> Any:
        result = plain_convolution(attrs, inputs, out_type)
        return tvm_api.te.compute(
            result.shape, lambda *i: result(*i) + tirx.const(number, "float32")
        )

    return compute


def strategy_of(*implementations: tuple[float, int]) -> Callable[..., OpStrategy]:
    """A strategy with implementations (added number, plevel)."""

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        chosen = OpStrategy()
        for number, plevel in implementations:
            chosen.add_implementation(plus(number), name=f"plus_{int(number)}", plevel=plevel)
        return chosen

    return strategy


@pytest.mark.parametrize("operator", ["nn.conv2d", "relax.nn.conv2d"])
def test_the_compute_of_a_strategy_is_what_runs(operator: str, npu: Npu, tmp_path: Path) -> None:
    npu._register_operator_strategy(operator, strategy_of((1, 10)))
    module = one_convolution()
    assert_close(run(module, [npu], tmp_path), reference(module) + 1)


def test_a_strategy_is_for_the_backends_own_composites_only(tmp_path: Path) -> None:
    backend = make_npu(tmp_path)
    backend._register_pattern("conv2d", convolution(), lambda context: "not this one")
    backend._register_operator_strategy("nn.conv2d", strategy_of((1, 10)))
    module = one_convolution()
    assert_close(run(module, [backend], tmp_path), reference(module))


@pytest.mark.parametrize(
    ("registrations", "added"),
    [
        ([(1, 11), (2, 15), (3, 12)], 2),
        ([(1, 11), (2, 11)], 2),
        ([(2, 12), (1, None)], 2),
        ([(1, 10), (2, None)], 2),
    ],
)
def test_the_registration_with_the_highest_level_wins(
    registrations: list[tuple[float, int | None]], added: int, npu: Npu, tmp_path: Path
) -> None:
    for number, plevel in registrations:
        options = {} if plevel is None else {"plevel": plevel}
        npu._register_operator_strategy("nn.conv2d", strategy_of((number, 10)), **options)
    module = one_convolution()
    assert_close(run(module, [npu], tmp_path), reference(module) + added)


@pytest.mark.parametrize(
    ("implementations", "added"),
    [([(1, 10), (2, 15), (3, 12)], 2), ([(1, 10), (2, 10)], 2), ([(2, 11), (1, 10)], 2)],
)
def test_the_implementation_with_the_highest_level_wins(
    implementations: list[tuple[float, int]], added: int, npu: Npu, tmp_path: Path
) -> None:
    npu._register_operator_strategy("nn.conv2d", strategy_of(*implementations))
    module = one_convolution()
    assert_close(run(module, [npu], tmp_path), reference(module) + added)


def test_a_strategy_is_told_attributes_types_and_target(npu: Npu, tmp_path: Path) -> None:
    seen: list[Any] = []
    npu._register_target_attr("memory", 1024)

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        shapes = [tvm_api.static_shape(item) for item in inputs]
        strides = [int(stride) for stride in attrs.strides]
        seen.append((shapes, strides, tvm_api.static_type_shape(out_type), str(target.keys[0])))
        chosen = OpStrategy()
        chosen.add_implementation(plain_convolution)
        return chosen

    npu._register_operator_strategy("nn.conv2d", strategy)
    library_of(one_convolution(strides=2), [npu], tmp_path)
    assert seen == [([IMAGE.shape, WEIGHTS.shape], [2, 2], (1, 4, 2, 2), npu.target_name)]


def test_the_schedule_of_a_strategy_is_applied(npu: Npu, tmp_path: Path) -> None:
    def fuse_output(schedule: Any) -> None:
        block = schedule.get_child_blocks(schedule.get_sblock("root"))[-1]
        schedule.fuse(*schedule.get_loops(block)[:4])

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> OpStrategy:
        chosen = OpStrategy()
        chosen.add_implementation(plain_convolution, fuse_output, "scheduled")
        return chosen

    npu._register_operator_strategy("nn.conv2d", strategy)
    module = one_convolution()
    library = library_of(module, [npu], tmp_path)
    assert "fused" in model_source(library)
    assert_close(result_of(library), reference(module))


@pytest.mark.parametrize("answer", [OpStrategy(), None, "conv2d"])
def test_a_strategy_without_an_implementation_is_an_error(
    answer: Any, npu: Npu, tmp_path: Path
) -> None:
    npu._register_operator_strategy("nn.conv2d", lambda *arguments: answer)
    with pytest.raises(LoweringError, match="strategy returned no implementation") as caught:
        library_of(one_convolution(), [npu], tmp_path)
    assert f"relax.nn.conv2d on {npu.target_name}" in str(caught.value)
    assert not (tmp_path / "library").exists()


def test_a_strategy_that_raises_is_named_with_its_composite(npu: Npu, tmp_path: Path) -> None:
    def strategy(*arguments: Any) -> OpStrategy:
        raise KeyError("no such size")

    npu._register_operator_strategy("nn.conv2d", strategy)
    message = f"composite {npu.target_name}.conv2d: cannot be lowered: .*no such size"
    with pytest.raises(LoweringError, match=message) as caught:
        library_of(one_convolution(), [npu], tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["larger", "smaller", "float64"])
def test_a_compute_of_another_shape_or_dtype_is_refused(
    wrong: str, npu: Npu, tmp_path: Path
) -> None:
    """It would write outside its output, or leave part of it unwritten."""

    def compute(attrs: Any, inputs: list[Any], out_type: Any) -> Any:
        right = plain_convolution(attrs, inputs, out_type)
        shape = {"larger": (1, 4, 4, 8), "smaller": (1, 4, 4, 2)}
        dtype = "float64" if wrong == "float64" else "float32"
        return tvm_api.te.compute(
            shape.get(wrong, (1, 4, 4, 4)),
            lambda *i: right(0, i[-3], i[-2], tirx.min(i[-1], 3)).astype(dtype),
        )

    def strategy(*arguments: Any) -> OpStrategy:
        chosen = OpStrategy()
        chosen.add_implementation(compute)
        return chosen

    npu._register_operator_strategy("nn.conv2d", strategy)
    with pytest.raises(LoweringError):
        library_of(one_convolution(), [npu], tmp_path)


# --- code generation and drivers ----------------------------------------------------------------

HEADER = "int fill(const float *ifmap, const float *weights, float *result, int count);\n"
DRIVER = """\
#include "fill.h"

int fill(const float *ifmap, const float *weights, float *result, int count)
{
    int i;

    (void)ifmap;
    (void)weights;
    for (i = 0; i < count; i++) {
        result[i] = 42.0f;
    }
    return STATUS;
}
"""


def driven_npu(folder: Path, status: int = 0, replace: Any = None, includes: Any = None) -> Npu:
    """A backend whose driver fills the result with 42 and returns a status."""
    backend = make_npu(folder, f"driven{next(_numbers)}_npu")

    def call_driver(function: Any) -> Any:
        if tir.composite_name(function) != f"{backend.target_name}.conv2d":
            return function
        count = int(np.prod(tir.buffer_shape(function.params[-1])))
        arguments = [*map(tir.pointer, function.params), count]
        return tir.with_body(function, tir.driver_call("fill", arguments))

    (backend.folder / "fill.h").write_text(HEADER)
    (backend.folder / "fill.c").write_text(DRIVER.replace("STATUS", str(status)))
    backend._register_pattern("conv2d", convolution())
    backend._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("driver", call_driver))
    default = includes or (lambda: '#include "fill.h"')
    backend._register_codegen(fmt="c", includes=default, replace_call_extern=replace)
    backend._register_driver(sources=["fill.c"], headers=["fill.h"])
    return backend


def test_a_driver_call_takes_the_place_of_the_loops(tmp_path: Path) -> None:
    backend = driven_npu(tmp_path)
    library = library_of(one_convolution(), [backend], tmp_path)
    assert (result_of(library) == 42).all()
    sources = library.path / "codegen" / "host" / "src"
    folder = sources / backend.target_name
    assert {path.name for path in folder.iterdir()} == {"fill.c", "fill.h"}
    assert f'#include "{backend.target_name}/fill.h"' in model_source(library)


def test_includes_reach_the_generated_c(tmp_path: Path) -> None:
    text = '#include "fill.h"\n/* of the backend */\n#define ANSWER 42'
    backend = driven_npu(tmp_path, includes=lambda: text)
    source = model_source(library_of(one_convolution(), [backend], tmp_path))
    assert "/* of the backend */\n#define ANSWER 42\n" in source
    assert source.index("#define ANSWER") < source.index("static int32_t")


def test_includes_of_a_backend_that_is_not_used_stay_out(tmp_path: Path) -> None:
    backend = driven_npu(tmp_path, includes=lambda: "#error not used")
    library = library_of(network(lambda b, x: relax.op.nn.relu(x)), [backend], tmp_path)
    assert "#error" not in model_source(library)
    assert not list(library.path.rglob("*fill*"))
    result_of(library)


def test_replace_call_extern_chooses_the_text_of_a_call(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def replace(words: Sequence[str]) -> str:
        seen.append(list(words))
        return f"(fill({', '.join(words[1:])}) + 6)"

    library = library_of(one_convolution(), [driven_npu(tmp_path, replace=replace)], tmp_path)
    assert seen == [["fill", "input_0", "input_1", "output", "64"]]
    assert "(fill(input_0, input_1, output, 64) + 6)" in model_source(library)
    with pytest.raises(DeviceError) as caught:
        result_of(library)
    assert caught.value.status == 6


def test_replace_call_extern_may_leave_a_call_alone(tmp_path: Path) -> None:
    backend = driven_npu(tmp_path, replace=lambda words: None)
    library = library_of(one_convolution(), [backend], tmp_path)
    assert "fill(input_0, input_1, output, /*count=*/64)" in model_source(library)


@pytest.mark.parametrize("fmt", ["llvm", "C", "", "c++"])
def test_other_formats_of_generated_code_are_refused(fmt: str, npu: Npu) -> None:
    with pytest.raises(BackendError, match=f"codegen format '{re.escape(fmt)}' is not supported"):
        npu._register_codegen(fmt=fmt)


@pytest.mark.parametrize("status", [1, 5, 4711, -3])
def test_the_status_of_a_driver_stops_the_run(
    status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = library_of(conv_relu_conv(), [driven_npu(tmp_path, status)], tmp_path)
    with pytest.raises(DeviceError, match=f"the run stopped with status {status}: ") as caught:
        result_of(library)
    assert (caught.value.status, caught.value.exit_code) == (status, 1)

    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(inputs, x=IMAGE)
    command = ["run", str(library.path), "--inputs", str(inputs), "--outputs", str(outputs)]
    capsys.readouterr()
    assert run_command(command) == 1
    error = capsys.readouterr().err
    assert f"status {status}" in error and error.count("\n") == 1
    assert not outputs.exists()


@pytest.mark.parametrize("interface", ["c", "unpacked"])
def test_the_status_arrives_through_both_interfaces(interface: str, tmp_path: Path) -> None:
    model = AOTModel(one_convolution(), {"x": IMAGE})
    with pytest.raises(DeviceError) as caught:
        compile_and_run(model, driven_npu(tmp_path, 9), interface_api=interface)
    assert caught.value.status == 9


def test_a_wrong_result_is_a_failed_run(tmp_path: Path) -> None:
    model = AOTModel(one_convolution(), {"x": IMAGE}, name="net")
    with pytest.raises(DeviceError, match=r"is 42\.0 instead of .* and wrong at 64 of 64 places"):
        compile_and_run(model, driven_npu(tmp_path))


def test_an_unknown_interface_is_refused() -> None:
    with pytest.raises(InputError, match="'packed' is none of c, unpacked"):
        compile_and_run([], interface_api="packed")


def test_a_missing_driver_file_is_named(tmp_path: Path) -> None:
    backend = driven_npu(tmp_path)
    (backend.folder / "fill.c").unlink()
    with pytest.raises(Exception, match=r"fill\.c: the driver file is missing"):
        library_of(one_convolution(), [backend], tmp_path)
    assert not (tmp_path / "library").exists()


# --- the Vanilla pass ---------------------------------------------------------------------------


class Gullible(VanillaAcceleratorBackend):
    """Vanilla without its predicate: it believes that the array computes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.patterns.clear()
        self._register_pattern("conv2d", conv2d_pattern())

    @property
    def folder(self) -> Path:
        return VanillaAcceleratorBackend().folder


def test_without_its_predicate_vanilla_still_computes_its_own_convolution(tmp_path: Path) -> None:
    module = one_convolution(padding=1)
    library = library_of(module, [Gullible()], tmp_path)
    assert_close(result_of(library), reference(module))


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": 2, "padding": 1},
        {"strides": (1, 2), "padding": 1},
        {"padding": 0},
        {"padding": (2, 1, 0, 1)},
        {"padding": 2},
        {"dilation": 2, "padding": 2},
        {"padding": 1, "groups": 2, "weights": WEIGHTS[:, :1]},
    ],
    ids=str,
)
def test_the_vanilla_pass_refuses_loops_that_are_not_its_convolution(
    attributes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(LoweringError) as caught:
        library_of(one_convolution(**attributes), [Gullible()], tmp_path)
    message = str(caught.value)
    if "groups" not in attributes:
        sizes = "vanilla_accelerator_conv2dnchw(oc=4, iw=6, ih=6, ic=2, kh=3, kw=3)"
        assert message.startswith(f"{sizes}: the loops are not the convolution")
    assert "\n" not in message
    assert not list(tmp_path.glob("**/library*"))


@pytest.mark.parametrize("kind", ["batch", "float64"])
def test_the_vanilla_pass_refuses_other_data(kind: str, tmp_path: Path) -> None:
    image = np.repeat(IMAGE, 2, axis=0) if kind == "batch" else IMAGE.astype("float64")
    weights = WEIGHTS.astype(image.dtype)
    module = network(lambda b, x: conv(b, x, "conv", weights, padding=1), image)
    with pytest.raises(LoweringError, match="the loops are not the convolution"):
        library_of(module, [Gullible()], tmp_path)
