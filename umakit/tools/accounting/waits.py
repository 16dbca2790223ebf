# SPDX-License-Identifier: Apache-2.0
"""What engines that compute wait for, by the commands that a simulator reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from umakit.devices.run import CommandTimes, LayerProfile

KIT_COMPUTING = ("array",)
"""Engines that compute of umakit's simulators, as they report them."""


def waits_of(profile: LayerProfile, computing: Collection[str]) -> dict[str, int] | None:
    """Return the cycles of a layer in which engines work and none that computes does.

    A command is at work from its start to its completion. The commands are those of the first
    inference; they count only if they are all there and give the layer's own counters, so that a
    cycle is never told twice or of another inference.

    Args:
        profile: measurements of the layer, with its commands.
        computing: names of the engines that compute.

    Returns:
        Cycles by the names of the engines at work, such as `load` or `load + store`; None if the
        commands do not say it.
    """
    if profile.commands_left_out:
        return None
    states = Counter[tuple[str, ...]]()
    for engines, cycles in _states(profile.commands):
        states[engines] += cycles
    busy = sum(cycles for engines, cycles in states.items() if engines)
    own = set(computing)
    working = sum(cycles for engines, cycles in states.items() if own & set(engines))
    if (busy, working) != (profile.cycles, profile.array_cycles):
        return None
    return {
        " + ".join(engines): cycles
        for engines, cycles in sorted(states.items())
        if engines and not own & set(engines)
    }


def _states(commands: Sequence[CommandTimes]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the names of the engines at work, sorted, and for how many cycles that lasts."""
    changes: dict[int, Counter[str]] = {}
    for command in commands:
        if command.completion > command.start:
            changes.setdefault(command.start, Counter())[command.stream] += 1
            changes.setdefault(command.completion, Counter())[command.stream] -= 1
    active, before = Counter[str](), 0
    for now in sorted(changes):
        yield tuple(sorted(name for name, count in active.items() if count)), now - before
        for name, change in changes[now].items():
            active[name] += change
        before = now
