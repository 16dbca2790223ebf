# SPDX-License-Identifier: Apache-2.0
"""Registrations of backends as data: patterns, strategies, hooks, driver files, and phases of
passes.

`umakit.registration.backend.Backend` collects the registrations, and stages read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from umakit.operators.drawing import Drawing

if TYPE_CHECKING:
    from umakit.machine.layer import Layer
    from umakit.machine.tiles import Tiles

Predicate = Callable[[Any], "bool | str"]
"""A function of TVM's `PatternCheckContext`. True accepts the match; a string refuses it and is
shown to the user as the reason."""

ReplaceCallExtern = Callable[[Sequence[str]], "str | None"]
"""A function of the C text of a call's function name and arguments that returns the C text of the
call to print."""


class PassPhase(Enum):
    """The phase in which a registered pass runs.

    TIR phases are for passes on the accelerator's prim funcs alone.

    Attributes:
        PRE_PARTITIONING: Relax phase on the network, before patterns are matched.
        POST_PARTITIONING_0: Relax phase after matching: accelerator functions are in place.
        POST_PARTITIONING_1: Relax phase after accelerator regions are dissolved into calls of
            composite functions.
        TIR_PHASE_0: loops and blocks of the operator strategy.
        TIR_PHASE_1: after buffers are flattened.
        TIR_PHASE_2: after loop transformations (vectorize, unroll).
        TIR_PHASE_3: after clean-up, right before C is printed.
    """

    PRE_PARTITIONING = 0
    POST_PARTITIONING_0 = 1
    POST_PARTITIONING_1 = 2
    TIR_PHASE_0 = 3
    TIR_PHASE_1 = 4
    TIR_PHASE_2 = 5
    TIR_PHASE_3 = 6


RELAX_PHASES = (
    PassPhase.PRE_PARTITIONING,
    PassPhase.POST_PARTITIONING_0,
    PassPhase.POST_PARTITIONING_1,
)


@dataclass(frozen=True)
class Pattern:
    """A pattern of operators that the accelerator computes as one composite function."""

    name: str
    pattern: Any
    annotations: Mapping[str, Any]
    predicate: Predicate | None
    layouts: tuple[str, ...] = ()
    """Supported data layouts; empty if unknown or irrelevant."""
    drawing: Drawing | None = None
    """Distribution from which `uma check` draws layers; None if `uma check` derives it."""
    place: str = ""
    """File and line of the registration."""

    @property
    def alternatives(self) -> list[Any]:
        """TVM's patterns, tried in this order."""
        return list(self.pattern) if isinstance(self.pattern, (list, tuple)) else [self.pattern]

    @property
    def binds_constants(self) -> bool:
        """Whether constants are bound inside the composite, so that its code is self-contained."""
        return bool(getattr(self.predicate, "binds_constants", False))


LAYOUTS = ("NHWC", "NCHW")


def layouts_of(predicate: object) -> tuple[str, ...]:
    """Return the layouts of a pattern of `umakit.patterns`; empty for other predicates."""
    given = getattr(predicate, "layouts", ())
    names = (given,) if isinstance(given, str) else given
    known = isinstance(names, (tuple, list)) and all(name in LAYOUTS for name in names)
    return tuple(names) if known else ()


@dataclass(frozen=True)
class RegisteredStrategy:
    """An operator strategy with its priority."""

    strategy: Any
    plevel: int


@dataclass(frozen=True)
class CodegenHooks:
    includes: Callable[[], str] | None = None
    replace_call_extern: ReplaceCallExtern | None = None


@dataclass(frozen=True)
class Driver:
    """The C files of a model library besides generated code, relative to the backend.

    Attributes:
        reentrant: whether several calls may run at the same time, so that runs need no lock.
        compiled: objects and libraries in link order.
    """

    sources: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    reentrant: bool = False
    compiled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transfers:
    """The driver calls that copy between shared memory and a scratchpad.

    Attributes:
        load: `int load(const void *source, uint32_t offset, int32_t bytes)`.
        store: `int store(uint32_t offset, void *destination, int32_t bytes)`.
    """

    load: str
    store: str


@dataclass(frozen=True)
class DeviceUse:
    """A library's use of an accelerator.

    Attributes:
        layers: sizes of the layers on the accelerator; None for a layer that `Layer` cannot
            describe.
        tiles: tiles of the planner's layers, each size and tiling once.
        scratchpad_bytes: bytes of the scratchpads in the memory plan.
        sum_bytes: largest use of `TileMachine.sum_bytes` by a tile; None if the planner does not
            cut all layers.
        cycles: predicted cycles of the longest layer; None if the planner does not cut all layers.
        macros: numbers defined in the driver's sources, such as `#define NPU_TIMEOUT 100u`.
    """

    layers: tuple[Layer | None, ...] = ()
    tiles: tuple[Tiles, ...] = ()
    scratchpad_bytes: int = 0
    sum_bytes: int | None = None
    cycles: int | None = None
    macros: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BoardNotes:
    """Notes on the device of a board for the README of a library, in Markdown.

    Attributes:
        device: requirements of the device, for the end of the section "NAME on hardware".
        time_limit: the driver's time limit and the way to change it, for the table of requirements;
            empty for the kit's text on drivers that define `NAME_TIMEOUT_CYCLES`.
    """

    device: str = ""
    time_limit: str = ""
