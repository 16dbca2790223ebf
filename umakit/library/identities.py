# SPDX-License-Identifier: Apache-2.0
"""Identities of the layers of an exported library. Imports nothing of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit.text.identities import LayerIdentity, NamedLayer, Role, layer_identities


def identities_of(description: Mapping[str, Any]) -> list[LayerIdentity]:
    """Return the identity of each layer; without index in a library from before identities."""
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
    """Return the kind of a layer on the CPU, such as `quantize`, `copy` or `layout change`."""
    own = [rows[number] for number in layer["operators"]]
    if not own:
        return str(layer["kernel"]) or "copy"
    names = [
        "layout change" if row.get("changes_layout") else str(row["operator"]).rpartition(".")[2]
        for row in own
        if not (row.get("changes_layout") and row["operator"] == "reshape")  # moves no data
    ]
    return " + ".join(dict.fromkeys(names)) or "layout change"


CPU = "cpu"

WITHOUT_OPERATOR = {
    "copy": "its values are needed in another buffer",
    "layout change": "the layers next to it have different layouts",
}
"""Reasons of steps that are no operator of the model, by kind."""


@dataclass(frozen=True)
class CpuStep:
    """A step of the program on the CPU.

    Attributes:
        kind: kind of the step, such as `quantize`, `copy` or `layout change`.
        reasons: reasons for the operators to stay on the CPU, each once.
    """

    name: str
    kind: str
    identity: LayerIdentity
    reasons: tuple[str, ...]

    @property
    def text(self) -> str:
        """The step as one line."""
        known = "; ".join(self.reasons)
        said = f"{self.name} ({self.kind})"
        return f"{said}: {known}" if known else said


def cpu_steps(description: Mapping[str, Any]) -> list[CpuStep]:
    rows = description["operators"]
    found = []
    for layer, identity in zip(description["layers"], identities_of(description), strict=True):
        if layer["where"] != CPU:
            continue
        kind = cpu_step_kind(layer, rows)
        own = dict.fromkeys(rows[number]["reason"] for number in layer["operators"])
        reasons = tuple(reason for reason in own if reason)
        if not reasons and kind in WITHOUT_OPERATOR:
            reasons = (WITHOUT_OPERATOR[kind],)
        found.append(CpuStep(layer["name"], kind, identity, reasons))
    return found
