# SPDX-License-Identifier: Apache-2.0
"""Drivers in C++ are compiled and linked everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import umakit
from umakit.backend import load_backend_folder
from umakit.devices import HOST, find_device
from umakit.errors import BuildError, LibraryError
from umakit.library.packages import package_library
from umakit.tools.doctor import Status, examine_backend
from umakit.tools.size.measure import library_size

FILES = {
    "accel.toml": '[accelerator]\nname = "my_npu"\n[array]\nrows = 4\ncolumns = 4\n',
    "backend.py": """\
from umakit import patterns, tir
from umakit.backend import PassPhase, UMABackend


def call(function):
    if tir.composite_name(function) != "my_npu.relu":
        return function
    data, result = function.params
    count = tir.buffer_bytes(data) // 4
    pointers = [tir.pointer(data), tir.pointer(result)]
    return tir.with_body(function, tir.driver_call("my_npu_relu", [*pointers, count]))


class MyNpu(UMABackend):
    def __init__(self):
        super().__init__()
        self._register_pattern("relu", patterns.is_op("relax.nn.relu")(patterns.wildcard()))
        self._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("call", call))
        self._register_codegen(includes=lambda: '#include "my_npu.h"')
        self._register_driver(sources=["model/my_npu.cc"], headers=["my_npu.h", "model/lane.hpp"])

    @property
    def target_name(self):
        return "my_npu"
""",
    "my_npu.h": """\
#ifdef __cplusplus
extern "C" {
#endif
int my_npu_relu(const float *data, float *result, int count);
#ifdef __cplusplus
}
#endif
""",
    "model/lane.hpp": "template <typename T> T rectified(T x) { return x < T(0) ? T(0) : x; }\n",
    "model/my_npu.cc": """\
#include "my_npu.h"
#include "lane.hpp"

#include <algorithm>
#include <vector>

int my_npu_relu(const float *data, float *result, int count)
{
    std::vector<float> lanes(data, data + count);
    std::transform(lanes.begin(), lanes.end(), result, rectified<float>);
    return 0;
}
""",
}
IMAGE = np.linspace(-2, 2, 12, dtype=np.float32).reshape(1, 12)


def written(folder: Path) -> Path:
    """Return the folder of a backend whose driver is in C++."""
    place = folder / "my_npu"
    for name, text in FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return place


def compiled(backend: Path, output: Path) -> Path:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x), "result")
        builder.emit_func_output(result)
    loaded = [load_backend_folder(backend)]
    return umakit.compile_model(builder.get(), loaded, output, name="net").path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cxx")
    return compiled(written(folder), folder / "net")


def sh(line: str, folder: Path) -> str:
    result = subprocess.run(["sh", "-ec", line], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_runs_on_the_host(library: Path) -> None:
    result = umakit.run_library(library, {"x": IMAGE}).outputs
    np.testing.assert_array_equal(next(iter(result.values())), np.maximum(IMAGE, 0))


def test_the_lines_of_the_readme_build_it(library: Path, tmp_path: Path) -> None:
    place = tmp_path / "net"
    shutil.copytree(library, place)
    text = (place / "README.md").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if re.match(r" {4}(cc|c\+\+) ", line)]
    assert len(lines) == 4
    sh("\n".join(lines), place)
    IMAGE.tofile(place / "in.bin")
    sh("./a.out in.bin out.bin 1 1", place)
    found = np.fromfile(place / "out.bin", np.float32)
    np.testing.assert_array_equal(found, np.maximum(IMAGE, 0).ravel())


def test_cmake_builds_it(library: Path, tmp_path: Path) -> None:
    sh(f"cmake -S '{library}' -B build && cmake --build build", tmp_path)
    IMAGE.tofile(tmp_path / "in.bin")
    sh("build/tvmgen_net_main in.bin out.bin 1 1", tmp_path)
    found = np.fromfile(tmp_path / "out.bin", np.float32)
    np.testing.assert_array_equal(found, np.maximum(IMAGE, 0).ravel())


def test_a_program_in_c_finds_the_installed_package(library: Path, tmp_path: Path) -> None:
    sh(f"cmake -S '{library}' -B build && cmake --build build", tmp_path)
    sh("cmake --install build --prefix installed >/dev/null", tmp_path)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(app C)\nfind_package(tvmgen_net CONFIG)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app tvmgen_net::tvmgen_net)\n"
    )
    (tmp_path / "main.c").write_text(
        '#include "tvmgen_net.h"\nint main(void) { return tvmgen_net_run_unpacked == 0; }\n'
    )
    sh("cmake -S . -B app -DCMAKE_PREFIX_PATH=$PWD/installed && cmake --build app", tmp_path)
    sh("app/app", tmp_path)


def test_packages_and_sizes_have_it(library: Path, tmp_path: Path) -> None:
    assert "select CPP" in (library / "zephyr" / "Kconfig").read_text()
    assert "my_npu.cc" in (library / "zephyr" / "CMakeLists.txt").read_text()
    package_library(library, "arduino", tmp_path / "net")
    assert (tmp_path / "net" / "src" / "my_npu" / "model" / "my_npu.cc").is_file()
    assert (tmp_path / "net" / "src" / "my_npu" / "model" / "lane.hpp").is_file()
    sizes = library_size(library).as_json()
    assert any("my_npu_relu" in str(layer) or layer["code_bytes"] for layer in sizes["layers"])


@pytest.mark.skipif(
    not (shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc")),
    reason="needs qemu-system-arm and arm-none-eabi-gcc",
)
def test_a_device_without_cxx_refuses_it(library: Path) -> None:
    with pytest.raises(BuildError, match=r"my_npu\.cc is in C\+\+, which qemu-cortex-m3"):
        umakit.run_library(library, {"x": IMAGE}, device="qemu-cortex-m3")


def test_doctor_tries_it(tmp_path: Path) -> None:
    place = written(tmp_path)
    checks = {check.name: check for check in examine_backend(str(place), HOST).checks}
    assert {check.status for check in checks.values()} == {Status.OK}, checks
    header = (place / "my_npu.h").read_text().replace('extern "C" {', "").replace("\n}\n", "\n")
    (place / "my_npu.h").write_text(header)
    checks = {check.name: check for check in examine_backend(str(place), HOST).checks}
    assert 'declare it inside extern "C"' in checks["link"].mend


def test_doctor_names_the_device_that_lacks_cxx(tmp_path: Path) -> None:
    device = find_device("qemu-cortex-m3")
    if shutil.which(device.command) is None:
        pytest.skip("needs the compiler of the device")
    found = examine_backend(str(written(tmp_path)), device)
    fault = next(check for check in found.checks if check.name == "C++ compiler")
    assert fault.status is Status.ERROR and "has no library for" in fault.message


@pytest.mark.parametrize("name", ["vendor.a", "vendor.so", "vendor.so.1", "vendor.o"])
def test_damaged_code_among_sources_is_refused(name: str, tmp_path: Path) -> None:
    place = written(tmp_path)
    (place / name).write_bytes(b"\x7fELF\xff\xfe\x80")
    text = (place / "backend.py").read_text().replace('["model/my', f'["{name}", "model/my')
    (place / "backend.py").write_text(text)
    with pytest.raises(LibraryError, match=rf"{name}: is (no static library|a damaged ELF)"):
        compiled(place, tmp_path / "net")
    found = examine_backend(str(place), HOST)
    fault = next(check for check in found.checks if check.name == "driver files")
    assert fault.status is Status.ERROR and fault.where.endswith(name)
