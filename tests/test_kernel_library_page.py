# SPDX-License-Identifier: Apache-2.0
"""The backend that `docs/kernel-library.md` prints, written to files as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_patterns_example import assert_clean

from umakit import compile_model, run_library
from umakit.backend import load_backend_folder
from umakit.testing.example_networks import QuantizedNetwork

PAGE = (Path(__file__).parents[1] / "docs" / "kernel-library.md").read_text(encoding="utf-8")
CALL = PAGE.partition("## A call in one line")[2]


@pytest.fixture(scope="module")
def nova(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("page") / "nova"
    folder.mkdir()
    blocks = re.findall(r"^`([\w.]+)`[^`]*?:\n\n```\w+\n(.*?)^```", CALL, re.M | re.S)
    assert [name for name, _ in blocks] == ["backend.py", "accel.toml", "nova_nn.h", "nova_nn.c"]
    for name, text in blocks:
        (folder / name).write_text(text, encoding="utf-8")
    return load_backend_folder(folder)


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
    assert_clean(nova.folder / "nova_nn.c")
