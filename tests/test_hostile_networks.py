# SPDX-License-Identifier: Apache-2.0
"""Networks whose names are drawn to hurt: every command works on them, with the results of plain
names, and nothing that reads what was written takes a name for anything else.

The consumers are the real ones: gcc and clang, CMake, kconfiglib's grammar, a shell, and parsers of
HTML, SVG, JSON and YAML.
"""

from __future__ import annotations

import html.parser
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import cmake_builds
import kconfiglib
import numpy as np
import pytest
from comparisons import examples
from execution import vanilla
from hostile_names import names
from hypothesis import given
from hypothesis import strategies as st
from networks import normal
from onnx import TensorProto, helper, numpy_helper
from strict import WARNINGS
from umakit.cli.main import run_command

import umakit
from umakit.devices.run import load_inputs, run_library, save_outputs
from umakit.devices.unpacked import run_unpacked
from umakit.errors import LibraryError
from umakit.library.metadata import load_metadata
from umakit.library.packages import package_library
from umakit.tools.memory_map import draw_memory_map
from umakit.tools.page import html as page_html
from umakit.tools.page import make_page

STRICT = ["-std=c99", *WARNINGS]


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


def code_of(library: Path, prefix: str, compiler: str) -> list[str]:
    """The tokens that a compiler sees of a library's own C."""
    tokens: list[str] = []
    for source in sorted((library / "codegen/host/src").glob(f"{prefix}*.c")):
        include = f"-I{library / 'codegen/host/include'}"
        line = [compiler, "-std=gnu17", "-P", "-E", include, str(source)]
        seen = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        tokens += re.findall(r'"(?:[^"\\]|\\.)*"|\w+|[^\w\s]', seen)
    return tokens


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
        seen, wanted = (code_of(each, "tvmgen_net", compiler) for each in (library, plain))
        assert len(seen) == len(wanted)
        # Kernels and constants are named after layers: different names stay different.
        named: dict[str, str] = {}
        for token, other_token in zip(seen, wanted, strict=True):
            if other_token in (token, replaced.get(token)):
                continue
            assert token.startswith("tvmgen_net_") and other_token.startswith("tvmgen_net_"), token
            assert named.setdefault(token, other_token) == other_token
        assert len(set(named.values())) == len(named)
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
    return values.filter(lambda v: distinct([*v[:4], v[6], v[7]]) and v[8]).map(lambda v: Names(*v))


@examples(2)
@given(drawn=drawn_names())
def test_drawn_names(drawn: Names, plain: Path, tmp_path: Path) -> None:
    check_network(drawn, plain, tmp_path, everything=False)


def odd_backend(folder: Path) -> Path:
    """Vanilla with files of a driver that a shell, CMake and a compiler would take for more."""
    written = shutil.copytree(Path(umakit.__file__).parent.parent / "backends/vanilla_accelerator",
                              folder / "odd_accelerator")  # fmt: skip
    renamed = {"conv2dnchw.c": "my driver;$(touch RAN) ${X}.c", "conv2dnchw.h": "my header[].h"}
    for path in written.glob("*.*"):
        text = path.read_text(encoding="utf-8").replace("vanilla_accelerator", "odd_accelerator")
        for old, new in renamed.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        path.write_text(text, encoding="utf-8")
    for old, new in renamed.items():
        (written / old).rename(written / new)
    return written


def test_build_systems_read_what_a_backend_with_strange_file_names_makes(tmp_path: Path) -> None:
    backend = umakit.find_backend(odd_backend(tmp_path))
    model = network(PLAIN, tmp_path / "model.onnx")
    library = tmp_path / "li brary"
    umakit.compile_model(model, [backend], library, name="no;w $(touch RAN)\n\"'@X@")
    description = load_metadata(library)["umakit"]
    prefix = description["interface"]
    assert re.fullmatch(r"tvmgen_\w+", prefix)
    assert any(layer["where"] == "odd_accelerator" for layer in description["layers"])
    configured = tmp_path / "configured"
    cmake, environment = cmake_builds.program(), cmake_builds.environment(quick=True)
    for words in (["-S", library, "-B", configured], ["--build", configured]):
        subprocess.run([cmake, *words], env=environment, check=True, capture_output=True)
    tree = kconfiglib.Kconfig(str(library / "zephyr/Kconfig"), warn_to_stderr=False)
    assert prefix.upper() in tree.syms
    (name_line,) = re.findall("^name: (.*)$", (library / "zephyr/module.yml").read_text(), re.M)
    assert name_line == prefix
    readme = (library / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (cc .*?)(?: +#.*)?$", readme, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        subprocess.run(["sh", "-c", line], cwd=library, check=True)
    sketch = package_library(library, "arduino", tmp_path / "sketch")
    properties = (sketch / "library.properties").read_text(encoding="utf-8").splitlines()
    assert properties[0] == "# SPDX-License-Identifier: Apache-2.0"
    assert all(re.match(r"[a-z_]+=", line) for line in properties[1:])
    inputs = {PLAIN.left: LEFT, PLAIN.right: RIGHT}
    for got, wanted in zip(run_library(library, inputs).outputs.values(), expected(), strict=True):
        assert np.allclose(got, wanted, atol=1e-5)
    assert not list(tmp_path.rglob("RAN")) and not Path("RAN").exists()


@pytest.mark.parametrize(
    "files",
    [("odd_accelerator_device.c",), ("../device.c", "device.c")],
    ids=["the simulated device", "a folder above"],
)
def test_two_files_of_a_backend_with_one_exported_name_are_refused(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    """Exports have one folder for each backend: one file would be lost."""
    written = odd_backend(tmp_path)
    text = (written / "backend.py").read_text(encoding="utf-8")
    for number, file in enumerate(files):
        (written / file).write_text(f"int odd_unused{number};\n")
    names = "".join(f'"{file}", ' for file in files)
    changed = text.replace('sources=["', f'sources=[{names}"')
    assert changed != text
    (written / "backend.py").write_text(changed, encoding="utf-8")
    backend = umakit.find_backend(written)
    model = network(PLAIN, tmp_path / "model.onnx")
    lost = f"src/odd_accelerator/{files[-1]}"
    with pytest.raises(LibraryError, match=f"two different files would become {lost}"):
        umakit.compile_model(model, [backend], tmp_path / "library")
    assert not (tmp_path / "library").exists()


@pytest.mark.parametrize("name", ["a\0b", "n" * 100_000, "../../x", "\u05d0", "file", ""])
def test_results_under_any_name_are_kept(name: str, tmp_path: Path) -> None:
    arrays = {name: LEFT, f"{name}2": RIGHT}
    save_outputs(tmp_path / "out.npz", arrays)
    stored = load_inputs(tmp_path / "out.npz")
    assert [array.tobytes() for array in stored.values()] == [LEFT.tobytes(), RIGHT.tobytes()]
    if "\0" not in name and len(name) < 1000:
        assert list(stored) == list(arrays)


@pytest.mark.parametrize("part", ["node1", "input1", "output1"])
def test_names_that_are_not_utf_8_are_refused(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = Names(left="input1", total="output1", conv="node1")
    path = network(drawn, tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes().replace(part.encode(), b"\xff" * len(part)))
    assert run_command(["compile", str(path), "-o", str(tmp_path / "library")]) == 2
    error = capsys.readouterr().err
    assert "is not UTF-8" in error and len(error.splitlines()) == 1
    assert not (tmp_path / "library").exists()
