# SPDX-License-Identifier: Apache-2.0
"""Identities of the layers of an exported library. Imports nothing of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from umakit.text.identities import LayerIdentity, NamedLayer, Role, layer_identities


def identities_of(description: Mapping[str, Any]) -> list[LayerIdentity]:
    """Return the identity of each layer of a library, in the order of execution.

    In a library from before identities, operators have the names of the offload report and no
    index.

    Args:
        description: section `umakit` of the library's `metadata.json`.
    """
    layers = description["layers"]
    views = [layer.get("identity") for layer in layers]
    if None not in views:
        return [LayerIdentity.from_json(view) for view in views]
    rows = description["operators"]
    return layer_identities((_named(layer, rows) for layer in layers), {})


def _named(layer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> NamedLayer:
    own = [rows[number] for number in layer["operators"]]
    role: Role = "operators"
    if not own:
        role = "unknown" if layer["kernel"] else "copy"
    elif all(row.get("changes_layout") for row in own):
        role = "layout change"
    return NamedLayer(layer["name"], role, tuple(row["name"] for row in own))


def cpu_step_kind(layer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the kind of a layer on the CPU, such as `quantize`, `copy` or `layout change`.

    Args:
        layer: an entry of `layers` in the section `umakit` of a library's `metadata.json`.
        rows: `operators` of this section.
    """
    own = [rows[number] for number in layer["operators"]]
    if not own:
        return str(layer["kernel"]) or "copy"
    names = [
        "layout change" if row.get("changes_layout") else str(row["operator"]).rpartition(".")[2]
        for row in own
        if not (row.get("changes_layout") and row["operator"] == "reshape")  # moves no data
    ]
    return " + ".join(dict.fromkeys(names)) or "layout change"
