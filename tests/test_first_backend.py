# SPDX-License-Identifier: Apache-2.0
"""The small backend of `docs/backends-api.md`, and what users are told if its driver is missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import pytest

from umakit import compile_model, run_library
from umakit.devices.build import compile_c
from umakit.errors import BuildError, UmakitError
from umakit.tools.diff import diff_model

PAGE = Path(__file__).parents[1] / "docs" / "backends-api.md"
BLOCK = re.compile(r"`my_npu/([\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
DRIVER = '        self._register_driver(sources=["my_npu.c"], headers=["my_npu.h"])\n'
INCLUDES = "        self._register_codegen(includes=lambda: '#include \"my_npu.h\"')\n"
INPUT = np.linspace(-1, 1, 12, dtype="float32").reshape(1, 12)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the files of the page as `my_npu`, with replacements in `backend.py`."""

    def write_backend(*replacements: tuple[str, str]) -> Path:
        folder = tmp_path / "my_npu"
        folder.mkdir()
        files = dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
        assert sorted(files) == ["accel.toml", "backend.py", "my_npu.c", "my_npu.h"]
        for old, new in replacements:
            assert old in files["backend.py"]
            files["backend.py"] = files["backend.py"].replace(old, new)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    return write_backend


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An ONNX file with one ReLU."""
    tensor = onnx.helper.make_tensor_value_info
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")],
        "relu",
        [tensor("x", float32, INPUT.shape)],
        [tensor("y", float32, INPUT.shape)],
    )
    path = tmp_path / "relu.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    return path


def compiled(model: Path, folder: Path) -> tuple[Path, list[str]]:
    """A library, and what the user was told about it."""
    from umakit import find_backend

    said: list[str] = []
    output = model.parent / "library"
    library = compile_model(model, [find_backend(folder)], output, notice=said.append)
    assert [row.where for row in library.report.placements] == ["my_npu"]
    assert library.metadata["umakit"]["notices"] == said
    return output, said


def test_the_backend_of_the_page_is_right(write: Write, model: Path) -> None:
    from umakit import find_backend

    folder = write()
    library, said = compiled(model, folder)
    assert said == []
    (output,) = run_library(library, {"x": INPUT}).outputs.values()
    np.testing.assert_array_equal(output, np.maximum(INPUT, 0))
    assert diff_model(model, [find_backend(folder)], most=1).agrees


def test_a_forgotten_driver_is_told_and_named(write: Write, model: Path) -> None:
    library, said = compiled(model, write((DRIVER, "")))
    assert said == [
        "src/tvmgen_relu.c includes my_npu.h, which is not a file of a driver: name it in "
        "_register_driver, or give its folder to the C compiler",
        "the backend my_npu calls my_npu_relu and has no driver source: name it in "
        "_register_driver, or link your own",
    ]
    with pytest.raises(BuildError, match="name it in _register_driver") as caught:
        run_library(library, {"x": INPUT})
    assert "my_npu.h" in str(caught.value) and "apt-get" not in str(caught.value)


def test_a_forgotten_source_is_told_and_named(write: Write, model: Path) -> None:
    library, said = compiled(model, write(('sources=["my_npu.c"]', "sources=[]")))
    assert len(said) == 1 and "my_npu calls my_npu_relu and has no driver source" in said[0]
    with pytest.raises(
        BuildError, match=r"my_npu\.h:3: .* no file defines it, tvmgen_relu\.c:\d+ "
    ):
        run_library(library, {"x": INPUT})


def test_forgotten_includes_are_told(write: Write, model: Path) -> None:
    _, said = compiled(model, write((INCLUDES, "")))
    assert said == [
        "the generated C calls my_npu_relu of my_npu and includes no header of this backend: "
        "name it in _register_codegen(includes=...)"
    ]


def test_a_forgotten_header_of_a_driver_is_told(write: Write, model: Path) -> None:
    _, said = compiled(model, write((', headers=["my_npu.h"]', "")))
    files = [sentence.split(" includes ")[0].rpartition("/")[2] for sentence in said]
    assert files == ["tvmgen_relu.c", "my_npu.c:1"]
    assert "write headers=['my_npu.h'] in _register_driver" in said[1]


def test_users_may_link_a_driver_of_their_own(write: Write, model: Path, tmp_path: Path) -> None:
    folder = write((DRIVER, ""))
    library, said = compiled(model, folder)
    assert len(said) == 2
    sources = sorted((library / "codegen" / "host" / "src").glob("*.c"))
    main = tmp_path / "main.c"
    main.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    include = [f"-I{library}/codegen/host/include", f"-I{folder}"]
    compile_c([*sources, folder / "my_npu.c", main], tmp_path / "program", include)


@pytest.mark.parametrize(
    "text",
    [
        "static int32_t my_npu_relu(const float *x, float *y, int32_t n)\\n{\\n"
        "    for (int32_t i = 0; i < n; ++i) { y[i] = x[i] > 0 ? x[i] : 0; }\\n    return 0;\\n}",
        "#define my_npu_relu(x, y, n) ((x) == (y) ? (n) : 0)",
    ],
)
def test_a_driver_in_the_included_text_is_complete(text: str, write: Write, model: Path) -> None:
    include = INCLUDES.replace("'#include \"my_npu.h\"'", f"'{text}'")
    library, said = compiled(model, write((DRIVER, ""), (INCLUDES, include)))
    assert said == []
    run_library(library, {"x": INPUT})


def test_includes_behind_a_condition_may_be_missing(write: Write, model: Path) -> None:
    more = '\'#include "my_npu.h"\\n#if defined(BOARD)\\n#include "board.h"\\n#endif\''
    _, said = compiled(model, write(("'#include \"my_npu.h\"'", more)))
    assert said == []


def test_one_name_is_no_list_of_files(write: Write) -> None:
    from umakit import find_backend

    with pytest.raises(UmakitError, match=r"takes a list of names; write sources=\['my_npu.c'\]"):
        find_backend(write(('["my_npu.c"]', '"my_npu.c"')))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_missing_header_is_answered_according_to_whose_it_is(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CC", compiler)
    source = tmp_path / "program.c"
    for header, mend in (
        ("<missing.h>", "if missing.h is a driver's, name it in _register_driver"),
        ('"missing.h"', "name its folder in include of \\[sources\\]"),
        ('"umakit/device.h"', "umakit/device.h is exported together with a simulator: set"),
        ('"umakit/reference.h"', "copy umakit/reference.h into the library"),
        ('"umakit/devices.h"', "umakit has no umakit/devices.h"),
    ):
        source.write_text(f"#include {header}\n", encoding="utf-8")
        with pytest.raises(BuildError, match=mend) as caught:
            compile_c([source], tmp_path / "program", [])
        assert "apt-get" not in str(caught.value)
    source.write_text("#include <sys/missing.h>\n", encoding="utf-8")
    with pytest.raises(BuildError, match="apt-get install gcc libc6-dev"):
        compile_c([source], tmp_path / "program", [])
