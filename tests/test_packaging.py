# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed where no checkout is: what it holds, and that it works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from umakit.tools.scaffold import KINDS, TUTORIALS
from umakit.tools.scaffold.new import LIKE
from umakit.version import __version__

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
GONE = "gone_since_the_last_build.py"
"""A module in the build folder of the checkout that the checkout has no more."""

HELD_OUT = ROOT / "examples" / "digits" / "held_out.npz"


def command(*arguments: str | Path, cwd: Path, **variables: str) -> str:
    """Standard output of a command that must succeed, far from the checkout."""
    outside = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "VIRTUAL_ENV") and not key.startswith(("PYTEST", "COV"))
    }
    result = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env={**outside, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def without_compilers(folder: Path) -> dict[str, str]:
    """An environment in which nothing compiles: no program on PATH, and failing compilers."""
    empty = folder / "no_programs"
    empty.mkdir()
    return {"PATH": str(empty), "CC": "/bin/false", "CXX": "/bin/false"}


def built_by_pip(*arguments: str | Path, cwd: Path, **variables: str) -> None:
    """Let pip build a project; it fetches setuptools if this environment's is too old."""
    pip = (sys.executable, "-m", "pip", *arguments)
    try:
        command(*pip, "--no-build-isolation", cwd=cwd, **variables)
    except AssertionError:
        command(*pip, cwd=cwd, **variables)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of what Git would ship, built without compilers in a copy: building leaves traces."""
    folder = tmp_path_factory.mktemp("build")
    listed = command(
        *("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"), cwd=ROOT
    )
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / "source" / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    old = folder / "source" / "build" / "lib" / "umakit" / GONE
    old.parent.mkdir(parents=True)
    old.write_text("# of an earlier build\n")
    built_by_pip(
        *("wheel", "--no-deps", "--quiet", "--wheel-dir", "dist", "./source"),
        cwd=folder,
        **without_compilers(folder),
    )
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def members(wheel: Path) -> set[str]:
    """Names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def below(*folders: str, suffixes: str) -> set[str]:
    """Files of the checkout by their path from its root."""
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if re.search(suffixes, path.name) and "__pycache__" not in path.parts
    }


SHIPPED = {
    "templates": (("templates",), r"\.(j2|py)$", "umakit/"),
    "the simulator": (
        ("sim/src", "sim/include", "sim/rtl", "sim/board", "sim/mock", "sim/program"),
        r"\.[ch]$",
        "umakit/",
    ),
    "register maps": (("sim/registers",), r"\.toml$", "umakit/"),
    "the backends": (("backends",), r"\.(py|c|h|toml|md)$", "umakit/"),
    "the command line": (("cli",), r"\.py$", "umakit/"),
    "programs of libraries": (("umakit/library/runtime",), r"\.[ch]$", ""),
    "licence of libraries": (("umakit/library",), r"^LICENSE$", ""),
    "support of devices": (("umakit/devices",), r"\.(c|h|S|ld|cmake|toml)$", ""),
    "the library": (("umakit",), r"\.py$|^py\.typed$", ""),
}


@pytest.mark.parametrize("part", SHIPPED)
def test_the_wheel_holds(part: str, members: set[str]) -> None:
    folders, suffixes, prefix = SHIPPED[part]
    wanted = {prefix + name for name in below(*folders, suffixes=suffixes)}
    assert len(wanted) > 0
    assert wanted - members == set()


def test_the_wheel_holds_every_module(members: set[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "umakit").rglob("*.py")}
    assert modules - members == set()


def test_the_wheel_is_for_every_platform(wheel: Path) -> None:
    assert wheel.name == f"umakit-{__version__}-py3-none-any.whl"


def test_the_sdist_is_built_without_compilers_and_has_what_the_readme_links_to(
    wheel: Path, tmp_path: Path
) -> None:
    source = wheel.parents[1] / "source"
    code = "from setuptools.build_meta import build_sdist; build_sdist('../sdist')"
    tools = tmp_path / "tools"  # where this environment's setuptools is too old
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", tools)
    command(*pip, *wanted, cwd=tmp_path)
    tools_alone = {"PYTHONPATH": str(tools), **without_compilers(tmp_path)}
    command(sys.executable, "-c", code, cwd=source, **tools_alone)
    (archive,) = (source.parent / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^):#]+)\)", text)) | {"examples/digits/digits_int8.onnx"}
    assert len(linked) > 30 and linked - names == set()
    assert not any("__pycache__" in name for name in names)


def test_sources_that_hide_the_installed_package_say_so(installed: Path, wheel: Path) -> None:
    """In the root of unpacked sources, Python finds these, which lack four folders."""
    line = [str(installed / "python"), "-c", "import umakit"]
    source = wheel.parents[1] / "source"
    ended = subprocess.run(line, cwd=source, capture_output=True, text=True, check=False)
    assert "ImportError: this is the source folder of umakit" in ended.stderr


def test_the_wheel_holds_license_and_notice(members: set[str]) -> None:
    names = {Path(name).name for name in members if ".dist-info/" in name}
    assert {"LICENSE", "NOTICE", "METADATA", "entry_points.txt"} <= names


def test_the_wheel_registers_the_plugin_of_pytest(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/entry_points.txt"))
        text = archive.read(name).decode()
    assert "[pytest11]\numakit = umakit.testing.pytest_plugin\n" in text


def test_the_wheel_holds_nothing_else(members: set[str]) -> None:
    assert {name.split("/", 1)[0] for name in members} == {
        "umakit",
        f"umakit-{__version__}.dist-info",
    }
    strangers = re.compile(r"(^|/)(tests?|examples|build|__pycache__)/|\.(pyc|o|so|onnx)$|/test_")
    found = {name for name in members if strangers.search(name)}
    # The tests that belong to a backend, not those of umakit.
    kinds = ("project", *(name for name in TUTORIALS if name not in LIKE))
    expected = {f"umakit/templates/{kind}/test_backend.py.j2" for kind in kinds}
    expected |= {f"umakit/backends/{name}_accelerator/test_backend.py" for name in TUTORIALS}
    assert found == expected
    assert f"umakit/{GONE}" not in members


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel for all tests that change nothing in it."""
    return environment_with(wheel, tmp_path_factory.mktemp("installed") / "venv")


def environment_with(wheel: Path, folder: Path) -> Path:
    """Return the `bin` folder of a new environment with the wheel.

    Its dependencies are those of the tests' own environment, put behind by a path file; an
    editable umakit there is not seen, because path files of path files are not read.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = folder / "bin" / "python"
    command(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--quiet"),
        *("--force-reinstall", "--ignore-installed", wheel),
        cwd=folder,
    )
    assert (site / "umakit" / "py.typed").is_file()
    return folder / "bin"


def test_the_installed_package_is_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import umakit, umakit.cli, umakit.sim, umakit.templates, umakit.backends as b; "
    where = command(
        installed / "python", "-c", f"{code}print(umakit.__file__, b.__file__)", cwd=tmp_path
    )
    assert all(Path(path).is_relative_to(installed.parent) for path in where.split())
    paths = command(installed / "python", "-c", "import sys; print(*sys.path)", cwd=tmp_path)
    # The environment that the tests run in may lie inside the checkout; its sources must not show.
    assert str(ROOT) not in paths.split()


IN_ONE_PROCESS = """\
import contextlib, io, json, sys
from umakit.cli.main import run_command
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = run_command(words)
    print(json.dumps([code, said.getvalue()]))
"""
"""Runs commands one behind the other: to import TVM for each takes most of the time."""


def in_one_process(python: Path, lines: list[list[str | Path]], folder: Path) -> list[str]:
    """Return what commands print that must succeed, run by another environment's umakit."""
    words = json.dumps([[str(word) for word in line] for line in lines])
    printed = command(python, "-c", IN_ONE_PROCESS, words, cwd=folder)
    answers = [json.loads(line) for line in printed.splitlines()]
    assert [code for code, _ in answers] == [0] * len(lines)
    return [text for _, text in answers]


def test_every_command_works_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert command(installed / "uma", "--version", cwd=tmp_path) == f"umakit {__version__}\n"

    lines: list[list[str | Path]] = [
        ["backends", "--json"], ["new", "wheel_npu", "--tutorial", "vanilla"],
    ]  # fmt: skip
    chosen = {"first": "vanilla_accelerator", "second": "./wheel_npu"}
    for name, backend in chosen.items():
        lines += [
            ["compile", MODEL, "--backend", backend, "-o", name],
            ["run", name, "--inputs", HELD_OUT, "--outputs", f"{name}.npz", "--profile"],
        ]
    said = in_one_process(installed / "python", lines, tmp_path)
    backends = json.loads(said[0])
    assert [item["name"] for item in backends] == [
        "chocolate_accelerator", "small_chocolate_accelerator", "strawberry_accelerator",
        "vanilla_accelerator",
    ]  # fmt: skip
    assert {item["origin"] for item in backends} == {"umakit"}
    listed = backends[-1]
    assert Path(listed["location"]).is_relative_to(installed.parent)

    vanilla = [path for path in Path(listed["location"]).iterdir() if path.is_file()]
    written = {path.name for path in (tmp_path / "wheel_npu").iterdir() if path.is_file()}
    assert written == {path.name for path in vanilla}

    assert "vanilla_accelerator" in said[3] and "wheel_npu" in said[5]
    for name in chosen:
        with np.load(tmp_path / f"{name}.npz") as outputs, np.load(HELD_OUT) as held_out:
            predicted = outputs["logits"][:, 0].argmax(axis=1)
            assert (predicted == held_out["label"]).mean() > 0.95


def test_the_script_of_a_new_backend_works_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    command(installed / "uma", "new", "script_npu", "--tutorial", "vanilla", cwd=tmp_path)
    printed = command(installed / "python", "script_npu/run.py", "out", cwd=tmp_path)
    assert "Generated files are in" in printed


LONG = pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")


@pytest.mark.parametrize(
    ("kind", "editable"),
    [
        pytest.param(kind, editable, marks=[LONG] if editable or kind != "library" else [])
        for kind in KINDS
        for editable in (False, True)
    ],
)
def test_a_project_is_known_by_name_once_it_is_installed(
    kind: str, editable: bool, wheel: Path, tmp_path: Path
) -> None:
    """Written by the wheel, installed by pip, and its tests run."""
    bin_folder = environment_with(wheel, tmp_path / "venv")
    uma, name = bin_folder / "uma", f"npu_{'e' if editable else 'w'}"
    command(uma, "new", name, "--kind", kind, "--operators", "dense", cwd=tmp_path)
    place = tmp_path / name
    how = ["--editable"] if editable else []
    python = bin_folder / "python"
    built_by_pip("--python", python, "install", "--no-deps", "--quiet", *how, place, cwd=tmp_path)
    (found,) = (
        backend
        for backend in json.loads(command(uma, "backends", "--json", cwd=tmp_path))
        if backend["name"] == name
    )
    assert found["origin"] == name.replace("_", "-")
    if not editable:  # what is installed does without the folder
        place.rename(tmp_path / "elsewhere")
    code = (
        f"import umakit; from umakit.testing import *; b = umakit.find_backend({name!r});"
        " print(compile_and_run(QuantizedNetwork(2, 3, 4).dense(8).model(), b), b.folder)"
    )
    printed = command(python, "-c", code, cwd=tmp_path)
    assert "largest difference from TVM's LLVM build: 0 " in printed
    assert printed.split()[-1].startswith(str(place if editable else tmp_path / "venv"))
    if editable:
        tests = command(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=place)
        assert "2 passed" in tests


def test_the_lock_has_a_version_of_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    locked = {canonicalize_name(name): version for name, version in versions.items()}
    for text in [*project["dependencies"], *project["optional-dependencies"]["test"]]:
        wanted = Requirement(text)
        version = locked[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version, prereleases=True), f"{text}, locked is {version}"
