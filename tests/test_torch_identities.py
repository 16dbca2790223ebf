# SPDX-License-Identifier: Apache-2.0
"""Identities of layers of PyTorch programs: paths of modules, by hooks on the modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")

from torch import nn  # noqa: E402  needs torch

import umakit  # noqa: E402
from umakit.library.identities import identities_of  # noqa: E402
from umakit.library.metadata import load_metadata  # noqa: E402
from umakit.text.identities import LayerIdentity, matched_layers  # noqa: E402


class Block(nn.Module):  # type: ignore[misc]
    """A convolution with a sum around it; with an operator more if `longer`."""

    def __init__(self, longer: bool) -> None:
        super().__init__()
        self.conv, self.act, self.longer = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), longer

    def forward(self, x: Any) -> Any:
        y = self.conv(x) + x
        return self.act(y + 1 if self.longer else y)


class Network(nn.Module):  # type: ignore[misc]
    """Modules in modules, one that is used twice, and functions outside of modules."""

    def __init__(self, longer: bool = False) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.body = nn.Sequential(Block(longer), Block(False))
        self.shared, self.head = nn.Tanh(), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.body(self.shared(torch.relu(x) * 2)))
        return torch.softmax(self.head(self.relu(self.shared(x)).mean((2, 3))), -1)


def export(folder: Path, model: Any, seed: int) -> Path:
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    folder.mkdir()
    program = torch.export.export(model.eval(), (torch.zeros(1, 4, 6, 6),))
    torch.export.save(program, folder / "model.pt2")
    return folder / "model.pt2"


def identities(path: Path, *backends: str) -> list[LayerIdentity]:
    found = [umakit.find_backend(name) for name in backends]
    umakit.compile_model(path, found, path.parent / "library")
    return identities_of(load_metadata(path.parent / "library")["umakit"])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("torch") / "a", Network(), 0)


def test_operators_are_those_of_the_modules_that_ran(exported: Path) -> None:
    model, ran = Network().eval(), list[str]()
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda *_, name=name: ran.append(name))
    model(torch.zeros(1, 4, 6, 6))
    leaves = set(ran)
    sources = umakit.import_model(exported).sources
    assert [each.index for each in sources.values()] == list(range(len(sources)))
    assert [each.path for each in sources.values() if each.path in leaves] == ran
    assert {each.path for each in sources.values()} == {*leaves, "", "body.0", "body.1"}
    layers = identities(exported)
    operators = [operator for layer in layers for operator in layer.operators]
    assert {each.index for each in operators} == set(range(len(sources)))
    assert all(sources[each.name] == each for each in operators)


def test_two_exports_have_the_same_identities(exported: Path, tmp_path: Path) -> None:
    again = export(tmp_path / "b", Network(), 1)
    layers = identities(again, "vanilla_accelerator")
    assert layers == identities(exported, "vanilla_accelerator")
    assert layers != identities(exported)


def test_an_operator_more_in_a_module_renames_nothing_elsewhere(
    exported: Path, tmp_path: Path
) -> None:
    longer = umakit.import_model(export(tmp_path / "c", Network(longer=True), 0)).sources
    names = set(umakit.import_model(exported).sources)
    assert names < set(longer)
    (added,) = set(longer) - names
    assert longer[added].path == "body.0" and longer[added].kind == "aten.add.Tensor"
    ones = identities(exported, "vanilla_accelerator")
    others = identities(tmp_path / "c" / "model.pt2", "vanilla_accelerator")
    assert all(mine and yours for mine, yours in matched_layers(ones, others))
