# SPDX-License-Identifier: Apache-2.0
"""Exported libraries in other projects' builds: CMake, Zephyr, Arduino, tar."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import cmake_builds
import kconfiglib
import numpy as np
import pytest
from execution import vanilla
from networks import Graph, normal, save
from umakit.cli.main import run_command
from zephyr_functions import FUNCTIONS

import umakit
from umakit.devices.run import run_library
from umakit.errors import LibraryError, OutputError
from umakit.library.build_files import needs_full_libc, numeric_version
from umakit.library.metadata import load_metadata
from umakit.library.packages import FORMATS, package_library
from umakit.library.tar_files import library_folder, tar_bytes

IMAGE = normal(1, 3, 5, 7, seed=3)
CROSS = {
    "arm-none-eabi-gcc": ("Generic", "arm", "-mcpu=cortex-m4 -mthumb"),
    "riscv64-unknown-elf-gcc": (
        "Generic",
        "riscv",
        "--specs=picolibc.specs -march=rv64imac -mabi=lp64",
    ),
    "aarch64-linux-gnu-gcc": ("Linux", "aarch64", ""),
    "arm-linux-gnueabihf-gcc": ("Linux", "arm", ""),
}
PROGRAM = """
#include "tvmgen_one.h"
#include "tvmgen_two.h"
#include <stdio.h>
#include <string.h>

static const uint32_t image[] = {IMAGE};

static void show(const float *values, int count)
{
    int index;
    for (index = 0; index < count; index++) {
        uint32_t bits;
        memcpy(&bits, &values[index], sizeof bits);
        printf("%08lx ", (unsigned long)bits);
    }
}

int main(void)
{
    static float x[TVMGEN_ONE_X_ELEMENTS], y[TVMGEN_ONE_Y_ELEMENTS], z[TVMGEN_TWO_Y_ELEMENTS];
    struct tvmgen_one_inputs one_inputs;
    struct tvmgen_one_outputs one_outputs;
    struct tvmgen_two_inputs two_inputs;
    struct tvmgen_two_outputs two_outputs;

    memcpy(x, image, sizeof x);
    one_inputs.x = two_inputs.x = x;
    one_outputs.y = y;
    two_outputs.y = z;
    if (tvmgen_one_run(&one_inputs, &one_outputs) != 0 ||
        tvmgen_two_run(&two_inputs, &two_outputs) != 0) {
        return 1;
    }
    show(y, TVMGEN_ONE_Y_ELEMENTS);
    show(z, TVMGEN_TWO_Y_ELEMENTS);
    return 0;
}
"""
BOARD = """
#include "umakit/device.h"
umakit_device *vanilla_accelerator_device(void) { return (umakit_device *)0; }
uint32_t umakit_device_read32(umakit_device *d, uint32_t o) { (void)d; (void)o; return 0; }
void umakit_device_write32(umakit_device *d, uint32_t o, uint32_t v) { (void)d; (void)o; (void)v; }
void umakit_device_barrier(umakit_device *d) { (void)d; }
int umakit_device_map(umakit_device *d, const void *m, size_t b, enum umakit_direction r,
    uint32_t *a) { (void)d; (void)m; (void)b; (void)r; (void)a; return 7; }
void umakit_device_unmap(umakit_device *d, uint32_t a) { (void)d; (void)a; }
int umakit_device_wait(umakit_device *d, uint32_t t) { (void)d; (void)t; return 0; }
"""


def shell(
    *command: str | Path, cwd: Path, fails: bool = False, env: dict[str, str] | None = None
) -> str:
    """What a command printed; it must succeed, or fail."""
    words = [str(part) for part in command]
    result = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    printed = result.stdout + result.stderr
    assert (result.returncode != 0) == fails, printed
    return printed


def cmake(*arguments: str | Path, cwd: Path, fails: bool = False, quick: bool = True) -> str:
    """What CMake printed; quick builds are not optimized."""
    environment = cmake_builds.environment(quick=quick)
    return shell(cmake_builds.program(), *arguments, cwd=cwd, fails=fails, env=environment)


def need(tool: str) -> str:
    """Skip a test that needs a tool; never on CI, which installs it."""
    if shutil.which(tool) is None:
        assert not os.environ.get("UMAKIT_CI"), f"CI lacks {tool}: see .ci/run"
        pytest.skip(f"{tool} is not installed")
    return tool


def network(filters: int, activation: str = "Relu") -> Graph:
    """A convolution for the accelerator, and one that stays on the CPU because of its strides."""
    graph = Graph(seed=filters)
    first = graph.node(activation, graph.conv(graph.input("x", 1, 3, 5, 7), filters, 3))
    graph.output(graph.conv(first, 2, 3, strides=[2, 2]))
    return graph


def export(folder: Path, name: str, graph: Graph, *backends: Any) -> Path:
    model = graph.model()
    model.graph.output[0].name = model.graph.node[-1].output[0] = "y"
    (folder / f"{name}-model").mkdir(parents=True)
    path = save(model, folder / f"{name}-model")
    umakit.compile_model(path, backends, folder / name, name=name)
    return folder / name


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two libraries that use the same driver and simulator."""
    folder = tmp_path_factory.mktemp("exports")
    export(folder, "one", network(4), vanilla())
    export(folder, "two", network(6), vanilla())
    return folder


@pytest.fixture(scope="module")
def expected(exports: Path) -> str:
    """What PROGRAM must print: the bits that `uma run` yields."""
    values = [
        run_library(exports / name, {"x": IMAGE}).outputs["y"].ravel() for name in ("one", "two")
    ]
    return "".join(f"{bits:08x} " for bits in np.concatenate(values).view(np.uint32))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with PROGRAM, a board's device and room for a CMakeLists.txt."""
    text = PROGRAM.replace("IMAGE", ", ".join(f"{v}u" for v in IMAGE.ravel().view(np.uint32)))
    (tmp_path / "main.c").write_text(text)
    (tmp_path / "board.c").write_text(BOARD)
    return tmp_path


def write_project(project: Path, body: str) -> None:
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(app C)\n"
        f"{body}\n"
        "add_executable(app main.c)\n"
        "target_link_libraries(app PRIVATE tvmgen_one::tvmgen_one tvmgen_two::tvmgen_two)\n"
    )


# --- CMake ---------------------------------------------------------------------------------------


def test_two_models_share_driver_and_simulator_in_one_build(
    exports: Path, project: Path, expected: str
) -> None:
    write_project(
        project,
        "include(FetchContent)\n"
        f"add_subdirectory({exports / 'one'} one)\n"
        f"FetchContent_Declare(two SOURCE_DIR {exports / 'two'})\n"
        "FetchContent_MakeAvailable(two)",
    )
    # As users configure it, without a generator and a build type.
    options = ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    cmake("-S", ".", "-B", "build", *options, cwd=project, quick=False)
    cmake("--build", "build", cwd=project)
    assert shell(project / "build/app", cwd=project) == expected
    entries = json.loads((project / "build/compile_commands.json").read_text())
    commands = {Path(e["file"]).name: e["command"] for e in entries if "codegen" in e["file"]}
    assert len(commands) == len(entries) - 1 and "umakit_simulator.c" in commands
    assert all("-ffp-contract=off" in c and "-std=c99" in c for c in commands.values())
    assert not list(project.rglob("*_main"))
    # A part of another project installs nothing unless it is asked to.
    cmake("--install", "build", "--prefix", "stage", cwd=project)
    assert not (project / "stage").exists()
    wanted = [f"-DTVMGEN_{name}_INSTALL=ON" for name in ("ONE", "TWO")]
    cmake("-S", ".", "-B", "build", *wanted, cwd=project, quick=False)
    cmake("--install", "build", "--prefix", "stage", cwd=project)
    assert len(list((project / "stage").rglob("*.a"))) == 6


def install(source: Path, work: Path, prefix: Path, *options: str) -> None:
    cmake("-S", source, "-B", work, *options, cwd=source)
    cmake("--build", work, cwd=source)
    cmake("--install", work, "--prefix", prefix, cwd=source)


@pytest.mark.parametrize("prefixes", [("stage", "stage"), ("first", "second")])
def test_installed_packages_are_found(
    prefixes: tuple[str, str], exports: Path, project: Path, expected: str
) -> None:
    for name, prefix in zip(("one", "two"), prefixes, strict=True):
        install(exports / name, project / f"build-{name}", project / prefix)
    # Installed packages can be moved.
    moved = [(project / prefix).rename(project / f"moved-{prefix}") for prefix in {*prefixes}]
    headers = sorted(path.name for folder in moved for path in folder.rglob("*.h"))
    assert headers == ["tvmgen_one.h", "tvmgen_two.h"]
    write_project(
        project,
        f"find_package(tvmgen_one {numeric_version()} CONFIG REQUIRED)\n"
        "find_package(tvmgen_two CONFIG REQUIRED)",
    )
    path = ";".join(map(str, moved))
    cmake("-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={path}", cwd=project)
    cmake("--build", "build", cwd=project)
    assert shell(project / "build/app", cwd=project) == expected

    # A later minor version may have another interface: neither an older nor a newer one will do.
    for version in ("0.0", "99.0") if len(moved) == 1 else ():
        write_project(project, f"find_package(tvmgen_one {version} CONFIG REQUIRED)")
        path_option = f"-DCMAKE_PREFIX_PATH={path}"
        wrong = cmake("-S", ".", "-B", f"b{version}", path_option, cwd=project, fails=True)
        assert "compatible" in wrong and version in wrong


def test_an_installed_model_meets_one_that_is_built(
    exports: Path, project: Path, expected: str
) -> None:
    install(exports / "one", project / "build-one", project / "stage")
    body = [
        f"find_package(tvmgen_one CONFIG REQUIRED PATHS {project / 'stage'})",
        f"add_subdirectory({exports / 'two'} two)",
    ]
    for number, lines in enumerate((body, body[::-1])):
        write_project(project, "\n".join(lines))
        build = project / f"build-{number}"
        cmake("-S", ".", "-B", build, "-DTVMGEN_TWO_INSTALL=ON", cwd=project)
        cmake("--build", build, cwd=project)
        assert shell(build / "app", cwd=project) == expected


def test_models_with_different_devices_are_refused(exports: Path, project: Path) -> None:
    """Their device functions have the same names: a linker would take one of them silently."""
    wide = project / "wide" / "vanilla_accelerator"
    shutil.copytree(vanilla().folder, wide, ignore=shutil.ignore_patterns("__pycache__"))
    settings = (wide / "accel.toml").read_text()
    changed = re.sub(r"(?m)^rows = \d+", "rows = 3", settings)
    assert changed != settings
    (wide / "accel.toml").write_text(changed)
    export(project / "libraries", "two", network(6), umakit.find_backend(str(wide)))
    write_project(
        project,
        f"add_subdirectory({exports / 'one'} one)\nadd_subdirectory(libraries/two two)",
    )
    refused = cmake("-S", ".", "-B", "build", cwd=project, fails=True)
    assert "vanilla_accelerator_files" in refused


def test_a_board_supplies_the_device(exports: Path, project: Path) -> None:
    write_project(
        project,
        "set(UMAKIT_BOARD_LIBRARY board)\n"
        f"add_subdirectory({exports / 'one'} one)\nadd_subdirectory({exports / 'two'} two)\n"
        "add_library(board STATIC board.c)\n"
        "target_include_directories(board PRIVATE\n"
        "  $<TARGET_PROPERTY:tvmgen_one,INTERFACE_INCLUDE_DIRECTORIES>)",
    )
    off = [f"-DTVMGEN_{name}_SIMULATED_DEVICES=OFF" for name in ("ONE", "TWO")]
    cmake("-S", ".", "-B", "build", *off, cwd=project)
    built = cmake("--build", "build", cwd=project)
    assert "umakit_simulator.c" not in built and "_device.c" not in built
    # The stand-in device has status 9, and PROGRAM exits with 1.
    shell(project / "build/app", cwd=project, fails=True)

    mixed = cmake("-S", ".", "-B", "mixed", off[0], cwd=project, fails=True)
    assert "vanilla_accelerator_files" in mixed

    install(exports / "one", project / "build-one", project / "stage", off[0])
    installed = {path.name for path in (project / "stage").rglob("*.h")}
    assert {"tvmgen_one.h", "device.h", "status.h"} <= installed
    assert not any("simulator" in name for name in installed)


def test_the_static_workspace_can_be_left_out(exports: Path, tmp_path: Path) -> None:
    symbols = {}
    for setting in ("ON", "OFF"):
        build = tmp_path / setting
        cmake("-S", exports / "one", "-B", build, f"-DTVMGEN_ONE_STATIC_WORKSPACE={setting}",
              cwd=tmp_path)  # fmt: skip
        cmake("--build", build, cwd=tmp_path)
        symbols[setting] = set(shell("nm", build / "libtvmgen_one.a", cwd=tmp_path).split())
        assert (build / "tvmgen_one_main").exists() == (setting == "ON")
    assert symbols["ON"] - symbols["OFF"] >= {"tvmgen_one_run"}
    assert "tvmgen_one_run_in" in symbols["OFF"]


def toolchain(compiler: str, folder: Path) -> Path:
    system, processor, flags = CROSS[compiler]
    path = folder / "toolchain.cmake"
    path.write_text(
        f"set(CMAKE_SYSTEM_NAME {system})\nset(CMAKE_SYSTEM_PROCESSOR {processor})\n"
        f'set(CMAKE_C_COMPILER {compiler})\nset(CMAKE_C_FLAGS_INIT "{flags}")\n'
        + ("set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n" if system == "Generic" else "")
    )
    return path


@pytest.mark.parametrize("compiler", CROSS)
def test_it_builds_for_other_processors(compiler: str, exports: Path, tmp_path: Path) -> None:
    need(compiler)
    (tmp_path / "libc.c").write_text("#include <string.h>\n")
    command = [compiler, *CROSS[compiler][2].split(), "-c", "libc.c"]
    if subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode:
        assert not os.environ.get("UMAKIT_CI"), f"{compiler} lacks a C library: see .ci/run"
        pytest.skip(f"{compiler} lacks a C library")
    file = toolchain(compiler, tmp_path)
    cmake("-S", exports / "one", "-B", "build", f"-DCMAKE_TOOLCHAIN_FILE={file}", cwd=tmp_path)
    cmake("--build", "build", cwd=tmp_path)
    cmake("--install", "build", "--prefix", tmp_path / "stage", cwd=tmp_path)
    assert len(list((tmp_path / "stage").rglob("*.a"))) == 5
    is_hosted = CROSS[compiler][0] == "Linux"
    assert (tmp_path / "build/tvmgen_one_main").exists() == is_hosted


def test_metadata_tells_what_sources_are_for(exports: Path) -> None:
    sources = load_metadata(exports / "one")["umakit"]["sources"]
    named = [*sources["model"], *sources["static_workspace"], *sources["status"]]
    named += [*sources["simulator"], *sources["kinds"]["mac_array"]]
    named += [*sources["drivers"]["vanilla_accelerator"]]
    named += sources["devices"]["vanilla_accelerator"]
    assert sources["simulated_as"] == {"vanilla_accelerator": "mac_array"}
    folder = exports / "one/codegen/host/src"
    files = [str(path.relative_to(folder)) for path in folder.rglob("*.c")]
    assert sorted(named) == sorted(files)
    device = "vanilla_accelerator/vanilla_accelerator_device.c"
    assert sources["devices"] == {"vanilla_accelerator": [device]}
    assert "vanilla_accelerator/conv2dnchw.c" in sources["drivers"]["vanilla_accelerator"]


# --- Zephyr --------------------------------------------------------------------------------------

ZEPHYR = (
    FUNCTIONS
    + """
foreach(module IN LISTS MODULES)
  get_filename_component(name ${module} NAME)
  add_subdirectory(${module}/zephyr ${name})
endforeach()
add_executable(app main.c ${EXTRA})
get_property(libraries GLOBAL PROPERTY ZEPHYR_LIBS)
target_link_libraries(app zephyr_interface -Wl,--whole-archive ${libraries}
  -Wl,--no-whole-archive m)
"""
)


def zephyr_configuration(exports: Path, folder: Path, **settings: str) -> dict[str, str]:
    """Values of all symbols, by the Kconfig files of the modules."""
    lines = [
        "config REQUIRES_FULL_LIBC\n\tbool\n",
        "config CPU_HAS_FPU\n\tbool\n\tdefault y\n",
        "config MULTITHREADING\n\tbool\n\tdefault y\n",
        'config FPU\n\tbool "FPU"\n\tdepends on CPU_HAS_FPU\n',
        'config FPU_SHARING\n\tbool "sharing"\n\tdepends on FPU && MULTITHREADING\n',
        *(f'osource "{exports / name / "zephyr/Kconfig"}"\n' for name in ("one", "two")),
    ]
    (folder / "Kconfig").write_text("".join(lines))
    tree = kconfiglib.Kconfig(str(folder / "Kconfig"), warn_to_stderr=False)
    for name, value in settings.items():
        assert tree.syms[name].set_value(value), name
    assert not tree.warnings
    return {f"CONFIG_{name}": symbol.str_value for name, symbol in tree.syms.items()}


def zephyr_build(project: Path, exports: Path, values: dict[str, str], *options: str) -> str:
    (project / "CMakeLists.txt").write_text(ZEPHYR)
    modules = ";".join(str(exports / name) for name in ("one", "two"))
    defines = [f"-D{name}={value}" for name, value in values.items() if value in ("y", "n")]
    cmake("-S", ".", "-B", "build", f"-DMODULES={modules}", *defines, *options, cwd=project)
    return cmake("--build", "build", cwd=project)


def test_two_zephyr_modules_in_one_image(exports: Path, project: Path, expected: str) -> None:
    values = zephyr_configuration(exports, project, TVMGEN_ONE="y", TVMGEN_TWO="y")
    for name in ("TVMGEN_ONE", "TVMGEN_TWO"):
        assert values[f"CONFIG_{name}_STATIC_WORKSPACE"] == "y"
        assert values[f"CONFIG_{name}_SIMULATED_DEVICES"] == "y"
    assert (values["CONFIG_FPU"], values["CONFIG_FPU_SHARING"]) == ("y", "y")
    assert values["CONFIG_REQUIRES_FULL_LIBC"] == "n"
    built = zephyr_build(project, exports, values)
    assert len(re.findall(r"Building C object .*umakit_simulator\.c", built)) == 1
    assert shell(project / "build/app", cwd=project) == expected


def test_a_zephyr_board_supplies_the_device(exports: Path, project: Path) -> None:
    off = {f"TVMGEN_{name}_SIMULATED_DEVICES": "n" for name in ("ONE", "TWO")}
    values = zephyr_configuration(exports, project, TVMGEN_ONE="y", TVMGEN_TWO="y", **off)
    built = zephyr_build(project, exports, values, "-DEXTRA=board.c")
    assert "umakit_simulator.c" not in built and "_device.c" not in built
    mixed = {**values, "CONFIG_TVMGEN_TWO_SIMULATED_DEVICES": "y"}
    with pytest.raises(AssertionError, match="brings different files as vanilla_accelerator"):
        zephyr_build(project, exports, mixed)


def test_a_module_that_is_off_adds_nothing(exports: Path, project: Path) -> None:
    values = zephyr_configuration(exports, project, TVMGEN_TWO="y")
    (project / "main.c").write_text("int main(void) { return 0; }\n")
    assert "tvmgen_one" not in zephyr_build(project, exports, values)


def test_the_module_file_names_what_exists(exports: Path) -> None:
    lines = (exports / "one/zephyr/module.yml").read_text().splitlines()
    wanted = ["name: tvmgen_one", "build:", "  cmake: zephyr", "  kconfig: zephyr/Kconfig"]
    assert [line for line in lines if not line.startswith("#")] == wanted


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("y = expf(x);", True),
        ("y = INFINITY;", True),
        ("return lroundf (x);", True),
        ("y = sqrtf(x);", False),
        ("/* exp(x) */ y = my_log(x); // floor(x)", False),
    ],
)
def test_zephyrs_small_c_library_suffices_without_functions_of_math_h(
    text: str, needed: bool
) -> None:
    assert needs_full_libc({"codegen/host/src/a.c": text}) == needed


def test_a_network_with_exponentials_gets_its_mathematics(tmp_path: Path) -> None:
    """One for the CPU alone: what models share brings the mathematics too."""
    library = export(tmp_path, "soft", network(4, "Sigmoid"))
    assert "select REQUIRES_FULL_LIBC" in (library / "zephyr/Kconfig").read_text()
    cmake("-S", library, "-B", "build", cwd=tmp_path)
    cmake("--build", "build", cwd=tmp_path)
    assert (tmp_path / "build/tvmgen_soft_main").is_file()


# --- Arduino -------------------------------------------------------------------------------------

ARDUINO_H = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define INPUT 0
#define abs(x) ((x) > 0 ? (x) : -(x))
struct serial { void begin(long) {} template <class T> void print(T) {}
    template <class T> void println(T) {} void print(const char *text) { fputs(text, stdout); } };
static serial Serial;
static inline unsigned long micros() { return 0; }
static inline void delay(unsigned long) {}
"""


@pytest.fixture(scope="module")
def sketchbook(exports: Path) -> Path:
    for name in ("one", "two"):
        package_library(exports / name, "arduino", exports / "libraries" / f"tvmgen_{name}")
    return exports / "libraries"


def archive(library: Path, folder: Path, compiler: str = "gcc", *flags: str) -> Path:
    """A library compiled as Arduino does with `dot_a_linkage`: with its own folder only."""
    folder.mkdir()
    sources = sorted((library / "src").rglob("*.c"))
    command = [compiler, "-Wall", "-Werror", "-std=gnu11", "-Os", *flags, "-I", library / "src"]
    shell(*command, "-c", *sources, cwd=folder)
    shell("ar", "rcs", folder / "library.a", *sorted(folder.glob("*.o")), cwd=folder)
    return folder / "library.a"


def test_arduino_libraries_compute_the_same(sketchbook: Path, project: Path, expected: str) -> None:
    archives = [archive(sketchbook / f"tvmgen_{n}", project / n) for n in ("one", "two")]
    includes = [f"-I{sketchbook / f'tvmgen_{name}' / 'src'}" for name in ("one", "two")]
    shell("gcc", *includes, "main.c", *archives, "-lm", "-o", "app", cwd=project)
    assert shell(project / "app", cwd=project) == expected


def test_an_arduino_library_builds_for_cortex_m(sketchbook: Path, tmp_path: Path) -> None:
    compiler = need("arm-none-eabi-gcc")
    flags = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
    archive(sketchbook / "tvmgen_one", tmp_path / "one", compiler, *flags)
    listing = shell("arm-none-eabi-objdump", "-d", tmp_path / "one/library.a", cwd=tmp_path)
    assert re.search(r"vml[as]\.f32|vmul\.f32", listing)
    assert "vfma" not in listing, "a fused multiply-add rounds differently from the host"


def test_arduino_libraries_compute_the_same_on_arm(
    sketchbook: Path, project: Path, expected: str
) -> None:
    compiler, emulator = need("arm-none-eabi-gcc"), need("qemu-arm")
    # A processor that could fuse multiply-adds, and the C library that asks the emulator to print.
    flags = ["-mcpu=cortex-a7", "-mfpu=vfpv4", "-mfloat-abi=hard"]
    archives = [
        archive(sketchbook / f"tvmgen_{n}", project / n, compiler, *flags) for n in ("one", "two")
    ]
    includes = [f"-I{sketchbook / f'tvmgen_{name}' / 'src'}" for name in ("one", "two")]
    command = [compiler, *flags, "--specs=rdimon.specs", *includes, "main.c", *archives]
    shell(*command, "-lm", "-o", "app", cwd=project)
    assert shell(emulator, project / "app", cwd=project) == expected


def test_the_sketch_compiles_and_runs(sketchbook: Path, tmp_path: Path) -> None:
    (tmp_path / "Arduino.h").write_text(ARDUINO_H)
    library = sketchbook / "tvmgen_one"
    (sketch,) = (library / "examples").glob("*/*.ino")
    assert sketch.stem == sketch.parent.name == "tvmgen_one"
    (tmp_path / "sketch.cpp").write_text(
        f"#include <Arduino.h>\n{sketch.read_text()}\nint main() {{ setup(); loop(); }}\n"
    )
    built = archive(library, tmp_path / "one")
    flags = ["-std=gnu++11", "-Wall", "-Werror", "-I.", f"-I{library / 'src'}"]
    shell("g++", *flags, "sketch.cpp", built, "-lm", "-o", "sketch", cwd=tmp_path)
    assert shell(tmp_path / "sketch", cwd=tmp_path) == "ok after microseconds y[0] = "


def test_an_arduino_library_keeps_to_the_specification(sketchbook: Path) -> None:
    library = sketchbook / "tvmgen_one"
    comment, *lines = (library / "library.properties").read_text().splitlines()
    assert comment.startswith("# SPDX")
    properties = dict(line.split("=", 1) for line in lines)
    required = "name version author maintainer sentence paragraph category url architectures"
    assert set(required.split()) <= set(properties)
    assert all(value.strip() for value in properties.values())
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", properties["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", properties["version"])
    assert properties["category"] in (
        "Display", "Communication", "Signal Input/Output", "Sensors", "Device Control", "Timing",
        "Data Storage", "Data Processing", "Other",
    )  # fmt: skip
    assert (library / "src" / properties["includes"]).is_file()
    assert not [path for path in library.rglob("*") if " " in path.name]
    for line in (library / "keywords.txt").read_text().splitlines()[1:]:
        assert re.fullmatch(r"\w+\t(KEYWORD1|KEYWORD2|LITERAL1)", line)


def test_arduino_folders_of_others_are_left_alone(exports: Path, tmp_path: Path) -> None:
    mine = package_library(exports / "one", "arduino", tmp_path / "mine")
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    package_library(exports / "one", "arduino", mine)
    assert {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()} == before
    (mine / "extras/SHA256SUMS").unlink()
    (mine / "extras/metadata.json").unlink()
    for place in (mine, tmp_path / "with space", tmp_path / "é"):
        with pytest.raises(LibraryError):
            package_library(exports / "one", "arduino", place)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# --- tar -----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "umakit" / "libraries"


def test_a_tar_file_is_the_folder(exports: Path, cache: Path, tmp_path: Path) -> None:
    model = save(network(4).model(), tmp_path)
    for name in ("first.tar", "second.tar", "folder"):
        umakit.compile_model(model, [vanilla()], tmp_path / name, name="net")
        umakit.compile_model(model, [vanilla()], tmp_path / name, name="net")
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
    run_library(tmp_path / "folder", {"x": IMAGE})  # builds in it
    packed = package_library(tmp_path / "folder", "tar", tmp_path / "packed.tar")
    assert packed.read_bytes() == (tmp_path / "first.tar").read_bytes()
    with tarfile.open(packed) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names) and "metadata.json" in names
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {
        (0, 0, 0, "", "", 0o644)
    }


def test_a_tar_file_runs_and_its_build_is_found_again(
    exports: Path, cache: Path, tmp_path: Path
) -> None:
    packed = package_library(exports / "one", "tar", tmp_path / "one.tar")
    wanted = run_library(exports / "one", {"x": IMAGE}).outputs["y"]
    assert (run_library(packed, {"x": IMAGE}).outputs["y"] == wanted).all()
    (program,) = cache.glob("*/build/*/run-*")
    built = program.stat().st_mtime_ns
    copied = tmp_path / "copy.tar"
    copied.write_bytes(packed.read_bytes())
    assert (run_library(copied, {"x": IMAGE}).outputs["y"] == wanted).all()
    assert [path.stat().st_mtime_ns for path in cache.glob("*/build/*/run-*")] == [built]
    # Someone tidied up the cache.
    shutil.rmtree(cache)
    assert (run_library(copied, {"x": IMAGE}).outputs["y"] == wanted).all()


def test_what_is_missing_in_the_cache_is_unpacked_again(
    exports: Path, cache: Path, tmp_path: Path
) -> None:
    packed = package_library(exports / "one", "tar", tmp_path / "one.tar")
    folder = library_folder(packed)
    (folder / "codegen/host/src/tvmgen_one.c").write_text("int damaged;")
    again = tmp_path / "again.tar"
    again.write_bytes(packed.read_bytes())
    assert library_folder(again) == folder
    assert "damaged" not in (folder / "codegen/host/src/tvmgen_one.c").read_text()
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_unpacked_libraries_do_not_pile_up(exports: Path, cache: Path, tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(tar_bytes({"metadata.json": json.dumps({"umakit": number})}))
        library_folder(path)
    assert len(list(cache.iterdir())) == 16


def tar_of(*members: tarfile.TarInfo) -> bytes:
    """A tar file with a library's metadata and other members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        metadata = tarfile.TarInfo("metadata.json")
        metadata.size = 14
        archive.addfile(metadata, io.BytesIO(b'{"umakit": {}}'))
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


EVIL = {
    "absolute": tar_of(member("/tmp/evil")),
    "above": tar_of(member("a/../../evil")),
    "backslash": tar_of(member("..\\evil")),
    "symbolic link": tar_of(member("src", tarfile.SYMTYPE, "/tmp")),
    "hard link": tar_of(member("src", tarfile.LNKTYPE, "/etc/passwd")),
    "device": tar_of(member("src", tarfile.CHRTYPE)),
    "pipe": tar_of(member("src", tarfile.FIFOTYPE)),
    "twice": tar_of(member("a.c"), member("./a.c")),
    "file as folder": tar_of(member("src"), member("src/a.c")),
    "no metadata": tar_bytes({"README.md": "hello"}),
    "foreign metadata": tar_bytes({"metadata.json": '{"version": 7}'}),
    "empty": b"",
    "text": b"not a tar file\n" * 100,
    "zip": b"PK\x03\x04" + bytes(2000),
}


def huge_member() -> bytes:
    """A tar file whose header promises a terabyte."""
    info = member("src/huge")
    info.size = 2**40
    return tar_of()[:1024] + info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)


@pytest.mark.parametrize("kind", [*EVIL, "huge", "cut in a file", "cut between files"])
def test_a_bad_tar_file_is_one_sentence(
    kind: str, exports: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, inputs = tmp_path / "bad.tar", tmp_path / "in.npz"
    np.savez(inputs, x=IMAGE)
    if kind.startswith("cut"):
        whole = package_library(exports / "one", "tar", path).read_bytes()
        with tarfile.open(path) as archive:
            last = archive.getmembers()[-1]
        cut = last.offset_data + 3 if kind == "cut in a file" else last.offset
        path.write_bytes(whole[:cut])
    else:
        path.write_bytes(huge_member() if kind == "huge" else EVIL[kind])
    before = files_below(tmp_path)
    for command in (["run", path, "--inputs", inputs], ["package", path, "--format", "arduino"]):
        assert run_command([str(part) for part in command]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and "bad.tar" in line
    assert files_below(tmp_path) == before


def files_below(folder: Path) -> list[Path]:
    """Files and links, in the cache too: its folders may be made and stay empty."""
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def test_a_file_of_someone_else_is_not_overwritten(
    exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"mine.tar": b"mine", "other.tar": EVIL["no metadata"]}
    for name, content in places.items():
        (tmp_path / name).write_bytes(content)
        command = ["package", str(exports / "one"), "--format", "tar", "-o", str(tmp_path / name)]
        assert run_command(command) == 2
        assert "exists and is not a umakit library" in capsys.readouterr().err
        with pytest.raises(LibraryError, match="exists"):
            umakit.compile_model("missing.onnx", [], tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    (tmp_path / "folder.tar").mkdir()
    (tmp_path / "link.tar").symlink_to(tmp_path / "nowhere")
    for name in ("folder.tar", "no-suffix"):
        with pytest.raises(LibraryError):
            package_library(exports / "one", "tar", tmp_path / name)
    package_library(exports / "one", "tar", tmp_path / "link.tar")
    assert (tmp_path / "link.tar").is_symlink() and tarfile.is_tarfile(tmp_path / "nowhere")
    with pytest.raises(LibraryError, match="inside"):
        package_library(exports / "one", "tar", exports / "one" / "one.tar")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_names_its_output(
    exports: Path,
    in_folder: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["package", str(exports / "one"), "--format", "tar"]) == 0
    assert capsys.readouterr().out == "Wrote tvmgen_one.tar\n"
    assert run_command(["package", "tvmgen_one.tar", "--format", "arduino", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"output": "tvmgen_one", "format": "arduino"}
    assert (in_folder / "tvmgen_one/library.properties").is_file()


def test_an_older_export_is_refused(
    exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = shutil.copytree(exports / "one", tmp_path / "old")
    metadata = json.loads((old / "metadata.json").read_text())
    del metadata["umakit"]["sources"]
    (old / "metadata.json").write_text(json.dumps(metadata))
    command = ["package", str(old), "--format", "arduino", "-o", str(tmp_path / "out")]
    assert run_command(command) == 2
    assert "export the library again" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_is_left_of_a_failure(
    exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = package_library(exports / "one", "tar", tmp_path / "kept.tar")
    before = kept.read_bytes()
    fresh = {name: tmp_path / f"fresh{form.suffix}" for name, form in FORMATS.items()}

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as stream:
            stream.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    for name, destination in (*fresh.items(), ("tar", kept)):
        with pytest.raises(LibraryError, match="No space left"):
            package_library(exports / "two", name, destination)
    assert kept.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["kept.tar"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_package_is_replaced_and_anything_else_is_not(
    name: str, exports: Path, tmp_path: Path
) -> None:
    """Of each format: the kind of file or folder by which umakit knows its own."""
    output = tmp_path / f"package{FORMATS[name].suffix}"
    for library in ("one", "two"):
        package_library(exports / library, name, output)
    other = tmp_path / f"other{FORMATS[name].suffix}"
    if output.is_dir():
        other.mkdir()
    (other / "mine" if output.is_dir() else other).write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        package_library(exports / "one", name, other)
