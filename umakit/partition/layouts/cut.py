# SPDX-License-Identifier: Apache-2.0
"""Two sides with the least cost: a minimum cut, by shortest augmenting paths.

J. Edmonds and R. M. Karp, "Theoretical improvements in algorithmic efficiency for network flow
problems", Journal of the ACM 19 (1972).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

N = TypeVar("N", bound=Hashable)

SOURCE, SINK = "source", "sink"


class Sides:
    """Items that are on one of two sides, and what each choice costs.

    The sides are called taken and left. Costs are integers from 0.
    """

    def __init__(self) -> None:
        self._room: dict[Hashable, dict[Hashable, int]] = defaultdict(dict)
        self._groups = 0
        self._everything = 1

    def cost(self, item: Hashable, *, taken: int = 0, left: int = 0) -> None:
        """Add what an item costs on either side."""
        self._edge(("item", item), SINK, taken)
        self._edge(SOURCE, ("item", item), left)
        self._everything += taken + left

    def together(self, items: Collection[Hashable], cost: int, *, left: bool = False) -> None:
        """Add what it costs once if items are not all on one side.

        Args:
            items: the items.
            cost: the cost.
            left: whether something that is always left is one of them.
        """
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
        """Add room for a flow; -1 stands for more than all costs."""
        if room == 0 or start == SINK or end == SOURCE:
            return
        before = self._room[start].get(end, 0)
        self._room[start][end] = -1 if -1 in (room, before) else before + room

    def taken(self) -> set[Hashable]:
        """Return the items that are taken at the least cost; of several answers the fewest."""
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
    """Return from where each node is reached first; ends with the sink."""
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
    """Fill the path that leads to the sink."""
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
