# SPDX-License-Identifier: Apache-2.0
"""Networks whose names are drawn to hurt: every command works on them, with the results of plain
names, and nothing that reads what was written takes a name for anything else.

The consumers are the real ones: gcc and clang, CMake, kconfiglib's grammar, a shell, and parsers of
HTML, SVG, JSON and YAML.
"""

from __future__ import annotations

import html.parser
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from execution import vanilla
from hostile_names import names
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import normal
from onnx import TensorProto, helper, numpy_helper

import umakit
from umakit.library_metadata import load_metadata
from umakit.memory_map import draw_memory_map
from umakit.packages.convert import package_library
from umakit.page import html as page_html
from umakit.page import make_page
from umakit.run import run_library
from umakit.unpacked import run_unpacked

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


@dataclass(frozen=True)
class Names:
    """What a network of two inputs, a convolution, a sum and a product calls its parts."""

    left: str = "left"
    right: str = "right"
    total: str = "total"
    product: str = "product"
    conv: str = "conv"
    add: str = "add"
    inner: str = "inner"
    weights: str = "w"
    graph: str = "g"


PLAIN = Names()


def network(names: Names, path: Path) -> Path:
    shape = [1, 2, 5, 5]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in (names.left, names.right, names.total, names.product)
    ]
    nodes = [
        helper.make_node("Conv", [names.left, names.weights], [names.inner], name=names.conv),
        helper.make_node("Add", [names.inner, names.right], [names.total], name=names.add),
        helper.make_node("Mul", [names.inner, names.right], [names.product], name=names.add),
    ]
    weights = numpy_helper.from_array(normal(2, 2, 1, 1), names.weights)
    graph = helper.make_graph(nodes, names.graph, values[:2], values[2:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


LEFT, RIGHT = normal(1, 2, 5, 5, seed=1), normal(1, 2, 5, 5, seed=2)


def expected() -> list[np.ndarray]:  # type: ignore[type-arg]
    inner = np.einsum("oi,nihw->nohw", normal(2, 2, 1, 1)[:, :, 0, 0], LEFT)
    return [inner + RIGHT, inner * RIGHT]


def distinct(drawn: list[str]) -> bool:
    """Whether ONNX takes the names as those of different values."""
    return len(set(drawn)) == len(drawn) and all(drawn)


def code_of(library: Path, prefix: str, replaced: dict[str, str], compiler: str) -> list[str]:
    """The tokens that a compiler sees of a library's own C, names of the interface replaced."""
    tokens: list[str] = []
    for source in sorted((library / "codegen/host/src").glob(f"{prefix}*.c")):
        include = f"-I{library / 'codegen/host/include'}"
        line = [compiler, "-std=gnu17", "-P", "-E", include, str(source)]
        seen = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        tokens += re.findall(r'"(?:[^"\\]|\\.)*"|\w+|[^\w\s]', seen)
    return [replaced.get(token, token) for token in tokens]


def check_c(library: Path, plain: Path, folder: Path) -> None:
    """The C compiles without a warning, and is that of plain names but for the names."""
    description, other = (load_metadata(each)["umakit"] for each in (library, plain))
    pairs = zip(
        [*description["inputs"], *description["outputs"]],
        [*other["inputs"], *other["outputs"]],
        strict=True,
    )
    replaced = {one["c_name"]: two["c_name"] for one, two in pairs}
    folder.mkdir(exist_ok=True)
    for compiler in ("gcc", "clang"):
        if shutil.which(compiler) is None:
            continue
        for standard in ("-std=c99", "-std=gnu17"):
            sources = sorted((library / "codegen/host/src").glob("tvmgen_*.c"))
            flags = [*STRICT, standard, "-fsyntax-only"]
            subprocess.run([compiler, *flags, *sources], cwd=folder, check=True)
        seen = code_of(library, "tvmgen_net", replaced, compiler)
        assert seen == code_of(plain, "tvmgen_net", {}, compiler)
    header = library / "codegen/host/include/tvmgen_net.h"
    (folder / "header.cpp").write_text(f'#include "{header}"\nint main() {{ return 0; }}\n')
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *flags, "header.cpp"], cwd=folder, check=True)


class Tags(html.parser.HTMLParser):
    """The tags of a page and the names of their attributes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "wbr":  # where long names may break
            self.seen.append((tag, tuple(name for name, _ in attributes)))


def tags_of(text: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Tags()
    parser.feed(text)
    parser.close()
    return parser.seen


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of plain names, and its page."""
    folder = tmp_path_factory.mktemp("plain")
    model = network(PLAIN, folder / "net.onnx")
    umakit.compile_model(model, [vanilla()], folder / "library", name="net")
    (folder / "page.html").write_text(page_html(make_page(model, [vanilla()])), encoding="utf-8")
    return folder / "library"


def check_network(drawn: Names, plain: Path, folder: Path, *, everything: bool = True) -> None:
    """Take a network with some names the whole way."""
    model = network(drawn, folder / "model.onnx")
    library = folder / "library"
    shutil.rmtree(library, ignore_errors=True)
    umakit.compile_model(model, [vanilla()], library, name="net")
    inputs = {drawn.left: LEFT, drawn.right: RIGHT}
    results = [run_unpacked(library, inputs)]
    if everything:
        results.append(run_library(library, inputs).outputs)
    for outputs in results:
        assert list(outputs) == [drawn.total, drawn.product]
        for got, wanted in zip(outputs.values(), expected(), strict=True):
            assert np.allclose(got, wanted, atol=1e-5)
    check_c(library, plain, folder / "c")
    draw_memory_map(load_metadata(library)["umakit"], folder / "map.svg", force=True)
    ElementTree.parse(folder / "map.svg")
    if everything:
        page = page_html(make_page(model, [vanilla()]))
        page.encode("utf-8")
        wanted_tags = tags_of((plain.parent / "page.html").read_text(encoding="utf-8"))
        assert tags_of(page) == wanted_tags
        packed = package_library(library, "tar", folder / "library.tar")
        sketch = package_library(library, "arduino", folder / "sketch")
        other = package_library(plain, "arduino", folder / "plain_sketch")
        assert [p.relative_to(sketch) for p in sorted(sketch.rglob("*"))] == [
            p.relative_to(other) for p in sorted(other.rglob("*"))
        ]
        assert run_library(packed, inputs).outputs.keys() == results[0].keys()
    assert not list(folder.rglob("RAN"))


EVERY = ("left", "right", "total", "product", "conv", "add", "inner", "weights", "graph")


@pytest.mark.parametrize(
    ("drawn", "everything"),
    [
        (Names("__LINE__", "linux", "unix", "errno", "*\\ { } \\*", "a*\\b", "\\", "??/"), False),
        (Names("x", "X", "x_2", "X_2", "/b[/0]/Relu", "]]><script>$x$", "\x1b[31m\n"), True),
        (Names("status", "workspace", "vanilla_accelerator_device", "KERNEL", "*/", "/*"), False),
        (Names("n" * 300, "n" * 301, "../../x", "-rf", "\u202e", "\u0301", " ", "\t"), False),
    ],
    ids=["macros", "markup", "generated", "long"],
)
def test_names_known_to_hurt(drawn: Names, everything: bool, plain: Path, tmp_path: Path) -> None:
    check_network(drawn, plain, tmp_path, everything=everything)


def drawn_names() -> st.SearchStrategy[Names]:
    some = names().filter(lambda name: len(name) < 5_000)
    values = st.lists(some, min_size=len(EVERY), max_size=len(EVERY))
    return values.filter(lambda v: distinct([*v[:4], v[6], v[7]])).map(lambda v: Names(*v))


@settings(
    max_examples=1, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(drawn=drawn_names())
def test_drawn_names(drawn: Names, plain: Path, tmp_path: Path) -> None:
    check_network(drawn, plain, tmp_path, everything=False)


@pytest.mark.soak
@settings(
    max_examples=int(os.environ.get("SOAK_EXAMPLES", "200")), deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(drawn=drawn_names())
def test_many_drawn_names(drawn: Names, plain: Path, tmp_path: Path) -> None:
    for folder in ("sketch", "plain_sketch"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
    (tmp_path / "library.tar").unlink(missing_ok=True)
    check_network(drawn, plain, tmp_path)
