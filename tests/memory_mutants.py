# SPDX-License-Identifier: Apache-2.0
"""Backends with one number about memory that is wrong, and what becomes of each.

The numbers are found in the files: those of every key of `accel.toml` that is about memory
(`MEMORY_KEYS`), layouts of weights, bytes of copies, alignments of simulators and register maps.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from umakit import compile_model, run_library
from umakit.backend import load_backend_folder
from umakit.errors import UmakitError
from umakit.testing import AOTModel
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.scaffold import new_backend

ROOT = Path(__file__).parents[1]
FILE = "accel.toml"
SECTION = re.compile(r"\[+([\w.]+)\]+\s*(#.*)?$")
LIMIT = re.compile(r"[:;] write |; let it|; correct its|leave out|Input should be|less than")
"""What says what a number has to be, without a sentence of advice."""

PLACE = re.compile(r"\.(toml|py|c|cc|h):\d+")

MEMORY_KEYS: dict[str, tuple[str, ...]] = {
    "array": ("accumulator_bytes",),
    "dma": ("bytes_per_cycle", "burst_bytes", "alignment"),
    "memory": ("size", "alignment", "banks", "row_bytes"),
    "machine": (
        "bytes_per_cycle", "units", "limits", "block_channels", "sum_bytes", "footprints",
        "figures",
    ),
}  # fmt: skip
"""Keys of `accel.toml` that are about memory, by section."""

OTHER_KEYS: dict[str, tuple[str, ...]] = {
    "array": (
        "rows", "columns", "drain_cycles", "pooling_lanes", "preload_rows", "setup_cycles",
    ),
    "dma": ("latency_cycles", "setup_cycles"),
    "memory": (),
    "machine": ("macs_per_cycle",),
}  # fmt: skip
"""Keys with a number that is about time or the array."""


TIMES = (
    "pipeline", "entries", "latency", "latency0", "latency1", "outstanding0", "outstanding1",
    "dma_channels",
)  # fmt: skip
"""Figures of the examples that are about time, or about queues."""


@dataclass(frozen=True)
class Mutant:
    """A text of a file of a backend in the place of another one.

    Attributes:
        project: of `PROJECTS`.
        file: of the project.
        old, new: the texts.
        at: where the old one begins.
        name: for messages.
    """

    project: str
    file: str
    old: str
    new: str
    at: int
    name: str

    def apply(self, folder: Path) -> None:
        """Write it into a copy of the project."""
        path = folder / self.file
        text = path.read_text(encoding="utf-8")
        assert text[self.at :].startswith(self.old), self.name
        changed = text[: self.at] + self.new + text[self.at + len(self.old) :]
        path.write_text(changed, encoding="utf-8")


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: `refused`, `equal` or what is not allowed, and a text."""

    kind: str
    text: str


def numbers(text: str) -> Iterator[tuple[str, int, int]]:
    """Key, place and value of the numbers about memory in an `accel.toml`."""
    section, begin = "", 0
    for line in text.splitlines(keepends=True):
        if found := SECTION.match(line):
            section = found[1]
        code = line.partition("#")[0]
        key = code.partition("=")[0].strip()
        first, _, second = section.partition(".")
        is_time = first == "machine" and key in TIMES
        if (second or key) in MEMORY_KEYS.get(first, ()) and "=" in code and not is_time:
            for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", code):
                yield f"{section}.{key}", begin + match.start(), int(match[0])
        begin += len(line)


def wrong(number: int) -> list[int]:
    """Smaller, larger, off by one, no power of two, zero."""
    tried = (0, number // 2, number - 1, number + 1, 2 * number, 3 * number)
    return [each for each in dict.fromkeys(tried) if each not in (number, -1)]


def edited(folder: Path, *pairs: tuple[str, str]) -> Path:
    """A project with other numbers: memories so small that layers are cut."""
    path = folder / FILE
    text = path.read_text(encoding="utf-8")
    for old, new in pairs:
        assert old in text, (path, old)
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return folder


def _lane(folder: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "lane_npu", folder / "lane_npu")
    return folder / "lane_npu"


SMALL_LANE = (
    ("size = 65536", "size = 8192"), ("alignment = 4096", "alignment = 512"),
    ("sums = 32768", "sums = 4096"),
)  # fmt: skip
SMALL_TILES = (("size = 131072", "size = 8192"), ("sums = 32768", "sums = 4096"))
SMALL_CHOCOLATE = (
    ("size = 131072", "size = 8192"), ("alignment = 4096", "alignment = 256"),
    ("accumulator_bytes = 32768", "accumulator_bytes = 2048"),
)  # fmt: skip

PROJECTS = ("strawberry", "chocolate", "small_chocolate", "tiles", "layer", "lane")


def project(name: str, folder: Path) -> Path:
    """A new folder with a backend."""
    if name == "lane":
        return edited(_lane(folder), *SMALL_LANE)
    if name in ("tiles", "layer"):
        made = new_backend("npu", folder, kind=name).folder
        return edited(made, *SMALL_TILES) if name == "tiles" else made
    made = new_backend("npu", folder, name).folder
    return edited(made, *SMALL_CHOCOLATE) if name == "chocolate" else made


LAYOUTS = {
    "lane": [
        ("patterns.py", 'f"O/{lanes} HWI {lanes}o"'), ("patterns.py", 'f"O/{lanes} I {lanes}o"'),
    ],
    "tiles": [
        ("backend.py", 'f"O/{columns} HWI {columns}o"'),
        ("backend.py", 'f"O/{columns} I {columns}o"'),
        ("backend.py", '"HWIO"'),
    ],
    "chocolate": [
        ("patterns.py", 'f"O/{columns} HWI {columns}o"'),
        ("patterns.py", 'f"O/{columns} I {columns}o"'),
    ],
}  # fmt: skip
"""Layouts of weights in the Python of backends whose weights are cut into tiles."""

OTHER_LAYOUTS = {
    "HWIO": ('"OHWI"', '"IHWO"', '"O/8 HWI 8o"', '"HWO/8 I 8o"'),
    "HWI": (
        '"OHWI"', '"O/8 HWI 8o"', '"O/15 HWI 15o"', '"O/64 HWI 64o"', '"HWIO"',
        '"O/16 HW I/16 16i 16o"', '"O/32 HW I/32 32i 32o"',
    ),
    "I ": ('"OI"', '"IO"', '"O/8 I 8o"', '"O/15 I 15o"', '"O/64 I 64o"', '"O/16 I/16 16i 16o"'),
}  # fmt: skip
"""Layouts with other blocks, or another order than tiles are cut in. The order inside of a block,
where tiles have whole ones, is the accelerator's: `uma check` compares it."""

FOOTPRINTS = (
    'parameters = "9 * channels - 1"', 'parameters = "16"', 'parameters = "0"',
    'parameters = "4096"', 'weights = "k * n - 1"', 'weights = "1"', 'weights = "2 * k * (n + 32)"',
    'data = "input_rows * input_columns * input_channels - 1"', 'data = "1"',
    'result = "m * n - 1"', 'result = "0"', 'result = "4 * m * (n + 32)"', 'sums = "3 * m * n"',
    'sums = "4 * m * n - 1"', 'sums = "8 * m * n"', 'sums = "0"',
)  # fmt: skip

COPIES = (
    "tir.pointer(place), tir.buffer_bytes(tensor)",
    "tir.pointer(result), tir.buffer_bytes(result)",
)


def mutants(name: str, folder: Path) -> list[Mutant]:
    """All mutants of a project, which lies in a folder."""
    text = (folder / FILE).read_text(encoding="utf-8")
    found = [
        Mutant(name, FILE, str(number), str(each), at, f"{key} = {each} instead of {number}")
        for key, at, number in numbers(text)
        for each in wrong(number)
    ]

    def add(file: str, old: str, new: str) -> None:
        at = (folder / file).read_text(encoding="utf-8").index(old)
        found.append(Mutant(name, file, old, new, at, f"{file}: {new.strip()}"))

    for file, old in LAYOUTS.get(name, []):
        kind = next(kind for kind in OTHER_LAYOUTS if kind in old)
        for layout in OTHER_LAYOUTS[kind]:
            add(file, old, layout)
    if name in ("tiles", "lane"):
        file, old = LAYOUTS[name][0][0], "common: dict[str, Any] = {"
        for other in ('"shift_dtype": "int32", ', '"multiplier_dtype": "int16", '):
            add(file, old, f"{old}{other}")
        for formula in FOOTPRINTS:
            key = formula.split(" ")[0]
            if old_line := re.search(rf'(?m)^{key} = ".*"$|{key} = "[^"]*"', text):
                add(FILE, old_line[0], formula)
            elif name == "tiles":
                add(FILE, "footprints = { ", f"footprints = {{ {formula}, ")
            else:
                add(FILE, "[machine.footprints]\n", f"[machine.footprints]\n{formula}\n")
    if name == "strawberry":
        for old in COPIES:
            for change in (" - 1", " + 1", " // 2", " * 2", " * 0 + 1"):
                add("passes.py", old, f"{old}{change}")
    simulator = next(iter(sorted(folder.glob("simulator/*_simulator.c*"))), None)
    if simulator is not None:
        file, is_c = str(simulator.relative_to(folder)), simulator.suffix == ".c"
        old = ".create = create," if is_c else "functions.create = create;"
        for step in ("1u", "2u", "3", "4u", "5", "0x40u", "1u << 6", "256u", "4096", "8192"):
            line = f".map_alignment = {step}," if is_c else f"functions.map_alignment = {step};"
            add(file, old, f"{line} {old}")
    if (folder / "registers.toml").is_file():
        for step in (2, 3, 4, 64, 256, 8192):
            for tensor in ("data", "result"):
                old = f'operand = "${tensor}"'
                add("registers.toml", old, f"{old}\nmultiple_of = {step}")
    return found


@cache
def network() -> AOTModel:
    """A convolution of few channels, a depthwise one, one that needs parts, a dense layer."""
    layers = QuantizedNetwork(12, 12, 3).conv2d(40, 3).conv2d(40, 3, depthwise=True)
    return layers.conv2d(20, 1).dense(12).model()


class Trial:
    """Compiles and runs mutants; libraries that were run are known by their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._known: dict[str, Outcome] = {}
        plain = compile_model(network().module, [], folder / "cpu", name="net")
        self.expected = run_library(plain.path, dict(network().inputs)).outputs

    def outcome(self, source: Path, mutant: Mutant | None) -> Outcome:
        """What becomes of a copy of a project."""
        place = self.folder / str(next(self._numbers))
        copy = place / source.name
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            mutant.apply(copy)
        try:
            backend = load_backend_folder(copy)
            library = compile_model(network().module, [backend], place / "library", name="net")
        except UmakitError as error:
            text = str(error)
            says = PLACE.search(text) is not None and (error.fix or LIMIT.search(text))
            return Outcome("refused" if says else "refused without a place or advice", text)
        digest = self._digest(library.path)
        if digest not in self._known:
            self._known[digest] = self._run(library.path)
        shutil.rmtree(place)
        return self._known[digest]

    def _run(self, library: Path) -> Outcome:
        try:
            found = run_library(library, dict(network().inputs)).outputs
        except UmakitError as error:
            return Outcome("stopped in the run", str(error))
        return Outcome(*self._compared(found))

    def _compared(self, found: dict[str, npt.NDArray[np.int8]]) -> tuple[str, str]:
        for name, values in self.expected.items():
            if not np.array_equal(found[name], values):
                return "wrong bytes", f"{np.count_nonzero(found[name] != values)} elements"
        return "equal", ""

    @staticmethod
    def _digest(library: Path) -> str:
        found = hashlib.sha256()
        for path in sorted(library.rglob("*")):
            if path.is_file() and path.suffix not in (".json", ".md") and path.name != "SHA256SUMS":
                found.update(path.read_bytes())
        return found.hexdigest()
