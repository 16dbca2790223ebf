# SPDX-License-Identifier: Apache-2.0
"""First stage: a model file or object becomes a Relax module with named inputs and outputs."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.files.documents import is_special
from umakit.frontend.checks import check_constant_indices, check_element_types, check_sizes
from umakit.frontend.model import (
    InputShapes,
    Model,
    TensorSpecification,
    check_input_shapes,
    file_fingerprint,
    listed,
    with_rounding,
)
from umakit.frontend.onnx.checks import external_files
from umakit.frontend.onnx.files import import_onnx
from umakit.frontend.relax_files import HOW_TO_SAVE, import_relax_file, is_json
from umakit.frontend.relax_modules import import_relax
from umakit.frontend.simplify import simplify
from umakit.frontend.torch.archive import HOW_TO_EXPORT, is_torch_file

__all__ = ["Model", "TensorSpecification", "import_model", "model_files"]


@tvm_api.one_at_a_time
def import_model(
    source: str | os.PathLike[str] | Any,
    *,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    input_shapes: InputShapes | None = None,
    rounding: str | None = None,
) -> Model:
    """Read a network.

    Args:
        source: path of an ONNX, TensorFlow Lite, PyTorch (`.pt2`) or Relax JSON file, whose content
            tells the format; a `torch.export.ExportedProgram`; or a `tvm.IRModule` with a Relax
            function `main`.
        name: name of the model in C; default: the file's stem, or `default`.
        parameters: values of `main`'s parameters by name (Relax modules only).
        input_shapes: shapes by input name, for inputs with symbolic dimensions.
        rounding: rounding of integers in quantized networks, `tflm` or `ort`; default: the rounding
            of the file format.

    Raises:
        ModelError: the source cannot be read or imported. The message names operator, node and
            file.
    """
    try:
        return _imported(source, name, parameters, input_shapes, rounding)
    except ModelError as error:
        listed(error)
        raise
    except MemoryError:
        where = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
        raise ModelError(
            "its constants, or what it computes of constants alone, take more memory than there is",
            where=where,
            fix="make them inputs, or choose smaller dimensions",
        ) from None


def model_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the path of a model file and the paths of an ONNX file's external data.

    A file that is not a model counts as one file: `import_model` reports the error.
    """
    path = Path(path)
    other = is_special(path) or is_torch_file(path) or is_json(path) or _is_tflite(path)
    return [path] if other or not path.is_file() else [path, *external_files(path)]


def _imported(
    source: str | os.PathLike[str] | Any,
    name: str | None,
    parameters: Mapping[str, Any] | None,
    input_shapes: InputShapes | None,
    rounding: str | None,
) -> Model:
    check_input_shapes(input_shapes or {})
    if isinstance(source, os.PathLike):
        source = Path(source)
    if isinstance(source, tvm_api.IRModule):
        model = import_relax(source, name or "default", parameters or {}, input_shapes or {})
    elif isinstance(source, (str, Path)):
        model = _import_file(Path(source), name, input_shapes or {})
        fingerprint = file_fingerprint(Path(source))
        model = replace(model, fingerprint=fingerprint, path=str(source))
    elif _is_exported_program(source):
        from umakit.frontend.torch.programs import import_torch

        model = import_torch(source, name, input_shapes or {})
    else:
        raise _no_model(source)
    model = with_rounding(model, rounding)
    where = str(source) if isinstance(source, (str, Path)) else model.name
    check_sizes(model.module, where)
    check_constant_indices(model.module, where)
    model = replace(model, module=simplify(model.module, where))
    check_constant_indices(model.module, where)
    check_element_types(model, where)
    return model


def _import_file(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    if is_special(path):
        raise ModelError("is not a regular file", where=str(path), fix="copy it into one")
    if is_torch_file(path):
        if importlib.util.find_spec("torch") is None:
            raise ModelError(
                "reading PyTorch programs needs the package torch",
                where=str(path),
                fix="pip install 'umakit[torch]'",
            )
        from umakit.frontend.torch.programs import import_torch

        return import_torch(path, name, input_shapes)
    if is_json(path):
        return import_relax_file(path, name, input_shapes)
    if path.suffix == ".py" and path.is_file():
        raise ModelError("is Python code, which is not run", where=str(path), fix=HOW_TO_SAVE)
    if not _is_tflite(path):
        try:
            return import_onnx(path, name, input_shapes)
        except ModelError:
            if path.suffix != ".tflite" or not path.is_file():
                raise
            raise ModelError(
                "is not a TensorFlow Lite file: its identifier is not TFL3", where=str(path)
            ) from None
    if importlib.util.find_spec("tflite") is None:
        raise ModelError(
            "reading TensorFlow Lite files needs the package tflite",
            where=str(path),
            fix="pip install 'umakit[tflite]'",
        )
    from umakit.frontend.tflite.files import import_tflite

    return import_tflite(path, name, input_shapes)


def _is_tflite(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(8)[4:] == b"TFL3"
    except OSError:
        return False


def _is_exported_program(source: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.export.ExportedProgram)


def _no_model(source: object) -> ModelError:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        return ModelError(
            f"a {type(source).__name__} is a module of Python code, not an exported program",
            fix="pass torch.export.export(model.eval(), (example_input,))",
        )
    values = list(source.values()) if isinstance(source, dict) else []
    if torch is not None and values and all(isinstance(v, torch.Tensor) for v in values):
        return ModelError("a state_dict holds weights, not a network", fix=HOW_TO_EXPORT)
    return ModelError(
        f"cannot import a {type(source).__name__}",
        fix="pass the path of an ONNX, TensorFlow Lite or PyTorch file, a Relax module or an "
        "ExportedProgram",
    )
