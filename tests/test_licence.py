# SPDX-License-Identifier: Apache-2.0
"""Licence, notice and checksums of what is exported."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path
from typing import Literal

import pytest
from execution import vanilla
from networks import Graph, save

import umakit
from umakit.library.packages import package_library

ROOT = Path(__file__).parents[1]
SPDX = re.compile(r"(?:/\*|//|#) SPDX-License-Identifier: (.*?)(?: \*/)?")
OF_THE_MODEL = {"net.relax.txt", "net.npz", "net.weights.bin", "metadata.json"}
WITHOUT_COMMENTS = {"LICENSE", "NOTICE", "README.md", "SHA256SUMS", *OF_THE_MODEL}


def export(folder: Path, weights: Literal["c", "blob"] = "c") -> Path:
    graph = Graph()
    graph.output(graph.conv(graph.input("x", 1, 3, 5, 7), 4, 3))
    options = umakit.ExportOptions(weights=weights)
    model = save(graph.model(), folder)
    umakit.compile_model(model, [vanilla()], folder / "net", name="net", options=options)
    return folder / "net"


def licences(folder: Path) -> dict[str, str]:
    """Licence of each file by path, empty where its first line states none."""
    found = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        first = path.read_bytes().partition(b"\n")[0].decode("utf-8", "replace")
        match = SPDX.fullmatch(first)
        found[path.relative_to(folder).as_posix()] = match[1] if match else ""
    return found


def check_sums(folder: Path, sums: str) -> None:
    """All files are listed, `sha256sum` finds them unchanged, and it finds a change."""
    command = ["sha256sum", "--check", "--strict", "--quiet", sums]
    subprocess.run(command, cwd=folder, check=True)
    listed = {line[66:] for line in (folder / sums).read_text().splitlines()[1:]}
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert listed == files - {sums}
    notice = folder / "NOTICE"
    notice.write_text(notice.read_text() + " ")
    assert subprocess.run(command, cwd=folder, capture_output=True).returncode != 0
    notice.write_text(notice.read_text()[:-1])


@pytest.mark.parametrize("weights", ["c", "blob"])
def test_each_file_of_an_export_says_its_terms(
    weights: Literal["c", "blob"], tmp_path: Path
) -> None:
    folder = export(tmp_path, weights)
    found = licences(folder)
    assert {Path(path).name for path, text in found.items() if not text} <= WITHOUT_COMMENTS
    of_the_model = {path for path, text in found.items() if "LicenseRef-Model" in text}
    assert {Path(path).name for path in of_the_model} == (
        {"tvmgen_net.c", "tvmgen_net.h"}
        | ({"tvmgen_net_constants.c", "tvmgen_net_constants.h"} if weights == "c" else set())
    )
    assert set(found.values()) == {"", "Apache-2.0", "Apache-2.0 AND LicenseRef-Model"}
    notice = (folder / "NOTICE").read_text()
    for term in (
        "gemmlowp",
        "ONNX Runtime",
        "Put here",
        "Apache-2.0",
        "LicenseRef-Model",
        "vanilla_accelerator",
        '"net"',
    ):
        assert term in notice
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    check_sums(folder, "SHA256SUMS")


def test_packages_say_their_terms(tmp_path: Path) -> None:
    folder = export(tmp_path)
    archive = package_library(folder, "tar", tmp_path / "net.tar")
    with tarfile.open(archive) as opened:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since 3.11.4
        opened.extractall(tmp_path / "unpacked", **safely)
    check_sums(tmp_path / "unpacked", "SHA256SUMS")
    assert licences(tmp_path / "unpacked") == licences(folder)
    arduino = package_library(folder, "arduino", tmp_path / "arduino")
    check_sums(arduino, "extras/SHA256SUMS")
    found = licences(arduino)
    assert {Path(path).name for path, text in found.items() if not text} <= WITHOUT_COMMENTS
    assert {"LICENSE", "NOTICE"} <= set(found)
