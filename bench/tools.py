# SPDX-License-Identifier: Apache-2.0
"""Network compilers that write C, called the same way: umakit and the ones it is compared with.

Each leaves C files in a folder and says which function runs the network. None of the others' code
is part of this repository: emx-onnx-cgen comes from PyPI (extra `bench`), onnx2c is the program on
PATH or in $ONNX2C.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import umakit
from umakit.library.export import Library
from umakit.tools.size.call_graph import CALL_GRAPH_FLAG, CallGraph, Stack, worst_case_stack
from umakit.tools.size.object_file import read_object


class NotAvailable(Exception):
    """A tool is not installed, or cannot compile a network."""


@dataclass(frozen=True)
class Generated:
    """C code of one network.

    Attributes:
        sources: the C files.
        entry: the function that runs the network: input, output, and the arena if there is one.
        arena: bytes that the caller brings.
    """

    sources: list[Path]
    entry: str
    arena: int = 0


@dataclass(frozen=True)
class Needs:
    """Bytes of one network on one device.

    Attributes:
        code: machine code.
        constants: read-only data.
        static: variables and the arena.
        stack: worst case without libc, None if it has no bound.
    """

    code: int
    constants: int
    static: int
    stack: int | None

    @property
    def ram(self) -> int | None:
        """All memory that is written to."""
        return None if self.stack is None else self.static + self.stack


def with_umakit(model: Path, folder: Path) -> Generated:
    """This compiler, everything on the CPU."""
    return generated_of(umakit.compile_model(model, [], folder / "library", name="net"))


def generated_of(library: Library) -> Generated:
    """The C code of a library that umakit wrote, whose name is `net`."""
    return generated_in(library.path, library.metadata)


def generated_in(folder: Path, metadata: Mapping[str, Any]) -> Generated:
    """The C code of a library in a folder, whose name is `net`."""
    sources = sorted((folder / "codegen/host/src").rglob("*.c"))
    # A caller with a workspace of its own leaves the static one out.
    sources = [path for path in sources if not path.stem.endswith("_workspace")]
    arena = int(metadata["umakit"]["memory"]["arena_bytes"])
    return Generated(sources, "tvmgen_net_run_unpacked", arena)


def with_emx(model: Path, folder: Path) -> Generated:
    """emx-onnx-cgen; temporaries on the stack, its other choice is the heap."""
    program = Path(sys.executable).parent / "emx-onnx-cgen"
    if not program.exists():
        raise NotAvailable("not installed (pip install '.[bench]')")
    arguments = ["--large-weight-threshold", "0", "--large-temp-threshold", "0"]
    _run([str(program), "compile", *arguments, "--model-name", "net", str(model), "net.c"], folder)
    return Generated([folder / "net.c"], "net")


def with_onnx2c(model: Path, folder: Path) -> Generated:
    """onnx2c, as it comes."""
    program = os.environ.get("ONNX2C") or shutil.which("onnx2c")
    if not program:
        raise NotAvailable("not installed (set ONNX2C or put onnx2c on PATH)")
    text = _run([program, "-f", "net", str(model)], folder)
    (folder / "net.c").write_text(text, encoding="utf-8")
    return Generated([folder / "net.c"], "net")


TOOLS: dict[str, Callable[[Path, Path], Generated]] = {
    "umakit": with_umakit,
    "emx-onnx-cgen": with_emx,
    "onnx2c": with_onnx2c,
}


def _run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise NotAvailable(f"{Path(command[0]).name} failed: {lines[-1][:100]}")
    return result.stdout


def measure(generated: Generated, compiler: list[str], folder: Path) -> Needs:
    """Compile for size and count, the same for every tool."""
    folder.mkdir(parents=True, exist_ok=True)
    code, constants, static, zone = 0, 0, generated.arena, 0
    graph = CallGraph()
    for source in generated.sources:
        target = folder / f"{source.stem}.o"
        flags = ["-std=c99", "-Os", "-ffunction-sections", CALL_GRAPH_FLAG, "-w"]
        _run([*compiler, *flags, "-c", str(source), "-o", str(target)], folder)
        item = read_object(target)
        graph.add(target.with_suffix(".ci").read_text(encoding="utf-8"), source.stem)
        code += item.text_bytes
        constants += item.read_only_bytes
        static += sum(s.size for s in item.sections.values() if s.is_writable)
        zone = 128 if item.machine == "EM_X86_64" else 0
    stack: Stack = worst_case_stack(graph, generated.entry, zone)
    return Needs(code, constants, static, stack.size)


Array = npt.NDArray[Any]
Runner = Callable[..., Array]
"""From the input, the output's number of elements, and perhaps the output, to the output."""


def runner(generated: Generated, folder: Path, flags: list[str], dtype: str = "float32") -> Runner:
    """A function that runs the network on this machine.

    Args:
        generated: the network.
        folder: where to build it.
        flags: of the compiler.
        dtype: of the output.

    Returns:
        A function from the input and the output's number of elements to the output.
    """
    library = folder / f"network{''.join(flags)}.so"
    _run(shared_library_command(generated, library, flags), folder)
    return loaded(generated, library, dtype)


def shared_library_command(generated: Generated, library: Path, flags: list[str]) -> list[str]:
    """The command that builds a network for this machine, with gcc."""
    options = ["-std=c99", "-w", "-shared", "-fPIC", *flags]
    return ["gcc", *options, *map(str, generated.sources), "-o", str(library), "-lm"]


def loaded(generated: Generated, library: Path, dtype: str = "float32") -> Runner:
    """A function that runs a network that was built, as that of `runner`."""
    entry = getattr(ctypes.CDLL(str(library)), generated.entry)
    entry.restype = None
    arena = np.zeros(generated.arena + 64, dtype="uint8")
    aligned = arena[-arena.ctypes.data % 64 :]

    def run(values: Array, size: int, result: Array | None = None) -> Array:
        if result is None:
            result = np.full(size, np.nan if dtype.startswith("float") else 0, dtype)
        pointers = [values.ctypes.data, result.ctypes.data]
        pointers += [aligned.ctypes.data] if generated.arena else []
        entry(*map(ctypes.c_void_p, pointers))
        return result

    return run


def prepared(
    generated: Generated,
    folder: Path,
    flags: list[str],
    values: Array,
    size: int,
    dtype: str = "float32",
) -> Callable[[], Array]:
    """A function that runs the network again and again with the same memory, whose addresses are
    found once: for rivals whose runs do no more than that either.

    Args:
        generated, folder, flags, dtype: as for `runner`.
        values: the input.
        size: number of elements of the output.
    """
    library = folder / f"prepared{''.join(flags)}.so"
    _run(shared_library_command(generated, library, flags), folder)
    entry = getattr(ctypes.CDLL(str(library)), generated.entry)
    arena, result = np.zeros(generated.arena + 64, "uint8"), np.zeros(size, dtype)
    memory = [values, result, arena[-arena.ctypes.data % 64 :]][: 3 if generated.arena else 2]
    entry.restype, entry.argtypes = None, [ctypes.c_void_p] * len(memory)
    pointers = [array.ctypes.data for array in memory]

    def run() -> Array:
        entry(*pointers)
        return result

    run.memory = [*memory, arena]  # type: ignore[attr-defined]
    return run


def publish(lines: list[str], output: Path) -> None:
    """Write the lines of a table into a file and print them."""
    text = "\n".join(lines)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f"{text}\n", encoding="utf-8")
    print(text)
