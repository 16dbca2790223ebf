# SPDX-License-Identifier: Apache-2.0
"""Constants in one binary file: what its loader accepts, and what it answers otherwise."""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from networks import Graph, onnx_runtime, save
from strict import WARNINGS

import umakit
from umakit.devices.unpacked import run_unpacked
from umakit.errors import LibraryError
from umakit.library.packages import package_library

BLOB = umakit.ExportOptions(weights="blob")
STRICT = ["-std=c99", *WARNINGS]


def network(channels: int = 4, seed: int = 0) -> onnx.ModelProto:
    """A convolution and a bias; `seed` is another training of the same network."""
    graph = Graph(seed=seed)
    x = graph.input("x", 1, 3, 9, 7)
    graph.output(graph.node("Relu", graph.conv(x, channels, 3, bias=True)))
    return graph.model()


def export(folder: Path, channels: int = 4, seed: int = 0) -> Path:
    folder.mkdir()
    model = save(network(channels, seed), folder)
    umakit.compile_model(model, [], folder / "library", name="net", options=BLOB)
    return folder / "library"


def blob_of(library: Path) -> bytes:
    return (library / "parameters" / "net.weights.bin").read_bytes()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("blob") / "net")


class Loader:
    """`tvmgen_net_open_weights`, with the blob at a chosen distance from an aligned address."""

    UNTOUCHED = 0x1234

    def __init__(self, library: Path, folder: Path) -> None:
        shared = folder / "library.so"
        sources = sorted((library / "codegen/host/src").rglob("*.c"))
        flags = ["-shared", "-fPIC", *STRICT]
        subprocess.run(["cc", *flags, *sources, "-o", shared, "-lm"], check=True)
        self._binary = ctypes.CDLL(str(shared))

    def open(self, blob: bytes, size: int | None = None, shift: int = 0) -> int:
        """The status; what was opened must be untouched unless it is 0."""
        memory = np.zeros(len(blob) + 32, np.uint8)
        start = -memory.ctypes.data % 16 + shift
        memory[start : start + len(blob)] = np.frombuffer(blob, np.uint8)
        opened = ctypes.c_void_p(self.UNTOUCHED)
        function = self._binary.tvmgen_net_open_weights
        function.restype = ctypes.c_int32
        address = memory.ctypes.data + start
        status = int(
            function(
                ctypes.c_void_p(address),
                ctypes.c_size_t(len(blob) if size is None else size),
                ctypes.byref(opened),
            )
        )
        assert opened.value == (address + 64 if status == 0 else self.UNTOUCHED)
        return status

    def text(self, status: int) -> str:
        function = self._binary.tvmgen_net_status_string
        function.restype = ctypes.c_char_p
        return str(function(ctypes.c_int32(status)).decode())


@pytest.fixture(scope="module")
def loader(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return Loader(library, tmp_path_factory.mktemp("loader"))


def with_header(blob: bytes, **changed: object) -> bytes:
    """The blob with another header whose checksum is right."""
    names = ("magic", "version", "header_size", "size", "checksum", "identity")
    values = dict(zip(names, struct.unpack("<8sIIII16s20x", blob[:60]), strict=True)) | changed
    header = struct.pack("<8sIIII16s20x", *(values[name] for name in names))
    return header + struct.pack("<I", zlib.crc32(header)) + blob[64:]


def flipped(blob: bytes, bit: int) -> bytes:
    data = bytearray(blob)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def test_a_good_blob_is_opened_and_gives_the_right_result(library: Path, loader: Loader) -> None:
    assert loader.open(blob_of(library)) == 0
    inputs = {"x": np.random.default_rng(1).normal(size=(1, 3, 9, 7)).astype("float32")}
    (expected,) = onnx_runtime(network(), inputs).values()
    (got,) = run_unpacked(library, inputs).values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    (got,) = umakit.run_library(library, inputs).outputs.values()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


BAD: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "empty": (lambda blob: b"", -3, "the weights are no umakit blob"),
    "seven bytes": (lambda blob: blob[:7], -3, "the weights are no umakit blob"),
    "another file": (lambda blob: b"\x7fELF" + blob[4:], -3, "the weights are no umakit blob"),
    "only the magic": (lambda blob: blob[:8], -4, "the weights blob is truncated"),
    "half a header": (lambda blob: blob[:63], -4, "the weights blob is truncated"),
    "no data": (lambda blob: blob[:64], -4, "the weights blob is truncated"),
    "a byte short": (lambda blob: blob[:-1], -4, "the weights blob is truncated"),
    "version": (lambda b: with_header(b, version=2), -5, "the weights blob has another version"),
    "header size": (lambda b: with_header(b, header_size=68), -5, "has another version"),
    "data size": (lambda b: with_header(b, size=4), -6, "belongs to another model"),
    "identity": (lambda b: with_header(b, identity=bytes(16)), -6, "belongs to another model"),
    "data bit": (lambda b: flipped(b, 8 * len(b) - 3), -7, "the weights blob is damaged"),
    "checksum": (lambda b: with_header(b, checksum=7), -7, "the weights blob is damaged"),
}


@pytest.mark.parametrize("why", BAD)
def test_a_bad_blob_is_answered_by_a_status(why: str, library: Path, loader: Loader) -> None:
    change, status, text = BAD[why]
    assert loader.open(change(blob_of(library))) == status
    assert text in loader.text(status)


def test_no_flipped_bit_goes_unseen(library: Path, loader: Loader) -> None:
    blob = blob_of(library)
    bits = {*range(0, 64 * 8), *range(64 * 8, 8 * len(blob), 97)}
    assert not [bit for bit in bits if loader.open(flipped(blob, bit)) == 0]


def test_a_misaligned_or_missing_blob_is_an_invalid_argument(library: Path, loader: Loader) -> None:
    assert loader.open(blob_of(library), shift=4) == -1
    function = loader._binary.tvmgen_net_open_weights
    assert function(None, ctypes.c_size_t(4096), ctypes.byref(ctypes.c_void_p())) == -1
    assert loader.open(blob_of(library), shift=0) == 0


def test_the_blob_of_another_network_is_refused(loader: Loader, tmp_path: Path) -> None:
    assert loader.open(blob_of(export(tmp_path / "other", channels=5))) == -6


def test_another_training_of_the_same_network_is_welcome(loader: Loader, tmp_path: Path) -> None:
    """New weights reach a device without new code."""
    other = export(tmp_path / "retrained", seed=1)
    assert loader.open(blob_of(other)) == 0


def test_weights_are_in_no_c_file_and_exports_are_reproducible(
    library: Path, tmp_path: Path
) -> None:
    assert not list(library.glob("codegen/host/src/*constants*"))
    again = export(tmp_path / "again")
    assert blob_of(again) == blob_of(library)
    assert json.loads((again / "metadata.json").read_text(encoding="utf-8")) == json.loads(
        (library / "metadata.json").read_text(encoding="utf-8")
    )


def test_running_without_opened_weights_is_an_invalid_argument(
    library: Path, tmp_path: Path
) -> None:
    (tmp_path / "main.c").write_text(
        """
        #include "tvmgen_net.h"
        #include <stdio.h>
        int main(void)
        {
            static float x[TVMGEN_NET_X_ELEMENTS], y[TVMGEN_NET_OUTPUT_ELEMENTS];
            static const struct tvmgen_net_weights closed = {0};
            struct tvmgen_net_inputs inputs;
            struct tvmgen_net_outputs outputs;
            inputs.x = x;
            outputs.output = y;
            printf("%d %d\\n", (int)tvmgen_net_run(&inputs, &outputs, NULL),
                (int)tvmgen_net_run(&inputs, &outputs, &closed));
            return 0;
        }
        """.replace("output = y", f"{output_name(library)} = y").replace(
            "NET_OUTPUT", f"NET_{output_name(library).upper()}"
        ),
        encoding="utf-8",
    )
    program = tmp_path / "program"
    sources = sorted((library / "codegen/host/src").rglob("*.c"))
    include = f"-I{library / 'codegen/host/include'}"
    command = ["cc", *STRICT, include, tmp_path / "main.c", *sources, "-lm", "-o", program]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert printed == "-1 -1\n"


def output_name(library: Path) -> str:
    metadata = json.loads((library / "metadata.json").read_text(encoding="utf-8"))
    return str(metadata["umakit"]["outputs"][0]["c_name"])


def test_an_unknown_form_of_weights_is_refused() -> None:
    from umakit.library.options import parse_weights

    with pytest.raises(LibraryError, match="weights cannot be written as 'floppy'"):
        parse_weights("floppy")


def test_an_arduino_library_has_no_place_for_a_blob(library: Path, tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="compile with --weights c"):
        package_library(library, "arduino", tmp_path / "net")
    assert not list(tmp_path.iterdir())


def test_a_tar_file_brings_its_blob(library: Path, tmp_path: Path) -> None:
    packed = package_library(library, "tar", tmp_path / "net.tar")
    inputs = {"x": np.ones((1, 3, 9, 7), np.float32)}
    (expected,) = umakit.run_library(library, inputs).outputs.values()
    for run in (umakit.run_library(packed, inputs).outputs, run_unpacked(packed, inputs)):
        np.testing.assert_array_equal(next(iter(run.values())), expected)
