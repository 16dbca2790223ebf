# SPDX-License-Identifier: Apache-2.0
"""What a backend may import: seven modules, their names, and their page."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umakit
import umakit.testing
from umakit import patterns
from umakit.backend import AcceleratorConfig, UMABackend, load_backend_folder
from umakit.tools.scaffold import KINDS, TUTORIALS, answers_of, project_files, tutorial_files

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "backends-api.md"
PUBLIC = tuple(
    f"umakit{name}"
    for name in ("", ".backend", ".errors", ".machine", ".patterns", ".testing", ".tir")
)


def generated() -> Iterator[tuple[str, str]]:
    """Python files of all backends that `uma new` writes, and of those in this repository."""
    written = {f"--tutorial {name}": tutorial_files("my_npu", name) for name in TUTORIALS}
    for kind in KINDS.values():
        answers = answers_of(kind, {"operators": ",".join(kind.operators)})
        written[f"--kind {kind.name}"] = project_files("my_npu", answers)
    for flag, files in written.items():
        for name, text in files.items():
            if name.endswith(".py"):
                yield f"uma new {flag}: {name}", text
    for folder in ("backends", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


SOURCES = dict(generated())


def private_names(text: str) -> set[str]:
    """What a source uses of umakit that is not public, as `module.name`."""
    tree = ast.parse(text)
    used: set[tuple[str, str]] = set()
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                used.add((alias.name, ""))
                if alias.name in PUBLIC:
                    bound = alias.asname or alias.name.partition(".")[0]
                    modules[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                used.add((whole, "") if whole in PUBLIC else (str(node.module), alias.name))
                if whole in PUBLIC:
                    modules[alias.asname or alias.name] = whole
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and f"{module}.{node.attr}" not in PUBLIC:
                used.add((module, node.attr))
    return {
        f"{module}.{name}".rstrip(".")
        for module, name in used
        if module.partition(".")[0] == "umakit" and not is_public(module, name)
    }


def is_public(module: str, name: str) -> bool:
    """Whether a name of a module is public; the module itself for an empty one."""
    if module not in PUBLIC:
        return False
    return not name or name in importlib.import_module(module).__all__


@pytest.mark.parametrize("source", SOURCES)
def test_backends_and_examples_use_public_names_only(source: str) -> None:
    assert private_names(SOURCES[source]) == set()


def test_all_kinds_of_sources_are_looked_at() -> None:
    kinds = {re.split(r"[/:]", source)[0] for source in SOURCES}
    assert kinds == {"backends", "examples"} | {
        *(f"uma new --tutorial {name}" for name in TUTORIALS),
        *(f"uma new --kind {name}" for name in KINDS),
    }
    assert len(SOURCES) > 40


@pytest.mark.parametrize(
    "text",
    [
        "from umakit.tvm_api import topi",
        "from umakit import tvm_api",
        "import umakit.pipeline",
        "def f():\n    from umakit.tir import tirx",
        "from umakit import tir\ntir.tirx.Var",
        "import umakit\numakit.pipeline",
        "import umakit.tir as t\nt.tirx",
    ],
)
def test_private_names_are_found(text: str) -> None:
    assert len(private_names(text)) > 0


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_says_what_it_has(name: str) -> None:
    module = importlib.import_module(name)
    assert len((module.__doc__ or "").split()) > 8
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        assert hasattr(module, each), each


@pytest.mark.parametrize("name", PUBLIC)
def test_the_page_lists_every_public_name(name: str) -> None:
    sections = re.split(r"^## `([\w.]+)`\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert tuple(sorted(sections[1::2])) == PUBLIC
    text = dict(zip(sections[1::2], sections[2::2], strict=True))[name]
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(importlib.import_module(name).__all__)


def test_the_page_lists_every_registration() -> None:
    rows = re.findall(r"^\| `(_register_\w+)(\(.*\))` \| (.*) \|$", PAGE.read_text("utf-8"), re.M)
    methods = {name: getattr(UMABackend, name) for name in dir(UMABackend)}
    assert {name: (given, text) for name, given, text in rows} == {
        name: (arguments_of(method), inspect.getdoc(method).splitlines()[0].rstrip("."))
        for name, method in methods.items()
        if name.startswith("_register_")
    }


def arguments_of(method: Any) -> str:
    """The arguments of a method with their defaults."""
    signature = inspect.signature(method)
    arguments = [
        each.replace(annotation=each.empty)
        for name, each in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=arguments, return_annotation=signature.empty))


def test_the_page_names_every_section_of_accel_toml() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("**`accel.toml`** has")[2].partition("##")[0]
    assert set(re.findall(r"`\[+(\w+)\]+`", text)) == set(AcceleratorConfig.model_fields)


PATTERNS = [
    name for name in patterns.__all__
    if isinstance(getattr(patterns, name), type)
    and issubclass(getattr(patterns, name), patterns.OperatorPattern)
]  # fmt: skip


def test_all_patterns_are_looked_at() -> None:
    assert {"qconv2d", "qdense", "qadd", "qmax_pool2d", "OperatorPattern"} <= set(PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_help_describes_every_argument_of_a_pattern(name: str) -> None:
    pattern = getattr(patterns, name)
    text = pydoc.render_doc(pattern, renderer=pydoc.plaintext)
    described = re.findall(
        r"^ \|      (\w+): \S", text.partition("Method resolution")[0], re.MULTILINE
    )
    arguments = list(inspect.signature(pattern).parameters)
    assert sorted(set(described) - {"BackendError"}) == sorted(arguments)
    assert len(described) == len(set(described))


def test_the_page_names_the_arguments_that_are_no_constraints() -> None:
    page = (ROOT / "docs" / "patterns.md").read_text(encoding="utf-8")
    listed = page.partition("except for")[2].partition("which say what the")[0]
    described = {
        argument
        for name in PATTERNS
        for argument in re.findall(r"(\w+): the driver gets", getattr(patterns, name).__doc__)
    }
    assert set(re.findall(r"`(\w+)`", listed)) == described


# --- paths --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A path that is neither a str nor a `pathlib.Path`."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)


FUNCTIONS = {
    f"{module}.{name}": getattr(importlib.import_module(module), name)
    for module in PUBLIC
    for name in importlib.import_module(module).__all__
    if inspect.isfunction(getattr(importlib.import_module(module), name)) or name == "ExportOptions"
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_that_are_paths_may_be_text(name: str) -> None:
    for argument in inspect.signature(FUNCTIONS[name]).parameters.values():
        text = str(argument.annotation)
        assert "Path" not in text or "str | os.PathLike[str]" in text, argument.name


def test_as_many_arguments_are_paths_as_are_tried_below() -> None:
    found = {
        (name.rpartition(".")[2], argument.name)
        for name, function in FUNCTIONS.items()
        for argument in inspect.signature(function).parameters.values()
        if "PathLike" in str(argument.annotation)
    }
    assert found == {
        ("compile_model", "source"),
        ("compile_model", "output"),
        ("ExportOptions", "records"),
        ("find_backend", "name_or_path"),
        ("import_model", "source"),
        ("load_backend_folder", "folder"),
        ("run_library", "library"),
        ("run_library", "device"),
        ("compile_and_run", "test_dir"),
    }


@pytest.mark.parametrize("kind", [str, Path, Named])
def test_every_path_may_be_text(kind: Any, tmp_path: Path) -> None:
    def path(place: Path) -> Any:
        return kind(place) if kind is not Named else Named(place)

    model = ROOT / "examples" / "digits" / "digits.onnx"
    vanilla = ROOT / "backends" / "vanilla_accelerator"
    backend = umakit.find_backend(path(vanilla))
    assert backend.target_name == "vanilla_accelerator"
    assert load_backend_folder(path(vanilla)).target_name == "vanilla_accelerator"
    network = umakit.import_model(path(model))
    assert (network.name, network.path) == ("digits", str(model))
    library = umakit.compile_model(path(model), [backend], path(tmp_path / "library"))
    image = np.zeros((1, 1, 8, 8), "float32")
    ran = umakit.run_library(path(tmp_path / "library"), {"image": image})
    assert ran.runs == 1 and library.path == tmp_path / "library"
    board = tmp_path / "board.toml"
    board.write_text('compiler = "gcc"\n', encoding="utf-8")
    device = path(board)
    assert umakit.run_library(path(tmp_path / "library"), {"image": image}, device=device).runs == 1
    options = umakit.ExportOptions(records=path(tmp_path / "no_records.json"))
    with pytest.raises(umakit.UmakitError, match=r"no_records\.json"):
        umakit.compile_model(path(model), [], path(tmp_path / "other"), options=options)
    tested = umakit.testing.conv2d_model(channels=1, height=4, width=4, filters=1, kernel=1)
    umakit.testing.compile_and_run(tested, test_dir=path(tmp_path / "kept"))
    assert (tmp_path / "kept" / tested.name / "metadata.json").is_file()
