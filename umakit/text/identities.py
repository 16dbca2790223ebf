# SPDX-License-Identifier: Apache-2.0
"""Identities of operators and layers, which match the figures of two exports.

An operator's identity is its position in the model file, so that it does not depend on the machine,
the tiling or the version of umakit. A layer's identity is the set of operators that it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["operators", "layout change", "copy", "unknown"]
"""Role of a layer: operators of the model, a transpose between layouts, a copy to an output, or
unknown operators."""


@dataclass(frozen=True)
class SourceOperator:
    """An operator of the model file.

    Attributes:
        name: name in umakit, unique in the model.
        given: name in the file; empty if the file has none. For TensorFlow Lite, which only names
            tensors, the name of the first result.
        index: number in the file, from 0, including operators in branches; None if unknown, as for
            operators that a backend's pass added.
        path: module of the model's source, such as `encoder.layers.0`; empty if the file does not
            tell.
        kind: operator in the file's format, such as `Conv`; empty if unknown.
    """

    name: str
    given: str = ""
    index: int | None = None
    path: str = ""
    kind: str = ""


@dataclass(frozen=True)
class LayerIdentity:
    """Identity of a layer in terms of the model.

    Attributes:
        key: unique name for readers, with a number if earlier layers have the same name, such as
            `softmax #2`.
        operators: operators of the model in execution order. A fused chain, such as a quantized
            Conv with a Relu, lists the operator that names the chain and the operator that yields
            the result. A layout change lists the operators whose results it transposes.
        part: number of earlier layers with the same role and operators.
    """

    key: str
    role: Role
    operators: tuple[SourceOperator, ...]
    part: int

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "operators": [asdict(each) for each in self.operators]}

    @classmethod
    def from_json(cls, view: Mapping[str, Any]) -> LayerIdentity:
        operators = tuple(SourceOperator(**each) for each in view["operators"])
        return cls(view["key"], view["role"], operators, view["part"])


@dataclass(frozen=True)
class NamedLayer:
    """A layer before it has an identity.

    Attributes:
        names: names of the computed operators, in order, possibly repeated.
    """

    label: str
    role: Role
    names: tuple[str, ...]


def layer_identities(
    layers: Iterable[NamedLayer], sources: Mapping[str, SourceOperator]
) -> list[LayerIdentity]:
    """Return the identity of each layer, in order; unlisted operators get no index."""
    layers = list(layers)
    keys = unique_labels(layer.label for layer in layers)
    parts: dict[tuple[Role, tuple[str, ...]], int] = {}
    found = []
    for layer, key in zip(layers, keys, strict=True):
        names = tuple(dict.fromkeys(layer.names))
        same = (layer.role, names or (layer.label,))
        part = parts.get(same, 0)
        parts[same] = part + 1
        operators = tuple(sources.get(name) or SourceOperator(name) for name in names)
        found.append(LayerIdentity(key, layer.role, operators, part))
    return found


def unique_labels(labels: Iterable[str]) -> list[str]:
    """Make labels unique with a number, such as `softmax #2`."""
    numbers: dict[str, int] = {}
    unique: dict[str, None] = {}
    for label in labels:
        key, number = label, numbers.get(label, 1)
        while key in unique:
            number += 1
            key = f"{label} #{number}"
        numbers[label] = number
        unique[key] = None
    return list(unique)


Match = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of the matching layers of one network and of the other."""


def matched_layers(one: Sequence[LayerIdentity], other: Sequence[LayerIdentity]) -> list[Match]:
    """Return the matching layers of two networks, in the order of `one`.

    Layers match if they share an operator of the model by name, directly or through other layers.
    If one machine fuses two operators and the other does not, one layer matches two. A layer
    without operators, such as a copy, matches by key. Layers of only one network come with an empty
    tuple; layers of `other` come last.
    """
    groups: dict[object, int] = {}
    parents = list(range(len(one) + len(other)))

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    for number, layer in enumerate((*one, *other)):
        keys: list[object] = [each.name for each in layer.operators]
        for key in keys or [(layer.role, layer.key)]:
            first = groups.setdefault(key, number)
            low, high = sorted((root(first), root(number)))
            parents[high] = low
    members: dict[int, list[int]] = {}
    for number in range(len(parents)):
        members.setdefault(root(number), []).append(number)
    count = len(one)
    return [
        (
            tuple(each for each in numbers if each < count),
            tuple(each - count for each in numbers if each >= count),
        )
        for numbers in members.values()
    ]
