# SPDX-License-Identifier: Apache-2.0
"""The backend that `docs/kernel-library.md` prints, written to files as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from console import type_with_digits
from test_patterns_example import assert_clean

from umakit import compile_model, run_library
from umakit.backend import load_backend_folder
from umakit.machine.sources_config import SourcesSection
from umakit.testing.example_networks import QuantizedNetwork

PATH = Path(__file__).parents[1] / "docs" / "kernel-library.md"
PAGE = PATH.read_text(encoding="utf-8")
LIBRARY = "third_party/nova-nn"
HEADER = f"{LIBRARY}/Include/nova_nn.h"
SOURCE = f"{LIBRARY}/Source/Pooling/nova_max_pool_s8.c"
CALL = PAGE.partition("## A call in one line")[2]


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(PATH, tmp_path, request) == 9
    assert_clean(
        tmp_path / "acme/kernels/source/acme_fully_connected.c",
        f"-I{tmp_path / 'acme/kernels/include'}",
    )


@pytest.fixture(scope="module")
def nova(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("page") / "nova"
    folder.mkdir()
    blocks = re.findall(r"^`([\w./-]+)`[^`]*?:\n\n```\w+\n(.*?)^```", PAGE, re.M | re.S)
    assert [name for name, _ in blocks] == ["accel.toml", "backend.py", HEADER, SOURCE]
    others = [
        (f"{LIBRARY}/LICENSE.txt", "The terms of nova-nn.\n"),
        (f"{LIBRARY}/Source/Softmax/nova_softmax_s8.c", '#include "nova_nn.h"\n'),
    ]
    for name, text in (*blocks, *others):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return load_backend_folder(folder)


def test_the_export_has_the_files_that_the_page_lists(nova: Any, tmp_path: Path) -> None:
    model = QuantizedNetwork(6, 5, 3).pool2d("max", 2, 2, padding="valid").model("network")
    library = compile_model(model.module, [nova], tmp_path / "library", name="network").path
    (listed,) = re.findall(r"example below are\n\n((?:    \S+\n)+)", PAGE)
    found = [path for path in library.glob("codegen/host/src/nova/**/*") if path.is_file()]
    names = sorted(path.relative_to(library).as_posix() for path in found)
    assert names == listed.split()
    for path in found:
        below = path.relative_to(library / "codegen/host/src/nova")
        assert path.read_bytes() == (nova.folder / LIBRARY / below).read_bytes()


def test_the_page_describes_all_keys() -> None:
    table = PAGE.partition("| key of `[sources]` |")[2].partition("\n\n")[0]
    keys = [key for row in re.findall(r"^\| (`.*?) \|", table, re.M) for key in row.split(", ")]
    assert sorted(key.strip("`") for key in keys) == sorted(SourcesSection.model_fields)


def test_the_call_is_what_the_page_shows_and_exact(nova: Any, tmp_path: Path) -> None:
    model = QuantizedNetwork(6, 5, 3).pool2d("max", 2, 2, padding="valid").model("network")
    library = compile_model(model.module, [nova], tmp_path / "nova", name="network")
    assert [row.where for row in library.report.placements] == ["nova"]
    (shown,) = re.findall(r"^```c\n(    enum.*?)^```", CALL, re.M | re.S)
    assert shown in (tmp_path / "nova/codegen/host/src/tvmgen_network.c").read_text("utf-8")
    compile_model(model.module, [], tmp_path / "cpu", name="network")
    got, wanted = (
        run_library(tmp_path / name, model.inputs).outputs["output"] for name in ("nova", "cpu")
    )
    np.testing.assert_array_equal(got, wanted)


def test_its_c_is_clean(nova: Any) -> None:
    assert_clean(nova.folder / SOURCE, f"-I{nova.folder / LIBRARY / 'Include'}")
