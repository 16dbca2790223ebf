# SPDX-License-Identifier: Apache-2.0
"""Objects, static and shared libraries of drivers are linked wherever a library is built."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from compiled_backends import (
    SIZE,
    X,
    archive,
    compile_object,
    save_relu,
    share,
    write_backend,
)
from hypothesis import given
from hypothesis import strategies as st
from umakit.cli.main import run_command
from zephyr_functions import FUNCTIONS

from umakit import compile_model, find_backend, run_library
from umakit.devices import HOST
from umakit.devices.build import compile_c, library_sources
from umakit.errors import BuildError, LibraryError, UmakitError
from umakit.files.compiled_files import is_compiled, is_shared, members, read_compiled
from umakit.library.packages import package_library
from umakit.tools.diff import diff_model
from umakit.tools.doctor import Status, examine_backend
from umakit.tools.size import library_size

ARM = ("arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb")
needs_arm = pytest.mark.skipif(
    not (shutil.which(ARM[0]) and shutil.which("qemu-system-arm")), reason="there is no emulator"
)
Y = np.maximum(X, 0)
LIBRARY = "codegen/host/lib/clip_npu"


def backend_of(folder: Path, kind: str) -> Path:
    """Write a backend whose driver is compiled in a way."""
    sources = {
        "a": ["lib/libclip.a"], "o": ["c/driver.o", "c/part.o"], "mixed": ["c/driver.c", "part.a"],
        "so": ["lib/libclip.so", "lib/libpart.so"],
    }[kind]  # fmt: skip
    place = write_backend(folder / "clip_npu", sources)
    driver, part = (compile_object(place, name) for name in ("driver.c", "part.c"))
    if kind == "a":
        archive(place / "lib" / "libclip.a", driver, part)
    if kind == "mixed":
        archive(place / "part.a", part)
    if kind == "so":
        other = share(place / "lib" / "libpart.so", part, soname="libpart.so.1")
        share(place / "lib" / "libclip.so", driver, more=[str(other)])
    return place


def exported(folder: Path, backend: Path) -> Path:
    library = folder / "library"
    compile_model(save_relu(folder), [find_backend(backend)], library)
    return library


def check_run(library: Path, device: str = "host") -> None:
    result = run_library(library, {"x": X}, device=device)
    np.testing.assert_array_equal(result.outputs["y"], Y)


def check_program(program: Path, folder: Path) -> None:
    """A program of an export computes ReLU, from whatever folder it is started."""
    X.tofile(folder / "in")
    command = [str(program), str(folder / "in"), str(folder / "out"), "1", "1"]
    subprocess.run(command, check=True, capture_output=True, cwd="/")
    np.testing.assert_array_equal(np.fromfile(folder / "out", np.float32), Y.ravel())


@pytest.mark.parametrize("kind", ["a", "o", "so", "mixed"])
def test_they_are_linked_by_every_build_of_the_host(kind: str, tmp_path: Path) -> None:
    backend = backend_of(tmp_path, kind)
    library = exported(tmp_path, backend)
    shutil.rmtree(backend)  # what is linked is in the export
    check_run(library)
    sums = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=library, capture_output=True,
        text=True, check=True,
    ).stdout  # fmt: skip
    names = json.loads((library / "metadata.json").read_text())["umakit"]["sources"]["compiled"]
    (layer,) = run_library(library, {"x": X}, profile=True).layers
    assert layer.clock_cycles is None and layer.cycles is None  # there is no simulator
    assert all(f"codegen/host/lib/{name}: OK" in sums for name in names["clip_npu"])
    # The line of the README.
    text = (library / "README.md").read_text()
    (line,) = re.findall(r"^    (cc .*runtime.*)#", text, re.MULTILINE)
    subprocess.run(line, shell=True, cwd=library, check=True)
    check_program(library / "a.out", tmp_path)
    # A folder that was moved.
    moved = library.with_name("moved")
    (library / "a.out").unlink()
    library.rename(moved)
    check_run(moved)


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("kind", ["a", "so", "mixed"])
def test_cmake_links_and_installs_them(kind: str, tmp_path: Path) -> None:
    library = exported(tmp_path, backend_of(tmp_path, kind))
    build, stage = tmp_path / "build", tmp_path / "stage"

    def cmake(*words: object) -> None:
        subprocess.run(["cmake", *map(str, words)], check=True, capture_output=True)

    cmake("-S", library, "-B", build)
    cmake("--build", build)
    check_program(build / "tvmgen_network_main", tmp_path)
    cmake("--install", build, "--prefix", stage)
    main, platform = (library / "runtime" / name for name in ("main.c", "umakit_platform_hosted.c"))
    (tmp_path / "user" / "x" / "runtime").mkdir(parents=True)
    for path in (main, platform, main.with_name("umakit_platform.h")):
        shutil.copy(path, tmp_path / "user" / "x" / "runtime")
    shutil.copytree(library / "codegen/host/include", tmp_path / "user/x/codegen/host/include")
    (tmp_path / "user" / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C)\n"
        "find_package(tvmgen_network CONFIG REQUIRED)\n"
        "add_executable(app x/runtime/main.c x/runtime/umakit_platform_hosted.c)\n"
        "target_link_libraries(app tvmgen_network::tvmgen_network)\n"
    )
    shutil.rmtree(library)
    cmake("-S", tmp_path / "user", "-B", tmp_path / "b2", f"-DCMAKE_PREFIX_PATH={stage}")
    cmake("--build", tmp_path / "b2")
    check_program(tmp_path / "b2" / "app", tmp_path)


def test_diff_size_and_doctor_know_them(tmp_path: Path) -> None:
    backend = backend_of(tmp_path, "a")
    library = exported(tmp_path, backend)
    found = diff_model(save_relu(tmp_path), [find_backend(backend)])
    assert found.layers and all(layer.agrees for layer in found.layers)
    size = library_size(library)
    assert size.layers[0].text_bytes > 0
    assert "clip_npu_relu" in size.stack_external_calls
    diagnosis = examine_backend(str(backend), HOST)
    assert {check.status for check in diagnosis.checks} == {Status.OK}
    (backend / "lib" / "libclip.a").unlink()
    archive(backend / "lib" / "libclip.a", backend / "c" / "part.o")
    (fault,) = [each for each in examine_backend(str(backend), HOST).checks if each.mend]
    assert "clip_npu_relu, which no source of the driver defines" in fault.message


def test_size_counts_what_a_linker_takes(tmp_path: Path) -> None:
    backend = backend_of(tmp_path, "mixed")
    (backend / "c" / "unused.c").write_text("int clip_npu_unused(void) { return 12345; }\n")
    unused = compile_object(backend, "unused.c")
    before = library_size(exported(tmp_path, backend)).text_bytes
    archive(backend / "part.a", unused)
    library = exported(tmp_path, backend)
    assert library_size(library).text_bytes == before
    check_run(library)


def test_c_plus_plus_in_them_is_linked(tmp_path: Path) -> None:
    backend = write_backend(tmp_path / "clip_npu", ["libclip.a"])
    (backend / "c" / "driver.cc").write_text(
        '#include <vector>\n#include "clip_npu.h"\n'
        "int32_t clip_npu_relu(const float *data, float *result, int32_t size)\n{\n"
        "    std::vector<float> values(data, data + size);\n"
        "    for (auto &value : values) { value = value > 0 ? value : 0; }\n"
        "    for (int32_t i = 0; i < size; ++i) { result[i] = values.at(std::size_t(i)); }\n"
        "    return 0;\n}\n"
    )
    archive(backend / "libclip.a", compile_object(backend, "driver.cc", ["c++"]))
    library = exported(tmp_path, backend)
    check_run(library)
    (line,) = re.findall(r"^    (cc .*runtime.*)#", (library / "README.md").read_text(), re.M)
    subprocess.run(line, shell=True, cwd=library, check=True)
    check_program(library / "a.out", tmp_path)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors may take it")
def test_code_that_no_shared_library_can_have_is_named(tmp_path: Path) -> None:
    backend = write_backend(tmp_path / "clip_npu", ["c/driver.c", "part.a"])
    (backend / "c" / "part.c").write_text(
        '#include "part.h"\nfloat clip_npu_least = 0.0f;\n'
        "float clip_npu_part(float value)\n{\n"
        "    return value > clip_npu_least ? value : clip_npu_least;\n}\n"
    )
    part = compile_object(backend, "part.c", ["cc", "-fno-pic"], ["-O1"])
    archive(backend / "part.a", part)
    library = exported(tmp_path, backend)
    check_run(library)
    with pytest.raises(BuildError, match="recompile with -fPIC") as caught:
        compile_c(library_sources(library), tmp_path / "shared.so", ["-shared", "-fPIC"])
    assert "compile the objects and libraries of the driver" in caught.value.fix


# --- other processors ---------------------------------------------------------------------------


@pytest.fixture
def arm_library(tmp_path: Path) -> Path:
    backend = write_backend(tmp_path / "clip_npu", ["cortex-m3/libclip.a"])
    objects = [compile_object(backend, name, ARM) for name in ("driver.c", "part.c")]
    archive(backend / "cortex-m3" / "libclip.a", *objects)
    return exported(tmp_path, backend)


@needs_arm
def test_they_run_on_the_processor_that_they_are_for(arm_library: Path) -> None:
    check_run(arm_library, "qemu-cortex-m3")
    assert library_size(arm_library, ARM).text_bytes > 0
    for device, machine in (("host", ""), ("qemu-aarch64", r"AArch64 \(64 bits\)")):
        sentence = rf"^libclip.a is compiled for Arm \(32 bits\), programs for {device} are for "
        with pytest.raises(BuildError, match=sentence + machine):
            run_library(arm_library, {"x": X}, device=device)
    with pytest.raises(BuildError, match=r"libclip\.a is compiled for Arm"):
        library_size(arm_library)


@needs_arm
def test_cmake_and_arduino_know_the_processor(arm_library: Path, tmp_path: Path) -> None:
    command = ["cmake", "-S", str(arm_library), "-B", str(tmp_path / "build")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    text = " ".join(made.stderr.split())
    assert made.returncode and "libclip.a is compiled for Arm (32 bits), and this build" in text
    cross = [
        "-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_C_COMPILER=arm-none-eabi-gcc",
        "-DCMAKE_C_FLAGS=-mcpu=cortex-m3", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
    ]  # fmt: skip
    build = tmp_path / "build2"
    subprocess.run([*command[:-1], str(build), *cross], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    arduino = package_library(arm_library, "arduino", tmp_path / "tvmgen_network")
    assert (arduino / "src" / "cortex-m3" / "libclip.a").is_file()
    properties = (arduino / "library.properties").read_text().splitlines()
    assert "precompiled=true" in properties and "ldflags=-lclip" in properties
    # As Arduino links it: sources of `src`, libraries of `src/{build.mcu}` with `ldflags`.
    sources = sorted(map(str, (arduino / "src").rglob("*.c")))
    flags = ["-Lsrc/cortex-m3", "-lclip", "--specs=nosys.specs", "-o", str(tmp_path / "sketch")]
    (tmp_path / "sketch.c").write_text(
        f"#include <tvmgen_network.h>\nstatic float x[{SIZE}], y[{SIZE}];\n"
        "int main(void) { return (int)tvmgen_network_run_unpacked(x, y, 0); }\n"
    )
    words = [*ARM, "-Isrc", "-O1", str(tmp_path / "sketch.c"), *sources, *flags]
    subprocess.run(words, check=True, capture_output=True, cwd=arduino)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("so", "Arduino links static libraries only"), ("mixed", "lies in no folder that says")],
)
def test_arduino_refuses_what_it_cannot_link(kind: str, sentence: str, tmp_path: Path) -> None:
    library = exported(tmp_path, backend_of(tmp_path, kind))
    with pytest.raises(LibraryError, match=sentence):
        package_library(library, "arduino", tmp_path / "tvmgen_network")


@needs_arm
def test_shared_libraries_are_for_the_host(tmp_path: Path) -> None:
    library = exported(tmp_path, backend_of(tmp_path, "so"))
    with pytest.raises(BuildError, match=r"libclip\.so is a shared library, which programs"):
        run_library(library, {"x": X}, device="qemu-cortex-m3")


ZEPHYR = (
    FUNCTIONS
    + """
add_subdirectory(${MODULE}/zephyr module)
add_executable(app ${MODULE}/runtime/main.c ${MODULE}/runtime/umakit_platform_hosted.c)
get_property(libraries GLOBAL PROPERTY ZEPHYR_LIBS)
target_link_libraries(app -Wl,--whole-archive ${libraries} -Wl,--no-whole-archive
  zephyr_interface m)
"""
)
"""With the program of the export as the application."""


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("kind", ["mixed", "so"])
def test_zephyr_links_static_libraries(kind: str, tmp_path: Path) -> None:
    library = exported(tmp_path, backend_of(tmp_path, kind))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "CMakeLists.txt").write_text(ZEPHYR)
    options = [f"-DMODULE={library}", "-DCONFIG_TVMGEN_NETWORK=y"]
    options.append("-DCONFIG_TVMGEN_NETWORK_STATIC_WORKSPACE=y")
    command = ["cmake", "-S", str(tmp_path / "app"), "-B", str(tmp_path / "build"), *options]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if kind == "so":
        assert "is a shared library, which Zephyr does not load" in " ".join(made.stderr.split())
        return
    assert made.returncode == 0, made.stderr
    build = ["cmake", "--build", str(tmp_path / "build")]
    subprocess.run(build, check=True, capture_output=True)
    check_program(tmp_path / "build" / "app", tmp_path)


# --- files that cannot be -----------------------------------------------------------------------


def refusal(folder: Path, backend: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `uma compile` says when it refuses; nothing is written."""
    words = ["compile", str(save_relu(folder)), "--backend", str(backend), "-o", "library"]
    assert run_command([*words[:-1], str(folder / "library")]) == 2
    assert not (folder / "library").exists()
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.a", None, "x.a: there is no such file; add it"),
        ("x.a", b"", "x.a: is no static library"),
        ("x.a", b"!<thin>\n", "x.a: is a thin library"),
        ("x.a", b"!<arch>\nnonsense", "x.a: is a damaged static library"),
        ("x.o", b"int x;\n", "x.o: is no object; compile it"),
        ("x.o", b"\x7fELF", "x.o: is a damaged ELF file"),
        ("x.so", b"INPUT(libx.so.1)", "x.so: is no shared library; name the file itself"),
        ("x.dll", b"MZ\xff\xfe", "x.dll: is compiled code of a form that is not linked"),
    ],
)
def test_each_is_refused_in_a_sentence(
    name: str,
    content: bytes | None,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend = write_backend(tmp_path / "clip_npu", [name])
    if content is not None:
        (backend / name).write_bytes(content)
    assert sentence in refusal(tmp_path, backend, capsys)
    (fault,) = [each for each in examine_backend(str(backend), HOST).checks if each.mend][:1]
    assert fault.name == "driver files" and sentence.split(": ")[1].split(";")[0] in fault.message


def test_a_program_or_two_processors_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = write_backend(tmp_path / "clip_npu", ["x.o"])
    share(backend / "x.o", compile_object(backend, "part.c"))
    assert "x.o: is a shared library, which its name does not say" in refusal(
        tmp_path, backend, capsys
    )
    backend = write_backend(tmp_path / "other" / "clip_npu", ["x.a"])
    host = compile_object(backend, "part.c").rename(backend / "c" / "host.o")
    if shutil.which(ARM[0]):
        archive(backend / "x.a", host, compile_object(backend, "part.c", ARM))
        text = refusal(tmp_path, backend, capsys)
        assert re.search(r"x\.a: has code for .*Arm \(32 bits\)", text)


def test_names() -> None:
    assert all(map(is_compiled, ["a.o", "b/liba.a", "x.so", "x.so.1", "x.so.1.2"]))
    assert not any(map(is_compiled, ["a.c", "x.so.c", "so", "a.out", "libso", ".a"]))
    assert is_shared("libx.so.1") and not is_shared("libx.a")


@given(st.binary(max_size=200), st.sampled_from(["x.a", "x.o", "x.so"]), st.booleans())
def test_no_bytes_are_a_crash(content: bytes, name: str, starts: bool) -> None:
    start = {"x.a": b"!<arch>\n"}.get(name, b"\x7fELF\x02\x01\x01")
    try:
        read_compiled(name, start * starts + content, name)
    except UmakitError as error:
        assert error.where == name


@pytest.fixture(scope="module")
def one_object(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = write_backend(tmp_path_factory.mktemp("object") / "clip_npu", [])
    return compile_object(folder, "driver.c").read_bytes()


@given(st.data())
def test_no_damage_of_an_object_is_a_crash(one_object: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(one_object) - 1))
    value = data.draw(st.integers(0, 255))
    damaged = one_object[:place] + bytes([value]) + one_object[place + 1 :]
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    try:
        read_compiled("x.o", damaged, "x.o")
    except UmakitError as error:
        assert error.where == "x.o"


@pytest.mark.parametrize("names", [["short.o"], ["a_name_of_more_than_sixteen_bytes.o", "b.o"]])
def test_members_are_those_that_ar_lists(names: Sequence[str], tmp_path: Path) -> None:
    backend = write_backend(tmp_path / "clip_npu", [])
    part = compile_object(backend, "part.c")
    objects = [Path(shutil.copy(part, tmp_path / name)) for name in names]
    library = archive(tmp_path / "x.a", *objects)
    found = members(library.read_bytes(), "x.a")
    listed = subprocess.run(["ar", "t", str(library)], capture_output=True, text=True, check=True)
    assert [name for name, _ in found] == listed.stdout.split()
    assert all(data == part.read_bytes() for _, data in found)
