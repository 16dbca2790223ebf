# SPDX-License-Identifier: Apache-2.0
"""The rooms of umakit and the one direction in which its modules import each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from import_graph import Graph, circles, import_graph, joined, modules_of

from umakit import sim
from umakit.tools.scaffold import TUTORIALS

ROOT = Path(__file__).parents[1]

# The four folders that pyproject.toml puts into the package from outside of umakit/.
FOLDERS = {
    "umakit": ROOT / "umakit",
    **{f"umakit.{name}": ROOT / name for name in ("backends", "cli", "sim", "templates")},
}

ORDER = tuple(
    "errors version imports tvm_api tir sim templates text files floats operators "
    "patterns machine cpu registration frontend quantized partition records lower program memory "
    "codegen library devices pipeline backend torch testing tools umakit backends "
    "cli".split()
)
"""Rooms, and modules that stand alone: each may import those before it. `umakit` itself is what
users see of all of them."""

MOST_FILES_AT_THE_TOP = 7

EXCEPTIONS = {
    ("umakit.backend.registry", "umakit.backends"): (
        "the reference backends are found by name, as those of any team are"
    ),
}


def room(module: str) -> str:
    """The folder below the package that a module is in, or the module itself at its top."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return import_graph(FOLDERS)


@pytest.fixture(scope="module")
def allowed(graph: Graph) -> Graph:
    """The graph without the exceptions."""
    return {
        name: {other for other in others if (name, other) not in EXCEPTIONS}
        for name, others in graph.items()
    }


def upwards(graph: Graph) -> set[tuple[str, str]]:
    """Edges that lead to a room that is not before their own."""
    return {
        (name, other)
        for name, others in graph.items()
        for other in others
        if room(name) != room(other) and ORDER.index(room(name)) <= ORDER.index(room(other))
    }


def test_every_room_has_its_place(graph: Graph) -> None:
    assert {room(name) for name in graph} - set(ORDER) == set()


def test_the_page_draws_the_rooms_in_this_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = page.partition("## Rooms")[2].split("```")[1]
    drawn = [re.split(r" {3,}", line)[0].split() for line in drawing.strip().splitlines()]
    assert [name for names in drawn for name in names] == list(reversed(ORDER))


def test_the_page_names_files_that_exist() -> None:
    for page in (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:umakit|tests|cli|sim|backends)/[\w./]*)`", text):
            assert (ROOT / name).exists() or "NAME" in name, f"{page.name}: {name}"


def test_no_edge_leads_upwards(graph: Graph) -> None:
    found = upwards(graph)
    assert EXCEPTIONS.keys() <= found, "an exception that nothing needs"
    assert found - EXCEPTIONS.keys() == set()


def test_exceptions_are_few_and_have_reasons() -> None:
    assert len(EXCEPTIONS) <= 1 and all(EXCEPTIONS.values())


def test_no_modules_form_a_circle(graph: Graph) -> None:
    """The exceptions counted."""
    assert circles(graph) == []


def test_no_folders_form_a_circle(allowed: Graph) -> None:
    """Neither the rooms nor, in any folder, what is in it: a folder of its own counts as one."""
    found = {}
    for folder in {name.rpartition(".")[0] for name in allowed} - {""}:
        inside = [name for name in allowed if f"{name}.".startswith(f"{folder}.")]
        part_of = {name: part(name, folder) for name in inside}
        graph = {name: allowed[name] & part_of.keys() for name in inside}
        found[folder] = circles(joined(graph, part_of))
    assert {name: rings for name, rings in found.items() if rings} == {}


def part(module: str, folder: str) -> str:
    """The file or folder right below a folder that a module is or is in."""
    rest = module.removeprefix(folder).strip(".")
    return rest.partition(".")[0] or "__init__"


def test_no_simulator_is_known_by_its_name() -> None:
    """What the kit knows of one is in `sim/`; only what reference backends consist of names it."""
    folders = [ROOT / "umakit", *(path for path in (ROOT / "templates").iterdir() if path.is_dir())]
    files = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for folder in folders
        if folder.name not in TUTORIALS
        for path in folder.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert len(files) > 300
    kinds = re.compile("|".join(sim.KINDS), re.IGNORECASE)
    assert [name for name, text in files.items() if kinds.search(name + text)] == []
    assert any(kinds.search(path.read_text()) for path in (ROOT / "templates/chocolate").iterdir())


def test_few_files_stand_at_the_top() -> None:
    assert len(list((ROOT / "umakit").glob("*.py"))) <= MOST_FILES_AT_THE_TOP


def test_one_module_imports_tvm() -> None:
    found = {
        name
        for name, path in modules_of(FOLDERS).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for imported in imported_names(node)
        if imported.partition(".")[0] in ("tvm", "tvm_ffi")
    }
    assert found == {"umakit.tvm_api"}


def imported_names(node: ast.AST) -> list[str]:
    """Names of modules that an import statement or a call with a string imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if not node.level else []
    if not isinstance(node, ast.Call):
        return []
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called.endswith("import_module") and node.args and isinstance(node.args[0], ast.Constant):
        return [str(node.args[0].value)]
    return []


def test_nothing_but_the_command_line_imports_it(graph: Graph) -> None:
    found = {
        name
        for name, others in graph.items()
        if room(name) != "cli" and any(room(other) == "cli" for other in others)
    }
    assert found == set()


# --- the graph itself: edges that are planted are found -------------------------------------------

REGISTRY = """
RULES = {}
def register(name):
    def note(rule):
        RULES[name] = rule
        return rule
    return note
class Table:
    def __init__(self): self.rows = {}
    def take(self, name): self.rows[name] = 1
TABLE = Table()
"""

PLANTED = {
    "in a function": ("low.a", "def f():\n    from kit.high import b\n"),
    "in a function, whole": ("low.a", "def f():\n    import kit.high.b\n"),
    "relative": ("low.a", "from ..high import b\n"),
    "of a name": ("low.a", "from kit.high.b import something\n"),
    "for types": ("low.a", "if TYPE_CHECKING:\n    from kit.high.b import T\n"),
    "importlib": ("low.a", "import importlib\nimportlib.import_module('kit.high.b')\n"),
    "importlib, constant": (
        "low.a",
        "from importlib import import_module\nPLACE = 'kit.high.b'\n"
        "def f():\n    return import_module(PLACE)\n",
    ),
    "table of names": (
        "low.a",
        "import importlib\nHOMES = {'x': 'high.b'}\ndef __getattr__(name):\n"
        "    return getattr(importlib.import_module(f'kit.{HOMES[name]}'), name)\n",
    ),
    "table of names, given to a function": (
        "low.a",
        "from kit.low.late import later\n__getattr__ = later({'x': 'kit.high.b'})\n",
    ),
    "decorator": ("high.b", "from kit.low.a import register\n@register('x')\ndef f(): ...\n"),
    "call": ("high.b", "from kit.low import a\na.register('x')(print)\n"),
    "table of an object": ("high.b", "from kit.low.a import TABLE\nTABLE.take('x')\n"),
    "dictionary": ("high.b", "from kit.low.a import RULES\nRULES.update(x=1)\n"),
    "attribute": ("high.b", "from kit.low import a\ndef f():\n    a.RULES = {}\n"),
}


def planted(folder: Path, sources: dict[str, str]) -> Graph:
    """The graph of a package of modules `low.a`, `high.b` and more, with their sources."""
    late = "import importlib\ndef later(homes):\n    return importlib.import_module(homes['x'])\n"
    for name, text in ({"low.a": "", "low.late": late, "high.b": ""} | sources).items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in (folder, path.parent):
            (package / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    return import_graph({"kit": folder})


@pytest.mark.parametrize("kind", PLANTED)
def test_an_edge_upwards_is_seen(kind: str, tmp_path: Path) -> None:
    place, text = PLANTED[kind]
    graph = planted(tmp_path, {"low.a": REGISTRY} | {place: REGISTRY * (place == "low.a") + text})
    assert "kit.high.b" in graph["kit.low.a"]


def test_folders_that_are_gone_through_are_seen(tmp_path: Path) -> None:
    text = "import pkgutil\nfor each in pkgutil.iter_modules(__path__): ...\n"
    graph = planted(tmp_path, {"low.__init__": text})
    assert graph["kit.low"] == {"kit.low.a", "kit.low.late"}


def test_a_registry_may_be_filled_by_its_own_folder(tmp_path: Path) -> None:
    text = "from kit.low.a import register\n@register('x')\ndef f(): ...\n"
    graph = planted(tmp_path, {"low.a": REGISTRY, "low.more.c": text})
    assert graph["kit.low.a"] == set() and graph["kit.low.more.c"] == {"kit.low.a"}


def test_calls_that_change_nothing_are_no_edges(tmp_path: Path) -> None:
    low = REGISTRY + "def double(x): return [2 * x]\n"
    high = "from kit.low.a import double\nX = double(1)\n"
    graph = planted(tmp_path, {"low.a": low, "high.b": high})
    assert graph["kit.low.a"] == set()


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert circles(graph) == [["a", "b", "c"]]
    assert circles(joined(graph, dict(zip("abcde", "xxyyz", strict=True)))) == [["x", "y"]]
