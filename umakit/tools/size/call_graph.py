# SPDX-License-Identifier: Apache-2.0
"""Worst-case stack of C functions, from the call graphs that GCC writes.

`gcc -fcallgraph-info=su` writes a `.ci` file next to each object: one line for each function with
its frame, one for each call. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

CALL_GRAPH_FLAG = "-fcallgraph-info=su"

INDIRECT = "__indirect_call"
"""GCC's name for the target of a call through a function pointer."""

RED_ZONE_BYTES = {"EM_X86_64": 128}
"""Bytes below the stack pointer that a leaf function may use in addition to its frame."""

_NODE = re.compile(
    r'^node: { title: "(?P<title>.*?)" label: "(?P<label>.*?)"(?P<ellipse> shape : ellipse)? }$'
)
_EDGE = re.compile(
    r'^edge: { sourcename: "(?P<caller>.*?)" targetname: "(?P<callee>.*?)"'
    r'(?: label: ".*?(?P<place>\d+:\d+)")?.* }$'
)
_FRAME = re.compile(r"^(?P<bytes>\d+) bytes \((?P<kind>[a-z,]+)\)$")


@dataclass(frozen=True)
class Frame:
    """The stack frame of a function.

    Attributes:
        size: size in bytes, including the return address if a call pushes it.
        bounded: whether the size is an upper bound; false with `alloca` or variable-length arrays.
        place: file and line of the function.
    """

    size: int
    bounded: bool
    place: str


@dataclass
class CallGraph:
    """Call graph of functions by key: the name, or `FILE:name` for a static function.

    Attributes:
        calls: keys of the callees of each function.
        sites: line and column of each call in C, with the key of the callee, which differs from the
            name in C for merged functions.
    """

    frames: dict[str, Frame] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    sites: list[tuple[str, str]] = field(default_factory=list)

    def add(self, text: str, file_name: str) -> None:
        """Add a `.ci` file; `file_name` makes the names of static functions unique."""
        for line in text.split("\n"):
            node, edge = _NODE.match(line), _EDGE.match(line)
            if node and not node["ellipse"]:
                key = _key(node["title"], file_name)
                self.frames[key] = _frame(node["label"])
                self.calls.setdefault(key, set())
                self.files[key] = file_name
            elif edge:
                caller, callee = (_key(edge[end], file_name) for end in ("caller", "callee"))
                self.calls.setdefault(caller, set()).add(callee)
                self.sites += [(edge["place"], callee)] if edge["place"] else []

    def unite(self, keys: Collection[str]) -> None:
        """Give functions with the same code the frame and the calls of the emitted one."""
        known = next((key for key in keys if key in self.frames), None)
        if known is not None:
            self.frames.update(dict.fromkeys(keys, self.frames[known]))
            self.calls.update(dict.fromkeys(keys, self.calls[known]))
            self.files.update(dict.fromkeys(keys, self.files[known]))

    def called_as(self, function: str, text: str) -> str | None:
        """Return the key of the function that the compiler calls in place of a function in C."""
        lines = text.split("\n")
        for place, callee in self.sites:
            line, column = (int(number) for number in place.split(":"))
            if re.match(rf"{function}\b", "".join(lines[line - 1 : line])[column - 1 :]):
                return callee
        return None

    def resolve_tables(self, files: Collection[str]) -> None:
        """Resolve calls through function pointers in some files to the possible callees.

        A static function without calls by name is compiled only if its address is taken, so each
        such function is a possible callee. A function that is also called by name would be missed:
        use only for files whose tables contain no such function.
        """
        called = {callee for callees in self.calls.values() for callee in callees}
        held = {
            key
            for key in self.frames
            if ":" in key and self.files[key] in files and key not in called
        }
        for key, callees in self.calls.items():
            if held and INDIRECT in callees and self.files.get(key) in files:
                callees.remove(INDIRECT)
                callees |= held

    def reachable(self, start: str) -> list[str]:
        """Return the keys of a function and of all direct and indirect callees, as discovered."""
        found = {start: None}
        waiting = [start]
        while waiting:
            for callee in sorted(self.calls.get(waiting.pop(), ())):
                if callee not in found:
                    found[callee] = None
                    waiting.append(callee)
        return list(found)


@dataclass(frozen=True)
class Stack:
    """The worst-case stack of a function.

    Attributes:
        size: total size in bytes of the frames on the deepest path, None if there is no bound.
        external_calls: names of reachable functions whose frames are unknown.
        findings: reasons for a missing bound, one sentence each.
        chain: bytes of each function on the deepest path, by key; the last includes the red zone.
    """

    size: int | None
    external_calls: tuple[str, ...]
    findings: tuple[str, ...]
    chain: Mapping[str, int] = field(default_factory=dict)


def worst_case_stack(graph: CallGraph, start: str, red_zone: int = 0) -> Stack:
    """Compute the worst-case stack; `red_zone` is the bytes in use below a frame."""
    reached = graph.reachable(start)
    external = sorted(key for key in reached if key not in graph.frames and key != INDIRECT)
    findings = [*_findings(graph, reached), *_recursion(graph, start)]
    if findings:
        return Stack(None, tuple(external), tuple(findings))
    depths: dict[str, int] = {}
    for key in _callees_first(graph, start):
        below = max((depths[callee] for callee in graph.calls.get(key, ())), default=0)
        frame = graph.frames.get(key)
        depths[key] = frame.size + max(below, red_zone) if frame else 0
    chain: dict[str, int] = {}
    key, left = start, depths[start]
    while left:
        callee = max(sorted(graph.calls.get(key, ())), key=lambda each: depths[each], default=key)
        below = depths[callee] if callee != key and depths[callee] > red_zone else 0
        chain[key] = left - below
        key, left = callee, below
    return Stack(depths[start], tuple(external), (), chain)


def _key(title: str, file_name: str) -> str:
    path, _, name = title.rpartition(":")
    return f"{file_name}:{name}" if path else name


def _frame(label: str) -> Frame:
    """Parse a frame from `name\\nfile:line:column\\n16 bytes (static)`."""
    parts = label.split("\\n")
    place = ":".join(parts[1].rsplit("/", 1)[-1].split(":")[:2]) if len(parts) > 1 else ""
    for part in parts:
        match = _FRAME.match(part)
        if match:
            return Frame(int(match["bytes"]), match["kind"] in ("static", "dynamic,bounded"), place)
    return Frame(0, False, place)


def _findings(graph: CallGraph, reached: Iterable[str]) -> list[str]:
    findings = []
    for key in reached:
        name, frame = key.rpartition(":")[2], graph.frames.get(key)
        if frame is not None and not frame.bounded:
            findings.append(f"{name} ({frame.place}) has a frame of variable size")
        if frame is not None and INDIRECT in graph.calls[key]:
            findings.append(f"{name} ({frame.place}) calls through a function pointer")
    return findings


def _recursion(graph: CallGraph, start: str) -> list[str]:
    findings = []
    for key, path in _walk(graph.calls, start):
        if key in path:
            names = [name.rpartition(":")[2] for name in [*path[path.index(key) :], key]]
            findings.append(f"recursion: {' calls '.join(names)}")
    return findings


def _walk(calls: Mapping[str, set[str]], start: str) -> Iterable[tuple[str, list[str]]]:
    """Traverse depth first; yield each edge once, as its target and the path to it."""
    seen = {start}
    path = [start]
    stack = [iter(sorted(calls.get(start, ())))]
    while stack:
        callee = next(stack[-1], None)
        if callee is None:
            stack.pop()
            path.pop()
            continue
        yield callee, list(path)
        if callee not in seen:
            seen.add(callee)
            path.append(callee)
            stack.append(iter(sorted(calls.get(callee, ()))))


def _callees_first(graph: CallGraph, start: str) -> list[str]:
    order: list[str] = []
    done: set[str] = set()
    waiting = [(start, False)]
    while waiting:
        key, expanded = waiting.pop()
        if expanded:
            order.append(key)
        elif key not in done:
            done.add(key)
            waiting.append((key, True))
            waiting += [(callee, False) for callee in graph.calls.get(key, ())]
    return order
