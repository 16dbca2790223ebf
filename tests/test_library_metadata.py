# SPDX-License-Identifier: Apache-2.0
"""A library comes from anyone: metadata and tar files are right, or refused in one sentence."""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import umakit
from umakit.devices.build import build_runner
from umakit.devices.run import run_library
from umakit.errors import LibraryError, UmakitError
from umakit.library.metadata import METADATA, check_metadata, load_metadata, read_description
from umakit.library.packages import package_library
from umakit.library.tar_files import library_folder, read_tar
from umakit.tools.size import library_size

Values = dict[str, Any]
ONES = {"x": np.ones((1, 4), "float32")}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("metadata")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"], name="s")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(folder / "net.onnx"))
    umakit.compile_model(folder / "net.onnx", [], folder / "library")
    return folder / "library"


def edited(library: Path, folder: Path, edit: Callable[[Values], None]) -> Path:
    """A copy of a library with other metadata."""
    copied = shutil.copytree(library, folder / "edited", dirs_exist_ok=True)
    data = json.loads((copied / "metadata.json").read_text())
    edit(data)
    (copied / "metadata.json").write_text(json.dumps(data))
    return copied


def at(path: str, value: Any) -> Callable[[Values], None]:
    """An edit that puts a value at a place such as `umakit.inputs.0.name`."""

    def edit(data: Values) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = data
        for part in way:
            place = place[part]
        place[last] = value

    return edit


WRONG = {
    "umakit.interface": [
        "../../outside",
        "tvmgen_other",
        "a b",
        "",
        "tvmgen_net;touch RAN",
        7,
        None,
    ],
    "umakit.name": ["../net", "net\0", "", "$(touch RAN)", ["net"]],
    "umakit.weights": ["C", "../blob", 1],
    "umakit.inputs.0.c_name": ["x;", "", "x y", "\u05d0", 1],
    "umakit.inputs.0.shape": [
        [1, -4],
        [1, 2**70],
        "14",
        [1, 4.0],
        [1, True],
        [1] * 100,
        [2, 4],
    ],
    "umakit.inputs.0.dtype": ["float33", "object", "O", None],
    "umakit.inputs.0.size_bytes": [-16, 15, 2**80, 16.0, "16"],
    "umakit.inputs.0.scale": [float("nan"), float("inf"), "1"],
    "umakit.outputs.0.zero_point": [2**40, 0.5],
    "umakit.memory.arena_bytes": [-1, 2**64, 0.5],
    "umakit.memory.pools.0.alignment_bytes": [0, 3, -16, 2**40],
    "umakit.memory.pools.0.name": ["a-b", "../a"],
    "umakit.layers.0.where": ["gpu", "", 3],
    "umakit.layers.0.macs": [-1, 1e9],
    "umakit.layers.0.function": ["system", "tvmgen_net_x;", "main"],
    "umakit.layers.0.operators": [[7], [-1], ["0"]],
    "umakit.sources.model": [["../x.c"], ["/etc/passwd"], ["a\nb.c"], ["-o"], "x.c", [".."]],
    "umakit.backends": [[{"name": "a b", "simulated": True}], [{"name": "a"}], {}],
    "umakit.model_sha256": ["", "x" * 64],
    "umakit.unknown": [1],
    "version": [8, "7"],
    "modules": [[], {"../x": {}}],
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(
    key: str, library: Path, tmp_path: Path
) -> None:
    for value in WRONG[key]:
        copied = edited(library, tmp_path, at(key, value))
        with pytest.raises(LibraryError) as raised:
            load_metadata(copied)
        message = str(raised.value)
        named = key.split(".")[-1 if not key.split(".")[-1].isdigit() else -2]
        assert named in message or "size_bytes" in message or "interface" in message, message
        assert "\n" not in message and "pydantic" not in message and len(message) < 600
        if key in ("umakit.unknown", "umakit.weights"):
            assert ("another version" in message) is (key == "umakit.unknown")


BEYOND = {
    "tensors.0.offset_bytes": (17, "beyond used_bytes"),
    "tensors.0.size_bytes": (17, "beyond used_bytes"),
    "tensors.0.last_layer": (1, "outlives the last layer"),
}


def test_tensors_and_operators_of_the_metadata_end_with_what_holds_them(
    library: Path, tmp_path: Path
) -> None:
    """The last byte of a pool, the last layer and the last operator may be used, not the next."""
    placed = {
        "name": "t", "c_name": "t", "role": "intermediate", "offset_bytes": 16, "size_bytes": 16,
        "first_layer": 0, "last_layer": 0, "takes_over": None,
    }  # fmt: skip

    def full(data: Values) -> None:
        assert len(data["umakit"]["layers"]) == len(data["umakit"]["operators"]) == 1
        data["umakit"]["memory"]["pools"][0] |= {"used_bytes": 32, "tensors": [placed]}

    whole = edited(library, tmp_path, full)
    assert load_metadata(whole)["umakit"]["layers"][0]["operators"] == [0]
    for key, (value, said) in BEYOND.items():
        copied = edited(whole, tmp_path / key, at(f"umakit.memory.pools.0.{key}", value))
        with pytest.raises(LibraryError, match=said):
            load_metadata(copied)
    with pytest.raises(LibraryError, match="not in operators"):
        load_metadata(edited(whole, tmp_path / "row", at("umakit.layers.0.operators", [1])))


def test_no_command_takes_a_path_from_an_edited_file(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "deep/inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    copied = edited(library, tmp_path, at("umakit.interface", "../../escaped"))
    commands: list[Callable[[], object]] = [
        lambda: package_library(copied, "tar"),
        lambda: package_library(copied, "arduino"),
        lambda: run_library(copied, ONES),
        lambda: library_size(copied),
        lambda: read_description(copied),
    ]
    for command in commands:
        with pytest.raises(LibraryError, match="interface"):
            command()
    assert not list(inside.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "edited"]


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"umakit": ' * 5_000,
        b'{"version": ' + b"9" * 10_000 + b"}", b'{"version": NaN}', b'{"umakit": 1}',
    ],
)  # fmt: skip
def test_what_is_no_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(LibraryError, match="is damaged"):
        check_metadata(text, "metadata.json")


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in nested lists and dictionaries."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    found = [way] if way else []
    for key, child in children:
        further = (*way, key)
        found += places(child, further) if isinstance(child, (dict, list)) else [further]
    return found


REPLACEMENTS = (
    None, -1, 0, 1, 2**31, 2**62, 2**70, 0.5, 1e308, True, "", "x", "../x", "a\0b", "*/", [], {},
    [[]], {"a": 1}, ["x"] * 3, "\u202e", "n" * 5_000,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_mutated_metadata_runs_or_is_refused(seed: int, library: Path, tmp_path: Path) -> None:
    """The build is the same whatever the metadata says: only what is read back may differ."""
    random_ = random.Random(seed)
    original = json.loads((library / "metadata.json").read_text())
    everywhere = places(original)
    copied = shutil.copytree(library, tmp_path / "mutated")
    refused = 0
    for _ in range(150):
        data = copy.deepcopy(original)
        *way, last = random_.choice(everywhere)
        place: Any = data
        for part in way:
            place = place[part]
        action = random_.randrange(4)
        if action == 0:
            del place[last]
        elif action == 1 and isinstance(place, dict):
            place[f"{last}x"] = place.pop(last)
        elif action == 2 and isinstance(place, list):
            place.append(copy.deepcopy(place[last]))
        else:
            place[last] = random_.choice(REPLACEMENTS)
        (copied / "metadata.json").write_text(json.dumps(data))
        try:
            outputs = run_library(copied, {"x": ONES["x"]}).outputs
            (values,) = outputs.values()
            assert np.allclose(values, 1 / (1 + np.exp(-1)))
        except UmakitError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 50


@pytest.mark.parametrize("part", ["codegen/host/src", "codegen/host", "metadata.json"])
def test_links_among_what_is_built_are_not_followed(
    part: str, library: Path, tmp_path: Path
) -> None:
    """A compiler's message would quote the file behind the link."""
    copied = tmp_path / "copied"
    shutil.copytree(library, copied)
    (copied / part).rename(tmp_path / "outside")
    (copied / part).symlink_to(tmp_path / "outside")
    with pytest.raises(LibraryError, match=f"{part}: is a link"):
        load_metadata(copied)
    (copied / part).unlink()
    (tmp_path / "outside").rename(copied / part)
    (copied / "in.npz").symlink_to(tmp_path / "mine.npz")
    load_metadata(copied)


def test_a_link_out_of_a_library_is_not_written_through(library: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(library, tmp_path / "copied", ignore=shutil.ignore_patterns("build"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run-mine").write_text("mine")
    (copied / "build").symlink_to(outside)
    program = build_runner(copied, "tvmgen_net")
    assert not program.resolve().is_relative_to(outside.resolve())
    assert [path.name for path in outside.iterdir()] == ["run-mine"]
    (copied / "README.md").unlink()
    (copied / "README.md").symlink_to(outside / "run-mine")
    with pytest.raises(LibraryError, match="is a link"):
        package_library(copied, "tar", tmp_path / "packed.tar")


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for information, content in members:
            information.size = len(content)
            archive.addfile(information, io.BytesIO(content))
    return buffer.getvalue()


def test_members_of_a_tar_file_that_differ_in_case_are_refused() -> None:
    members = [(tarfile.TarInfo(name), b"") for name in ("src/Driver.c", "src/driver.c")]
    with pytest.raises(LibraryError, match="one file on some machines"):
        read_tar(tar_of(*members), "library.tar")


def test_a_tar_file_with_edited_metadata_is_refused(library: Path, tmp_path: Path) -> None:
    data = json.loads((library / "metadata.json").read_text())
    data["umakit"]["interface"] = "../../escaped"
    path = tmp_path / "library.tar"
    path.write_bytes(tar_of((tarfile.TarInfo("metadata.json"), json.dumps(data).encode())))
    assert library_folder(path).is_dir()
    with pytest.raises(LibraryError, match="interface"):
        package_library(path, "arduino", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_library_of_0_1_0_is_refused(library: Path, tmp_path: Path) -> None:
    data = json.loads((library / METADATA).read_text(encoding="utf-8"))
    data["umakit"]["version"] = "0.1.3"
    (tmp_path / METADATA).write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(LibraryError, match=r"exported by umakit 0\.1\.3; export the library again"):
        load_metadata(tmp_path)
