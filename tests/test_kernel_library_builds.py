# SPDX-License-Identifier: Apache-2.0
"""A library of C functions in each form of an export: two networks that call parts of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cmake_builds
import numpy as np
import pytest
from zephyr_functions import FUNCTIONS

from umakit import compile_model, patterns, run_library
from umakit.backend import UMABackend
from umakit.devices import find_device
from umakit.errors import BuildError, LibraryError, UmakitError
from umakit.library.metadata import load_metadata
from umakit.library.packages import package_library
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.diff import diff_model
from umakit.tools.doctor.driver import library_checks
from umakit.tools.size.measure import library_size

CONFIGURATION = """\
[accelerator]
name = "acme"
kind = "library"

[sources]
root = "../vendor kit"
files = ["Source/**/*.c"]
exclude = ["**/templates/*"]
include = ["Include"]
headers = ["Include/acme.h"]
defines = { ACME_LANES = 4, ACME_PLAIN = true, ACME_NOT = false }
flags = ["-Wno-sign-compare", "-fno-strict-aliasing"]
licence = ["LICENCE.txt", "../terms.txt"]
reentrant = true
"""

POOL = "(const int8_t *data, int batch, int height, int width, int channels, int window, int8_t *r)"
FILES = {
    "vendor kit/Include/acme.h": "#pragma once\n#include <acme/detail/types.h>\n"
    f"int acme_max_pool{POOL};\nint acme_max_pool_fast{POOL};\n",
    "vendor kit/Include/acme/detail/types.h": "#include <stdint.h>\n"
    "#if !defined(ACME_LANES) || ACME_LANES != 4 || !ACME_PLAIN || defined(ACME_NOT)\n"
    "#error macros\n#endif\n",
    "vendor kit/Source/Pool Kernels/max.c": '#include "acme.h"\n#include "util.h"\n'
    f"int acme_max_pool{POOL}\n{{\n"
    "    return acme_max_of(data, batch, height, width, channels, window, 2, r);\n}\n",
    "vendor kit/Source/Pool Kernels/util.h": "#define ACME_MAX_OF acme_max_of\n"
    "int acme_max_of(const int8_t *, int, int, int, int, int, int, int8_t *);\n",
    "vendor kit/Source/Pool Kernels/util.c": "#include <acme.h>\n#include \"util.h\"\n"
    '#define NAME ACME_MAX_OF\n#include "templates/pool.c"\n',
    "vendor kit/Source/Pool Kernels/templates/pool.c": "int NAME(const int8_t *data, int batch, "
    "int height, int width, int channels, int window, int stride, int8_t *r)\n{\n"
    "    for (int n = 0; n < batch; n++)\n"
    "    for (int y = 0; y + window <= height; y += stride)\n"
    "    for (int x = 0; x + window <= width; x += stride)\n"
    "    for (int c = 0; c < channels; c++) {\n"
    "        int8_t most = -128;\n"
    "        for (int i = 0; i < window * window; i++) {\n"
    "            const int row = (n * height + y + i / window) * width + x + i % window;\n"
    "            most = data[row * channels + c] > most ? data[row * channels + c] : most;\n"
    "        }\n        *r++ = most;\n    }\n    return 0;\n}\n",
    "vendor kit/Source/Fast/fast.c": '#include "acme.h"\n#include "util.h"\n'
    '#include "../Pool Kernels/util.h"\n'
    f"int acme_max_pool_fast{POOL}\n{{\n"
    "    return acme_max_of(data, batch, height, width, channels, acme_same(window), 1, r);\n}\n",
    "vendor kit/Source/Fast/util.h": "int acme_same(int);\n",
    "vendor kit/Source/Fast/util.c": '#include "util.h"\nint acme_same(int x) { return x; }\n',
    "vendor kit/Source/Other/never.c": "#error nothing calls this\nint acme_never;\n",
    "vendor kit/LICENCE.txt": "Terms of the kit.\n",
    "terms.txt": "Terms of the vendor.\n",
    "acme/accel.toml": CONFIGURATION,
}  # fmt: skip

ARGUMENTS = "($data, $batch, $height, $width, $channels, $window_height, $result)"


class Acme(UMABackend):
    """Pools with a stride of 2 and of 1, each by a function of its own."""

    def __init__(self, parent: Path) -> None:
        self._folder = parent / "acme"
        super().__init__()
        for function, stride in (("acme_max_pool", 2), ("acme_max_pool_fast", 1)):
            pattern = patterns.qmax_pool2d(function, padding="valid", strides=[stride])
            self._register_kernel(pattern, f"{function}{ARGUMENTS}")

    @property
    def target_name(self) -> str:
        return "acme"

    @property
    def folder(self) -> Path:
        return self._folder


def written(folder: Path, changed: Mapping[str, str] | None = None) -> Acme:
    for name, text in {**FILES, **(changed or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        # A comment in Latin-1, as old files have it.
        content = text.encode() + (b"/* f\xfcr */\n" if name.endswith("fast.c") else b"")
        (folder / name).write_bytes(content)
    return Acme(folder)


def networks() -> dict[str, Any]:
    found = {}
    for name, stride in (("one", 2), ("two", 1)):
        network = QuantizedNetwork(6, 5, 3).pool2d("max", 2, stride, padding="valid")
        found[name] = network.model(name)
    return found


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernel libraries")
    backend = written(folder)
    for name, model in networks().items():
        library = compile_model(model.module, [backend], folder / "out" / name, name=name)
        assert [row.where for row in library.report.placements] == ["acme"]
        assert library.notices == []
    return folder / "out"


def expected(name: str) -> Any:
    image = networks()[name].inputs["x"].astype(int)
    stride = {"one": 2, "two": 1}[name]
    rows = [[image[0, y : y + 2, x : x + 2].max((0, 1)) for x in range(0, 4, stride)]
            for y in range(0, 5, stride)]  # fmt: skip
    return np.array(rows)[None].astype("int8")


def test_exports_have_what_each_calls(exports: Path) -> None:
    start = {"Include/acme.h", "Include/acme/detail/types.h", "LICENCE.txt", "terms.txt"}
    pool = {f"Source/Pool Kernels/{n}" for n in ("util.c", "util.h", "templates/pool.c")}
    fast = {f"Source/Fast/{n}" for n in ("fast.c", "util.c", "util.h")}
    for name, own in (("one", {"Source/Pool Kernels/max.c"}), ("two", fast)):
        folder = exports / name / "codegen/host/src/acme"
        found = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
        assert set(found) == start | pool | own
        for path, file in found.items():
            place = "" if path == "terms.txt" else "vendor kit"
            assert file.read_bytes() == (exports.parent / place / path).read_bytes()
        view = load_metadata(exports / name)["umakit"]["sources"]["libraries"]["acme"]
        assert "acme/Source/Pool Kernels/templates/pool.c" in view["included"]
        assert view["defines"] == ["ACME_LANES=4", "ACME_PLAIN"]
        assert "acme/LICENCE.txt" in (exports / name / "NOTICE").read_text()


@pytest.mark.parametrize("name", ["one", "two"])
def test_runs_are_exact(name: str, exports: Path) -> None:
    model = networks()[name]
    result = run_library(exports / name, model.inputs).outputs["output"]
    np.testing.assert_array_equal(result, expected(name))


def test_the_other_tools_build_it_too(exports: Path) -> None:
    (layer,) = library_size(exports / "two").layers
    assert layer.text_bytes > 0 and layer.where == "acme"
    backend = Acme(exports.parent)
    assert diff_model(networks()["two"].module, [backend], most=1).agrees
    (check,) = library_checks(backend)
    assert check.status == "ok" and "5 C files" in check.message


def test_it_runs_on_a_microcontroller(exports: Path) -> None:
    device = find_device("qemu-cortex-m3")
    try:
        device.check_emulator()
        device.compiler()
    except UmakitError as error:
        assert not os.environ.get("UMAKIT_CI"), f"CI lacks a device: {error}"
        pytest.skip(str(error))
    result = run_library(exports / "two", networks()["two"].inputs, device=device.name)
    np.testing.assert_array_equal(result.outputs["output"], expected("two"))


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_lines_of_the_readme(name: str, exports: Path, tmp_path: Path) -> None:
    text = (exports / name / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (find codegen .*?) +# ", text, re.M)
    assert len(lines) == 2
    subprocess.run(["cp", "-r", str(exports / name), str(tmp_path / "copy")], check=True)
    for line in lines:
        subprocess.run(["sh", "-ec", line], cwd=tmp_path / "copy", check=True)
    folder = tmp_path / "copy"
    (folder / "in").write_bytes(networks()[name].inputs["x"].tobytes())
    subprocess.run(["./a.out", "in", "out", "1", "1"], cwd=folder, check=True, capture_output=True)
    assert (folder / "out").read_bytes() == expected(name).tobytes()


PROGRAM = """\
#include <stdio.h>
#include "tvmgen_one.h"
#include "tvmgen_two.h"

static int8_t image[] = {IMAGE}, one[ONE], two[TWO];

int main(void)
{
    struct tvmgen_one_inputs one_in = {.x = image};
    struct tvmgen_one_outputs one_out = {.output = one};
    struct tvmgen_two_inputs two_in = {.x = image};
    struct tvmgen_two_outputs two_out = {.output = two};
    int status = tvmgen_one_run(&one_in, &one_out) | tvmgen_two_run(&two_in, &two_out);
    fwrite(one, 1, sizeof one, stdout);
    fwrite(two, 1, sizeof two, stdout);
    return status;
}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    image = ", ".join(map(str, networks()["one"].inputs["x"].ravel()))
    text = PROGRAM.replace("IMAGE", image).replace("ONE", str(expected("one").size))
    (tmp_path / "main.c").write_text(text.replace("TWO", str(expected("two").size)))
    return tmp_path


def cmake(project: Path, text: str, *options: str) -> str:
    (project / "CMakeLists.txt").write_text(text)
    settings = {"env": cmake_builds.environment(quick=True), "cwd": project}
    configured = subprocess.run(
        [cmake_builds.program(), "-S", ".", "-B", "build", *options],
        capture_output=True, text=True, check=False, **settings,
    )  # fmt: skip
    assert configured.returncode == 0, configured.stderr
    made = subprocess.run(
        [cmake_builds.program(), "--build", "build", "--verbose"],
        capture_output=True, text=True, check=False, **settings,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def both(project: Path) -> bytes:
    return subprocess.run(["build/app"], cwd=project, check=True, capture_output=True).stdout


BOTH = "add_executable(app main.c)\n"


def test_two_networks_in_one_cmake_program(exports: Path, project: Path) -> None:
    """Each brings an archive; functions of both are the same files."""
    text = "cmake_minimum_required(VERSION 3.16)\nproject(app C)\n"
    text += f'add_subdirectory("{exports}/one" one)\nadd_subdirectory("{exports}/two" two)\n{BOTH}'
    text += "target_link_libraries(app tvmgen_one::tvmgen_one tvmgen_two::tvmgen_two)\n"
    built = cmake(project, text)
    assert "-fno-strict-aliasing" in built
    for line in built.splitlines():
        if "-fno-strict-aliasing" in line:
            assert "/acme/" in line or "acme\\ " in line
    assert both(project) == expected("one").tobytes() + expected("two").tobytes()


def test_two_networks_in_one_zephyr_image(exports: Path, project: Path) -> None:
    """Whole archives are linked, so that each file may be built once only."""
    text = FUNCTIONS
    for name in ("one", "two"):
        symbol = f"CONFIG_TVMGEN_{name.upper()}"
        text += f"set({symbol} y)\nset({symbol}_STATIC_WORKSPACE y)\n"
        text += f'add_subdirectory("{exports}/{name}/zephyr" {name})\n'
    text += f"{BOTH}get_property(libraries GLOBAL PROPERTY ZEPHYR_LIBS)\n"
    text += "target_link_libraries(app zephyr_interface -Wl,--whole-archive ${libraries}\n"
    text += "  -Wl,--no-whole-archive m)\n"
    cmake(project, text)
    assert both(project) == expected("one").tobytes() + expected("two").tobytes()


def test_versions_of_a_library_do_not_mix(exports: Path, project: Path) -> None:
    path = "vendor kit/Source/Other/never.c"
    backend = written(project / "changed", {path: FILES[path] + "int acme_other;\n"})
    compile_model(networks()["two"].module, [backend], project / "two", name="two")
    text = "cmake_minimum_required(VERSION 3.16)\nproject(app C)\n"
    text += f'add_subdirectory("{exports}/one" one)\nadd_subdirectory("{project}/two" two)\n{BOTH}'
    text += "target_link_libraries(app tvmgen_one::tvmgen_one tvmgen_two::tvmgen_two)\n"
    with pytest.raises(AssertionError, match="acme_files"):
        cmake(project, text)


def test_an_arduino_library_needs_no_folders_and_macros(exports: Path, tmp_path: Path) -> None:
    package_library(exports / "one", "arduino", tmp_path / "arduino")
    source = tmp_path / "arduino/src"
    files = [str(path) for path in source.rglob("*.c")]
    assert sum(path.endswith("util.c") for path in files) == 1
    line = ["cc", "-shared", "-fPIC", "-Wl,--no-undefined", f"-I{source}", *files, "-lm"]
    subprocess.run([*line, "-o", str(tmp_path / "library.so")], check=True)
    text = next(source.rglob("max.c")).read_bytes()
    assert FILES["vendor kit/Source/Pool Kernels/max.c"].split("\n", 2)[2].encode() in text
    assert b"#define ACME_LANES 4" in text and b'optimize("no-strict-aliasing")' in text


# --- a library that is there already -------------------------------------------------------------

LINKED = CONFIGURATION.replace('files = ["Source/**/*.c"]', 'link = ["acme_kernels"]')
LINKED = re.sub(r"^(exclude|flags) = .*\n", "", LINKED, flags=re.M)


def test_a_library_may_be_there_already(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = written(project, {"acme/accel.toml": LINKED})
    model = networks()["one"]
    library = compile_model(model.module, [backend], project / "library", name="one").path
    assert not list(library.glob("codegen/host/src/acme/**/*.c"))
    with pytest.raises(BuildError, match="acme_kernels"):
        run_library(library, model.inputs)
    kit = project / "vendor kit"
    for source in ("Source/Pool Kernels/max.c", "Source/Pool Kernels/util.c"):
        line = [
            "cc",
            "-DACME_LANES=4",
            "-DACME_PLAIN",
            f"-I{kit / 'Include'}",
            "-c",
            str(kit / source),
        ]
        subprocess.run(line, cwd=project, check=True)
    subprocess.run(["ar", "rcs", "libacme_kernels.a", "max.o", "util.o"], cwd=project, check=True)
    monkeypatch.setenv("LIBRARY_PATH", str(project))
    result = run_library(library, model.inputs).outputs["output"]
    np.testing.assert_array_equal(result, expected("one"))


def test_a_driver_may_not_take_a_path_of_the_library(tmp_path: Path) -> None:
    backend = written(tmp_path, {"acme/Source/Fast/UTIL.c": "int x;\n"})
    backend._register_driver(["Source/Fast/UTIL.c"])
    with pytest.raises(LibraryError, match="two different files would become"):
        compile_model(networks()["two"].module, [backend], tmp_path / "library", name="two")
