# SPDX-License-Identifier: Apache-2.0
"""npz files: what NumPy writes is read, everything else is refused without allocating for it."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umakit.errors import InputError
from umakit.files.npz import npz_bytes, read_npz

GOOD = np.arange(12, dtype=np.float32).reshape(3, 4)


def npy(array: Any = GOOD, header: str = "", version: int = 1) -> bytes:
    """An array's file, with another header if one is given."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    if not header:
        return stream.getvalue()
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + GOOD.tobytes()


def described(shape: str = "(3, 4)", descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as target:
        for name, data in members.items():
            target.writestr(name, data)
    return stream.getvalue()


def claiming(size: int, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of some hundred bytes whose only member says that it has another size."""
    shape = f"({size // 4},)"
    data = bytearray(archive({"x.npy": npy(header=described(shape), version=2)}, compression))
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", min(size, 2**32 - 1))
    return bytes(data)


def patched(offset: int, value: bytes) -> bytes:
    """An archive with other bytes in the local header and in the directory of its member."""
    data = bytearray(archive({"x.npy": npy()}))
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        place = data.index(signature) + offset + shift
        data[place : place + len(value)] = value
    return bytes(data)


def twice() -> bytes:
    with pytest.warns(UserWarning, match="Duplicate"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as target:
            for _ in range(2):
                target.writestr("x.npy", npy())
    return stream.getvalue()


BAD: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no archive": lambda: b"PK\x03\x04" + bytes(100),
    "truncated": lambda: archive({"x.npy": npy()})[:120],
    "encrypted": lambda: patched(6, b"\x01\x00"),
    "unknown compression": lambda: patched(8, b"\x63\x00"),
    "another checksum": lambda: patched(14, b"\x01\x02\x03\x04"),
    "a hundred gigabytes in a shape": lambda: archive(
        {"x.npy": npy(header=described("(25_000_000_000,)"))}
    ),
    "four gigabytes in the directory": lambda: claiming(2**32 - 4),
    "a product that overflows": lambda: archive(
        {"x.npy": npy(header=described("(4294967296, 4294967296, 4)"))}
    ),
    "a negative size": lambda: archive({"x.npy": npy(header=described("(-3, -4)"))}),
    "too few values": lambda: archive({"x.npy": npy(header=described("(4, 4)"))}),
    "too many values": lambda: archive({"x.npy": npy(header=described("(2, 4)"))}),
    "deep parentheses": lambda: archive({"x.npy": npy(header="(" * 9_000)}),
    "a long header": lambda: archive({"x.npy": npy(header="(" * 200_000, version=2)}),
    "code": lambda: archive({"x.npy": npy(header=described("__import__('os').abort()"))}),
    "no header": lambda: archive({"x.npy": npy()[:9]}),
    "another version": lambda: archive({"x.npy": b"\x93NUMPY\x09\x00" + npy()[8:]}),
    "no array": lambda: archive({"x.npy": b"text"}),
    "a pickle": lambda: archive({"x.npy": b"\x80\x04N."}),
    "objects": lambda: archive({"x.npy": npy(header=described("(3, 4)", "'|O'"))}),
    "records": lambda: archive({"x.npy": npy(header=described("(6,)", "[('a', '<i8')]"))}),
    "raw bytes": lambda: archive({"x.npy": npy(header=described("(6,)", "'|V8'"))}),
    "a dtype that is none": lambda: archive({"x.npy": npy(header=described("(6,)", "'hello'"))}),
    "two of one name": twice,
}  # fmt: skip


@pytest.mark.parametrize("why", BAD)
def test_damaged_files_are_refused_in_one_sentence(why: str, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(BAD[why]())
    with pytest.raises(InputError) as caught:
        read_npz(path)
    assert "in.npz" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["C", "F", "big", "zero", "scalar", "zipped", "text"])
def test_what_numpy_writes_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    arrays = {
        "F": np.asfortranarray(GOOD), "big": GOOD.astype(">f4"), "zero": GOOD[:0],
        "scalar": np.float32(3), "text": np.array(["cat", "dog"]),
    }  # fmt: skip
    array = np.asarray(arrays.get(kind, GOOD))
    (np.savez_compressed if kind == "zipped" else np.savez)(path, **{"in/../x": array})
    (got,) = read_npz(path).values()
    assert got.dtype.isnative and got.flags.c_contiguous
    np.testing.assert_array_equal(got, array)
    assert read_npz(path).keys() == {"in/../x"}


def test_other_members_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(archive({"x.npy": npy(), "notes.txt": b"hello"}))
    assert read_npz(path).keys() == {"x"}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(npz_bytes({"file": GOOD}))
    np.testing.assert_array_equal(read_npz(path)["file"], GOOD)
