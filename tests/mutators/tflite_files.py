# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files: changed bytes, fields of flatbuffer tables, and lists of the graph."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from test_tflite_random_networks import STEPS, Network
from tflite_networks import micro_interpreter

from mutators.base import EXTREMES, REALS, mutate_bytes
from mutators.models import Arrays, compare_network, read_network

# Tables of TensorFlow Lite's schema: what each field holds, by its place in the table.
SCHEMA: dict[str, dict[int, str]] = {
    "Model": {4: "I", 6: "[OperatorCode", 8: "[SubGraph", 12: "[Buffer"},
    "OperatorCode": {4: "b", 8: "i", 10: "i"},
    "SubGraph": {4: "[Tensor", 6: "[i", 8: "[i", 10: "[Operator"},
    "Tensor": {4: "[i", 6: "b", 8: "I", 12: "Quantization", 14: "B", 18: "[i"},
    "Quantization": {8: "[f", 10: "[q", 16: "i"},
    "Operator": {4: "I", 6: "[i", 8: "[i", 10: "B", 12: "Options"},
    "Options": dict.fromkeys(range(4, 30, 2), "i"),
    "Buffer": {4: "[B", 6: "Q", 8: "Q"},
}


class TfliteFiles:
    name = "tflite"
    suffix = ".tflite"

    def prepare(self, folder: Path) -> None:
        self._files: list[bytes] = []
        names = sorted(STEPS)
        for seed in range(6):
            net = Network(seed)
            for step in Random(seed).sample(names, 6):
                STEPS[step](net, net.values[-1])
            last = net.values[-1]
            y = net.value(last.shape, last.scale * 1.05, 1, "y")
            net.add("QUANTIZE", [last.number], y, "QuantizeOptions")
            self._files.append(net.file.finish([net.first.number], [y.number]))

    def healthy(self) -> list[bytes]:
        """Files to start from."""
        return self._files

    def mutate(self, chance: Random) -> bytes:
        data = chance.choice(self._files)
        if chance.random() < 0.3:
            return mutate_bytes(chance, data, 8 if chance.random() < 0.9 else 0)
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            _change(chance, changed)
        return bytes(changed)

    def read(self, path: Path, thorough: bool) -> None:
        read_network(path, thorough)

    def compare(self, path: Path) -> str:
        return compare_network(path, _micro, 1e-4, 0)


def _micro(path: Path, arrays: Arrays, model: Any) -> Arrays:
    """Outputs of TensorFlow Lite Micro, called from Python."""
    interpreter = micro_interpreter(path.read_bytes())
    for position, item in enumerate(model.inputs):
        interpreter.set_input(arrays[item.name], position)
    interpreter.invoke()
    results = [np.array(interpreter.get_output(i)) for i in range(len(model.outputs))]
    return dict(zip((item.name for item in model.outputs), results, strict=True))


def _change(chance: Random, data: bytearray) -> None:
    """Change a field of a table, an element or the length of a list, or leave a field out."""
    try:
        known = list(_fields(data, _offset(data, 0), "Model", 0))
        size, place, kind = chance.choice(known)
        if kind == "field":  # of a table's directory: 0 says that the table lacks it
            data[place : place + 2] = struct.pack("<H", chance.choice((0, 0, 0, 4, 8)))
        elif kind == "length":
            old = struct.unpack_from("<I", data, place)[0]
            new = chance.choice((0, max(old - 1, 0), old + 1, 2 * old, 2**31 - 1))
            data[place : place + 4] = struct.pack("<I", new)
        elif kind == "offset":
            others = [p for s, p, k in known if k == "offset"]
            target = (lambda p: p + _u32(data, p))(chance.choice(others))
            data[place : place + 4] = struct.pack("<I", max(target - place, 0))
        else:
            _write(chance, data, place, kind, size)
    except (struct.error, IndexError):
        data[8:12] = b"\xff" * 4


def _write(chance: Random, data: bytearray, place: int, kind: str, size: int) -> None:
    old = struct.unpack_from(f"<{kind}", data, place)[0]
    if kind == "f":
        value: Any = chance.choice((*REALS, old * 2, -old))
        data[place : place + 4] = struct.pack("<f", value)
        return
    value = chance.choice((old + 1, old - 1, -old, *range(-2, 6), *EXTREMES))
    data[place : place + size] = (int(value) % 2 ** (8 * size)).to_bytes(size, "little")


def _u32(data: bytearray, place: int) -> int:
    return int(struct.unpack_from("<I", data, place)[0])


def _offset(data: bytearray, place: int) -> int:
    return place + _u32(data, place)


def _fields(data: bytearray, table: int, kind: str, depth: int) -> Any:
    """(size, place, kind) of all fields below a table."""
    directory = table - struct.unpack_from("<i", data, table)[0]
    entries = struct.unpack_from("<H", data, directory)[0]
    if depth > 6 or directory < 0:
        return
    for position, inner in SCHEMA[kind].items():
        if position >= entries:
            continue
        shift = struct.unpack_from("<H", data, directory + position)[0]
        if not shift:
            continue
        yield 2, directory + position, "field"
        place = table + shift
        if len(inner) == 1:
            if inner != "i" or kind != "Options" or place % 4 == 0:
                yield struct.calcsize(inner), place, inner
            continue
        yield 4, place, "offset"
        target = _offset(data, place)
        if not inner.startswith("["):
            yield from _fields(data, target, inner, depth + 1)
            continue
        count, item = _u32(data, target), inner[1:]
        yield 4, target, "length"
        for number in range(min(count, 200)):
            if item in SCHEMA:
                at = target + 4 + 4 * number
                yield 4, at, "offset"
                yield from _fields(data, _offset(data, at), item, depth + 1)
            elif number < 8:
                width = struct.calcsize(item)
                yield width, target + 4 + width * number, item
