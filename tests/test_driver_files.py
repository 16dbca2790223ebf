# SPDX-License-Identifier: Apache-2.0
"""Files of backends in an export: folders, includes, and names that two backends share."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import cmake_builds
import numpy as np
import pytest
from tvm import relax

import umakit
from umakit import patterns, tir
from umakit.backend import PassPhase, UMABackend
from umakit.codegen.driver_names import exported_includes, exported_path
from umakit.errors import LibraryError
from umakit.library.export import Library
from umakit.library.metadata import load_metadata
from umakit.library.packages import package_library
from umakit.tools.size.measure import library_size

DRIVER = """\
#include "driver.h"
#include "util.h"

int {name}_fill(float *result, int count)
{{
    int i;
    for (i = 0; i < count; i++) {{
        result[i] = {name}_value() + OFFSET;
    }}
    return 0;
}}
"""
UTIL = '#include "detail/value.h"\n\nfloat {name}_value(void)\n{{\n    return 0.5f;\n}}\n'


class Filler(UMABackend):
    """Takes one operator and fills its result with a number that its `util.h` defines."""

    def __init__(self, folder: Path, name: str, operator: str, offset: int) -> None:
        self._folder, self._name = folder / name, name
        files = {
            "kernels/driver.c": DRIVER,
            "kernels/util.c": UTIL,
            "accel.toml": '[accelerator]\nname = "{name}"\n[array]\nrows = 4\ncolumns = 4\n',
            "include/driver.h": "int {name}_fill(float *result, int count);\n",
            "include/util.h": '#define OFFSET {offset}.0f\n#include "detail/value.h"\n',
            "include/detail/value.h": "float {name}_value(void);\n",
        }
        for path, text in files.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.format(name=name, offset=offset))
        super().__init__()
        pattern = patterns.is_op(f"relax.{operator}")(patterns.wildcard())
        self._register_pattern("fill", pattern)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("fill", self._call))
        text = '#include "driver.h"\n#include "util.h"\n#undef OFFSET'
        self._register_codegen(includes=lambda: text)
        self._register_driver(
            sources=[path for path in files if path.endswith(".c")],
            headers=[path for path in files if path.endswith(".h")],
        )

    def _call(self, function: Any) -> Any:
        if tir.composite_name(function) != f"{self._name}.fill":
            return function
        result = function.params[-1]
        count = int(np.prod(tir.buffer_shape(result)))
        return tir.with_body(
            function, tir.driver_call(f"{self._name}_fill", [tir.pointer(result), count])
        )

    @property
    def target_name(self) -> str:
        return self._name

    @property
    def folder(self) -> Path:
        return self._folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A network with an operator on each of two backends, whose files have the same names."""
    folder = tmp_path_factory.mktemp("fillers")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            one = builder.emit_output(relax.op.nn.relu(x), "one")
            two = builder.emit_output(relax.op.tanh(one), "two")
        builder.emit_func_output(relax.Tuple([one, two]))
    backends = [Filler(folder, "one_npu", "nn.relu", 1), Filler(folder, "two_npu", "tanh", 2)]
    return umakit.compile_model(builder.get(), backends, folder / "net", name="net")


def sh(line: str, folder: Path) -> None:
    subprocess.run(["sh", "-c", line], cwd=folder, check=True)


def test_two_backends_may_have_files_of_one_name(library: Library) -> None:
    source = library.path / "codegen/host/src"
    for name in ("one_npu", "two_npu"):
        files = {str(p.relative_to(source / name)) for p in (source / name).rglob("*.?")}
        assert files == {
            "kernels/driver.c", "kernels/util.c",
            "include/driver.h", "include/util.h", "include/detail/value.h",
        }  # fmt: skip
    result = umakit.run_library(library.path, {"x": np.zeros((1, 4), np.float32)})
    values = [float(array.ravel()[0]) for array in result.outputs.values()]
    assert values == [1.5, 2.5], "each driver includes its own util.h"


def test_the_lines_of_the_readme_build_it(library: Library, tmp_path: Path) -> None:
    text = (library.path / "README.md").read_text()
    lines = [line.strip() for line in text.splitlines() if line.startswith("    cc ")]
    assert len(lines) == 2
    program, objects = sorted(lines, key=lambda line: "-r" in line)
    sh(f"cd {library.path} && {program.partition('#')[0]} -o {tmp_path}/program", tmp_path)
    assert " -o tvmgen_net.o" in objects, "object files of one name would replace each other"
    sh(f"cd {library.path} && {objects.replace(' -o ', f' -o {tmp_path}/')}", tmp_path)
    user = "int tvmgen_net_run_in(void);\nint main(void) { return tvmgen_net_run_in == 0; }\n"
    (tmp_path / "main.c").write_text(user)
    sh("cc main.c tvmgen_net.o -lm -o app && ./app", tmp_path)


def test_other_builds_find_all_files(library: Library, tmp_path: Path) -> None:
    cmake = cmake_builds.program()
    sh(f"{cmake} -S {library.path} -B build && {cmake} --build build > log", tmp_path)
    arduino = package_library(library.path, "arduino", tmp_path / "arduino")
    sketch = "#include <tvmgen_net.h>\nint main(void) { return tvmgen_net_run == 0; }\n"
    (tmp_path / "main.c").write_text(sketch)
    sh(f"cc -I {arduino}/src main.c $(find {arduino}/src -name '*.c') -lm", tmp_path)
    sizes = library_size(library.path, ["gcc"])
    assert sizes.stack_findings == () and min(layer.text_bytes for layer in sizes.layers) > 0


def test_metadata_has_paths(library: Library) -> None:
    sources = load_metadata(library.path)["umakit"]["sources"]
    driver = [f"one_npu/kernels/{name}.c" for name in ("driver", "util")]
    assert [path for path in sources["drivers"]["one_npu"] if "/" in path] == driver


@pytest.mark.parametrize(
    ("file", "path"),
    {
        "conv.c": "one_npu/conv.c",
        "one_npu.c": "one_npu/one_npu.c",
        "./a/../b/conv.c": "one_npu/b/conv.c",
        "../shared/conv.c": "one_npu/shared/conv.c",
        "/opt/npu/conv.c": "one_npu/conv.c",
    }.items(),
)
def test_paths_below_the_folder_of_the_backend(file: str, path: str, tmp_path: Path) -> None:
    assert exported_path(Filler(tmp_path, "one_npu", "nn.relu", 1), file) == path


@pytest.mark.parametrize(
    ("file", "include", "found"),
    [
        ("kernels/util.c", "driver.h", "../include/driver.h"),
        ("kernels/util.c", "include/util.h", "../include/util.h"),
        ("kernels/util.c", "../include/util.h", "../include/util.h"),
        ("include/util.h", "detail/value.h", "detail/value.h"),
        ("", "driver.h", "one_npu/include/driver.h"),
        ("kernels/util.c", "umakit/device.h", "../../umakit/device.h"),
        ("kernels/util.c", "umakit/board.h", "umakit/board.h"),
        ("kernels/util.c", "stdio.h", "stdio.h"),
    ],
)
def test_includes_need_no_include_path(file: str, include: str, found: str, tmp_path: Path) -> None:
    backend = Filler(tmp_path, "one_npu", "nn.relu", 1)
    text = exported_includes(backend, f'#  include "{include}" /* x */', file, ["umakit/device.h"])
    assert text == f'#  include "{found}" /* x */'


def test_an_include_of_two_headers_is_refused(tmp_path: Path) -> None:
    backend = Filler(tmp_path, "one_npu", "nn.relu", 1)
    backend._register_driver(["c.c"], ["a/util.h", "b/util.h"])
    with pytest.raises(LibraryError, match=r"a/util\.h or b/util\.h"):
        exported_includes(backend, '#include "util.h"', "c.c")
