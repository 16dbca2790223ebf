# SPDX-License-Identifier: Apache-2.0
"""First stage: a model file or object becomes a Relax module with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import InputShapes, Model, TensorSpecification, file_fingerprint
from umakit.frontend.onnx_files import import_onnx
from umakit.frontend.relax_modules import import_relax
from umakit.frontend.simplify import simplify

__all__ = ["Model", "TensorSpecification", "import_model"]


def import_model(
    source: str | Path | Any,
    *,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    input_shapes: InputShapes | None = None,
) -> Model:
    """Read a network.

    Args:
        source: path of an ONNX file, or a `tvm.IRModule` with a Relax function `main`.
        name: of the model in C; default: the file's stem, or `default`.
        parameters: values of `main`'s parameters by name (Relax modules only).
        input_shapes: shapes by input name, for inputs with symbolic dimensions.

    Raises:
        ModelError: the source cannot be read or imported; names operator, node and file.
    """
    if isinstance(source, tvm_api.IRModule):
        model = import_relax(source, name or "default", parameters or {}, input_shapes or {})
    elif isinstance(source, (str, Path)):
        model = import_onnx(Path(source), name, input_shapes or {})
        model = replace(model, fingerprint=file_fingerprint(Path(source)))
    else:
        raise ModelError(
            f"cannot import a {type(source).__name__}",
            fix="pass the path of an ONNX file or a Relax module",
        )
    return replace(model, module=simplify(model.module, model.name))
