# SPDX-License-Identifier: Apache-2.0
"""The choices of schedule rules for kernels on a CPU, and given choices that replace them.

A rule lists the possible choices of a kernel, the rule's own choice first. `choose` takes the
choice of tuning records, else the rule's own. Rules are called deep inside TVM's passes, so the
choices given to a compilation lie in a context variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

KEY = "umakit.kernel_key"
"""Attribute of a prim func with a kernel choice: the text of its `KernelKey`."""


@dataclass(frozen=True)
class KernelKey:
    """The properties of a kernel that determine the speed of its choices on one CPU.

    Attributes:
        operator: `conv2d`, `depthwise conv2d` or `matmul`.
        weights: shape of the weights: [KH, KW, I, O] of float32, [O, KH, KW, I] of integers,
            [I, O] of a matrix product.
        padding: rows and columns of padding around the data.
        strides: strides of rows and columns; (1, 1) for a matrix product.
        dilation: dilation of rows and columns; (1, 1) for a matrix product.
        follows: fused elementwise operators, by their names in TVM.
    """

    operator: str
    dtype: str
    data: tuple[int, ...]
    weights: tuple[int, ...]
    result: tuple[int, ...]
    padding: tuple[int, int] = (0, 0)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    follows: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The key on one line, unique per key."""
        shapes = ["x".join(map(str, each)) for each in (self.data, self.weights, self.result)]
        text = f"{self.operator} {self.dtype} {shapes[0]} by {shapes[1]} to {shapes[2]}"
        for name in ("padding", "strides", "dilation"):
            rows, columns = getattr(self, name)
            text += f", {name} {rows}x{columns}" if (rows, columns) != _USUAL[name] else ""
        text += f", {self.groups} groups" if self.groups != 1 else ""
        return text + (f", then {' '.join(self.follows)}" if self.follows else "")


_USUAL = {"padding": (0, 0), "strides": (1, 1), "dilation": (1, 1)}


@dataclass(frozen=True)
class Choice:
    """The parameters of a schedule rule for one kernel.

    Attributes:
        positions: result positions that are computed at once.
        channels: channels of each position that are computed at once: for float32 with sums in
            registers, for integers with accumulators that wait for requantization.
        rows: result rows for which padded data are computed at a time.
        inputs: input channels of a block of weights; 0 without blocks.
        group: channels with sums in memory while blocks of weights are used; 0 without blocks.
        weights_outermost: whether a tile of weights computes all positions before the next tile.
    """

    positions: int
    channels: int
    rows: int = 1
    inputs: int = 0
    group: int = 0
    weights_outermost: bool = False

    @property
    def text(self) -> str:
        """The choice for readers."""
        text = f"{self.positions}x{self.channels}"
        text += f", {self.rows} rows" if self.rows > 1 else ""
        text += f", {self.inputs} inputs by {self.group}" if self.inputs else ""
        return text + (", weights outermost" if self.weights_outermost else "")


@dataclass(frozen=True)
class Chosen:
    """The choice for a kernel.

    Attributes:
        candidates: all possible choices, the rule's own choice first.
    """

    key: KernelKey
    choice: Choice
    candidates: tuple[Choice, ...]


@dataclass
class KernelChoices:
    """The choices of one compilation.

    Attributes:
        given: choices that replace the rules' choices.
        made: choices taken, by key.
    """

    given: Mapping[KernelKey, Choice] = field(default_factory=dict)
    made: dict[KernelKey, Chosen] = field(default_factory=dict)
    kernels: dict[str, KernelKey] = field(default_factory=dict)

    @property
    def unknown(self) -> list[KernelKey]:
        """Keys of given choices without a kernel in the network."""
        return [key for key in self.given if key not in self.made]

    @property
    def refused(self) -> list[KernelKey]:
        """Keys of kernels that cannot have their given choice."""
        return [
            key
            for key, chosen in self.made.items()
            if key in self.given and self.given[key] != chosen.choice
        ]

    @property
    def tuned(self) -> list[KernelKey]:
        """Keys of kernels whose choice is not the rule's own."""
        return [key for key, chosen in self.made.items() if chosen.choice != chosen.candidates[0]]

    def note_kernel(self, name: str, text: object) -> None:
        """Note the key of a kernel: the value of its attribute `KEY`, None for a kernel without a
        choice."""
        key = next((key for key in self.made if key.text == str(text)), None)
        if text is not None and key is not None:
            self.kernels[name] = key


_current: ContextVar[KernelChoices | None] = ContextVar("umakit_kernel_choices", default=None)


@contextmanager
def choosing(choices: KernelChoices) -> Iterator[None]:
    """Let rules that run in this block take and note choices; the lowering stage does this."""
    token = _current.set(choices)
    try:
        yield
    finally:
        _current.reset(token)


def choose(key: KernelKey, candidates: Sequence[Choice]) -> Choice:
    """Return the choice for a kernel: the given one, else the rule's own.

    Args:
        candidates: at least one choice, the rule's own first. A given choice that is no candidate
            is not taken; `KernelChoices.refused` lists its key.
    """
    own = candidates[0]
    current = _current.get()
    if current is None:
        return own
    given = current.given.get(key, own)
    choice = given if given in candidates else own
    current.made[key] = Chosen(key, choice, tuple(candidates))
    return choice
