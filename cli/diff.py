# SPDX-License-Identifier: Apache-2.0
"""`uma diff`: where a library goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli import diff_text
from umakit.cli.console import console, progress, say

from umakit.errors import InputError, LibraryError

if TYPE_CHECKING:
    from umakit.diff import DiffResult

HELP = """Find the first operator whose result is wrong.

The network is compiled and run, accelerators in their simulators, and the result of every layer \
is compared as soon as the layer has run. A layer is fed with the reference's values, so that it \
is not blamed for errors of earlier ones. Integers must be equal; floats may differ by the \
tolerance times the largest value of the tensor, and outputs of the whole run by that for each \
layer.

The reference is ONNX Runtime for .onnx and TensorFlow Lite Micro for .tflite, where they are \
installed; what they do not know under the same name is compared with umakit's own CPU kernels, \
one for each operator, and so is everything with --reference cpu.

Exit code: 0 if all agrees, 1 if something differs, 2 for a mistake of the call."""

EPILOG = "Example:  uma diff digits.onnx --backend vanilla_accelerator"


def diff(
    model: Annotated[
        Path, typer.Argument(help="An ONNX or TensorFlow Lite file.", show_default=False)
    ],
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            "-b",
            help="Name or folder of an accelerator; repeat it for several.",
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs",
            "-i",
            help="Arrays by input name (npz), one more leading dimension for several inferences; "
            "default: three random ones, the same every time.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the wrong tensor and the right one (npz); default: MODEL_diff, "
            "written if something differs.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        str, typer.Option(help="What to compare with: auto, cpu, onnxruntime or tflite-micro.")
    ] = "auto",
    tolerance: Annotated[
        float, typer.Option(help="Of floats, relative to the largest value of a tensor.")
    ] = 1e-5,
    most: Annotated[
        int | None,
        typer.Option(min=1, help="Inferences to run at most; default: all.", show_default=False),
    ] = None,
    input_shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--input-shapes",
            help='Sizes for symbolic dimensions: "image:[1,3,224,224]".',
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> int:
    """Registered with the help text above."""
    from umakit.cli.main import parse_shapes

    shapes = parse_shapes(input_shapes)
    folder = output or Path(f"{model.stem}_diff")
    if folder.exists() and not folder.is_dir():
        raise InputError(
            "exists and is no folder", where=str(folder), fix="choose another --output"
        )
    with progress() as tell:
        tell("loading TVM")
        from umakit.diff import diff_model
        from umakit.registry import find_backend
        from umakit.run import load_inputs

        arrays = None if inputs is None else load_inputs(inputs)
        result = diff_model(
            model,
            [find_backend(name) for name in backend or []],
            inputs=arrays,
            reference=reference,
            tolerance=tolerance,
            most=most,
            input_shapes=shapes,
            progress=tell,
        )
    written = _write(result, folder) if output or not result.agrees else {}
    if as_json:
        print(json.dumps({**result.as_json(), "files": written}, indent=2))
    else:
        _print(result, written, model, backend or [])
    return 0 if result.agrees else 1


def _print(result: DiffResult, written: dict[str, str], model: Path, backends: list[str]) -> None:
    for notice in result.notices:
        say(f"note: {notice}", error=True)
    out = console()
    out.print(diff_text.layer_table(result))
    out.print()
    for line in diff_text.verdict(result):
        say(line)
    for name, path in written.items():
        say(f"Wrote {path}: {FILES[name]}")
    if written and not result.agrees:
        chosen = "".join(f" --backend {name}" for name in backends)
        say(f"Again: uma diff {model}{chosen} --inputs {written['inputs']}")


FILES = {
    "inputs": "inputs of this inference",
    "library": "what the layer computed",
    "reference": "what it had to compute",
    "layer_inputs": "what the layer was fed with",
}


def _write(result: DiffResult, folder: Path) -> dict[str, str]:
    """Write the tensors of the first difference; paths by kind.

    Raises:
        InputError: the folder cannot be written.
    """
    from umakit.npz import npz_bytes
    from umakit.staging import write_file

    contents: dict[str, dict[str, Any]] = {"inputs": dict(result.inputs)}
    blame = result.blame
    if blame is not None:
        name = blame.operators[-1].name if blame.operators else blame.layer.name
        contents |= {"library": {name: blame.got}, "reference": {name: blame.wanted}}
        if blame.inputs:
            contents["layer_inputs"] = blame.inputs
    paths = {}
    for kind in FILES:
        path = folder / f"{kind}.npz"
        arrays = contents.get(kind)
        if arrays is None:
            path.unlink(missing_ok=True)  # of an earlier comparison
            continue
        try:
            write_file(path, npz_bytes({name.replace("/", "."): a for name, a in arrays.items()}))
        except LibraryError as error:
            raise InputError(error.what, where=error.where) from None
        paths[kind] = str(path)
    return paths
