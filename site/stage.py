# SPDX-License-Identifier: Apache-2.0
"""Copies README, docs and examples to a folder from which Sphinx builds the site.

python site/stage.py build/site

Links between pages are changed to where the pages are there; pages of reference are written.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SINGLE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages at the top of the repository by what they are called in the site."""

EXAMPLES = {"examples/nova_nn/README.md": "gallery/nova_nn.md",
            "examples/lane_npu/README.md": "gallery/lane_npu.md"}  # fmt: skip

OWN = ("vanilla_accelerator", "strawberry_accelerator", "chocolate_accelerator",
       "small_chocolate_accelerator")  # fmt: skip

PYTHON = {
    "umakit": "Compile, run, partition: what a script calls.",
    "umakit.backend": "What a backend subclasses and calls.",
    "umakit.patterns": "Ready patterns, constraints and driver calls.",
    "umakit.tir": "Building blocks of TIR passes.",
    "umakit.machine": "Descriptions of machines and planners of tiles.",
    "umakit.testing": "Harness and networks for the tests of a backend.",
    "umakit.errors": "The tree of exceptions.",
}
"""Public modules and what they are for."""

CHAPTERS = {
    "Start here": "start",
    "Tutorials": "kernel-library new-layer new-tiles your-rtl your-simulator pytorch-tutorial "
    "vanilla strawberry chocolate",
    "How to: networks": "models pytorch several-accelerators cpus",
    "How to: backends": "patterns check your-cost-model layouts",
    "How to: measure": "analysis compare sweeps traces",
    "How to: ship": "shipping boards remote",
    "Reference": "commands reference/help reference/python backends-api onnx tflite refusals "
    "registers simulator simulator-protocol tvm-versions",
    "Explanation": "architecture arithmetic generated-c performance safety misra",
    "Coming from": "coming-from migrating",
    "Glossary": "glossary",
    "Gallery": "gallery/index gallery/nova_nn gallery/lane_npu",
    "Project": "changelog contributing security",
}
"""Pages by chapter, in order."""

LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)]*)?(\))")

ELSEWHERE = re.compile(r"^[a-z]+:")


def site_path(path: Path) -> str:
    """Return where a file of the repository is in the site; empty if it is not."""
    name = path.relative_to(ROOT).as_posix()
    if name in SINGLE or name in EXAMPLES:
        return SINGLE.get(name) or EXAMPLES[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else ""


def staged(page: Path) -> str:
    """Return the text of a page with links to where other pages are in the site.

    What is no page there is named without a link.

    Raises:
        SystemExit: a link leads to a file that does not exist.
    """
    own = site_path(page)
    depth = own.count("/")

    def changed(link: re.Match[str]) -> str:
        target, anchor = link[2], link[3] or ""
        if ELSEWHERE.match(target):
            return link[0]
        file = (page.parent / target).resolve()
        if not file.exists():
            raise SystemExit(f"{page.relative_to(ROOT)}: no file {target}")
        found = site_path(file) if file.is_relative_to(ROOT) and file.is_file() else ""
        return f"{link[1]}{'../' * depth}{found}{anchor}{link[4]}" if found else "]()"

    text = LINK.sub(changed, page.read_text(encoding="utf-8"))
    return re.sub(r"\[([^\]]*)\]\(\)", r"\1", text)


def help_page() -> str:
    """Return the page with the help of each command."""
    lines = ["# Help of each command", "", "What `uma COMMAND --help` prints.", ""]
    for command in commands():
        lines += [f"## uma {command}", "", "```text", help_of(command), "```", ""]
    return "\n".join(lines)


def contents() -> str:
    """Return the table of contents, which is shown beside each page."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages.split()) + "\n```\n"
        for title, pages in CHAPTERS.items()
    )


def commands() -> list[str]:
    """Return the names of the commands, in the order of `uma --help`."""
    from typer.main import get_command
    from umakit.cli.main import app

    return list(get_command(app).commands)  # type: ignore[attr-defined]


def help_of(command: str) -> str:
    """Return what a command prints as its help, 100 columns wide."""
    line = [sys.executable, "-m", "umakit.cli.start", command, "--help"]
    ended = subprocess.run(
        line, capture_output=True, text=True, check=True,
        env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return "\n".join(text.rstrip() for text in ended.stdout.strip("\n").splitlines())


def python_page() -> str:
    """Return the page that Sphinx fills from docstrings."""
    lines = ["# Python", "", "Public modules; other names may change in any version.", ""]
    described: set[object] = set()
    for module, purpose in PYTHON.items():
        lines += [f"## {module}", "", purpose, ""]
        for name in sorted(importlib.import_module(module).__all__):
            kind, found = kind_of(module, name), getattr(importlib.import_module(module), name)
            if kind and found not in described:
                described.add(found)
                lines += ["```{eval-rst}", f".. auto{kind}:: {module}.{name}", "```", ""]
    return "\n".join(lines)


def kind_of(module: str, name: str) -> str:
    """Return what Sphinx calls a public object; empty for what has no docstring of its own."""
    found = getattr(importlib.import_module(module), name)
    if isinstance(found, type):
        return "exception" if issubclass(found, BaseException) else "class"
    return "function" if inspect.isroutine(found) else ""


def gallery_page() -> str:
    """Return the page of backends: ours, and those of examples."""
    lines = [
        "# Gallery of backends", "",
        "Backends to read and to start from.", "",
        "- **Python, C**: lines that are written by hand, without empty lines, comments, tests,",
        "  generated registers, simulators, RTL and the functions of a vendor.",
        "- **Networks**: the share of their multiply-accumulates that is offloaded.",
        "- **Cycles**: what the backend's simulator counts for one inference, without steps on the",
        "  CPU; unknown where nothing counts them.", "",
        "`python site/gallery.py` measures networks and cycles.", "",
        "| backend | kind | datatype | Python | C | to read |", "|---|---|---|--:|--:|---|",
    ]  # fmt: skip
    rows = {
        "vanilla_accelerator": ("MAC array in the CPU's memory", "float32", "../vanilla.md"),
        "strawberry_accelerator": ("MAC array with scratchpad and DMA, RTL", "int8",
                                   "../strawberry.md"),
        "chocolate_accelerator": ("tiled array, overlapping transfers", "int8", "../chocolate.md"),
        "small_chocolate_accelerator": ("the same with an array of 4x4, RTL", "int8",
                                        "../chocolate.md"),
        "lane_npu": ("array with two DMA channels, simulator of its own", "int8", "lane_npu.md"),
        "nova_nn": ("kernel library of a vendor, in C", "int8", "nova_nn.md"),
    }  # fmt: skip
    for name, (kind, dtype, page) in rows.items():
        folder = ROOT / ("backends" if name in OWN else "examples") / name
        python, c = lines_of(folder, ".py"), lines_of(folder, ".c", ".h")
        lines.append(f"| {name} | {kind} | {dtype} | {python} | {c} | [page]({page}) |")
    lines += [
        "", "| backend | network | MACs | offloaded | cycles |", "|---|---|--:|--:|--:|",
        *measured_rows(rows),
        "", "`digits` and `digits_int8` are in `examples/digits`; the others are int8 networks of",
        "[MLPerf Tiny](https://github.com/mlcommons/tiny): image classification, keyword spotting",
        "and anomaly detection. A network of which a backend takes nothing has no row.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def measured_rows(backends: Iterable[str]) -> list[str]:
    """Return a row for each backend and network of which it takes something."""
    figures = json.loads((ROOT / "site/gallery.json").read_text(encoding="utf-8"))
    lines = []
    for row in figures:
        if row["backend"] in backends and row["offloaded_macs"]:
            share = f"{100 * row['offloaded_macs'] / row['total_macs']:.1f} %"
            network = row["network"] + (f", `--rounding {row['rounding']}`" * bool(row["rounding"]))
            cycles = "unknown" if row["cycles"] is None else f"{row['cycles']:,}"
            macs = f"{row['total_macs']:,}"
            lines.append(f"| {row['backend']} | {network} | {macs} | {share} | {cycles} |")
    return lines


def lines_of(folder: Path, *suffixes: str) -> int:
    """Return how many lines of a backend's files are neither empty nor comments alone."""
    files = [path for path in folder.glob("*") if path.suffix in suffixes]
    return sum(
        bool(line.strip()) and not line.strip().startswith(("#", "//", "*", "/*"))
        for path in files
        if not path.name.startswith("test_")
        for line in path.read_text(encoding="utf-8").splitlines()
    )


def main(arguments: list[str]) -> int:
    """Stage the site in a folder, which is replaced."""
    (place,) = (Path(argument) for argument in arguments)
    shutil.rmtree(place, ignore_errors=True)
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in (*SINGLE, *EXAMPLES))]
    written: dict[str, Callable[[], str]] = {
        "reference/help.md": help_page,
        "reference/python.md": python_page,
        "gallery/index.md": gallery_page,
    }
    texts = {site_path(page): staged(page) for page in pages}
    texts |= {name: write() for name, write in written.items()}
    texts["index.md"] += contents()
    for name, text in texts.items():
        file = place / "docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for picture in (ROOT / "docs").iterdir():
        if picture.suffix in (".svg", ".png"):
            shutil.copy(picture, place / "docs")
    shutil.copy(ROOT / "site/conf.py", place / "docs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
