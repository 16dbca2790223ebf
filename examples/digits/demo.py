# SPDX-License-Identifier: Apache-2.0
"""The whole way in one go: a fresh backend, a trained network, a C library, and the proof.

make demo
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text
from umakit.cli import size_tables, tables
from umakit.cli.console import console, progress

import umakit
from umakit.devices.run import RunResult, run_library
from umakit.errors import UmakitError
from umakit.testing.harness import llvm_runner
from umakit.tools.scaffold import new_backend
from umakit.tools.size import LibrarySize, library_size

HERE = Path(__file__).parent
NETWORK = HERE / "digits.onnx"
HELD_OUT = HERE / "held_out.npz"
INT8_NETWORK = HERE / "digits_int8.onnx"
INT8_LOGITS = HERE / "held_out_int8.npz"


def reference_logits(model: Any, images: np.ndarray) -> np.ndarray:
    """Logits of TVM's own LLVM build, shape [images, 10]."""
    run = llvm_runner(model)
    name = model.inputs[0].name
    return np.concatenate([run({name: image[np.newaxis]})["logits"] for image in images])


def print_proof(out: Console, library: np.ndarray, reference: np.ndarray, labels: Any) -> None:
    """Accuracy of both, and how far apart they are."""
    out.rule(Text("a. Is it right?", "bold"), align="left")
    for name, logits in (
        ("CPU reference (TVM, LLVM)", reference),
        ("C library on Vanilla", library),
    ):
        right = int((logits.argmax(axis=1) == labels).sum())
        out.print(
            f"{name:<28} {right} of {len(labels)} held-out images "
            f"({100 * right / len(labels):.2f} %)"
        )
    same = int((library.argmax(axis=1) == reference.argmax(axis=1)).sum())
    largest = float(np.abs(library - reference).max())
    out.print(
        f"same class on {same} of {len(labels)} images, largest difference of a logit "
        f"{largest:.2g} (logits reach {np.abs(reference).max():.1f})"
    )


def print_needs(out: Console, library: Any, sizes: LibrarySize) -> None:
    """Code, constants, arena and stack."""
    out.rule(Text("d. What does it need?", "bold"), align="left")
    for line in tables.memory_summary(library.metadata["umakit"]["memory"]):
        out.print(line)
    out.print(size_tables.size_table(sizes))
    for line in size_tables.size_notes(sizes):
        out.print(line)


def print_int8(
    out: Console, library: Any, logits: np.ndarray, floats: np.ndarray, labels: Any
) -> bool:
    """Accuracy of the quantized network beside the float one, and what it needs.

    Returns:
        Whether every logit is the one that ONNX Runtime computed (`quantize.py` stored them).
    """
    out.rule(Text("e. And in 8 bits?", "bold"), align="left")
    for name, values in (("float32", floats), ("int8, C on the CPU", logits)):
        right = int((values.argmax(axis=1) == labels).sum())
        out.print(
            f"{name:<28} {right} of {len(labels)} held-out images "
            f"({100 * right / len(labels):.2f} %)"
        )
    expected = np.load(INT8_LOGITS)["logits"]
    equal = int((logits == expected).sum())
    out.print(f"logits equal to those of ONNX Runtime: {equal:,} of {expected.size:,}")
    for line in tables.memory_summary(library.metadata["umakit"]["memory"]):
        out.print(line)
    return equal == expected.size


def print_next(out: Console, backend: Path, library: Path) -> None:
    """Where everything is, and what to type next."""
    uma = Path(sys.executable).parent / "uma"
    out.rule(Text("f. Where is it?", "bold"), align="left")
    out.print(f"backend   {backend}\nlibrary   {library}\n", soft_wrap=True)
    out.print("Change the size of the array in accel.toml, or anything else, and see:")
    out.print(f"  {uma} partition {NETWORK} --backend {backend}", soft_wrap=True)


def main() -> int:
    """Returns the exit code: 0 when the library gives the same class on every image, and in 8 bits
    the same logits as ONNX Runtime.
    """
    out = console()
    folder = Path(tempfile.mkdtemp(prefix="umakit_demo_"))
    data = np.load(HELD_OUT)
    with progress() as tell:
        tell("writing a fresh Vanilla backend")
        written = new_backend("vanilla_accelerator", folder, "vanilla")
        tell("loading TVM")
        backend = umakit.find_backend(written.folder)
        library = umakit.compile_model(NETWORK, [backend], folder / "digits_library", progress=tell)
        tell("building the library and running the held-out images on the simulator")
        result: RunResult = run_library(library.path, {"image": data["image"]}, profile=True)
        sizes = library_size(library.path, progress=tell)
        tell("compiling the same network quantized to 8 bits")
        int8_library = umakit.compile_model(INT8_NETWORK, [], folder / "int8_library")
        int8_run = run_library(int8_library.path, {"image": data["image"]})
        tell("running the same images on the CPU with TVM's LLVM build")
        reference = reference_logits(umakit.import_model(NETWORK), data["image"])
    logits = result.outputs["logits"][:, 0]
    print_proof(out, logits, reference, data["label"])
    out.rule(Text("b. What runs where, and why?", "bold"), align="left")
    out.print(tables.offload_table(library.report.placements))
    out.print(tables.offload_summary(library.report))
    out.rule(Text("c. How fast is the array?", "bold"), align="left")
    out.print(tables.profile_table(result.layers))
    print_needs(out, library, sizes)
    int8_logits = int8_run.outputs["logits"][:, 0]
    exact = print_int8(out, int8_library, int8_logits, logits, data["label"])
    print_next(out, written.folder, library.path)
    return 0 if exact and (logits.argmax(axis=1) == reference.argmax(axis=1)).all() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UmakitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
