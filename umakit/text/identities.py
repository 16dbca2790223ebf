# SPDX-License-Identifier: Apache-2.0
"""Identities of a model's operators and of layers: by them figures of two exports are matched.

An operator of the model is identified by its place in the file, so that nothing that a machine, a
tiling or a version of umakit decides changes it. A layer is identified by the operators that it
computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["operators", "layout change", "copy", "unknown"]
"""What a layer is for: operators of the model, a transpose between two layouts that the model has
not, a copy to an output, or something whose operators are not known."""


@dataclass(frozen=True)
class SourceOperator:
    """An operator of the model as its file has it.

    Attributes:
        name: its name everywhere in umakit, unique in the model.
        given: its name in the file; empty if it has none there. TensorFlow Lite names tensors
            only: it is the name of the first result.
        index: its number in the file, from 0, with those in branches; None if it is not known,
            as for operators that a pass of a backend added.
        path: module of the model's source that it belongs to, such as `encoder.layers.0`; empty
            where the file does not say it.
        kind: its operator in the file's format, such as `Conv`; empty if it is not known.
    """

    name: str
    given: str = ""
    index: int | None = None
    path: str = ""
    kind: str = ""


@dataclass(frozen=True)
class LayerIdentity:
    """What a layer is in terms of the model.

    Attributes:
        key: its name for readers, with a number behind it if earlier layers of the network have
            the same one, such as `softmax #2`; unique in the network.
        role: what it is for.
        operators: operators of the model that it computes, in the order of execution: of a chain
            that is computed as one, such as a quantized Conv with a Relu, the one that it is named
            after and the one whose result it yields. Of a layout change those whose result it
            transposes.
        part: how many earlier layers have the same role and operators.
    """

    key: str
    role: Role
    operators: tuple[SourceOperator, ...]
    part: int

    def as_json(self) -> dict[str, Any]:
        """Return all fields by name."""
        return {**asdict(self), "operators": [asdict(each) for each in self.operators]}

    @classmethod
    def from_json(cls, view: Mapping[str, Any]) -> LayerIdentity:
        """Return the identity of `as_json`."""
        operators = tuple(SourceOperator(**each) for each in view["operators"])
        return cls(view["key"], view["role"], operators, view["part"])


@dataclass(frozen=True)
class NamedLayer:
    """A layer before it has an identity.

    Attributes:
        label: its name for readers.
        role: what it is for.
        names: names of the operators that it computes, in order; names may be repeated.
    """

    label: str
    role: Role
    names: tuple[str, ...]


def layer_identities(
    layers: Iterable[NamedLayer], sources: Mapping[str, SourceOperator]
) -> list[LayerIdentity]:
    """Return the identity of each layer of a network, in order.

    Args:
        layers: all layers in the order of execution.
        sources: operators of the model by name; one that is not among them has no index.
    """
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
    """Return labels with a number behind those that earlier ones have, such as `softmax #2`."""
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
"""Numbers of the layers of one network, and those of the other, that compute the same operators."""


def matched_layers(one: Sequence[LayerIdentity], other: Sequence[LayerIdentity]) -> list[Match]:
    """Return which layers of two networks belong together, in the order of `one`.

    Layers belong together if they share an operator of the model by name, directly or through
    others: where one machine fuses two operators into a layer and the other does not, one layer is
    matched with two. A layer without operators, such as a copy, is matched by its key. Layers that
    only one network has come with an empty tuple; those of `other` are last.
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
