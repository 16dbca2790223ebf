# SPDX-License-Identifier: Apache-2.0
"""An independent check of memory plans that shares no code with the planners.

The check replays the program: a write makes a tensor the owner of its bytes, and at every read the
tensor must still own all its bytes. So a plan that overlaps two live tensors fails even if its
lifetimes are wrong. The check tracks ranges between neighbouring tensor borders instead of bytes,
so memory and time depend on the number of tensors, not on their sizes.
"""

from __future__ import annotations

import numpy as np

from umakit.errors import MemoryPlanError
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.program.program import KernelCall, Program, Role


def validate_plan(program: Program, plan: MemoryPlan) -> None:
    """Check that a plan keeps every tensor intact from its write to its last read."""
    for pool in plan.pools:
        if pool.pool.size is not None and pool.size > pool.pool.size:
            raise MemoryPlanError(
                f"{pool.size} B are planned, there are {pool.pool.size}",
                where=f"memory pool {pool.pool.name}",
            )
    for name, tensor in program.tensors.items():
        if tensor.role in (Role.INTERMEDIATE, Role.SCRATCH):
            _check_place(name, tensor.size, plan)
    for output, source in plan.shared.items():
        if _span(output, plan) != _span(source, plan):
            raise MemoryPlanError(
                f"takes over the memory of {source} but lies elsewhere", where=f"tensor {output}"
            )
    for call in program.calls:
        _check_reach(call, plan)
    for pool in plan.pools:
        _Replay(program, plan, pool).run()


def _check_place(name: str, size: int, plan: MemoryPlan) -> None:
    homes = [pool for pool in plan.pools if name in pool.offsets]
    if len(homes) != 1:
        raise MemoryPlanError(
            "has no offset" if not homes else "lies in two memory pools", where=f"tensor {name}"
        )
    home, offset = homes[0], homes[0].offsets[name]
    if offset < 0 or offset + size > home.size:
        raise MemoryPlanError(
            f"bytes {offset} to {offset + size} are outside the arena of {home.size}",
            where=f"tensor {name}",
        )
    if offset % home.pool.alignment:
        raise MemoryPlanError(
            f"offset {offset} is not a multiple of {home.pool.alignment}", where=f"tensor {name}"
        )


def _check_reach(call: KernelCall, plan: MemoryPlan) -> None:
    for name in call.arguments:
        for home in plan.pools:
            reachable = home.pool.reachable_by
            if name in home.offsets and reachable is not None and call.target not in reachable:
                raise MemoryPlanError(
                    f"lies in memory pool {home.pool.name}, out of reach of {call.target} "
                    f"({call.label})",
                    where=f"tensor {name}",
                )


def _span(name: str, plan: MemoryPlan) -> tuple[str, int] | None:
    return next(
        ((pool.pool.name, pool.offsets[name]) for pool in plan.pools if name in pool.offsets), None
    )


class _Replay:
    """Owner of each range between neighbouring tensor borders of a pool, step by step."""

    def __init__(self, program: Program, plan: MemoryPlan, pool: PoolPlan) -> None:
        self._program = program
        self._shared = plan.shared
        self._offsets = pool.offsets
        self._names = list(program.tensors)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        borders = {
            border
            for name, start in pool.offsets.items()
            for border in (start, start + program.tensors[name].size)
        }
        self._places = {border: place for place, border in enumerate(sorted(borders))}
        self._owner = np.full(len(borders), -1, dtype=np.int64)

    def run(self) -> None:
        running: list[tuple[int, KernelCall]] = []
        for step, call in enumerate(self._program.calls):
            inputs = [name for name in (*call.inputs, *call.kept) if name in self._offsets]
            for name in inputs:
                self._check(name, step, call)
            scratch = [name for name in call.scratch if name not in call.kept]
            written = [n for n in (*call.outputs, *scratch) if n in self._offsets]
            for name in written:
                self._owner[self._slice(name)] = self._numbers[name]
            # After the writes, all inputs except those overwritten in place must be intact.
            given_up = {name for name in inputs if self._may_take_over(call, name)}
            for name in (*(n for n in inputs if n not in given_up), *written):
                self._check(name, step, call)
            # The writes must not touch tensors of earlier steps that may still be running.
            running = [(last, earlier) for last, earlier in running if last >= step]
            for _, earlier in running:
                for name in earlier.arguments:
                    if name in self._offsets:
                        self._check(name, step, earlier)
            if call.overlapped:
                running.append((step + call.overlapped, call))

    def _slice(self, name: str) -> slice:
        start = self._offsets[name]
        return slice(self._places[start], self._places[start + self._program.tensors[name].size])

    def _check(self, name: str, step: int, call: KernelCall) -> None:
        owners = self._owner[self._slice(name)]
        strangers = owners[owners != self._numbers[name]]
        if strangers.size:
            first = int(strangers.min())
            thief = self._names[first] if first >= 0 else "nobody"
            raise MemoryPlanError(
                f"some of its bytes belong to {thief} at step {step} ({call.label})",
                where=f"tensor {name}",
            )

    def _may_take_over(self, call: KernelCall, source: str) -> bool:
        """Return whether the call's output occupies exactly an input that the kernel may
        overwrite."""
        kernel = self._program.kernels.get(call.kernel)
        if kernel is None or len(call.outputs) != 1 or call.outputs[0] not in self._offsets:
            return False
        output = call.outputs[0]
        if self._shared.get(output) != source:
            return False
        positions = [position for position, name in enumerate(call.inputs) if name == source]
        tensors = self._program.tensors
        return (
            self._offsets[source] == self._offsets[output]
            and tensors[source].size == tensors[output].size
            and len(positions) == 1
            and positions[0] in kernel.in_place
        )
