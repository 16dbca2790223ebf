# SPDX-License-Identifier: Apache-2.0
"""Bugs in copies of `umakit/` and `cli/` that tests find; as a program it prints which test.

python tests/planted_in_umakit.py [WORD]...    bugs whose file or kind has all the words; --list

Half of the bugs of data/umakit_bugs.toml were written by hand. The others were drawn once, by
--draw SEED, and kept; `left_out` says which mutants no test can find. A bug is located by its
text: so the bugs of another revision, whose folder --tree names, are the same, though its modules
have other places. The test that a bug names runs first, then the quick tests of the files that
mention the module, then all quick tests.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings

ROOT = Path(__file__).parents[1]
FOLDERS = ("cli", "backends", "sim", "templates")
DATA = ROOT / "tests/data/umakit_bugs.toml"
APART = "tests/test_register_files.py::test_all_files_are_up_to_date"
"""A test of files that lie beside the packages, and of which a copy has none."""

SECONDS = 600
"""Time of one run of pytest."""

MOST_FILES = 12
"""Files of tests that run because they mention a module most often."""

OTHERS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "//",
}  # fmt: skip
NUMBER = 20
"""Bugs that are drawn."""

KINDS = ("comparison", "boundary", "arithmetic", "constant", "condition", "statement")


@dataclass(frozen=True)
class Bug:
    """A text of a module replaced by another one.

    Attributes:
        kind: what a user would see; of a drawn bug, the kind of the mutant.
        file: the module.
        old, new: texts; the old one occurs once in all modules.
        test: what finds it.
        drawn: whether a mutator made it.
    """

    kind: str
    file: str
    old: str
    new: str
    test: str
    drawn: bool = False

    def path_in(self, tree: Path) -> Path:
        """Return the module of a tree that has the old text."""
        counts = {path: text.count(self.old) for path, text in modules(tree).items()}
        (path,) = (path for path, count in counts.items() if count)
        assert counts[path] == 1, f"{self.old!r} is {counts[path]} times in {path}"
        return path


def listed(key: str) -> list[dict[str, Any]]:
    """Return the bugs of the list (`bug`), or what is not drawn, with its reason (`left_out`)."""
    found: list[dict[str, Any]] = tomllib.loads(_text(DATA))[key]
    return found


@cache
def modules(tree: Path) -> dict[Path, str]:
    """Return the texts of the modules in which there may be bugs."""
    folders = (tree / folder for folder in ("umakit", "cli"))
    return {path: _text(path) for folder in folders for path in sorted(folder.rglob("*.py"))}


# --- running tests -------------------------------------------------------------------------------


class Copy:
    """A copy of the packages of a tree, in which tests of the tree run.

    Args:
        tree: a checkout with an environment.
        folder: where the copy is made.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(tree / "umakit", folder / "umakit", ignore=ignored)
        for each in FOLDERS:  # where they are in a wheel, and in the repository
            shutil.copytree(tree / each, folder / "umakit" / each, ignore=ignored)
            (folder / each).symlink_to(folder / "umakit" / each)

    def finder_of(self, bug: Bug) -> str:
        """Return the test that finds a bug; empty if none does."""
        module = bug.path_in(self.tree).relative_to(self.tree)
        path = self.folder / module
        text = path.read_text(encoding="utf-8")
        try:
            self._write(path, text.replace(bug.old, bug.new))
            found = (self.failure_of(tests) for tests in self._tests_for(bug, module))
            return next(filter(None, found), "")
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(path.resolve()))).unlink(missing_ok=True)

    def _tests_for(self, bug: Bug, module: Path) -> Iterator[list[str]]:
        file, _, function = bug.test.partition("::")
        path = self.tree / file
        if file and path.exists() and f"def {function.split('[')[0]}(" in _text(path):
            yield [bug.test]
        # What the module defines, or its dotted name.
        names = re.findall(
            r"^(?:def|class) ([a-z]\w+_\w+|[A-Z]\w+)", modules(self.tree)[self.tree / module], re.M
        )
        names.append(re.escape(".".join(module.with_suffix("").parts)))
        mention = re.compile(rf"\b({'|'.join(names)})\b")
        tests = sorted((self.tree / "tests").glob("test_*.py"))
        counts = {str(path): len(mention.findall(_text(path))) for path in tests}
        files = sorted(filter(counts.get, counts), key=lambda name: -counts[name])[:MOST_FILES]
        if files:
            yield ["--quick", *files]
        yield ["--quick"]

    def failure_of(self, tests: Sequence[str]) -> str:
        """Run tests, options of pytest among them; return the first that fails, empty if none."""
        programs = Path(sys.executable).parent if self.tree == ROOT else self.tree / ".venv/bin"
        command = [str(programs / "pytest"), "-x", "-q", "-n", "0", "--tb=no", "--deselect", APART]
        folders = (self.folder, self.tree, Path(__file__).parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
        try:
            ended = subprocess.run(
                [*command, "-p", Path(__file__).stem, *tests], cwd=self.tree, env=environment,
                capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end of {tests[-1]} after {SECONDS} s"
        if ended.returncode in (0, 5):
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", ended.stdout, re.MULTILINE)
        return failed[1] if failed else f"exit code {ended.returncode}: {ended.stderr[-300:]}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_collection() -> None:
    """Let Hypothesis end with the first example that fails, and not look for smaller ones."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("planted", settings.default, phases=phases)
    settings.load_profile("planted")


# --- drawing bugs --------------------------------------------------------------------------------


def mutants(text: str) -> Iterator[tuple[str, int, int, str]]:
    """Yield kind, begin, end and new text of the mutants of a module."""
    data, lines = text.encode(), [0]
    for line in data.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin, end = lines[node.lineno - 1], lines[node.end_lineno - 1]
        return begin + node.col_offset, end + node.end_col_offset

    def between(left: ast.expr, right: ast.expr, new: str, kind: str) -> tuple[str, int, int, str]:
        return kind, place(left)[1], place(right)[0], f" {new} "

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            kind = type(node.ops[0])
            named = "boundary" if kind in (ast.Lt, ast.LtE, ast.Gt, ast.GtE) else "comparison"
            yield between(node.left, node.comparators[0], OTHERS[kind], named)
        elif isinstance(node, ast.BinOp) and type(node.op) in OTHERS:
            operands = (node.left, node.right)
            if not any(
                isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", None), str)
                for each in operands  # paths and texts
            ):
                yield between(node.left, node.right, OTHERS[type(node.op)], "arithmetic")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield "constant", *place(node), str(node.value + 1)
        elif isinstance(node, ast.If | ast.IfExp):
            begin, end = place(node.test)
            yield "condition", begin, end, f"not ({data[begin:end].decode()})"
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield "statement", *place(node), "pass"


def drawn(trees: Sequence[Path], seed: int) -> Iterator[Bug]:
    """Yield bugs of modules of different folders, each kind in its turn.

    Args:
        trees: revisions in all of which the old text occurs once.
        seed: equal seeds draw equal bugs.
    """
    everything = ["\0".join(modules(tree).values()) for tree in trees]

    def lot(*words: object) -> str:
        return hashlib.sha256(f"{seed} {words}".encode()).hexdigest()

    files = [str(path.relative_to(trees[0])) for path in modules(trees[0])]
    left_out = {(each["file"], each["new"]) for each in listed("left_out")}
    seen: set[str] = set()
    for file in sorted(files, key=lot):
        room = "/".join(Path(file).parts[:2]) if file.startswith("umakit/") else "cli"
        if room in seen or len(seen) == NUMBER:
            continue
        text = modules(trees[0])[trees[0] / file]
        assert text.isascii(), "bytes are counted as characters"
        kind = KINDS[len(seen) % len(KINDS)]
        for found, begin, end, new in sorted(mutants(text), key=lambda each: lot(file, each)):
            first, last = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
            old = text[first:last]
            changed = text[first:begin] + new + text[end:last]
            is_new = (file, changed) not in left_out
            if found == kind and is_new and all(each.count(old) == 1 for each in everything):
                yield Bug(kind, file, old, changed, "", True)
                seen.add(room)
                break


def shown(bug: Bug) -> str:
    """Return a bug as lines of the list."""
    keys = ("kind", "file", "old", "new", "test")
    lines = [f"{key} = {json.dumps(getattr(bug, key))}" for key in keys]
    return "\n".join(["[[bug]]", *lines, *(["drawn = true"] if bug.drawn else []), ""])


def main(arguments: Sequence[str]) -> int:
    """Print which test finds each bug."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument(
        "--tree", type=Path, action="append", help="another checkout; several to draw"
    )
    parser.add_argument("--list", action="store_true", help="print the bugs, and run nothing")
    parser.add_argument("--draw", type=int, metavar="SEED", help="print bugs for the list")
    given = parser.parse_args(arguments)
    trees = [tree.resolve() for tree in given.tree or [ROOT]]
    if given.draw is not None:
        print("\n".join(shown(bug) for bug in drawn(trees, given.draw)))
        return 0
    bugs = [Bug(**each) for each in listed("bug")]
    bugs = [bug for bug in bugs if all(word in f"{bug.file} {bug.kind}" for word in given.words)]
    if given.list:
        print("\n".join(shown(bug) for bug in bugs))
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(trees[0], Path(folder))
        if trees == [ROOT] and (failed := copy.failure_of(sorted({bug.test for bug in bugs}))):
            print(f"{failed} fails without a bug")
            return 1
        for bug in bugs:
            found = copy.finder_of(bug)
            missed += not found
            print(f"{bug.file}: {bug.kind}: {found or 'MISSED'}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
