# SPDX-License-Identifier: Apache-2.0
"""Machines that `accel.toml` describes: formulas, tables, refusals, and their cycles."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparisons import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from test_tile_machines import TwoChannels, layer

from umakit.backend import AcceleratorConfig
from umakit.errors import AcceleratorConfigError
from umakit.machine import (
    ConfiguredMachine,
    Copy,
    DriverCosts,
    Kind,
    Layer,
    TileMachine,
    TilePlanner,
    Tiling,
    tiles_on,
)
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.machine.formulas import CostTable, FormulaError, parse_formula
from umakit.machine.space import axis_sizes, invalid, refusal
from umakit.machine.tiles import AXES, BUFFERS

NAMES = {"m": 5, "n": 12, "row_bytes": 7, "zero": 0}

TWO_CHANNELS = """
[accelerator]
name = "two_channels"

[machine]
macs_per_cycle = "lanes * lanes"
bytes_per_cycle = 12
figures = { lanes = 8, wide = 8, narrow = 4 }
units = { input_channels = "2 * lanes" }
limits = { rows = 5, output_channels = 32 }
block_channels = "lanes"
sums_in_result = true

[machine.driver]
begin = 3
configure = 4
configure_add = 2
transfer = 5
job = 6
check = 1
finish = 2

[[machine.queue]]
name = "jobs"
entries = 4

[[machine.queue]]
name = "copies"
entries = 6
completion = "polling"

[[machine.queue]]
name = "loads"
entries = 3
completion = "stall"

[[machine.engine]]
name = "array"
does = ["convolution"]
busy = "m * ceil_div(n, lanes) * ceil_div(k, lanes)"
tail = 7
depth = 2

[[machine.engine]]
name = "dma"
does = ["data", "result"]
queue = "copies"
busy = "planes * rows * ceil_div(row_bytes, narrow)"
tail = 9

[[machine.engine]]
name = "loader"
does = ["weights", "parameters"]
queue = "loads"
depth = 2
busy = "planes * rows * ceil_div(row_bytes, wide)"
tail = 20

[[memory]]
name = "data"
size = 4096
banks = 64
exclusive = false
holds = ["data", "result"]
address = "offset"
reachable_by = ["accelerator"]

[[memory]]
name = "weights"
size = 2048
banks = 32
exclusive = false
holds = ["weights", "parameters"]
address = "offset"
reachable_by = ["accelerator"]
"""
"""`TwoChannels` of `test_tile_machines.py`, which a stepped machine is compared with there."""


def loaded(folder: Path, text: str = TWO_CHANNELS) -> AcceleratorConfig:
    path = folder / "accel.toml"
    path.write_text(text, encoding="utf-8")
    return load_accelerator_config(path)


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> TilePlanner:
    return TilePlanner.of(loaded(tmp_path_factory.mktemp("machine")))


# ---- Formulas ----

LEAVES = st.one_of(st.sampled_from(["m", "n", "row_bytes"]), st.integers(0, 99).map(str))


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(parts, parts)
    return st.one_of(
        st.tuples(two, st.sampled_from(["+", "-", "*", "//", "%"])).map(
            lambda each: f"({each[0][0]} {each[1]} {each[0][1]})"
        ),
        two.map(lambda each: f"{each[0]} + {each[1]} * 3 - m"),
        st.tuples(two, st.sampled_from(["min", "max", "ceil_div"])).map(
            lambda each: f"{each[1]}({each[0][0]},\n {each[0][1]})"
        ),
        parts.map(lambda each: f"-({each})"),
    )


@examples(200)
@given(text=st.recursive(LEAVES, combined, max_leaves=8))
def test_formulas_are_what_python_computes(text: str) -> None:
    def rounded_up(dividend: int, divisor: int) -> int:
        quotient, rest = divmod(dividend, divisor)
        return quotient + (rest != 0)

    functions = {"min": min, "max": max, "ceil_div": rounded_up}
    flat = text.replace("\n", " ")
    try:
        expected = eval(flat, {"__builtins__": {}}, {**NAMES, **functions})
    except ZeroDivisionError:
        with pytest.raises(FormulaError, match="divides by 0"):
            parse_formula(text, NAMES)(NAMES)
        return
    assume(abs(expected) < 2**62)
    assert parse_formula(text, NAMES)(NAMES) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "": "is empty",
        "m *": "column 4: this is no formula; allowed are + - * // %, parentheses, integers, min",
        "m\n* (n": "column 5: this is no formula",
        "m ** 2": "column 1: this is not allowed",
        "n + m / 2": "column 5: / is not allowed; use // to round down, or ceil_div",
        "2.5 * m": "column 1: 2.5 is no integer",
        "m * True": "column 5: True is no integer",
        "m + size": "column 5: there is no name size; names are m, n, row_bytes, zero",
        "m # n": "column 3: '#' is not allowed",
        "max(m)": "column 1: max takes 2 or more arguments",
        "ceil_div(m, n, m)": "column 1: ceil_div takes 2 arguments",
        "  abs(m)": "column 3: there is no function abs; functions are min, max, ceil_div, jobs",
        "jobs(m)": "column 1: jobs takes m, n",
        "m.real": "column 1: this is not allowed",
        "().__class__": "column 1: this is not allowed",
        "__import__('os')": "column 1: there is no function __import__",
        "[m for m in n]": "column 1: this is not allowed",
        "m if n else 0": "column 1: this is not allowed",
        "m < n": "column 1: this is not allowed",
        "min(*m, n)": "column 5: this is not allowed",
        "max(m, n, key=n)": "column 1: this is not allowed",
        "é * m": "column 1: there is no name é",
        "m\0": r"column 2: .*x00' is not allowed",
        "(" * 400 + "m" + ")" * 400: "this is no formula|nested too deeply",
        "-" * 1500 + "m": "nested too deeply",
        "m + " + "9" * 1900: "column 5: this number is beyond 2..62",
        "9" * 19_000: "is longer than 2000 characters",
        "m" * 2001: "is longer than 2000 characters",
    }.items(),
)
def test_what_is_no_formula_is_refused_at_its_column(text: str, message: str) -> None:
    table = CostTable("jobs.csv", ("m", "n"), {}, "")
    with pytest.raises(FormulaError, match=message.replace("+ - * //", r"\+ - \* //")):
        parse_formula(text, NAMES, {"jobs": table})(NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "n // zero": "'n // zero' divides by 0 for n = 12, zero = 0",
        "jobs(m, n + 1)": "jobs.csv has no row with m = 5, n = 13 for m = 5, n = 12",
        "1000000000 * 1000000000 * m": "is beyond 2**62 for m = 5",
    }.items(),
)
def test_what_cannot_be_computed_is_refused_with_its_values(text: str, message: str) -> None:
    table = CostTable("jobs.csv", ("m", "n"), {(5, 12): 77}, "")
    formula = parse_formula(text, NAMES, {"jobs": table})
    with pytest.raises(FormulaError, match=re.escape(message)):
        formula(NAMES)
    for text_, value in {
        "jobs(m, n)": 77,
        "jobs(m, 3, 2 * m)": 10,
        "jobs(m, n, 1 // zero)": 77,
    }.items():
        assert parse_formula(text_, NAMES, {"jobs": table})(NAMES) == value


# ---- The section ----


def edited(*changes: tuple[str, str]) -> str:
    text = TWO_CHANNELS
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"lanes * lanes"', '"lanes * lane"',
         "machine.macs_per_cycle: column 9: there is no name lane; names are lanes, narrow"),
        ("ceil_div(k, lanes)", "ceil_div(q, lanes)",
         "machine.engine.array.busy: column 35: there is no name q; names are channels, col"),
        ("row_bytes, narrow", "k, narrow", "machine.engine.dma.busy: column 26: there is no nam"),
        ("tail = 7", 'tail = "7 / 2"', "machine.engine.array.tail: column 1: / is not allowed"),
        ("tail = 7", "tail = -1", "machine.engine.array.tail: -1 is not 0 to 2"),
        ("tail = 7", "tail = 7.5", "machine.engine.array.tail: 7.5 is neither an integer nor"),
        ("tail = 7", "tail = true", "machine.engine.array.tail: True is neither an integer nor"),
        ('name = "array"', 'name = "2 arrays"', "machine.engine.0.name: String should match"),
        ('name = "array"', "", "machine.engine.0.name: is missing"),
        ("tail = 7", "tale = 7", "machine.engine.array.tale: there is no such key; remove it"),
        ("depth = 2", "depth = 0", "machine.engine.array.depth: 0 is less than 1"),
        ("entries = 4", 'entries = "-lanes"', "machine.queue.jobs.entries: -lanes is -8, less th"),
        ("entries = 4", "entries = 0", "machine.queue: queues with and without entries do not go"),
        ('name = "loads"', 'name = "jobs"', "machine.queue: two are called jobs"),
        ('name = "loader"', 'name = "dma"', "machine.engine: two are called dma"),
        ('queue = "loads"', 'queue = "load"', "machine.engine.loader.queue: there is no queue loa"),
        ('["weights", "parameters"]\nqueue', '["weights"]\nqueue',
         "machine.engine: none copies parameters; name it in does of one"),
        ('["weights", "parameters"]\nqueue', '["weights", "parameters", "data"]\nqueue',
         "machine.engine.loader.does: dma does data already"),
        ('does = ["convolution"]', 'does = ["convolutions"]',
         'machine.engine.array.does.0: .*; write "convolution" instead of "convolutions"'),
        ('does = ["convolution"]', 'does = ["gemm"]',
         "machine.engine.array.does.0: Input should be 'data', 'weights',"),
        ('[machine]', '[device]\nsimulator = "mac_array"\n[machine]', "array: is missing"),
        ('does = ["convolution"]', 'does = ["addend"]\nqueue = "jobs"',
         "machine.engine.array.busy: column 1: there is no name m"),
        ("tail = 9", "costs.weights.busy = 4", "machine.engine.dma.costs.weights: does has no wei"),
        ("tail = 9", "costs.result = { busy = 'm' }",
         "machine.engine.dma.costs.result.busy: column 1: there is no name m"),
        ('busy = "planes * rows * ceil_div(row_bytes, narrow)"', "",
         "machine.engine.dma: data has no cost; give busy, or costs.data"),
        ("lanes = 8", "rows = 8", "machine.figures.rows: formulas have this name already"),
        ("wide = 8", 'wide = "narrow * 2"', "machine.figures.wide: column 1: there is no nam"),
        ("units = { input_channels", "units = { channels", "machine.units.channels"),
        ("limits = { rows = 5", "limits = { rows = 0", "machine.limits.rows: 0 is less than 1"),
        ("sums_in_result = true", 'footprints.data = "4 * q"',
         "machine.footprints.data: column 5: there is no name q"),
        ("sums_in_result = true", 'tables.t = "none.csv"',
         "machine.tables.t: there is no file none.csv in the backend's folder"),
        ("sums_in_result = true", 'tables.t = "../t.csv"', "machine.tables.t: .*outside"),
        ("job = 6", "job = 0", "machine.driver.job: 0 is less than 1"),
        ('holds = ["data", "result"]', 'holds = ["data", "weights"]',
         "memory weights: data holds weights already"),
        ("banks = 64", "banks = 63", "memory.0.banks: data: 4096 bytes are not 63 equal banks"),
        ('name = "weights"\nsize', 'name = "data"\nsize', "memory: two have the same name"),
        ("row", "row", ""),
    ],
)  # fmt: skip
def test_contradictions_are_refused_by_their_key(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    if not message:
        loaded(tmp_path)
        return
    with pytest.raises(AcceleratorConfigError, match=rf"accel\.toml(:\d+)?: {message}"):
        loaded(tmp_path, edited((old, new)))


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        ("banks = 64", "banks = 63", "4096 bytes are not 63 equal banks: write a divisor of the"),
        ("size = 4096", 'size = "4 K"', "memory.0.size: '4 K' is not an integer; write 4096"),
        ("size = 4096", 'size = "4KiB"', "memory.0.size: '4KiB' is not an integer; write 4096"),
        ("size = 4096", 'size = "much"', "memory.0.size: 'much' is not an integer; write an integ"),
        ("size = 4096", "size = 4096.0", "memory.0.size: 4096.0 is not an integer; write an int"),
    ],
)
def test_values_of_memories_are_refused_with_their_own_line(
    line: str, wrong: str, message: str, tmp_path: Path
) -> None:
    text = edited((line, wrong))
    with pytest.raises(AcceleratorConfigError) as caught:
        loaded(tmp_path, text)
    number = 1 + text.splitlines().index(wrong)
    assert caught.value.where.endswith(f"accel.toml:{number}")
    assert message in str(caught.value)


def test_layers_without_sums_are_too_large_by_the_memory_that_lacks_room(tmp_path: Path) -> None:
    """A dense layer whose smallest tile, 8 output channels, has all of its input channels."""
    text = edited(("sums_in_result = true", ""))
    weights = 8 * 3000
    reason = compiled_reason(text, tmp_path / "without", 3000)
    found = re.fullmatch(
        r"its smallest tile needs ([\d,]+) B, weights has 2,048 B, and input channels cannot be "
        "cut: there is neither sum_bytes nor sums_in_result",
        reason,
    )
    assert found, reason
    assert weights < int(found[1].replace(",", "")) <= weights + 8 * 16
    assert compiled_reason(TWO_CHANNELS, tmp_path / "with", 3000) == ""
    assert compiled_reason(text, tmp_path / "few", 100) == ""


def compiled_reason(text: str, folder: Path, inputs: int) -> str:
    """The reason why a planner takes no dense layer with so many inputs."""
    folder.mkdir()
    planner = TilePlanner.of(loaded(folder, text))
    what = replace(layer(1, inputs, 16, 1), scales=1)
    return "" if planner.default(what) else planner._too_large(what)


def test_memories_have_these_keys_for_machines_only(tmp_path: Path) -> None:
    head, rest = TWO_CHANNELS.split("[machine]")
    text = head + "[array]\nrows = 1\ncolumns = 1\n[[memory]]" + rest.split("[[memory]]")[1]
    with pytest.raises(AcceleratorConfigError, match="exclusive, holds, row_bytes need a section"):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "message"),
    {
        "m,n,cycles\n5,8,3\n# 1,1,1\n": "",
        "m,n,cycles\n5,8\n": "jobs.csv, line 2: 2 columns, not 3",
        "m,n,cycles\n5,8,3.5\n": "jobs.csv, line 2: '3.5' is no number of 0 or more",
        "m,n,cycles\n5,8,3\n5,8,4\n": "jobs.csv, line 3: the same key has another value above",
        "cycles\n3\n": "jobs.csv: the first line has to name the columns",
        "": "jobs.csv: the first line has to name the columns",
    }.items(),
)
def test_tables_are_looked_up(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(content, encoding="utf-8")
    changes = (
        ("sums_in_result = true", 'tables.jobs = "jobs.csv"'),
        ('busy = "m *', 'busy = "jobs(m, n, 0) + m *'),
    )
    if message:
        with pytest.raises(AcceleratorConfigError, match=f"machine.tables.jobs: {message}"):
            loaded(tmp_path, edited(*changes))
        return
    table, plain = (
        ConfiguredMachine(loaded(tmp_path, text)) for text in (edited(*changes), TWO_CHANNELS)
    )
    what = layer(6, 16, 8, 1)
    for columns, more in {5: 3, 4: 0}.items():
        sizes = tiles_on(what, Tiling(plain.dataflows[0], 1, columns, 8, 16), plain).largest
        assert table.job(sizes).busy == plain.job(sizes).busy + more
    assert table.figures() != plain.figures()
    (tmp_path / "jobs.csv").write_text(content + "6,6,1\n", encoding="utf-8")
    assert ConfiguredMachine(loaded(tmp_path, edited(*changes))).figures() != table.figures()


# ---- The machine ----


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Layer, Tiling]:
    machine = TwoChannels()
    what = draw(
        st.builds(layer, st.integers(3, 9), st.integers(1, 40), st.integers(2, 40), st.just(2))
    )
    sizes = [
        draw(st.sampled_from(axis_sizes(what, machine, axis, every=True)))
        for axis in ("rows", "columns", "output_channels", "input_channels")
    ]
    order = tuple(draw(st.permutations(AXES)))
    return what, Tiling(machine.dataflows[0], *sizes, order, draw(st.sampled_from(BUFFERS)))


@examples(60)
@given(cut=cuts())
def test_a_described_machine_is_the_same_one_in_python(
    planner: TilePlanner, cut: tuple[Layer, Tiling]
) -> None:
    what, tiling = cut
    python, described = TwoChannels(), planner.machine
    reason = invalid(what, tiling, python)
    assert invalid(what, tiling, described) == reason
    assume(not reason)
    assert planner.driver == DriverCosts(3, 4, 2, 5, 6, 1, 2)
    found = [
        TilePlanner(machine, planner.driver).predict(tiles_on(what, tiling, machine))
        for machine in (python, described)
    ]
    assert found[0].cycles == found[1].cycles and found[0].bound == found[1].bound
    assert found[0].run is not None and found[1].run is not None
    assert found[0].run.timeline == found[1].run.timeline


def test_layers_without_an_engine_are_refused_by_name(planner: TilePlanner) -> None:
    pool = Layer(Kind.MAX_POOL, 1, (4, 4), (2, 2), 8, 8, (2, 2), scales=0, stored_channels=8)
    assert refusal(pool, planner.machine) == "no engine of [machine] computes max_pool"
    assert planner.default(pool) is None
    adds = Layer(Kind.CONVOLUTION, 1, (4, 4), (4, 4), 16, 8, (1, 1), stored_channels=8, adds=True)
    assert refusal(adds, planner.machine) == "no engine of [machine] copies an addend"


def test_costs_below_a_cycle_are_refused_when_they_are_asked_for(tmp_path: Path) -> None:
    text = edited(("row_bytes, narrow)", "row_bytes, narrow) - 20"))
    machine = ConfiguredMachine(loaded(tmp_path, text))
    with pytest.raises(
        AcceleratorConfigError,
        match=r"accel.toml:\d+: machine.engine.dma.busy: 'planes .* - 20' is -12 for "
        r"planes = 1, row_bytes = 16, rows = 2, less than 1; correct its section \[machine\]",
    ):
        machine.copy(Copy("data", 1, 2, 16))


FIGURES: dict[str, tuple[str, str, str]] = {
    "width": ("lanes = 8", "lanes = 4", "figures.lanes"),
    "size": ("size = 4096", "size = 8192", "machine.memories.data.size"),
    "banks": ("banks = 32", "banks = 16", "machine.memories.weights.banks"),
    "one channel": (
        'does = ["data", "result"]\nqueue = "copies"',
        'does = ["data", "result", "weights", "parameters"]\nqueue = "copies"',
        "streams.weights",
    ),
}


@pytest.mark.parametrize("case", FIGURES)
def test_figures_of_the_file_are_enough_to_change_the_machine(case: str, tmp_path: Path) -> None:
    old, new, figure = FIGURES[case]
    text = edited((old, new))
    if case == "one channel":
        head, _, tail = text.partition('[[machine.engine]]\nname = "loader"')
        text = head + tail[tail.index("[[memory]]") :]
        text = text.replace("bytes_per_cycle = 12", "bytes_per_cycle = 4")
    before = TilePlanner.of(loaded(tmp_path))
    planner = TilePlanner.of(loaded(tmp_path, text))
    what = layer(12, 32, 24, 3)
    cycles = []
    for each in (before, planner):
        tiling = each.default(what)
        assert tiling is not None and invalid(what, tiling, each.machine) == ""
        cycles.append(each.predict(tiles_on(what, tiling, each.machine)).cycles)
    old_figures, new_figures = before.machine.figures(), planner.machine.figures()
    changed = {
        name for name in old_figures | new_figures if old_figures.get(name) != new_figures.get(name)
    }
    assert figure in changed
    if case in ("width", "one channel"):
        assert cycles[1] > cycles[0]


def test_a_planner_needs_a_machine_or_costs_of_the_driver(tmp_path: Path) -> None:
    configuration = AcceleratorConfig.model_validate(
        {"accelerator": {"name": "npu"}, "array": {"rows": 1, "columns": 1}}
    )
    with pytest.raises(AcceleratorConfigError, match=r"there is no section .machine.; describe"):
        TilePlanner.of(configuration)
    with pytest.raises(AcceleratorConfigError, match=r"there is no section .machine."):
        ConfiguredMachine(configuration)


def test_functions_that_return_something_else_make_another_machine() -> None:
    class Slower(TwoChannels):
        def copy(self, copied: Copy) -> Any:
            cost = super().copy(copied)
            return type(cost)(cost.busy, cost.tail + (copied.tensor == "weights"))

    machines: list[TileMachine] = [TwoChannels(), Slower()]
    first, second = (machine.figures() for machine in machines)
    names = {name for name in first if first[name] != second[name]}
    assert names and all(name.startswith("copy.weights.") for name in names)


def test_the_example_of_the_page_is_a_machine(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "backends-api.md").read_text(encoding="utf-8")
    text = page.partition("### `[machine]`")[2].partition("```toml\n")[2].partition("```")[0]
    planner = TilePlanner.of(loaded(tmp_path, '[accelerator]\nname = "npu"\n' + text))
    what = layer(12, 32, 40, 3)
    tiling = planner.default(what)
    assert tiling is not None and planner.predict(tiles_on(what, tiling, planner.machine)).cycles
