# SPDX-License-Identifier: Apache-2.0
"""Bring Your Own Codegen: a registered backend inside plain TVM."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import some

from umakit import UMABackend, find_backend, import_model, tvm_api
from umakit.backend.registry import load_backend_folder
from umakit.devices.run import load_inputs
from umakit.errors import DeviceError, LoweringError, TargetAttributeError
from umakit.tools.scaffold import new_backend

relax, transform = tvm_api.relax, tvm_api.relax_transform
tvm = tvm_api.tvm
Array = npt.NDArray[Any]

EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
IMAGES = load_inputs(EXAMPLES / "held_out.npz")["image"]
_numbers = itertools.count()


def vanilla() -> UMABackend:
    backend = find_backend("vanilla_accelerator")
    backend.register()
    return backend


def digits() -> Any:
    """The digits network for one image."""
    return import_model(EXAMPLES / "digits.onnx").module


def two_convolutions() -> Any:
    """Two equal layers of different weights, and one that only fits the CPU."""
    random = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(2):
                weights = relax.const(random.standard_normal((3, 3, 3, 3)).astype("float32"))
                y = builder.emit(relax.op.nn.conv2d(y, weights, padding=1))
                y = builder.emit(relax.op.nn.relu(y))
            weights = relax.const(random.standard_normal((2, 3, 3, 3)).astype("float32"))
            y = builder.emit_output(relax.op.nn.conv2d(y, weights, strides=2))
        builder.emit_func_output(y)
    return builder.get()


NETWORKS = {
    "digits": (digits, IMAGES[:1], (3, 3)),
    "two convolutions": (
        two_convolutions,
        np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32"),
        (1, 2),
    ),
}


def fused(module: Any, target: str, *, bind_constants: bool, merge: bool) -> Any:
    """What TVM's passes make of a backend's patterns."""
    patterns = tvm_api.get_patterns_with_prefix(target)
    module = transform.ConvertToDataflow(min_size=1)(module)
    module = transform.FuseOpsByPattern(
        patterns, bind_constants=bind_constants, annotate_codegen=not merge
    )(module)
    return transform.MergeCompositeFunctions()(module) if merge else module


def run(module: Any, *inputs: Array) -> Array:
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return machine["main"](*map(tvm_api.to_device, inputs)).numpy()


def accelerator_functions(module: Any) -> list[Any]:
    functions = [function for _, function in tvm_api.relax_functions(module)]
    return [f for f in functions if tvm_api.function_attribute(f, "Codegen")]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("network", "bind_constants", "merge"),
    some(itertools.product(NETWORKS, (False, True), (True, False)), 3),
)
def test_plain_tvm_runs_a_network_on_the_accelerator(
    network: str, bind_constants: bool, merge: bool
) -> None:
    build, inputs, count = NETWORKS[network]
    target = vanilla().target_name
    module = fused(build(), target, bind_constants=bind_constants, merge=merge)
    # TVM makes one function of equal ones.
    assert len(accelerator_functions(module)) == count[bind_constants]
    generated = transform.RunCodegen()(module)
    assert accelerator_functions(generated) == []
    assert len(generated.attrs["external_mods"]) >= 1
    np.testing.assert_allclose(run(generated, inputs), run(build(), inputs), rtol=1e-5, atol=1e-5)


def test_one_machine_runs_many_inputs() -> None:
    module = fused(digits(), vanilla().target_name, bind_constants=False, merge=True)
    executable = tvm.compile(transform.RunCodegen()(module), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    wanted = relax.VirtualMachine(tvm.compile(digits(), target="llvm"), tvm.cpu())
    for image in IMAGES[:20]:
        data = tvm_api.to_device(image.reshape(1, 1, 8, 8))
        got = machine["main"](data).numpy()
        np.testing.assert_allclose(got, wanted["main"](data).numpy(), rtol=1e-5, atol=1e-5)


def test_a_backends_own_partition_can_be_given_to_tvm() -> None:
    backend = vanilla()
    generated = transform.RunCodegen()(backend.partition(digits()))
    image = IMAGES[:1]
    np.testing.assert_allclose(run(generated, image), run(digits(), image), rtol=1e-5, atol=1e-5)


def test_registering_twice_is_harmless() -> None:
    backend = vanilla()
    before = [str(p.name) for p in tvm_api.get_patterns_with_prefix(backend.target_name)]
    backend.register()
    vanilla()
    after = [str(p.name) for p in tvm_api.get_patterns_with_prefix(backend.target_name)]
    assert before == after == ["vanilla_accelerator.conv2d"]
    assert tvm.target.Target("vanilla_accelerator").tag == "vanilla_accelerator"


class TwoPatterns(UMABackend):
    """A backend with two patterns for a convolution, and no driver."""

    def __init__(self, name: str, first: str, predicate: Any = None) -> None:
        self._name = name
        super().__init__()
        plain = tvm_api.is_op("relax.nn.conv2d")(tvm_api.wildcard(), tvm_api.wildcard())
        patterns = {"plain": plain, "relu": tvm_api.is_op("relax.nn.relu")(plain)}
        for pattern in sorted(patterns, key=lambda pattern: pattern != first):
            self._register_pattern(pattern, patterns[pattern], predicate)

    @property
    def target_name(self) -> str:
        return self._name


@pytest.mark.parametrize("first", ["relu", "plain"])
def test_patterns_keep_their_priority(first: str) -> None:
    backend = TwoPatterns(f"priority{next(_numbers)}_npu", first)
    backend.register()
    module = fused(two_convolutions(), backend.target_name, bind_constants=False, merge=True)
    mine = backend.partition(two_convolutions())
    for partitioned in (module, mine):
        assert (f"{backend.target_name}.relu" in partitioned.script()) == (first == "relu")


def test_a_predicate_refuses_in_plain_tvm_too() -> None:
    name = f"picky{next(_numbers)}_npu"
    TwoPatterns(name, "plain", lambda context: "never").register()
    module = fused(two_convolutions(), name, bind_constants=False, merge=True)
    assert accelerator_functions(module) == []


def test_two_backends_share_a_network(tmp_path: Path) -> None:
    name, vanillas = f"byoc{next(_numbers)}_npu", vanilla().target_name
    load_backend_folder(new_backend(name, tmp_path, "vanilla").folder).register()
    module = transform.ConvertToDataflow(min_size=1)(two_convolutions())
    first, second = (tvm_api.get_patterns_with_prefix(target) for target in (name, vanillas))
    taken = []

    def only_once(context: Any) -> bool:
        if not taken:
            taken.append(context.matched_expr)
        return bool(taken[0].same_as(context.matched_expr))

    once = [(first[0].name, first[0].pattern, {}, only_once)]
    for patterns in (once, second):
        module = transform.FuseOpsByPattern(patterns, annotate_codegen=True)(module)
    targets = {str(f.attrs["Codegen"]) for f in accelerator_functions(module)}
    assert targets == {name, vanillas}
    inputs = NETWORKS["two convolutions"][1]
    np.testing.assert_allclose(
        run(transform.RunCodegen()(module), inputs),
        run(two_convolutions(), inputs),
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_device_error_is_an_exception_that_names_the_status(tmp_path: Path) -> None:
    folder = new_backend(f"faulty{next(_numbers)}_npu", tmp_path, "vanilla").folder
    driver = folder / "conv2dnchw.c"
    text = driver.read_text(encoding="utf-8")
    guard = "if (ifmap == NULL || weights == NULL || result == NULL) {"
    assert guard in text
    driver.write_text(text.replace(guard, f"return UMAKIT_TIMEOUT;\n    {guard}"))
    backend = load_backend_folder(folder)
    backend.register()
    generated = transform.RunCodegen()(backend.partition(two_convolutions()))
    with pytest.raises(DeviceError, match="the run stopped with status 7: ") as caught:
        run(generated, NETWORKS["two convolutions"][1])
    assert "timeout" in str(caught.value).lower() or "time" in str(caught.value)


def test_what_cannot_become_c_is_refused_while_building(tmp_path: Path) -> None:
    backend = TwoPatterns(f"unbuildable{next(_numbers)}_npu", "plain")

    def refuse(attrs: Any, inputs: Any, out_type: Any, target: Any) -> None:
        return None

    backend._register_operator_strategy("nn.conv2d", refuse)
    backend.register()
    with pytest.raises(LoweringError, match="strategy returned no implementation"):
        transform.RunCodegen()(backend.partition(two_convolutions()))


def test_another_backend_of_the_same_name_does_not_hide_behind_the_first(tmp_path: Path) -> None:
    """Either it is refused, or its own patterns are what TVM finds from then on."""
    name = f"twin{next(_numbers)}_npu"
    TwoPatterns(name, "plain").register()

    class OnePattern(UMABackend):
        target_name = name

        def __init__(self) -> None:
            super().__init__()
            self._register_pattern("other", tvm_api.is_op("relax.nn.relu")(tvm_api.wildcard()))

    try:
        OnePattern().register()
    except TargetAttributeError:
        return
    names = [str(p.name) for p in tvm_api.get_patterns_with_prefix(name)]
    assert f"{name}.other" in names
