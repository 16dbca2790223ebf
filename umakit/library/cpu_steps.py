# SPDX-License-Identifier: Apache-2.0
"""Steps of an exported library that run on the CPU. Imports nothing of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit.library.identities import cpu_step_kind, identities_of
from umakit.text.identities import LayerIdentity

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
        name: name of the step in all tables.
        kind: kind of the step, such as `quantize`, `copy` or `layout change`.
        identity: identity of the step in terms of the model.
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

    def as_json(self) -> dict[str, Any]:
        """Return all fields by name; keys are stable."""
        return {
            "name": self.name,
            "kind": self.kind,
            "identity": self.identity.as_json(),
            "reasons": list(self.reasons),
        }


def cpu_steps(description: Mapping[str, Any]) -> list[CpuStep]:
    """Return the steps on the CPU in the order of execution.

    Args:
        description: section `umakit` of the library's `metadata.json`.
    """
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
