# SPDX-License-Identifier: Apache-2.0
"""`umakit.torch.load`: libraries as operators and modules of PyTorch, against ONNX Runtime and
PyTorch's own results."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from networks import Graph, save

import umakit
from umakit.errors import InputError, LibraryError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")

import umakit.torch  # noqa: E402  needs torch
from umakit.torch.module import schema_of  # noqa: E402  needs torch

EXAMPLES = Path(__file__).parents[1] / "examples/digits"
CHOCOLATE = "chocolate_accelerator"


def digits(count: int) -> Any:
    return torch.from_numpy(np.random.default_rng(count).random((count, 1, 8, 8), "float32"))


def wanted(model: Path, x: Any) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": x.numpy()})[0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch") / "digits"
    return Path(umakit.compile_model(EXAMPLES / "digits.onnx", [], folder).path)


@pytest.fixture
def module(library: Path) -> Any:
    return umakit.torch.load(library)


# --- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
def test_results_are_those_of_onnx_runtime(module: Any, count: int) -> None:
    x = digits(count)
    found = module(x)
    np.testing.assert_allclose(found.numpy(), wanted(EXAMPLES / "digits.onnx", x), atol=1e-4)
    assert torch.equal(found, module(image=x))
    assert torch.equal(found, torch.cat([module(x[i : i + 1]) for i in range(count)]))


def test_an_address_that_a_tensor_has_by_chance_does(module: Any) -> None:
    """A part of a larger tensor begins anywhere in memory."""
    memory = torch.zeros(65)
    memory[1:] = digits(1).reshape(-1)
    part = memory[1:].view(1, 1, 8, 8)
    assert part.data_ptr() % 16 and torch.equal(module(part), module(part.clone()))


def test_several_libraries_inputs_outputs_and_shapes(tmp_path: Path) -> None:
    modules = {}
    for name, width in (("narrow", 3), ("wide", 5)):
        graph = Graph(name, seed=width)
        left, right = graph.input("left", 2, width), graph.input("right", 2, width)
        graph.output(graph.node("Add", left, right, name="sum"))
        graph.output(graph.node("Mul", left, right, name="product"))
        path = umakit.compile_model(save(graph.model(), tmp_path, name), [], tmp_path / name).path
        modules[width] = umakit.torch.load(path)
    for width, module in modules.items():
        left, right = torch.randn(6, width), torch.randn(6, width)
        results = dict(zip((each.name for each in module.outputs), module(left, right=right),
                           strict=True))  # fmt: skip
        assert torch.equal(results["sum"], left + right)
        assert torch.equal(results["product"], left * right)
        with pytest.raises(InputError, match=r"left: 3, right: 1"):
            module(left, right[:2])
        with pytest.raises(InputError, match=r"\[5, .*multiple of its first extent, 2"):
            module(left[:5], right)


def test_offloaded_runs_of_threads_wait_for_each_other(tmp_path: Path) -> None:
    backends = [umakit.find_backend(CHOCOLATE)]
    model = EXAMPLES / "digits_int8.onnx"
    module = umakit.torch.load(umakit.compile_model(model, backends, tmp_path / "out").path)
    x = digits(8)
    alone, found = module(x), {}

    def run(number: int) -> None:
        found[number] = module(x)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(torch.equal(each, alone) for each in found.values())
    np.testing.assert_array_equal(alone.numpy(), wanted(model, x))


# --- torch --------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    """A network around a library."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.digits, self.last = module, torch.nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.digits(torch.relu(x)))


def test_the_operator_is_right_for_torch(module: Any) -> None:
    """Its schema, its shapes and what it changes, by PyTorch's own checks."""
    operator = getattr(torch.ops.umakit, module.operator_name).default
    assert str(operator._schema).endswith("(Tensor image) -> Tensor")
    torch.library.opcheck(operator, (digits(3),))


def test_torch_exports_and_compiles_it(module: Any) -> None:
    net, x = Net(module).eval(), digits(4)
    expected = net(x)
    dynamic = {"x": {0: torch.export.Dim("batch")}}
    exported = torch.export.export(net, (x,), dynamic_shapes=dynamic)
    assert torch.equal(exported.module()(x), expected)
    assert torch.equal(exported.module()(x[:3]), net(x[:3]))
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), expected)


def test_what_is_saved_runs_in_another_process(module: Any, tmp_path: Path) -> None:
    x = digits(2)
    torch.save({"module": module, "x": x, "y": module(x)}, tmp_path / "saved.pt")
    exported = torch.export.export(module, (x,))
    torch.export.save(exported, tmp_path / "exported.pt2")
    program = """
import torch, umakit.torch
saved = torch.load("saved.pt", weights_only=False)
assert torch.equal(saved["module"](saved["x"]), saved["y"])
exported = torch.export.load("exported.pt2")
assert torch.equal(exported.module()(saved["x"]), saved["y"])
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_a_library_is_freed_with_its_last_module(library: Path) -> None:
    one, other = umakit.torch.load(library), umakit.torch.load(library)
    assert one.operator_name == other.operator_name
    name, folder = one.operator_name, one._operator.library.source.parent
    del one
    gc.collect()  # other tests' modules of this library
    assert other(digits(1)).shape == (1, 10)
    del other
    gc.collect()
    assert not folder.exists() and not hasattr(torch.ops.umakit, name)


def test_names_that_python_or_torch_take_become_arguments() -> None:
    from umakit.torch.loaded import TensorSpec

    specs = [TensorSpec(n, n, (1,), torch.float32, 1, False, 0) for n in ("self", "from", "x")]
    assert (
        schema_of(specs, specs[:2]) == "(Tensor self_, Tensor from_, Tensor x) -> (Tensor, Tensor)"
    )


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: (x.double(),), "float64, the library takes float32"),
        (lambda x: (x[:, :, :4],), r"shape \[2, 1, 4, 8\], the library takes \[1, 1, 8, 8\]"),
        (lambda x: (x[0],), r"shape \[1, 8, 8\]"),
        (lambda x: (x.mT,), "not contiguous; call .contiguous"),
        (lambda x: (x, x), "takes 1 tensors"),
        (lambda x: (), "input image is missing"),
    ],
)
def test_inputs_that_do_not_fit(module: Any, change: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        module(*change(digits(2)))


def test_other_names_of_inputs(module: Any) -> None:
    with pytest.raises(InputError, match="picture is no input of the network; inputs are image"):
        module(picture=digits(1))
    with pytest.raises(InputError, match="image is given twice"):
        module(digits(1), image=digits(1))


def test_libraries_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(LibraryError):
        umakit.torch.load(tmp_path / "nothing")


def test_umakit_does_not_import_torch() -> None:
    program = "import sys, umakit; umakit.ExportOptions; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
    hidden = "import sys; sys.modules['torch'] = None; import umakit.torch"
    ended = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert "umakit.torch needs PyTorch, which is not installed" in ended.stderr


# --- the page -----------------------------------------------------------------------------------


@pytest.mark.page
def test_programs_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    """All of them in one process, as a reader who types along runs them."""
    backends = [umakit.find_backend("vanilla_accelerator")]
    umakit.compile_model(EXAMPLES / "digits.onnx", backends, tmp_path / "digits_library")
    page = (Path(__file__).parents[1] / "docs/pytorch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL)
    program = "\n".join(text for language, text in blocks if language == "python")
    shown = "".join(text for language, text in blocks if language == "text")
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    printed = re.sub(r"digits_[0-9a-f]{12}", "digits_FINGERPRINT", ended.stdout)
    assert printed == shown
