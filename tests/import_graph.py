# SPDX-License-Identifier: Apache-2.0
"""Which module of a package needs which, read from the source: nothing is imported.

An edge is an import wherever it stands, in a function or under `TYPE_CHECKING` too; a module that
is imported by name, through `importlib` or a table of names that a module's `__getattr__` reads;
all modules of a folder that a module of it goes through; and, the other way around, a module that
another one changes while that one is imported, as it does by registering something there. A
registry that is filled by modules of its own folder and of those below finds them by itself, so
that no edge comes of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

Graph = dict[str, set[str]]

CHANGES = frozenset(
    "add append extend insert update setdefault register clear pop popitem remove discard".split()
)
"""Methods by which what they are called on becomes another."""

IMPORTERS = frozenset({"import_module", "__import__", "find_spec", "resolve_name"})
"""Functions that import a module by its name."""

THEIRS = frozenset({"torch"})
"""Packages of others that have the name of one of ours: a string that is one of them is theirs."""


@dataclass
class _Module:
    """A module's source.

    Attributes:
        package: the module that relative imports start from.
        names: what imported names stand for: a module, or a module and a name in it.
    """

    name: str
    tree: ast.Module
    package: str
    names: dict[str, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the source."""
        return list(ast.walk(self.tree))


def modules_of(folders: Mapping[str, Path]) -> dict[str, Path]:
    """Files by the names of their modules.

    Args:
        folders: by the name of the package that each one is.
    """
    found = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def import_graph(folders: Mapping[str, Path]) -> Graph:
    """What each module of some packages needs of the others.

    Args:
        folders: by the name of the package that each one is.
    """
    files = modules_of(folders)
    modules = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        modules[name] = _Module(name, tree, package)
    graph: Graph = {name: set() for name in modules}
    for module in modules.values():
        found = {*_imports(module, modules), *_by_name(module, modules)}
        graph[module.name] |= found - {module.name}
    for module in modules.values():
        for changed in _changed(module, modules):
            folder = modules[changed].package
            if changed != module.name and not f"{module.name}.".startswith(f"{folder}."):
                graph[changed].add(module.name)
    return graph


def _imports(module: _Module, modules: Mapping[str, _Module]) -> Iterator[str]:
    """Modules of import statements; notes what names they bind."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found = _longest(alias.name, modules)
                if found:
                    yield found
                    bound = alias.name if alias.asname else alias.name.partition(".")[0]
                    module.names[alias.asname or bound] = (bound, "")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.package.split(".")
                start = ".".join(parts[: len(parts) - node.level + 1])
                base = f"{start}.{base}" if base else start
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                if whole in modules:
                    yield whole
                    module.names[alias.asname or alias.name] = (whole, "")
                elif base in modules:
                    yield base
                    module.names[alias.asname or alias.name] = (base, alias.name)


def _longest(name: str, modules: Mapping[str, _Module]) -> str:
    """The module that a dotted name is or is in; empty if it is of another package."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def _by_name(module: _Module, modules: Mapping[str, _Module]) -> Iterator[str]:
    """Modules that are imported by a name in a string, and folders whose modules all are."""
    called = {_last(node.func) for node in module.nodes if isinstance(node, ast.Call)}
    if called & {"iter_modules", "walk_packages"} or (
        called & {"glob", "iterdir"} and called & {"import_module", "__import__"}
    ):
        yield from (name for name in modules if name.startswith(f"{module.package}."))
    given = {
        _resolved(node.func, module, modules)
        for node in (getattr(each, "value", None) for each in module.tree.body)
        if isinstance(node, ast.Call)
    }
    if not called & IMPORTERS and not any(
        each and _imports_by_name(modules[each[0]].tree, each[1]) for each in given
    ):
        return
    top = module.name.partition(".")[0]
    joined = [node for node in module.nodes if isinstance(node, ast.JoinedStr)]
    inside = {part for node in joined for part in node.values[1:]}
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            text = node.value.partition(":")[0].rstrip(".")
            if text in THEIRS:
                continue
            starts = ("", f"{top}.", f"{module.package}." if text[:1] != "." else module.package)
            yield from (start + text for start in starts if start + text in modules.keys() - {top})


def _imports_by_name(tree: ast.Module, name: str) -> bool:
    """Whether a function of a module imports others by their names."""
    return any(
        isinstance(node, ast.Call) and _last(node.func) in IMPORTERS
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name == name
        for node in ast.walk(function)
    )


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


# --- what is changed while a module is imported ---------------------------------------------------


def _changed(module: _Module, modules: Mapping[str, _Module]) -> Iterator[str]:
    """Modules that this one changes: an attribute at any time, what they hold when imported."""
    for node in module.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute):
                owner = _resolved(target.value, module, modules)
                if owner and not owner[1]:
                    yield owner[0]
    for call in _calls_at_import(module.tree):
        owner = _resolved(call, module, modules)
        if owner and owner[1] and _is_registration(modules[owner[0]].tree, owner[1]):
            yield owner[0]


def _calls_at_import(tree: ast.Module) -> Iterator[ast.expr]:
    """Functions that are called, and decorators, outside of the bodies of functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                yield decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(node, ast.Call):
            yield node.func
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def _resolved(
    node: ast.expr, module: _Module, modules: Mapping[str, _Module]
) -> tuple[str, str] | None:
    """The module that an expression like `a.b.c` is of, and the dotted rest in it."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in module.names:
        return None
    owner, name = module.names[node.id]
    rest = [*([name] if name else []), *reversed(parts)]
    while not name and rest and f"{owner}.{rest[0]}" in modules:
        owner = f"{owner}.{rest.pop(0)}"
    return (owner, ".".join(rest)) if owner in modules else None


def _is_registration(tree: ast.Module, name: str) -> bool:
    """Whether calling something of a module changes what the module holds."""
    first, _, method = name.partition(".")
    held = {name.id for node in tree.body for name in _targets(node)}
    if method:
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        functions = [
            each
            for node in classes
            for each in node.body
            if isinstance(each, ast.FunctionDef) and each.name == method
        ]
        changes_itself = any(_changes(function, {"self"}) for function in functions)
        return first in held and (method in CHANGES or changes_itself)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == first]
    return any(_changes(function, held) for function in functions)


def _targets(node: ast.stmt) -> Iterator[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    yield from (target for target in targets if isinstance(target, ast.Name))


def _changes(function: ast.FunctionDef, held: set[str]) -> bool:
    """Whether a function changes what some names hold, or gives one of them another value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global) and held & set(node.names):
            return True
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            places = [t for t in targets if isinstance(t, (ast.Subscript, ast.Attribute))]
            if any(_root(place) in held for place in places):
                return True
        is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_method and node.func.attr in CHANGES and _root(node.func.value) in held:
            return True
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# --- circles --------------------------------------------------------------------------------------


def circles(graph: Graph) -> list[list[str]]:
    """Sets of modules each of which needs every other one, through others, by Tarjan's method."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            place = stack.index(name)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for name in graph:
        if name not in number:
            visit(name)
    return found


def joined(graph: Graph, room_of: Mapping[str, str]) -> Graph:
    """The graph of rooms.

    Args:
        room_of: rooms by module.
    """
    rooms: Graph = {room_of[name]: set() for name in graph}
    for name, others in graph.items():
        rooms[room_of[name]] |= {room_of[other] for other in others} - {room_of[name]}
    return rooms
