# SPDX-License-Identifier: Apache-2.0
"""Addresses of buffers that are multiples of as many bytes as a register map says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from umakit.cli.main import run_command

from umakit.backend import load_backend_folder
from umakit.errors import BackendError, LibraryError, RegisterMapError
from umakit.library.metadata import load_metadata
from umakit.library.options import ExportOptions
from umakit.memory.pools import memory_pools
from umakit.pipeline import compile_model
from umakit.registration.buffer_alignment import check_buffer_alignment
from umakit.testing import check_backend
from umakit.tools.scaffold import new_backend

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
INT8, HELD_OUT = DIGITS / "digits_int8.onnx", DIGITS / "held_out.npz"
ADDRESS = re.compile(r'^operand = "\$(data|weights|bias|result)"$', re.MULTILINE)


def with_multiples(text: str, step: int) -> str:
    """A register map whose addresses of buffers are multiples."""
    changed, count = ADDRESS.subn(rf"\g<0>\nmultiple_of = {step}", text)
    assert count == 4
    return changed


@pytest.fixture(scope="module")
def map_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = new_backend("engine", tmp_path_factory.mktemp("map"), kind="layer").folder
    return (folder / "registers.toml").read_text(encoding="utf-8")


def project(place: Path, text: str, step: int) -> Path:
    """A new project with such a map."""
    registers = with_multiples(text, step)
    return new_backend("engine", place, kind="layer", registers=registers).folder


@pytest.mark.parametrize("step", [64, 4])
def test_layers_and_libraries_honour_the_alignment_of_a_map(
    step: int, map_text: str, tmp_path: Path
) -> None:
    folder = project(tmp_path, map_text, step)
    assert f".map_alignment = {step}u," in (folder / "simulator/engine_simulator.c").read_text()
    report = check_backend(load_backend_folder(folder), draws=4, operators=["qconv2d"])
    assert not report.failures and report.operators["qconv2d"].ran > 0
    # The simulator ends a run with a buffer elsewhere, so a run says that none is.
    library, results = tmp_path / "library", tmp_path / "results.npz"
    words = ["compile", str(INT8), "-b", str(folder), "--rounding", "tflm", "-o", str(library)]
    assert run_command([*words, "--require-offload"]) == 0
    assert run_command(["run", str(library), "-i", str(HELD_OUT), "-o", str(results)]) == 0
    alone = tmp_path / "alone"
    assert run_command(["compile", str(INT8), "--rounding", "tflm", "-o", str(alone)]) == 0
    expected = tmp_path / "expected.npz"
    assert run_command(["run", str(alone), "-i", str(HELD_OUT), "-o", str(expected)]) == 0
    np.testing.assert_array_equal(np.load(results)["logits"], np.load(expected)["logits"])
    for pool in load_metadata(library)["umakit"]["memory"]["pools"]:
        assert pool["alignment_bytes"] % step == 0
        assert all(each["offset_bytes"] % step == 0 for each in pool["tensors"])


def test_a_map_that_asks_for_more_than_accel_toml_says_is_refused_with_what_to_write(
    map_text: str, tmp_path: Path
) -> None:
    folder = project(tmp_path, map_text, 64)
    file = folder / "accel.toml"
    text = re.sub(r"\[dma\]\nalignment = 64.*\n", "", file.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RegisterMapError, match="DATA_ADDRESS is an address") as caught:
        check_backend(load_backend_folder(folder), draws=4)
    found = re.search(r"write (.*) into the section (\[dma\]) of", caught.value.fix)
    assert found is not None
    file.write_text(f"{text}\n{found[2]}\n{found[1]}\n", encoding="utf-8")
    report = check_backend(load_backend_folder(folder), draws=4)
    assert not report.failures and report.operators["qdense"].ran > 0


STATED = [
    "256u", "1u << 8", "MAP_STEP", "(uint32_t)(MAP_STEP / 2u) * 2u", "BEATS * 8", "4 * LINE",
    "(1u << 7) + (BEATS << 2) /* twice */", "MACS_PER_CYCLE",
]  # fmt: skip


@pytest.mark.parametrize("stated", STATED)
def test_a_simulator_that_asks_for_more_is_refused_before_it_runs(
    stated: str, tmp_path: Path
) -> None:
    folder = new_backend("engine", tmp_path, kind="layer").folder
    source = folder / "simulator" / "engine_simulator.c"
    text = source.read_text(encoding="utf-8")
    text = text.replace(".create = create,", f".map_alignment = {stated},\n.create = create,")
    names = "#define MAP_STEP 256u\n#define BEATS (HALF * 2) // of a burst\n#define HALF 16u\n"
    names += "enum { LINE_WORDS = 16 };\nenum {\n    WORD = 4,\n    LINE = 16 * WORD,\n};\n"
    source.write_text(names + text, encoding="utf-8")

    def compiled(name: str) -> int:
        words = ["compile", str(INT8), "-b", str(folder), "--rounding", "tflm"]
        return run_command([*words, "-o", str(tmp_path / name)])

    backend = load_backend_folder(folder)
    with pytest.raises(
        BackendError, match=r"engine_simulator\.c:\d+: map_alignment is 256"
    ) as caught:
        compile_model(INT8, [backend], tmp_path / "refused", rounding="tflm")
    number = int(re.search(r"\.c:(\d+)", caught.value.where)[1])  # type: ignore[index]
    assert stated in source.read_text(encoding="utf-8").splitlines()[number - 1]
    found = re.search(r"write (.*) into the section (\[dma\]) of", caught.value.fix)
    assert found is not None and not (tmp_path / "refused").exists()
    with (folder / "accel.toml").open("a", encoding="utf-8") as stream:
        stream.write(f"\n{found[2]}\n{found[1]}\n")
    assert compiled("mended") == 0
    assert run_command(["run", str(tmp_path / "mended"), "-i", str(HELD_OUT)]) == 0


@pytest.mark.parametrize(
    "stated", ["umakit_step()", "TWICE", "-1", "1u << 99", "AGAIN", "4 / ZERO"]
)
def test_what_is_not_known_is_left_to_the_run(stated: str, tmp_path: Path) -> None:
    folder = new_backend("engine", tmp_path, kind="layer").folder
    source = folder / "simulator" / "engine_simulator.c"
    text = source.read_text(encoding="utf-8")
    names = "#ifdef WIDE\n#define TWICE 8192\n#else\n#define TWICE 4096\n#endif\n"
    names += "#define AGAIN (AGAIN + 1)\n#define ZERO 0\n"
    text = text.replace(".create = create,", f".map_alignment = {stated},\n.create = create,")
    source.write_text(names + text, encoding="utf-8")
    check_buffer_alignment(load_backend_folder(folder))


def test_a_design_that_asks_for_more_is_refused_before_it_runs(tmp_path: Path) -> None:
    folder = new_backend("engine", tmp_path, tutorial="small_chocolate").folder
    file = folder / "accel.toml"
    text, line = file.read_text(encoding="utf-8"), "alignment = 256"
    text += "" if "[rtl.memory]" in text else "\n[rtl.memory]\n"
    text = text.replace("[rtl.memory]\n", f"[rtl.memory]\n{line}\n")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BackendError, match="256, but buffers begin at multiples of") as caught:
        check_buffer_alignment(load_backend_folder(folder))
    assert caught.value.what.startswith("alignment of [rtl.memory] is")
    number = 1 + text.splitlines().index(line)
    assert caught.value.where.endswith(f"accel.toml:{number}")
    found = re.search(r"write (.*) into the section (\[dma\]) of", caught.value.fix)
    assert found is not None
    text = re.sub(r"(\[dma\]\n)((?:.*\n)*?)alignment = .*\n", r"\1\2", text)
    file.write_text(text.replace("[dma]\n", f"[dma]\n{found[1]}\n"), encoding="utf-8")
    check_buffer_alignment(load_backend_folder(folder))


def test_no_address_is_a_multiple_of_something_odd(map_text: str, tmp_path: Path) -> None:
    with pytest.raises(RegisterMapError, match="DATA_ADDRESS: multiple_of of a buffer is 12"):
        project(tmp_path, map_text, 12)


def test_a_blob_is_refused_whose_constants_could_not_be_read(map_text: str, tmp_path: Path) -> None:
    backend = load_backend_folder(project(tmp_path, map_text, 64))
    assert [pool.alignment for pool in memory_pools([backend])] == [64]
    with pytest.raises(LibraryError, match="multiples of 16 bytes, and an accelerator reads"):
        compile_model(
            INT8,
            [backend],
            tmp_path / "out",
            rounding="tflm",
            options=ExportOptions(weights="blob"),
        )
    assert not (tmp_path / "out").exists()
