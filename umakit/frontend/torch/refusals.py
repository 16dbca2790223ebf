# SPDX-License-Identifier: Apache-2.0
"""Which operators of an exported program of PyTorch cannot be imported, and why: all at once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from umakit.errors import ModelError
from umakit.frontend.model import InputShapes
from umakit.frontend.torch.converter import Converter
from umakit.frontend.torch.names import Names
from umakit.frontend.torch.programs import check_inference
from umakit.frontend.torch.static import input_sizes, make_static


def refused_operators(
    program: torch.export.ExportedProgram, where: str, input_shapes: InputShapes
) -> Mapping[str, ModelError]:
    """Return the refusals of `import_torch` by node name.

    Args:
        program: an exported program. Writes to state, inputs and outputs are not checked.
        where: file or name of the model in error messages.
        input_shapes: sizes by input name, for symbolic dimensions.

    Raises:
        ModelError: torch cannot decompose the program, or the program does not allow the sizes.
    """
    names = Names(program, where)
    refused: dict[str, ModelError] = {}
    for node in program.graph.nodes:
        try:
            check_inference(node, names)
        except ModelError as error:
            refused[node.name] = error
    shapes, _ = input_sizes(program, input_shapes, where)
    found: dict[torch.fx.Node, ModelError] = {}
    static = make_static(program, shapes, names.error, where, found)
    found |= Converter(static, names).refusals()
    for node in static.graph.nodes:  # the first decomposed node's error wins
        if node in found:
            refused.setdefault(names.origin(node), found[node])
    return refused
