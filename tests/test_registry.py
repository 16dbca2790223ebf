# SPDX-License-Identifier: Apache-2.0
"""Finding backends by name, by path and through entry points, and saying why not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import typer
from umakit.cli.main import app, run_command

from umakit import UMABackend, find_backend, list_backends
from umakit.backend.registry import ENTRY_POINT_GROUP, load_backend_folder
from umakit.errors import BackendError
from umakit.tools.scaffold import new_backend

BACKEND = """\
from umakit.backend import UMABackend


class {class_name}(UMABackend):
    target_name = "{name}"
"""


def backend_folder(folder: Path, text: str = "", *, name: str = "small_npu") -> Path:
    """A folder with a backend.py."""
    target = folder / name
    target.mkdir(parents=True)
    source = text or BACKEND.format(class_name="SmallBackend", name=name)
    (target / "backend.py").write_text(source, encoding="utf-8")
    return target


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str, value: str
) -> None:
    """Put a distribution with one entry point on the search path, as pip would."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(str(folder))


def install_backend(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, target: str = "", value: str = ""
) -> None:
    """A package `<name>_package` that offers a backend."""
    module = f"{name}_package"
    install(folder, monkeypatch, f"{name}-dist", name, value or f"{module}:{name.title()}Backend")
    text = BACKEND.format(class_name=f"{name.title()}Backend", name=target or name)
    (folder / f"{module}.py").write_text(text, encoding="utf-8")


# --- by name and by path ------------------------------------------------------------------------


def test_backends_in_the_tree_are_found_by_name() -> None:
    assert "vanilla_accelerator" in [source.name for source in list_backends()]
    assert find_backend("vanilla_accelerator").target_name == "vanilla_accelerator"


def test_a_backend_is_found_by_any_form_of_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_backend("pathfinder", tmp_path, "vanilla").folder
    monkeypatch.chdir(tmp_path)
    paths = [folder, str(folder), f"{folder}{os.sep}", Path("pathfinder"), "./pathfinder"]
    for path in [*paths, "pathfinder", "pathfinder/", "../" + tmp_path.name + "/pathfinder"]:
        backend = find_backend(path)
        assert backend.target_name == "pathfinder"
        assert backend.folder == folder.resolve()
    monkeypatch.chdir(folder)
    assert find_backend(".").target_name == "pathfinder"


def test_a_link_to_a_folder_is_the_folder(tmp_path: Path) -> None:
    folder = backend_folder(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    assert find_backend(tmp_path / "link").folder == folder.resolve()


@pytest.mark.parametrize("place", ["with space", "v1.2", "größe", "a-b"])
def test_a_folder_may_have_any_name(place: str, tmp_path: Path) -> None:
    folder = new_backend("inside", tmp_path / place, "vanilla").folder
    assert find_backend(folder).target_name == "inside"
    assert find_backend(folder.rename(tmp_path / f"{place} moved")).target_name == "inside"


def test_two_folders_of_one_name_are_two_backends(tmp_path: Path) -> None:
    first = backend_folder(tmp_path / "a", BACKEND.format(class_name="First", name="twin"))
    second = backend_folder(tmp_path / "b", BACKEND.format(class_name="Second", name="twin"))
    names = [type(find_backend(folder)).__name__ for folder in (first, second, first)]
    assert names == ["First", "Second", "First"]


def test_a_folder_that_was_repaired_is_loaded_again(tmp_path: Path) -> None:
    folder = backend_folder(tmp_path, "from .part import missing\n")
    (folder / "part.py").write_text("present = 1\n")
    with pytest.raises(BackendError, match="cannot be imported: ImportError"):
        find_backend(folder)
    (folder / "part.py").write_text("missing = 'something longer'\n")
    text = BACKEND.format(class_name="Repaired", name="repaired")
    (folder / "backend.py").write_text(f"from .part import missing\n{text}")
    assert find_backend(folder).target_name == "repaired"


# --- entry points -------------------------------------------------------------------------------


def test_an_installed_package_offers_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_backend(tmp_path, monkeypatch, "acme")
    (source,) = [source for source in list_backends() if source.name == "acme"]
    assert (source.origin, source.location) == ("acme-dist", "acme_package:AcmeBackend")
    assert find_backend("acme").target_name == "acme"


def test_an_entry_point_may_be_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_backend(tmp_path, monkeypatch, "modular", value="modular_package")
    assert find_backend("modular").target_name == "modular"


def test_listing_imports_no_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "broken-dist", "broken", "no_such_module:Backend")
    assert "broken" in [source.name for source in list_backends()]
    with pytest.raises(BackendError, match=r"entry point broken = no_such_module:Backend: cannot"):
        find_backend("broken")
    assert find_backend("vanilla_accelerator")  # others still work


def test_two_owners_of_a_name_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_backend(tmp_path / "one", monkeypatch, "shared")
    install(tmp_path / "two", monkeypatch, "other-dist", "shared", "elsewhere:Backend")
    with pytest.raises(BackendError, match="backend 'shared' is ambiguous") as caught:
        find_backend("shared")
    assert "shared-dist (shared_package:SharedBackend)" in str(caught.value)
    assert "other-dist (elsewhere:Backend)" in str(caught.value)
    assert caught.value.fix == "uninstall one of the packages"


def test_a_package_cannot_take_a_name_of_umakit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_backend(tmp_path, monkeypatch, "vanilla_accelerator")
    with pytest.raises(BackendError, match=r"that of umakit .* and that of vanilla_acc"):
        find_backend("vanilla_accelerator")
    # A path is never in doubt.
    ours = [s for s in list_backends() if s.origin == "umakit"]
    in_tree = next(s.location for s in ours if s.name == "vanilla_accelerator")
    assert find_backend(in_tree).target_name == "vanilla_accelerator"


def test_the_name_of_an_entry_point_is_the_name_of_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_backend(tmp_path, monkeypatch, "renamed", target="something_else")
    with pytest.raises(BackendError, match=r"registered as 'renamed' .* is 'something_else'"):
        find_backend("renamed")


@pytest.mark.parametrize("value", ["builtins:dict", "math:pi", "json", "os.path:sep"])
def test_an_entry_point_that_is_no_backend_is_refused(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "odd-dist", "odd", value)
    with pytest.raises(BackendError):
        find_backend("odd")


# --- a folder with the name of a known backend ---------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with the name of a backend of umakit, in the working folder."""
    monkeypatch.chdir(tmp_path)
    folder = new_backend("vanilla_accelerator", tmp_path, "vanilla").folder
    (folder / "mine").touch()
    return folder


def paths_in(error: BackendError) -> list[str]:
    """The paths that the advice says to write."""
    return re.findall(r"(?:write|or) (\S+) for that", error.fix)


def test_a_name_that_means_two_backends_is_refused_and_the_advice_finds_each(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BackendError, match="'vanilla_accelerator' is ambiguous") as caught:
        find_backend("vanilla_accelerator")
    folders = [find_backend(path).folder for path in paths_in(caught.value)]
    assert [(folder / "mine").exists() for folder in folders] == [True, False]
    assert all(str(folder) in caught.value.what for folder in folders)
    assert find_backend("vanilla_accelerator/").folder == own.resolve()
    # The other names of umakit stay clear, and so does this one elsewhere and in its own folder.
    assert find_backend("strawberry_accelerator")
    monkeypatch.chdir(own)
    assert not (find_backend("vanilla_accelerator").folder / "mine").exists()
    monkeypatch.chdir(folders[1].parent)
    assert find_backend("vanilla_accelerator").folder == folders[1]


def test_an_installed_package_and_another_folder_are_two_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, work = tmp_path / "installed", tmp_path / "work"
    text = BACKEND.format(class_name="MyNpuBackend", name="my_npu")
    for place in (installed, work):
        (backend_folder(place, text, name="my_npu") / "__init__.py").touch()
    install(installed, monkeypatch, "my-npu-dist", "my_npu", "my_npu.backend:MyNpuBackend")
    monkeypatch.chdir(work)
    with pytest.raises(BackendError, match=r"that of my-npu-dist .my_npu\.backend") as caught:
        find_backend("my_npu")
    assert [find_backend(path).folder.parent for path in paths_in(caught.value)] == [
        work,
        installed,
    ]
    monkeypatch.chdir(installed)  # as after `pip install --editable`: the folder is the package
    assert find_backend("my_npu").folder.parent == installed


def test_an_installed_module_is_found_once_the_folder_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_backend(tmp_path / "installed", monkeypatch, "acme")
    folder = backend_folder(tmp_path, name="acme")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BackendError, match="is ambiguous") as caught:
        find_backend("acme")
    assert (
        caught.value.fix == "write ./acme for that in the folder, or give the folder another name"
    )
    assert find_backend("./acme").folder == folder
    folder.rename(tmp_path / "mine")
    assert type(find_backend("acme")).__name__ == "AcmeBackend"


NAME = "vanilla_accelerator"
MODEL = str(Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx")
OF_BACKENDS = {
    "partition": [MODEL, "-b"],
    "compile": [MODEL, "-o", "out", "-b"],
    "run": ["library", "--inputs", "in.npz", "--rtl"],
    "diff": [MODEL, "-b"],
    "cosim": [MODEL, "-b"],
    "calibrate": [],
    "doctor": [],
    "report": [MODEL, "-b"],
    "report --compare": [MODEL, "--compare", "strawberry_accelerator"],
    "sim": [MODEL, "-b"],
    "tune": [MODEL, "--records", "records.json", "-b"],
    "check": [],
}
"""Words of each command that takes a backend, before its name."""


def test_all_commands_with_backends_are_listed() -> None:
    found = [
        name
        for name, command in typer.main.get_command(app).commands.items()
        for option in command.params
        if option.name in ("backend", "rtl") and getattr(option, "is_flag", False) is False
    ]
    assert set(found) == {words.split()[0] for words in OF_BACKENDS}


@pytest.mark.parametrize("command", OF_BACKENDS)
def test_each_command_refuses_a_name_that_means_two_backends(
    command: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([command.split()[0], *OF_BACKENDS[command], NAME]) == 2
    error = capsys.readouterr().err
    assert f"backend '{NAME}' is ambiguous" in error and f"write ./{NAME} for that in" in error
    assert str(own.resolve()) in error and f"{os.sep}backends{os.sep}{NAME}" in error
    assert sorted(path.name for path in own.parent.iterdir()) == [NAME]


# --- what can be wrong --------------------------------------------------------------------------


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BackendError, match=r"no backend .vanila.; known .*vanilla_acc"):
        find_backend("vanila")


@pytest.mark.parametrize("path", ["missing", "file.py"])
def test_a_path_without_a_folder_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").touch()
    with pytest.raises(BackendError, match=f"{path}: no such folder"):
        find_backend(tmp_path / path)


def test_a_folder_without_backend_py_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"holds no backend\.py"):
        find_backend(tmp_path)


@pytest.mark.parametrize("broken", ["backend", "patterns"])
def test_a_syntax_error_is_named_with_file_and_line(broken: str, tmp_path: Path) -> None:
    folder = new_backend("broken_npu", tmp_path, "vanilla").folder
    path = folder / f"{broken}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:5], "def broken(:", *lines[5:]]), encoding="utf-8")
    with pytest.raises(BackendError, match=rf"{broken}\.py:6: syntax error: ") as caught:
        find_backend(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module_at_all\n", r"ModuleNotFoundError: .*backend\.py:1\)"),
        ("\n1 / 0\n", r"ZeroDivisionError: division by zero \(.*backend\.py:2\)"),
        ("from .missing import thing\n", r"ModuleNotFoundError: .*missing"),
        (
            BACKEND.format(class_name="Broken", name="broken")
            + "\n    def __init__(self):\n        self.nonsense()\n",
            r"AttributeError: .*nonsense.*backend\.py:8\)",
        ),
        ("x = 1\n", r"backend\.py defines 0 subclasses of UMABackend, it must define one"),
        ("from umakit.backend import UMABackend\n", "defines 0 subclasses of UMABackend"),
        (
            BACKEND.format(class_name="A", name="a") + BACKEND.format(class_name="B", name="b"),
            "defines 2 subclasses of UMABackend",
        ),
        (
            "from umakit.backend import UMABackend\nclass Nameless(UMABackend):\n    pass\n",
            "TypeError: .*abstract.*target_name",
        ),
    ],
)
def test_what_is_wrong_with_a_backend_is_said_in_one_line(
    text: str, message: str, tmp_path: Path
) -> None:
    folder = backend_folder(tmp_path, text)
    for _ in range(2):  # and said again the next time
        with pytest.raises(BackendError, match=message) as caught:
            find_backend(folder)
        assert "small_npu" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_error_of_umakit_inside_a_backend_keeps_its_words(tmp_path: Path) -> None:
    text = BACKEND.format(class_name="Refused", name="refused")
    init = "\n    def __init__(self):\n        super().__init__()\n"
    folder = backend_folder(tmp_path, text + init + "        self._register_codegen(fmt='llvm')\n")
    with pytest.raises(BackendError, match=r"refused: codegen format 'llvm' is not supported"):
        find_backend(folder)


def test_a_backend_imported_into_backend_py_is_not_its_own(tmp_path: Path) -> None:
    text = "from umakit.backends.vanilla_accelerator import VanillaAcceleratorBackend\n\n\n"
    folder = backend_folder(
        tmp_path, text + "class Mine(VanillaAcceleratorBackend):\n    target_name = 'mine'\n"
    )
    backend = load_backend_folder(folder)
    assert isinstance(backend, UMABackend)
    assert (type(backend).__name__, backend.target_name) == ("Mine", "mine")
