# SPDX-License-Identifier: Apache-2.0
"""Faults in the C files of a backend are named by the file and line that the team wrote."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from umakit.cli.main import run_command

from umakit import tvm_api
from umakit.devices.refused_sources import first_error
from umakit.testing import QuantizedNetwork, conv2d_model

ROOT = Path(__file__).parents[1]
VANILLA, LANES = ROOT / "backends/vanilla_accelerator", ROOT / "examples/lane_npu"
RUN = "vanilla_accelerator_conv2dnchw"

CASES = {
    "a header that is nowhere": (
        VANILLA, "conv2dnchw.c", '#include "conv2dnchw.h"',
        '#include "conv2dnchw.h"\n#include "a.h"',
        r"error: conv2dnchw\.c:11: the C of the backend vanilla_accelerator does not compile: \S+ "
        r'says: .*a\.h.*; add "a\.h" to headers=\[\.\.\.\] of _register_driver',
    ),
    "a type that there is not": (
        VANILLA, "conv2dnchw.h", "int iw", "itn iw",
        r"error: conv2dnchw\.h:31: .* says: unknown type name .*itn.*; correct the line, then run",
    ),
    "a definition of another name": (
        VANILLA, "conv2dnchw.c", f"int {RUN}(", f"int {RUN}s(",
        rf"error: conv2dnchw\.h:29: .* declares {RUN} and no file defines it, tvmgen_model\.c:51 "
        rf"calls it; {RUN}s \(conv2dnchw\.c:\d+\) may be meant: give both one name",
    ),
    "a header of the simulator that is nowhere": (
        LANES, "simulator/machine.cc", "#include", '#include "a.h"\n#include',
        r"error: simulator/machine\.cc:\d+: the simulator of the backend lane_npu does not compile"
        r": .*add the folder of a\.h to the line include = \[\.\.\.\] of \[simulator\]",
    ),
}  # fmt: skip
"""Backend, file, a text, its replacement, and what is said."""


def exported(backend: Path, folder: Path) -> tuple[Path, Path]:
    """Compile a network for a backend: the library, and its inputs."""
    if backend is VANILLA:
        model = conv2d_model(channels=3, height=8, width=8, filters=4, kernel=3)
        data = np.ones((1, 3, 8, 8), np.float32)
    else:
        model = QuantizedNetwork(8, 8, 4).conv2d(8).model("quantized")
        data = np.zeros((1, 8, 8, 4), np.int8)
    (folder / "model.json").write_text(tvm_api.tvm.ir.save_json(model.module))
    np.savez(folder / "in.npz", data=data)
    command = ["compile", str(folder / "model.json"), "-b", str(folder / backend.name)]
    assert run_command([*command, "-o", str(folder / "out")]) == 0
    return folder / "out", folder / "in.npz"


@pytest.mark.parametrize("case", CASES)
def test_a_fault_in_c_is_named_by_file_and_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, file, old, new, wanted = CASES[case]
    folder = tmp_path / backend.name
    shutil.copytree(backend, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    library, inputs = exported(backend, tmp_path)
    capsys.readouterr()
    assert run_command(["run", str(library), "-i", str(inputs)]) == 2
    said = capsys.readouterr().err
    assert re.search(wanted, said), said


def test_a_header_that_is_not_registered_is_named_with_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / VANILLA.name
    shutil.copytree(VANILLA, folder, ignore=shutil.ignore_patterns("__pycache__"))
    driver = folder / "conv2dnchw.c"
    before = '#include "conv2dnchw.h"'
    driver.write_text(driver.read_text().replace(before, f'{before}\n#include "figures.h"'))
    (folder / "figures.h").write_text("#define FIGURES 1\n")
    exported(VANILLA, tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    wanted = (
        r"conv2dnchw\.c:11 includes figures\.h, which is not a file of a driver: write "
        r"headers=\['conv2dnchw\.h', 'figures\.h'\] in _register_driver"
    )
    assert re.search(wanted, said), said


def test_the_first_error_of_a_team_is_named_behind_those_of_others() -> None:
    messages = """\
/tmp/out/codegen/host/src/umakit/device.h:3:1: error: unknown type name 'x'
In file included from /tmp/out/codegen/host/src/npu/isa/words.h:7,
                 from /tmp/out/codegen/host/src/npu/npu.c:2:
/usr/include/stdint.h:30:1: error: expected ';'
/tmp/out/codegen/host/src/npu/npu.c:9:1: error: expected ')'
"""
    found = first_error(messages)
    assert found is not None
    assert (found[0].where, found[0].backend, found[1]) == ("isa/words.h:7", "npu", "expected ';'")
    assert first_error(messages.splitlines()[0]) is None
