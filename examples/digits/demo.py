# SPDX-License-Identifier: Apache-2.0
"""The whole way in one go: a fresh backend, a trained network, a C library, and the proof.

make demo
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

import umakit
from umakit.errors import UmakitError
from umakit.testing import llvm_runner

HERE = Path(__file__).parent
NETWORK = HERE / "digits.onnx"
HELD_OUT = HERE / "held_out.npz"
INT8_NETWORK = HERE / "digits_int8.onnx"
INT8_LOGITS = HERE / "held_out_int8.npz"
UMA = Path(sys.executable).parent / "uma"


def show(out: Console, *command: str | Path) -> None:
    """Print a command and what it prints.

    Raises:
        UmakitError: it failed; with what it said.
    """
    shown = " ".join(str(word) for word in command)
    out.print(Text(f"$ {shown.replace(str(UMA), 'uma')}", "bold"), soft_wrap=True)
    environment = {**os.environ, "COLUMNS": str(out.width)}
    ended = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True
    )
    out.print(Text(ended.stdout), soft_wrap=True, end="")
    if ended.returncode:
        raise UmakitError(ended.stderr.strip() or "it failed", where=shown)


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
    memory = library.metadata["umakit"]["memory"]
    out.print(f"arena {memory['arena_bytes']:,} B, constants {memory['constants_bytes']:,} B")
    return equal == expected.size


def print_next(out: Console, backend: Path, library: Path) -> None:
    """Where everything is, and what to type next."""
    out.rule(Text("f. Where is it?", "bold"), align="left")
    out.print(f"backend   {backend}\nlibrary   {library}\n", soft_wrap=True)
    out.print("Change the size of the array in accel.toml, or anything else, and see:")
    out.print(f"  {UMA} partition {NETWORK} --backend {backend}", soft_wrap=True)


def main() -> int:
    """Returns the exit code: 0 when the library gives the same class on every image, and in 8 bits
    the same logits as ONNX Runtime.
    """
    out = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="umakit_demo_"))
    backend, library = folder / "vanilla_accelerator", folder / "digits_library"
    data = np.load(HELD_OUT)
    out.rule(Text("A fresh backend", "bold"), align="left")
    show(out, UMA, "new", backend.name, "--tutorial", "vanilla", "--directory", folder)
    show(out, sys.executable, backend / "run.py")
    out.rule(Text("A trained network becomes a C library", "bold"), align="left")
    show(out, UMA, "compile", NETWORK, "--backend", backend, "--output", library)
    outputs = umakit.run_library(library, {"image": data["image"]}).outputs
    logits = outputs["logits"][:, 0]
    reference = reference_logits(umakit.import_model(NETWORK), data["image"])
    print_proof(out, logits, reference, data["label"])
    out.rule(Text("b. What runs where, and why?", "bold"), align="left")
    show(out, UMA, "partition", NETWORK, "--backend", backend)
    out.rule(Text("c. How fast is the array?", "bold"), align="left")
    show(out, UMA, "run", library, "--inputs", HELD_OUT, "--profile")
    out.rule(Text("d. What does it need?", "bold"), align="left")
    show(out, UMA, "size", library)
    int8_library = umakit.compile_model(INT8_NETWORK, [], folder / "int8_library")
    int8_run = umakit.run_library(int8_library.path, {"image": data["image"]})
    int8_logits = int8_run.outputs["logits"][:, 0]
    exact = print_int8(out, int8_library, int8_logits, logits, data["label"])
    print_next(out, backend, library)
    return 0 if exact and (logits.argmax(axis=1) == reference.argmax(axis=1)).all() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UmakitError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
