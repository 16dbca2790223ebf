# SPDX-License-Identifier: Apache-2.0
"""The rules of the trace-event format, as its description says them, for files of any writer."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

KEYS = {
    "M": {"ph", "name", "pid", "tid", "ts", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"ph", "name", "cat", "pid", "tid", "ts", "s", "args"},
    "C": {"ph", "name", "pid", "ts", "args"},
}
"""By phase, the keys that each of its events has."""


class Shown(NamedTuple):
    """What a reader of a file sees.

    Attributes:
        tracks: by process and track, its slices in order of their begins; tracks of one name
            follow each other.
        instants: by process and track.
        counters: by process and counter, (time, value).
        about: `otherData`.
    """

    tracks: dict[tuple[str, str], list[dict[str, Any]]]
    instants: dict[tuple[str, str], list[dict[str, Any]]]
    counters: dict[tuple[str, str], list[tuple[int, int]]]
    about: dict[str, Any]


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def read_trace(path: Path) -> Shown:
    """Read a trace and assert that it keeps the rules."""
    text = path.read_text(encoding="utf-8")
    whole = json.loads(text, parse_constant=no_constant)
    assert whole.keys() == {"traceEvents", "displayTimeUnit", "otherData"}
    assert whole["displayTimeUnit"] in ("ms", "ns")
    events = whole["traceEvents"]
    assert len(events) == whole["otherData"]["events"]
    names: dict[tuple[str, int, int], str] = {}
    by_thread = defaultdict(list)
    shown = Shown(defaultdict(list), defaultdict(list), defaultdict(list), whole["otherData"])
    for event in events:
        assert event.keys() == KEYS[event["ph"]], event
        assert type(event["pid"]) is int and type(event["ts"]) is int and event["ts"] >= 0
        assert type(event["name"]) is str and event["name"]
        if event["ph"] == "M" and event["name"].endswith("_name"):
            tid = event["tid"] if event["name"] == "thread_name" else 0
            key = (event["name"], event["pid"], tid)
            assert key not in names, "a name is given twice"
            names[key] = event["args"]["name"]
    assert len(set(names.values())) >= 2
    for event in events:
        process = names["process_name", event["pid"], 0]
        if event["ph"] == "C":
            assert all(type(value) is int for value in event["args"].values())
            value = event["args"]["bytes"]
            shown.counters[process, event["name"]].append((event["ts"], value))
        elif event["ph"] in "Xi":
            track = process, names["thread_name", event["pid"], event["tid"]]
            if event["ph"] == "i":
                shown.instants[track].append(event)
            else:
                by_thread[*track, event["tid"]].append(event)
    for (process, track, _), slices in by_thread.items():
        shown.tracks[process, track] += slices
    for (process, track, _), slices in by_thread.items():
        slices.sort(key=lambda each: (each["ts"], -each["dur"]))
        inference = shown.tracks[process, "layers"][0]
        assert (inference["name"], inference["ts"]) == ("inference", 0)
        for each in slices:
            assert type(each["dur"]) is int and each["dur"] >= 0
            end = each["ts"] + each["dur"]
            assert end <= inference["dur"], "a slice is not in the inference"
        alone = slices[1:] if track == "layers" else slices  # the layers lie in the inference
        alone = sorted(alone, key=lambda each: (each["ts"], each["dur"]))  # one of 0 overlaps none
        for one, next_one in pairwise(alone):
            assert one["ts"] + one["dur"] <= next_one["ts"], f"slices overlap on {track}"
    for values in shown.counters.values():
        assert [time for time, _ in values] == sorted(time for time, _ in values)
    return shown
