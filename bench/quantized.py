# SPDX-License-Identifier: Apache-2.0
"""Speed and size of the integer C that umakit writes, against other runtimes of int8 networks.

make bench-quantized

Times are ratios between programs that took turns in one run, after the outputs were compared.
Instructions are counted by emulated processors, whose figures do not depend on the machine's load.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnxruntime
import tools
from library import SPEED_FLAGS, reference_session
from quantized_models import Case, cases
from rounds import Call, ratio, take_turns
from tflite_networks import micro_interpreter

from umakit.devices import find_device
from umakit.devices.run import run_library
from umakit.errors import BuildError
from umakit.frontend import import_model
from umakit.library.export import Library
from umakit.library.metadata import load_metadata
from umakit.partition.partitioner import partition
from umakit.pipeline import export_program
from umakit.quantized import quantize_to_integers
from umakit.tools.size import library_size

OUTPUT = Path("build/bench")
ROUNDS = 15
ROUND_SECONDS = 0.01
TOLERANCE = 0.05
"""Tolerance relative to the largest output, if a runtime computes partly in float32."""

CODE_DEVICE = "qemu-cortex-m3"
NATIVE = "-march=native"
COUNTING_DEVICES = ("qemu-cortex-m3", "qemu-riscv32")


@dataclass(frozen=True)
class Ratio:
    """Time of the int8 C over a rival's.

    Attributes:
        low, median, high: quartiles of the rounds.
    """

    rival: str
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Needs:
    """What the int8 C of a network needs, in bytes.

    Attributes:
        code: machine code on a Cortex-M3; None without its compiler, as the stack.
        stack: worst case there, without libc.
    """

    arena: int
    arena_bound: int
    constants: int
    constants_bound: int
    code: int | None
    stack: int | None


@dataclass(frozen=True)
class Result:
    """What was measured of one network.

    Attributes:
        rounding: of the format that the file has.
        comparison: with the format's own runtime.
        instructions: of an inference, by rounding and device.
    """

    network: str
    file: str
    macs: int
    rounding: str
    comparison: str
    needs: Needs
    instructions: dict[str, dict[str, int]]
    ratios: list[Ratio]


def export(path: Path, folder: Path, rounding: str | None = None) -> Library:
    """Compile a network.

    Args:
        path: its file.
        folder: what to write.
        rounding: of products, if not that of the file's format.
    """
    model = import_model(path, name="net")
    model = dataclasses.replace(model, arithmetic=rounding or model.arithmetic)
    model = quantize_to_integers(model)
    shutil.rmtree(folder, ignore_errors=True)
    return export_program(model, partition(model.module, []), [], folder)


def random_input(library: Library) -> Any:
    """Noise for a network with one input."""
    described = load_metadata(library.path)["umakit"]["inputs"][0]
    random = np.random.default_rng(7)
    if described["dtype"] == "int8":
        return random.integers(-128, 128, described["shape"]).astype("int8")
    return random.standard_normal(described["shape"]).astype(described["dtype"])


def call_of(library: Library, *flags: str) -> Call:
    """The C of a library, built for speed, on an input of noise."""
    output = load_metadata(library.path)["umakit"]["outputs"][0]
    folder = library.path.with_name(f"{library.path.name}-built")
    folder.mkdir(exist_ok=True)
    run = tools.runner(tools.generated_of(library), folder, [*SPEED_FLAGS, *flags], output["dtype"])
    values, size = random_input(library), int(np.prod(output["shape"]))
    return lambda: run(values, size).reshape(output["shape"])


def compare_times(base: Call, rivals: dict[str, Call]) -> list[Ratio]:
    """The base's time over each rival's; all take turns, round by round."""
    rounds = take_turns({"": base, **rivals}, ROUNDS, ROUND_SECONDS)
    return [Ratio(name, **asdict(ratio(rounds, "", name))) for name in rivals]


def micro_call(file: bytes, values: Any) -> Call:
    """TensorFlow Lite Micro; it must be given its input each time, which takes nearly no time."""
    interpreter = micro_interpreter(file)

    def call() -> Any:
        interpreter.set_input(values, 0)
        interpreter.invoke()
        return interpreter.get_output(0)

    return call


def litert_call(file: bytes, values: Any) -> Call:
    """LiteRT with its optimized kernels and one thread."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=file, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values)
    return interpreter.invoke  # type: ignore[no-any-return]


def onnx_call(path: Path, values: Any = None) -> Call:
    """ONNX Runtime with one thread; noise if there are no values."""
    session = reference_session(onnx.load(path))
    described = session.get_inputs()[0]
    if values is None:
        values = np.random.default_rng(7).standard_normal(described.shape).astype("float32")
    return lambda: session.run(None, {described.name: values})[0]


def comparison(case: Case, outputs: Any, oracle: Any) -> str:
    """Whether the int8 C yields what the format's runtime yields.

    Raises:
        SystemExit: it does not.
    """
    if np.array_equal(outputs, oracle):
        return "equal"
    difference = np.abs(outputs - oracle).max() / np.abs(oracle).max()
    if case.tflite is not None or not difference <= TOLERANCE:
        raise SystemExit(f"{case.int8.name}: wrong outputs: off by {difference:.2g} of the largest")
    return f"{(outputs == oracle).mean():.0%} equal, off by {difference:.1e} of the largest"


def needs_of(case: Case, library: Library) -> Needs:
    """Sizes, and bounds from a float network of the same shapes."""
    memory = load_metadata(library.path)["umakit"]["memory"]
    code, stack = None, None
    try:
        size = library_size(library.path, device=find_device(CODE_DEVICE))
        code, stack = size.text_bytes, size.stack_bytes
    except BuildError as error:
        print(f"{case.name}: no code size: {error}", file=sys.stderr)
    return Needs(
        int(memory["arena_bytes"]),
        int(memory["live_set_bound_bytes"]),
        int(memory["constants_bytes"]),
        models.constants_bound(onnx.load(case.shapes), weight_bytes=1),
        code,
        stack,
    )


def instructions_of(library: Library) -> dict[str, int]:
    """Instructions of an inference on the emulated processors whose tools are there."""
    counts = {}
    for device in COUNTING_DEVICES:
        try:
            result = run_library(library.path, {"input": random_input(library)}, device=device)
            counts[device] = result.instructions[0]
        except BuildError as error:
            print(f"{device}: {error}", file=sys.stderr)
    return counts


def bench(case: Case) -> Result:
    """Everything about one network."""
    folder = (OUTPUT / "work/quantized" / case.name.replace(" ", "_")).resolve()
    native = "ort" if case.tflite is None else "tflm"
    library = export(case.int8, folder / native)
    libraries, values = {native: library}, random_input(library)
    base = call_of(library)
    rivals = {
        f"umakit, int8, {NATIVE}": call_of(library, NATIVE),
        "umakit, float32": call_of(export(case.float32, folder / "float32")),
    }
    if case.tflite is None:
        oracle = rivals["ONNX Runtime, int8"] = onnx_call(case.onnx_int8, values)
    else:
        # The integers of an ONNX file are defined for one rounding only.
        libraries["ort"] = export(case.int8, folder / "ort", "ort")
        rivals["umakit, int8, ort rounding"] = call_of(libraries["ort"])
        oracle = rivals["TensorFlow Lite Micro, int8"] = micro_call(case.tflite, values)
        if importlib.util.find_spec("ai_edge_litert"):
            rivals["LiteRT (XNNPACK), int8"] = litert_call(case.tflite, values)
        rivals["ONNX Runtime, int8 of these shapes"] = onnx_call(case.onnx_int8)
    description = load_metadata(library.path)["umakit"]
    return Result(
        network=case.name,
        file=case.int8.name,
        macs=sum(layer["macs"] for layer in description["layers"]),
        rounding=native,
        comparison=comparison(case, base(), oracle()),
        needs=needs_of(case, library),
        instructions={name: instructions_of(item) for name, item in libraries.items()},
        ratios=compare_times(base, rivals),
    )


def markdown(results: list[Result]) -> str:
    """A line for each network, then three tables for each, and what their columns mean."""
    return "\n".join([_summary(results), *map(_section, results), _explanation()])


def _summary(results: list[Result]) -> str:
    rivals = ("umakit, float32", "TensorFlow Lite Micro", "LiteRT", "ONNX Runtime")
    lines = []
    for result in results:
        ratios = [
            next((f"{r.median:.2f}" for r in result.ratios if r.rival.startswith(rival)), "")
            for rival in rivals
        ]
        count = result.instructions[result.rounding].get(CODE_DEVICE)
        per_mac = "" if count is None else f"{count / result.macs:.2f}"
        code = "" if result.needs.code is None else f"{result.needs.code:,}"
        lines.append(
            f"| {result.network} | {' | '.join(ratios)} | {per_mac} | {result.needs.arena:,} | "
            f"{result.needs.constants:,} | {code} |\n"
        )
    return (
        "| network | time / float C | / TFLM | / LiteRT | / ONNX Runtime | instructions a MAC "
        "| arena B | constants B | code B |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        + "".join(lines)
    )


def _section(result: Result) -> str:
    needs = result.needs
    per_mac = "".join(
        f"| {rounding} | {device.removeprefix('qemu-')} | {count:,} | {count / result.macs:.2f} |\n"
        for rounding, counts in result.instructions.items()
        for device, count in counts.items()
    )
    ratios = "".join(
        f"| {r.rival} | {r.median:.2f} | {r.low:.2f} to {r.high:.2f} |\n" for r in result.ratios
    )
    code = "" if needs.code is None else f"{needs.code:,}"
    stack = "" if needs.stack is None else f"{needs.stack:,}"
    return (
        f"### {result.network}\n\n`{result.file}`, {result.macs:,} multiply-accumulates, "
        f"{result.rounding} rounding, outputs: {result.comparison}\n\n"
        f"| time of the int8 C over that of | median | quartiles |\n|---|--:|--:|\n{ratios}\n"
        "| arena B | / live set | constants B | / bound | code B | stack B |\n"
        "|--:|--:|--:|--:|--:|--:|\n"
        f"| {needs.arena:,} | {needs.arena / needs.arena_bound:.2f} | {needs.constants:,} | "
        f"{needs.constants / needs.constants_bound:.2f} | {code} | {stack} |\n\n"
        "| rounding | processor | instructions | per multiply-accumulate |\n|---|---|--:|--:|\n"
        f"{per_mac}"
    )


def _explanation() -> str:
    return (
        f"Batch 1, `{' '.join(SPEED_FLAGS)}` (SSE2 on x86-64) unless said otherwise, one thread, "
        f"processor time, all programs in turns, {ROUNDS} rounds of at least 10 ms. Below 1 the "
        "int8 C is faster. "
        "TensorFlow Lite Micro is the reference kernels of its Python package, ONNX Runtime is "
        f"{onnxruntime.__version__}. Trained files are compared with ONNX Runtime and float C on "
        "networks of the same shapes where they do not exist in these forms. The live set is the "
        "most that is alive at once with whole tensors; the constants' bound is a byte a weight "
        "and four a bias, without multipliers, shifts and tables. Code and stack: Cortex-M3, "
        "`-Os`. Instructions: QEMU, `-O3`; a MAC is a multiply-accumulate.\n\n"
        f"{platform.machine()}\n"
    )


def main() -> int:
    """Returns 0; stops where an output is wrong."""
    results = []
    for case in cases(OUTPUT / "work/quantized"):
        print(case.name, file=sys.stderr, flush=True)
        results.append(bench(case))
    text = markdown(results)
    (OUTPUT / "quantized.md").write_text(text, encoding="utf-8")
    values = [asdict(result) for result in results]
    (OUTPUT / "quantized.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
