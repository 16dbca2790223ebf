# SPDX-License-Identifier: Apache-2.0
"""The choice of operators that get the layout of an accelerator's patterns.

The network is matched with every connected operator changed, and the layouts of least cost, a
minimum cut, are chosen; of equal costs the fewest changes. An operator that an accelerator takes in
only one layout costs its multiply-accumulates in the other one, less the accelerator's predicted
cycles, at least 1. A tensor between two layouts costs 1 per element that moves, once, and a
constant nothing. On a Cortex-M3 a transpose takes 3 to 4 instructions per element, and a
convolution at least 3 per multiply-accumulate.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from umakit import tvm_api
from umakit.cpu.description import Cpu
from umakit.errors import UmakitError
from umakit.machine.planner import prediction_of
from umakit.operators.offload.constraints import OtherLayout, OtherOperator
from umakit.operators.offload.pattern import OperatorPattern
from umakit.partition.layouts.graph import Graph, Var, rewrite
from umakit.partition.layouts.rules import Axes, Flip
from umakit.partition.macs import multiply_accumulates
from umakit.partition.matching import Refusals, fuse_all, offloaded_rows
from umakit.partition.provenance import Provenance, note_rows
from umakit.partition.report import CPU, OperatorPlacement
from umakit.registration.backend import Backend
from umakit.registration.registered import Pattern
from umakit.tvm_api import IRModule


@dataclass(frozen=True)
class Fitted:
    """A network for a list of backends.

    Attributes:
        module: the network, perhaps with other layouts.
        target: the new layout of regions; empty without changes.
        axes: order of the model's axes in results of another layout, by row.
        transposed: bytes that added transposes move, by row.
        sources: operands of added transposes by row, as in `OperatorPlacement.transposes`.
        refused: reasons to keep a layout that no accelerator takes, by row.
        macs: multiply-accumulates on accelerators without any change; -1 if unknown.
        origins: rows before the change by row; empty without changes.
        elsewhere: further reasons of an accelerator for an operator in the accelerator's layout, by
            target and row before the change.
    """

    module: IRModule
    target: str = ""
    axes: Mapping[int, Axes] = field(default_factory=dict)
    transposed: Mapping[int, int] = field(default_factory=dict)
    sources: Mapping[int, int] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    macs: int = -1
    origins: Mapping[int, int] = field(default_factory=dict)
    elsewhere: Mapping[str, Mapping[int, Sequence[str]]] = field(default_factory=dict)

    def noted(self, placements: Iterable[OperatorPlacement]) -> Iterator[OperatorPlacement]:
        """Yield the rows of the offload report, with notes on their layouts."""
        for row, placement in enumerate(placements):
            noted = replace(
                placement,
                axes=self.axes.get(row, ()),
                changes_layout=row in self.transposed,
                transposes=self.sources.get(row),
            )
            if placement.where == CPU and row in self.transposed:
                noted = replace(noted, reason=self._said_of_transpose(row))
            elif placement.where == CPU and row in self.refused:
                noted = replace(noted, reason=f"{placement.reason}; {self.refused[row]}")
            yield noted

    def _said_of_transpose(self, row: int) -> str:
        layout = self.target if row in self.axes else Flip(self.target).source
        moved = self.transposed[row]
        return f"to {layout}, {moved:,} B" if moved else f"to {layout}, moves nothing"


def fit_layouts(
    module: IRModule,
    backends: Sequence[Backend],
    assigned: Mapping[int, str] | None = None,
    cpu: Cpu | None = None,
) -> Fitted:
    """Change layouts of a network if the change pays; most networks stay unchanged."""
    main = module["main"]
    blocks = [block for block in main.body.blocks if len(block.bindings)]
    elsewhere: Mapping[str, Mapping[int, Sequence[str]]] = {}
    for target in _targets(backends) if len(blocks) == 1 else ():
        graph = Graph(main, Flip(target))
        if graph.anchors():
            choice = _Choice(module, backends, graph, assigned or {})
            fitted = choice.fitted()
            elsewhere = choice.elsewhere or elsewhere
            if fitted is not None:
                return replace(fitted, elsewhere=elsewhere)
    if cpu is not None and cpu.layout and len(blocks) == 1:
        graph = Graph(main, Flip(cpu.layout))
        if graph.anchors():
            choice = _Choice(module, backends, graph, assigned or {})
            return replace(choice.fitted_to_cpu(cpu.dtypes_of_layout), elsewhere=elsewhere)
    return Fitted(module, elsewhere=elsewhere)


def _targets(backends: Iterable[Backend]) -> list[str]:
    """Return layouts that are the only layout of a pattern, in order of priority."""
    wanted = [pattern.layouts for backend in backends for pattern in backend.patterns]
    return list(dict.fromkeys(names[0] for names in wanted if len(names) == 1))


class _Choice:
    def __init__(
        self,
        module: IRModule,
        backends: Sequence[Backend],
        graph: Graph,
        assigned: Mapping[int, str],
    ) -> None:
        self._module = module
        self._backends = backends
        self._graph = graph
        rows = _rows(module)
        self._refused: dict[str, dict[int, list[str]]] = {}
        self.elsewhere: dict[str, dict[int, list[str]]] = {}
        self._assigned = {v: assigned[rows[v]] for v in graph.calls if rows.get(v) in assigned}
        self._work = {
            variable: multiply_accumulates(tvm_api.operator_name(call), call, variable)
            for variable, call in graph.calls.items()
        }

    def fitted(self) -> Fitted | None:
        """Return the network; None if no accelerator takes more operators in the other layout."""
        before = self._taken(self._module, {variable: variable for variable in self._graph.calls})
        anchors = [] if before is None else self._graph.anchors()
        missing = [variable for variable in anchors if variable not in (before or ())]
        if before is None or not missing:
            return None
        connected = self._graph.connected(missing)
        trial, refused_before = rewrite(self._module, self._graph, connected), self._refused
        behind = self._taken(trial.module, trial.origins)
        self.elsewhere = {
            name: {
                row: [
                    f"as {self._graph.flip.target}: {reason}"
                    for reason in reasons
                    if not isinstance(reason, OtherLayout | OtherOperator)
                    and reason not in refused_before[name].get(row, ())
                ]
                for row, reasons in found.items()
            }
            for name, found in self._refused.items()
        }
        if behind is None or not behind.keys() - before.keys():
            return None
        chosen = self._cheapest(before, behind)
        macs = sum(self._work[variable] for variable in before)
        staying = [v for v in anchors if v in behind and v not in before and v not in chosen]
        refused = {variable: self._reason(variable, behind[variable]) for variable in staying}
        if not chosen:
            rows = _rows(self._module)
            by_row = {rows[variable]: reason for variable, reason in refused.items()}
            return Fitted(self._module, refused=by_row, macs=macs)
        return self._made(chosen, refused, macs)

    def fitted_to_cpu(self, dtypes: Collection[str]) -> Fitted:
        """Return the network with CPU operators in the other layout, if the CPU computes their
        dtypes faster.

        Operators of accelerators keep their layout.
        """
        before = self._taken(self._module, {variable: variable for variable in self._graph.calls})
        faster = {
            variable: 0
            for variable in self._graph.anchors()
            if variable not in (before or {}) and tvm_api.dtype_of(variable) in dtypes
        }
        chosen = self._cheapest(before or {}, {**(before or {}), **faster}, staying=1)
        if not chosen:
            return Fitted(self._module)
        macs = sum(self._work[variable] for variable in before or ())
        return self._made(chosen, {}, macs)

    def _made(self, chosen: set[Var], refused: Mapping[Var, str], macs: int) -> Fitted:
        made = rewrite(self._module, self._graph, chosen)
        before, rows = _rows(self._module), _rows(made.module)
        origins = {v: origin for v, origin in made.origins.items() if v in rows}
        row_of = {origin: rows[variable] for variable, origin in origins.items()}
        row_of |= {v: -1 - number for number, v in enumerate(self._module["main"].params)}
        return Fitted(
            made.module,
            self._graph.flip.target,
            {rows[variable]: axes for variable, axes in made.axes.items()},
            {rows[variable]: size for variable, size in made.transposed.items()},
            {rows[v]: row_of[source] for v, source in made.sources.items() if source in row_of},
            {row_of[variable]: reason for variable, reason in refused.items()},
            macs,
            {rows[variable]: before[origin] for variable, origin in origins.items()},
        )

    def _taken(self, module: IRModule, origins: Mapping[Var, Var]) -> dict[Var, int] | None:
        """Return the operators that backends take, each with its cycles, 0 if unknown.

        None if a predicate fails. `origins` has the original variables, by variable of this
        network.
        """
        variables = list(self._graph.calls)
        numbers = {variable: number for number, variable in enumerate(variables)}

        def rows_for(binding: tvm_api.Binding) -> tuple[int, ...]:
            origin = origins.get(binding.var)
            return () if origin is None else (numbers[origin],)

        provenance = Provenance(module["main"], rows_for)
        predictions = Predictions()
        assigned = {numbers[variable]: target for variable, target in self._assigned.items()}
        refusals = {
            backend.target_name: Refusals(on_match=predictions.note, assigned=assigned)
            for backend in self._backends
        }
        # Matches are told by the rows of their calls.
        bindings = tvm_api.bindings_of(module["main"])
        calls = (each for each in bindings if isinstance(each.value, tvm_api.Call))
        module = note_rows(module, list(map(rows_for, calls)))
        values = {
            variables[row]: binding.value
            for binding in tvm_api.bindings_of(module["main"])
            for row in tvm_api.rows_of(binding.value)
        }
        try:
            fused = fuse_all(module, self._backends, refusals)
        except UmakitError:  # the network itself reports what the user has to see
            return None
        rows = _rows(self._module)
        self._refused = {
            name: {rows[variables[number]]: said for number, said in found.reasons.items()}
            for name, found in refusals.items()
        }
        found = [variables[row] for row in sorted(offloaded_rows(fused, provenance))]
        return {variable: predictions.of(values[variable]) for variable in found}

    def _cheapest(
        self, before: Mapping[Var, int], behind: Mapping[Var, int], staying: int = 0
    ) -> set[Var]:
        """Return the operators that change, at the least cost."""
        sides = Sides()
        for variable, rule in self._graph.rules.items():
            work = self._work[variable]
            now, then = rule.moved
            gained = lost = 0
            if variable in behind and variable not in before:
                gained = max(1, work - behind[variable])
            elif variable in before and variable not in behind:
                lost = max(1, work - before[variable])
            sides.cost(variable, left=gained + now + staying, taken=lost + then)
        for tensor in self._graph.tensors.values():
            sides.together(tensor.members, tensor.elements, left=tensor.kept)
        taken = sides.taken()
        return {variable for variable in self._graph.rules if variable in taken}

    def _reason(self, variable: Var, cycles: int) -> str:
        flip = self._graph.flip
        size = sum(
            tensor.elements for tensor in self._graph.tensors.values() if variable in tensor.members
        )
        work = f"{self._work[variable]:,} MACs"
        work += f", {cycles:,} cycles for them," if cycles else ","
        return f"{flip.target} does not pay: it has {work} and up to {size:,} elements to transpose"


def _rows(module: IRModule) -> dict[Var, int]:
    bindings = tvm_api.bindings_of(module["main"])
    named = (binding.var for binding in bindings if tvm_api.operator_name(binding.value))
    return {variable: row for row, variable in enumerate(named)}


# Two sides with the least cost: a minimum cut, by shortest augmenting paths.
#
# J. Edmonds and R. M. Karp, "Theoretical improvements in algorithmic efficiency for network flow
# problems", Journal of the ACM 19 (1972).

N = TypeVar("N", bound=Hashable)

SOURCE, SINK = "source", "sink"


class Sides:
    """Items on one of two sides, with the cost of each choice.

    The sides are called taken and left. Costs are integers from 0.
    """

    def __init__(self) -> None:
        self._room: dict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        self._groups = 0
        self._everything = 1

    def cost(self, item: Hashable, *, taken: int = 0, left: int = 0) -> None:
        self._edge(("item", item), SINK, taken)
        self._edge(SOURCE, ("item", item), left)
        self._everything += taken + left

    def together(self, items: Collection[Hashable], cost: int, *, left: bool = False) -> None:
        """Add a cost, once, for items that are not all on one side, or all `left`."""
        members: list[Hashable] = [("item", item) for item in dict.fromkeys(items)]
        if left:
            members.append(SINK)
        if cost == 0 or len(members) < 2:
            return
        self._groups += 1
        self._everything += cost
        above, below = ("above", self._groups), ("below", self._groups)
        self._edge(above, below, cost)
        for member in members:
            self._edge(member, above, -1)
            self._edge(below, member, -1)

    def _edge(self, start: Hashable, end: Hashable, room: int) -> None:
        """Add capacity for a flow; -1 stands for more than all costs."""
        if room == 0 or start == SINK or end == SOURCE:
            return
        before = self._room[start].get(end, 0)
        self._room[start][end] = -1 if -1 in (room, before) else before + room

    def taken(self) -> set[Hashable]:
        """Return the items taken at the least cost; the fewest items of several answers."""
        room = {
            start: {end: self._everything if size < 0 else size for end, size in ends.items()}
            for start, ends in self._room.items()
        }
        while True:
            came = _reached(room)
            if SINK not in came:
                return {node[1] for node in came if isinstance(node, tuple) and node[0] == "item"}
            _push(room, came)


def _reached(room: Mapping[Hashable, Mapping[Hashable, int]]) -> dict[Hashable, Hashable]:
    """Return the first predecessor of each reached node; ends at the sink."""
    came: dict[Hashable, Hashable] = {SOURCE: SOURCE}
    waiting = deque([SOURCE])
    while waiting and SINK not in came:
        node = waiting.popleft()
        for other, left in room.get(node, {}).items():
            if left > 0 and other not in came:
                came[other] = node
                waiting.append(other)  # type: ignore[arg-type]
    return came


def _push(room: dict[Hashable, dict[Hashable, int]], came: Mapping[Hashable, Hashable]) -> None:
    path = []
    node: Hashable = SINK
    while node != SOURCE:
        path.append((came[node], node))
        node = came[node]
    amount = min(room[start][end] for start, end in path)
    for start, end in path:
        room[start][end] -= amount
        back = room.setdefault(end, {})
        back[start] = back.get(start, 0) + amount


class Predictions:
    """Cycles of matches by their calls; `note` is for `Refusals.on_match`."""

    def __init__(self) -> None:
        self._cycles: dict[Any, int] = {}

    def note(
        self, backend: Backend, pattern: Pattern, context: tvm_api.PatternCheckContext
    ) -> None:
        """Note the cycles of a match, if the backend cuts it into tiles."""
        planner, predicate = backend.tiling, pattern.predicate
        if planner is None or not isinstance(predicate, OperatorPattern):
            return
        try:
            tiles = planner.tiles_of(predicate.composite_in(context), {})
            cycles = prediction_of(planner, tiles).cycles
        except Exception:  # the backend takes the layer, whatever its planner raises
            return
        for call in (context.matched_expr, *context.matched_bindings.values()):
            self._cycles[call] = cycles

    def of(self, call: tvm_api.Expr) -> int:
        """Return the cycles of a call's match; 0 if unknown."""
        return self._cycles.get(call, 0)
