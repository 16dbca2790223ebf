# SPDX-License-Identifier: Apache-2.0
"""`uma report --compare` and budgets: differences of drawn reports by sums over their JSON, limits
by integer arithmetic, machines that are slower or take less, and exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remembering import remember
from umakit.cli.main import run_command

from umakit.errors import InputError, UmakitError
from umakit.tools.comparison.compare import Comparison
from umakit.tools.comparison.figures import FIGURES, TIMES
from umakit.tools.comparison.limits import check_limits, parse_limit
from umakit.tools.comparison.lines import Change
from umakit.tools.comparison.reading import is_report_file, read_report, report_of
from umakit.tools.comparison.text import html

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
CHOCOLATE = ROOT / "backends" / "chocolate_accelerator"

View = dict[str, Any]
PARTS = ("computing", "registers", "idle", "undivided")


# --- drawn reports --------------------------------------------------------------------------------


def identity(name: str, operators: list[str]) -> View:
    fields = {"given": "", "index": None, "path": "", "kind": ""}
    found = [{"name": each, **fields} for each in operators]
    return {"key": name, "role": "operators", "operators": found, "part": 0}


def row(owner: str, name: str, where: str, operators: list[str], cycles: dict[str, int]) -> View:
    """A row whose parts are given, `load` and `store` as waits."""
    waits = {key: cycles[key] for key in ("load", "store") if key in cycles}
    parts = {"waits": waits, **{key: cycles.get(key, 0) for key in PARTS}}
    is_layer = owner == "layer"
    return {
        "owner": owner, "name": name, "where": where, "kind": "",
        "identity": None if owner == "between layers" else identity(name, operators),
        "macs": cycles.get("macs", 0),
        "clock_cycles": sum(waits.values()) + sum(cycles.get(key, 0) for key in PARTS),
        "parts": parts,
        "register_reads": cycles.get("reads", 0) if owner != "between layers" else None,
        "register_writes": cycles.get("writes", 0) if owner != "between layers" else None,
        "moved_bytes": cycles.get("moved", 0) if is_layer else None,
        "read_bytes": cycles.get("read", 0) if owner == "cpu step" else None,
        "written_bytes": cycles.get("written", 0) if owner == "cpu step" else None,
    }  # fmt: skip


def view_of(rows: list[View], layers: list[View], sizes: dict[str, int]) -> View:
    """A report with these rows, and sums that the rows have."""
    waits: dict[str, int] = {}
    for each in rows:
        for name, cycles in each["parts"]["waits"].items():
            waits[name] = waits.get(name, 0) + cycles
    parts = {key: sum(each["parts"][key] for each in rows) for key in PARTS}
    own = [each for each in rows if each["owner"] == "layer"]
    return {
        "format": "umakit report", "version": 1, "model": "net.onnx", "model_sha256": "0" * 64,
        "umakit_version": "1", "inputs": "drawn", "accelerators": [{"name": "npu"}],
        "operators": [], "layers": layers, "more": "is ignored",
        "accounting": {
            "rows": rows, "clock_cycles": sum(each["clock_cycles"] for each in rows),
            "unknown_layers": 0, "cpu_clock_hz": None, "cycles": None,
            "parts": {**parts, "waits": waits},
        },
        "memory": {
            "arena_bytes": sizes["arena"], "constants_bytes": sizes["constants"],
            "scratchpads": [{"name": "s", "used_bytes": sizes["scratchpad"]}],
        },
        "total_macs": sum(each["macs"] for each in rows),
        "offloaded_macs": sum(each["macs"] for each in own),
        "bounds": [],
    }  # fmt: skip


NAMES = [f"conv{number}" for number in range(6)]
AMOUNT = st.integers(0, 5000)


@st.composite
def reports(draw: st.DrawFn) -> View:
    """A report of some of six layers in any order, some of them on the CPU."""
    rows, layers = [], []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        on_cpu = draw(st.booleans())
        keys = "macs read written" if on_cpu else (
            "macs moved reads writes computing registers idle load store"
        )  # fmt: skip
        figures = {key: draw(AMOUNT) for key in keys.split()}
        owner, where = ("cpu step", "cpu") if on_cpu else ("layer", "npu")
        rows.append(row(owner, name, where, [name], figures))
        tiling = draw(st.sampled_from(["whole", "2 tiles", "8 tiles"]))
        predicted = None if on_cpu else draw(AMOUNT)
        tiled = {"tiling": tiling, "predicted_cycles": predicted, "bound": 1}
        layers.append({"predicted_cycles": predicted, "tiled": None if on_cpu else tiled})
    rows.append(row("between layers", "between layers", "", [], {"idle": draw(AMOUNT)}))
    sizes = {key: draw(AMOUNT) for key in ("arena", "constants", "scratchpad")}
    return view_of(rows, layers, sizes)


def by_hand(view: View) -> dict[str, int]:
    """Figures of a whole network, as sums over its JSON."""
    rows = view["accounting"]["rows"]
    cpu = [each for each in rows if each["where"] == "cpu"]
    own = [each for each in rows if each["where"] == "npu"]
    predicted = [each["predicted_cycles"] for each in view["layers"]]
    return {
        "cycles": sum(each["clock_cycles"] for each in rows),
        "predicted cycles": sum(each for each in predicted if each is not None),
        "waits": sum(sum(each["parts"]["waits"].values()) for each in rows),
        **{key: sum(each["parts"][key] for each in rows) for key in PARTS},
        "bytes": sum(each["moved_bytes"] for each in own),
        "register accesses": sum(each["register_reads"] + each["register_writes"] for each in own),
        "cpu steps": len(cpu),
        "cpu bytes": sum(each["read_bytes"] + each["written_bytes"] for each in cpu),
        "macs": sum(each["macs"] for each in rows),
        "offloaded macs": sum(each["macs"] for each in own),
        "arena": view["memory"]["arena_bytes"],
        "constants": view["memory"]["constants_bytes"],
        "scratchpad": view["memory"]["scratchpads"][0]["used_bytes"],
    }


@given(reports(), reports())
def test_differences_are_those_of_sums_by_hand_and_add_up(a: View, b: View) -> None:
    found = Comparison(report_of(a), report_of(b)).as_json()
    before, after = by_hand(a), by_hand(b)
    figures = {each["name"]: each for each in found["figures"]}
    for name, value in before.items():
        each = figures[name]
        assert (each["a"], each["b"]) == (value, after[name]), name
        assert each["change"] == after[name] - value
        share = 100 * (after[name] - value) / value if value else None
        assert each["percent"] == (None if share is None else pytest.approx(share))
    for name in ("code", "stack", "bound", "over bound", "all cycles"):
        assert (figures[name]["a"], figures[name]["change"]) == (None, None)
        assert figures[name]["unknown"].startswith("A and B: ")
    # The layers and what lies between them add up to the total.
    for name, rest in found["between_layers"].items():
        changes = [line["figures"][name]["change"] for line in found["layers"]]
        assert sum(changes) + rest["change"] == figures[name]["change"], name
    assert len(found["between_layers"]) == 13


@given(reports(), reports())
def test_layers_are_matched_moved_and_cut_as_their_json_says(a: View, b: View) -> None:
    found = Comparison(report_of(a), report_of(b)).as_json()
    sides = [
        {each["name"]: (each, layer) for each, layer in zip(view["accounting"]["rows"],
                                                            view["layers"], strict=False)}
        for view in (a, b)
    ]  # fmt: skip
    lines = {line["key"]: line for line in found["layers"]}
    assert lines.keys() == sides[0].keys() | sides[1].keys()
    moved, cut = set(), 0
    for name, line in lines.items():
        one, other = (side.get(name) for side in sides)
        assert line["status"] == (
            "both" if one and other else "only in A" if one else "only in B"
        )  # fmt: skip
        if one and other:
            if (one[0]["where"], other[0]["where"]) == ("npu", "cpu"):
                moved.add(name)
            tilings = [each[1]["tiled"] and each[1]["tiled"]["tiling"] for each in (one, other)]
            is_cut = None not in tilings and tilings[0] != tilings[1]
            assert line["tiling_changed"] == is_cut
            cut += is_cut
    assert set(found["moved_to_cpu"]) == moved and found["changed_tilings"] == cut
    keys = [line["key"] for line in found["layers"]]
    assert set(keys[: len(moved)]) == moved
    rest = [abs(lines[key]["figures"]["cycles"]["change"]) for key in keys[len(moved) :]]
    assert rest == sorted(rest, reverse=True)


@given(reports())
def test_a_report_and_itself_do_not_differ(view: View) -> None:
    report = report_of(json.loads(report_of(view).as_text()))
    comparison = Comparison(report_of(view), report)
    assert comparison.changed == () and comparison.moved_to_cpu == ()
    assert all(not each.change for each in comparison.figures)
    known = [each.figure.name for each in comparison.figures
             if each.b is not None and each.figure not in TIMES]  # fmt: skip
    limits = [parse_limit(f"{name} {sign} +0%") for name in known for sign in "<>"]
    assert all(not each.excesses for each in check_limits(limits, report, comparison))
    assert "no difference" in html(comparison) or not comparison.lines


# --- fused and unknown ----------------------------------------------------------------------------


def small(*rows: View, predicted: int | None = None) -> View:
    layers = [{"predicted_cycles": predicted if each["owner"] == "layer" else None, "tiled": None}
              for each in rows]  # fmt: skip
    return view_of(list(rows), layers, {"arena": 0, "constants": 0, "scratchpad": 0})


FUSED = row("layer", "conv + relu", "npu", ["conv", "relu"], {"computing": 90, "macs": 100})
CONV = row("layer", "conv", "npu", ["conv"], {"computing": 80, "macs": 100})
RELU = row("cpu step", "relu", "cpu", ["relu"], {"read": 4})
ALL_CPU = row("cpu step", "conv + relu", "cpu", ["conv", "relu"], {"macs": 100})
POOL, CPU_POOL = (row(owner, "pool", where, ["pool"], {})
                  for owner, where in (("layer", "npu"), ("cpu step", "cpu")))  # fmt: skip
BIAS = row("cpu step", "conv + relu", "cpu", ["conv", "relu"], {})
TURNED, CONV_TURNED = (row("cpu step", f"{name} transposed", "cpu", [name], {})
                       for name in ("pool", "conv"))  # fmt: skip
for _each in (TURNED, CONV_TURNED):
    _each["identity"]["role"] = "layout change"


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ([FUSED], [CONV, RELU], True),
        ([FUSED], [ALL_CPU], True),
        ([CONV, RELU], [ALL_CPU], True),
        ([POOL], [CPU_POOL], True),
        ([POOL, TURNED, TURNED], [CPU_POOL], True),  # operators that only accelerators had
        ([FUSED], [FUSED, CONV_TURNED], True),  # a step more
        ([CONV, BIAS], [ALL_CPU], True),  # more multiply-accumulates
        ([POOL, TURNED], [POOL, TURNED], False),
        ([CONV, RELU], [CONV, RELU], False),
        ([CONV, RELU], [FUSED], False),
        ([ALL_CPU], [CONV, RELU], False),
        ([ALL_CPU], [ALL_CPU], False),
    ],
)
def test_what_moves_to_the_cpu_is_seen_in_parts_of_layers(
    before: list[View], after: list[View], moved: bool
) -> None:
    a, b = report_of(small(*before)), report_of(small(*after))
    comparison = Comparison(a, b)
    assert bool(comparison.moved_to_cpu) == moved
    # Fewer cycles of accelerators are no success then.
    limits = [parse_limit("cycles > +50%"), parse_limit("layer bytes > +50%")]
    beyond = [bool(each.excesses) for each in check_limits(limits, b, comparison)]
    cycles = [sum(each["clock_cycles"] for each in rows) for rows in (before, after)]
    assert beyond == [moved or 2 * cycles[1] > 3 * cycles[0], moved]
    assert ('<ul class="moved">' in html(comparison)) == moved


def test_measured_cycles_are_never_compared_with_predicted_ones() -> None:
    measured, predicted = small(CONV, predicted=85), small({**CONV}, predicted=70)
    (unknown,) = predicted["accounting"]["rows"]
    unknown |= {"clock_cycles": None, "parts": None, "moved_bytes": None}
    predicted["accounting"] |= {"clock_cycles": None, "parts": None, "unknown_layers": 1}
    a, b = report_of(measured), report_of(predicted)
    comparison = Comparison(a, b)
    figures = {each.figure.name: each for each in comparison.figures}
    assert figures["cycles"].as_json() == {
        "name": "cycles", "unit": "cycles", "a": 80, "b": None, "change": None, "percent": None,
        "unknown": "B: not every layer on an accelerator was measured",
    }  # fmt: skip
    assert figures["predicted cycles"].change == -15
    assert comparison.basis.name == "predicted cycles"
    assert "cycles of layers are predicted ones" in comparison.notes[0]
    for text in ("cycles > +2%", "cycles > 5", "layer cycles > 5", "bytes > +1", "code > 1"):
        with pytest.raises(InputError, match="is of a figure that is not known: "):
            check_limits([parse_limit(text)], b, comparison)
    (kept,) = check_limits([parse_limit("predicted cycles > +0%")], b, comparison)
    assert kept.excesses == ()
    without = report_of(small(CONV))
    assert Comparison(without, b).basis.name == "cycles"
    assert "never are" in " ".join(Comparison(without, b).notes)


def test_sizes_of_two_compilers_do_not_compare() -> None:
    sizes = {"text_bytes": 10, "static_bytes": 2, "stack_bytes": None}
    a, b = (report_of(small(CONV) | {"size": {"compiler": name, **sizes}}) for name in ("x", "y"))
    (code,) = (each for each in Comparison(a, b).figures if each.figure.name == "code")
    assert (code.a, code.b, code.change) == (10, 10, None)
    assert code.unknown == "A has it for x, B for y"
    (same,) = (each for each in Comparison(a, a).figures if each.figure.name == "code")
    assert same.change == 0
    with pytest.raises(InputError, match="A has it for x"):
        check_limits([parse_limit("code > +2%")], b, Comparison(a, b))
    assert check_limits([parse_limit("code > 9")], b, Comparison(a, b))[0].excesses
    with pytest.raises(InputError, match="not known"):
        check_limits([parse_limit("stack > 9")], b, None)


# --- limits ---------------------------------------------------------------------------------------


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.sampled_from("+-"), st.data())
def test_limits_are_exact(a: int, size: int, sign: str, data: st.DataObject) -> None:
    """Shares are thousandths of a percent, so that both sides are integers."""
    side, equal = data.draw(st.sampled_from("<>")), data.draw(st.sampled_from(["", "="]))
    added = size if sign == "+" else -size
    share = f"{sign}{size // 1000}.{size % 1000:03}%"

    def check(text: str, limit: int, units: int) -> None:
        """Compare some values near `limit`, of which one has so many units."""
        parsed = parse_limit(f"arena {side}{equal} {text}")
        for b in range(limit // units - 2, limit // units + 3):
            beyond = b * units > limit if side == ">" else b * units < limit
            beyond |= bool(equal) and b * units == limit
            assert parsed.is_exceeded(Change(a, b)) == beyond, (text, a, b)

    check(share, (100_000 + added) * a, 100_000)
    check(f"{sign}{size}", a + added, 1)
    check(f"{size:,}K", 1024 * size, 1)
    check(f"{size:_}", size, 1)


@pytest.mark.parametrize(
    ("a", "b", "limit", "said"),
    [
        (13918, 14197, "cycles > +2%", "+279 (+2.005 %)"),
        (10**9, 10**9 + 20_000_001, "cycles > +2%", "+20,000,001 (+2.0000001 %)"),
        (100, 102, "cycles >= +2%", "+2 (+2.00 %)"),
        (13918, 14197, "cycles > 14000", "+279 (+2.00 %)"),
    ],
)
def test_a_share_at_the_edge_of_a_limit_has_enough_digits(
    a: int, b: int, limit: str, said: str
) -> None:
    one, other = (
        report_of(small(row("layer", "conv", "npu", ["conv"], {"computing": cycles})))
        for cycles in (a, b)
    )
    (checked,) = check_limits([parse_limit(limit)], other, Comparison(one, other))
    assert said in checked.excesses[0].sentence


def test_forms_of_limits() -> None:
    limit = parse_limit("  Layer  Register_Accesses >= +1,000 ")
    assert limit.is_of_layers and limit.figure.name == "register accesses"
    assert (limit.sign, limit.kind, limit.amount) == (">=", "change", 1000)
    assert parse_limit("offloaded-macs<-0.5 %").amount * 2 == -1
    assert parse_limit("stack > 2M").amount == 2 * 1024**2
    for figure in FIGURES:
        assert parse_limit(f"{figure.name} > 1").figure is figure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cycle > 1", "there is no figure 'cycle' to limit; write cycles"),
        ("speed > 1", "figures are cycles, "),
        ("cycles", "is not of the form FIGURE > AMOUNT"),
        ("cycles > ", "is not of the form"),
        ("cycles > +-2%", "is not of the form"),
        ("cycles > 1e3", "is not of the form"),
        ("cycles > " + "9" * 5000, "is not of the form"),
        ("cycles > 2%", "has a share without a sign; write +2%"),
        ("cycles > 2K", "K and M are of bytes"),
        ("layer arena > 2", "layers have no arena"),
        ("driver time > +2%", "by what else the machine does; limit 'driver instructions'"),
        ("", "is not of the form"),
        ("cycles > 1\n> 2", "is not of the form"),
    ],
)
def test_limits_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_limit(text)
    assert said in str(raised.value) and len(str(raised.value)) < 400


def test_a_wait_is_named_as_its_engine() -> None:
    each = row("layer", "conv", "npu", ["conv"], {})
    each["parts"]["waits"], each["clock_cycles"] = {"DMA_in": 7}, 7
    report = report_of(small(each))
    (checked,) = check_limits([parse_limit("wait dma_in > 6")], report, None)
    assert checked.excesses[0].sentence == "wait DMA_in: 7; the limit is 'wait dma_in > 6'"
    with pytest.raises(InputError, match="write wait dma in"):
        check_limits([parse_limit("wait dma_on > 6")], report, None)
    with pytest.raises(InputError, match="needs a report to compare with"):
        check_limits([parse_limit("cycles > +1%")], report, None)


# --- real networks --------------------------------------------------------------------------------

Uma = Callable[..., tuple[int, str, str]]


@pytest.fixture
def uma(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    """Run `uma report` in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run_command(["report", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, re.sub(r"^(\[|note).*\n", "", captured.err, flags=re.M)

    return run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reports of the digits on three machines, as the command prints them."""
    folder = tmp_path_factory.mktemp("saved")
    slow = folder / "slow" / "slow_accelerator"
    shutil.copytree(CHOCOLATE, slow, ignore=shutil.ignore_patterns("__pycache__"))
    text = (slow / "accel.toml").read_text()
    width = "bytes_per_cycle = 32"
    assert text.count(width) == 1
    (slow / "accel.toml").write_text(text.replace(width, "bytes_per_cycle = 4"))
    backends = {"fast": "chocolate_accelerator", "less": "strawberry_accelerator", "slow": slow}
    for name, backend in backends.items():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            words = ["report", str(DIGITS), "-b", str(backend), "--json"]
            assert run_command(words) == 0
        (folder / f"{name}.json").write_text(printed.getvalue())
    return folder


@pytest.fixture
def place(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of these as the working folder, without any source."""
    for file in saved.glob("*.json"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two reports that no network has."""
    for name in ("fast", "slow"):
        (tmp_path / f"{name}.json").write_text(json.dumps(small(CONV)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_equal_reports_differ_in_nothing(place: Path, uma: Uma) -> None:
    code, output, error = uma("--compare", "fast.json", "fast.json", "--fail-if", "cycles > +0%")
    assert (code, error) == (0, "")
    assert "no difference in 8 layers" in output and "within the limit" in output
    assert (place / "comparison.html").is_file()
    code, output, _ = uma("--compare", "fast.json", "fast.json", "--json")
    found = json.loads(output)
    assert code == 0 and found["changed_layers"] == 0
    assert all(each["change"] in (0, None) for each in found["figures"])


def test_a_slower_machine_is_found_layer_by_layer(place: Path, uma: Uma) -> None:
    fast, slow = (json.loads((place / f"{name}.json").read_text()) for name in ("fast", "slow"))
    code, output, _ = uma("--compare", "fast.json", "slow.json", "--json", "--fail-if",
                          "cycles > +2%", "--fail-if", "layer cycles > +10%", "--fail-if",
                          "macs > +0%")  # fmt: skip
    found = json.loads(output)
    assert code == 1 and found["within_limits"] is False
    of_network, of_layers, kept = found["limits"]
    assert kept["exceeded"] is False
    one, other = fast["clock_cycles"], slow["clock_cycles"]
    (excess,) = of_network["exceeded_by"]
    assert (excess["a"], excess["b"], excess["change"]) == (one, other, other - one) and other > one
    assert excess["sentence"] == (
        f"cycles: {one:,} in A, {other:,} in B, +{other - one:,} "
        f"({100 * (other - one) / one:+.2f} %); the limit is 'cycles > +2%'"
    )
    slower = {
        a["name"]: (a["clock_cycles"], b["clock_cycles"])
        for a, b in zip(fast["layers"], slow["layers"], strict=True)
        if b["clock_cycles"] * 10 > a["clock_cycles"] * 11
    }
    assert slower == {each["layer"]: (each["a"], each["b"]) for each in of_layers["exceeded_by"]}
    tilings = [
        a["tiled"] and a["tiled"]["tiling"] != b["tiled"]["tiling"]
        for a, b in zip(fast["layers"], slow["layers"], strict=True)
    ]
    assert found["changed_tilings"] == sum(map(bool, tilings)) > 0
    assert found["moved_to_cpu"] == []


def test_a_layer_that_falls_back_comes_first_with_its_reason(place: Path, uma: Uma) -> None:
    """The total of B is lower than that of A here, and a limit on it fails nevertheless."""
    code, output, _ = uma("--compare", "less.json", "fast.json", "--fail-if", "cycles > +2%")
    assert code == 0 and "moved to the CPU" not in output
    code, output, _ = uma("--compare", "slow.json", "less.json", "--fail-if", "bytes > +2%")
    assert code == 1
    lines = output.splitlines()
    assert lines[2].startswith("pool1 moved to the CPU (chocolate_accelerator -> cpu): no ")
    (table,) = (number for number, line in enumerate(lines) if line.startswith("layer, cycles"))
    assert lines[table + 2].split()[:3] == ["pool1", lines[table + 2].split()[1], "CPU"]
    assert "beyond a limit: bytes: pool1 moved to the CPU, which this figure does not" in output
    page = (place / "comparison.html").read_text(encoding="utf-8")
    assert "pool1 moved to the CPU" in page and not re.search(r"(src|href)=\"(?!#|data:)", page)


def test_a_report_of_another_form_is_refused(place: Path, uma: Uma) -> None:
    view = json.loads((place / "fast.json").read_text())
    rows = view["accounting"] | {"clock_cycles": view["accounting"]["clock_cycles"] + 1}
    older = {key: value for key, value in view.items() if key not in ("format", "version")}
    cases = {
        "is of version 2, this umakit reads 1": view | {"version": 2},
        'is of version "1", this umakit reads 1': view | {"version": "1"},
        "holds no report that `uma report --json` printed": older,
        "has rows of 1,991 cycles, and a total of 1,992": view | {"accounting": rows},
        "has other layers than rows": view | {"layers": view["layers"][1:]},
        "memory.arena_bytes: ": view | {"memory": view["memory"] | {"arena_bytes": "many"}},
    }
    for said, changed in cases.items():
        Path("other.json").write_text(json.dumps(changed))
        code, output, error = uma("--compare", "fast.json", "other.json", "-o", "page.html")
        assert (code, output, error.count("\n")) == (2, "", 1), error
        assert error.startswith(f"error: other.json: {said}") and "write it again with" in error
    for text in ("", "\n", "{", "[]", '{"a": 1}', json.dumps(view)[:2000]):
        Path("other.json").write_text(text)
        code, output, error = uma("--compare", "other.json", "fast.json")
        assert (code, output, error.count("\n")) == (2, "", 1), error
        assert error.startswith("error: other.json: ")
        assert "no report that `uma report --json` printed" in error
    code, output, error = uma("fast.json", "-b", "chocolate_accelerator")
    assert (code, output) == (2, "") and "--compare fast.json OTHER" in error
    Path("other.json").write_text(json.dumps(view)[:2000])
    assert "is not valid JSON" in uma("--compare", "fast.json", "other.json")[2]
    assert not Path("page.html").exists() and not Path("comparison.html").exists()
    assert not is_report_file(Path("missing.json"))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("accounting rows 1 parts computing", 5082, "accounting.rows.1.parts are 5,233 cycles"),
        ("accounting parts idle", 7, "accounting.parts are not the sums"),
        ("accounting unknown_layers", 2, "accounting.unknown_layers is 2, and there are 0"),
        ("clock_cycles", 1996, "clock_cycles is 1,996, and its layers have 1,991"),
        ("layers 1 clock_cycles", "233", "layers.1.clock_cycles: "),
        ("layers 1 clock_cycles", 234, "layers.1.clock_cycles is 234, and its row of cycles has"),
        ("layers 1 identity", {}, "layers.1.identity.key: "),
        ("layers 1 identity key", "conv9", "layers.1.identity is another one"),
        ("layers 1 predicted_cycles", 5, "layers.1.predicted_cycles is 5, and its tiles have 233"),
        ("bounds 0 clock_cycles", 9, "bounds: clock_cycles of chocolate_accelerator is 9"),
        ("accounting rows 1 moved_bytes", 1, "layers.1.moved_bytes is 1,376, and its row of"),
        ("accounting rows 1 macs", 5, "layers.1.macs is 9,216, and its row of cycles has 5"),
        ("moved_bytes", 1, "moved_bytes is 1, and its layers have 18,890"),
        ("bounds 0 bounds 0 cycles", 1, "bounds: network of chocolate_accelerator is 1, and the"),
        ("memory arena_bytes", -5, "memory.arena_bytes: "),
        ("offloaded_macs", 10**9, "offloaded_macs are 1,000,000,000 of 180,480"),
    ],
)
def test_a_report_whose_figures_contradict_each_other_is_refused(
    path: str, value: Any, said: str, place: Path, uma: Uma
) -> None:
    view = json.loads((place / "fast.json").read_text())
    *folders, last = [int(part) if part.isdigit() else part for part in path.split()]
    inside = view
    for part in folders:
        inside = inside[part]
    assert inside[last] != value
    inside[last] = value
    Path("other.json").write_text(json.dumps(view))
    code, output, error = uma("--compare", "fast.json", "other.json")
    assert (code, output, error.count("\n")) == (2, "", 1), error
    assert error.startswith(f"error: other.json: {said}") and "write it again with" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "MODEL is missing"),
        ("--compare fast.json gone.json", "gone.json: no such file"),
        ("--compare fast.json slow.json -b vanilla_accelerator", "--backend has no effect on a"),
        ("--compare fast.json slow.json --seed 3", "--seed has no effect on a saved report"),
        ("--compare fast.json slow.json --size", "--size has no effect on a saved report"),
        ("--compare fast.json slow.json --trace t.json", "--trace is of one network"),
        ("--compare fast.json slow.json --write-budget b.toml", "--write-budget is of one network"),
        ("--compare fast.json slow.json --fail-if code>+2%", "the code was not measured; give --s"),
        ("--compare fast.json slow.json --fail-if x>1", "there is no figure 'x'"),
        ("--compare fast.json slow.json -o fast.json", "is an input of this command"),
        ("--compare fast.json slow.json -o gone/page.html", "no such folder"),
        ("model.onnx --compare vanilla_accelerator gone", "gone"),
        ("model.onnx -b x --compare a b", "A and B are the backends of MODEL"),
        ("model.onnx --budget b.toml --write-budget b.toml", "either checked or written"),
        ("model.onnx --budget b.toml", "b.toml: no such file"),
    ],
)
def test_mistakes_of_a_call_are_one_sentence(
    words: str, said: str, written: Path, uma: Uma
) -> None:
    before = sorted(written.iterdir())
    code, output, error = uma(*words.split())
    assert (code, output, error.count("\n")) == (2, "", 1) and said in error, error
    assert sorted(written.iterdir()) == before


def test_backends_of_one_name_are_told_apart(place: Path, saved: Path, uma: Uma) -> None:
    shutil.copytree(saved / "slow" / "slow_accelerator", place / "npu")
    (place / "npu" / "accel.toml").write_text((CHOCOLATE / "accel.toml").read_text())
    code, _, error = uma(DIGITS, "--compare", saved / "slow" / "slow_accelerator", "./npu")
    assert code == 2 and "save one report with --json, and compare it" in error


def test_a_library_a_model_and_a_saved_report_are_the_same(
    place: Path, uma: Uma, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of models are those that the saved reports are of."""
    remember(monkeypatch, "umakit.tools.comparison.sources.library_size")

    def known_page(model: Path, backends: list[Any], **options: Any) -> Any:
        (backend,) = backends
        name = {"chocolate_accelerator": "fast", "strawberry_accelerator": "less"}
        options["observe"](Path("lib"))
        text = (place / f"{name[backend.target_name]}.json").read_text()
        return SimpleNamespace(as_json=lambda: json.loads(text))

    words = ["compile", str(DIGITS), "-b", "chocolate_accelerator", "-o", "lib"]
    assert run_command(words) == 0
    monkeypatch.setattr("umakit.tools.page.make_page", known_page)
    limits = ["--fail-if", "code > +0", "--fail-if", "stack > 1M"]
    words = ["-b", "chocolate_accelerator", "--size", "--json", *limits]
    code, output, _ = uma("--compare", "lib", DIGITS, *words)
    found = json.loads(output)
    assert code == 0 and found["within_limits"] and found["changed_layers"] == 0
    figures = {each["name"]: each for each in found["figures"]}
    for name in ("cycles", "predicted cycles", "bytes", "arena", "offloaded macs", "macs", "code"):
        assert figures[name]["change"] == 0, name
    assert figures["bound"]["a"] is None and figures["bound"]["b"] == 705
    assert found["changed_tilings"] is None
    (conv2,) = (line for line in found["layers"] if line["key"] == "conv2")
    assert conv2["tiling_changed"] is None and conv2["a"]["tilings"] is None
    assert len(conv2["b"]["tilings"]) == 1
    steps = [line for line in found["layers"] if line["a"]["where"] == "cpu"]
    assert {line["tiling_changed"] for line in steps} == {False}
    _, output, _ = uma("--compare", "lib", "fast.json")
    assert "not compared: tilings (A: a library does not record them)\n" in output
    code, output, _ = uma(DIGITS, "--compare", "strawberry_accelerator", "chocolate_accelerator",
                          "--json")  # fmt: skip
    found = json.loads(output)
    assert found["a"]["accelerators"] == ["strawberry_accelerator"]
    assert found["b"]["accelerators"] == ["chocolate_accelerator"]
    assert found["moved_from_cpu"] == ["pool1"]


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_is_written_kept_broken_and_renewed(
    place: Path, uma: Uma, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(monkeypatch, "umakit.tools.page.make_page")
    model = [DIGITS, "-b", "chocolate_accelerator"]
    code, output, _ = uma(*model, "--write-budget", "budget.toml")
    assert code == 0 and "Wrote budget.toml\nWrote budget.report.json\n" in output
    text = Path("budget.toml").read_text()
    view = json.loads(Path("fast.json").read_text())
    memory = view["memory"]
    for limit in (
        "cycles > +2%", "layer cycles > +10%", "cpu steps > 2", f"bytes > {view['moved_bytes']}",
        f"arena > {memory['arena_bytes']}", f"constants > {memory['constants_bytes']}",
        f"offloaded macs < {view['offloaded_macs']}",
    ):  # fmt: skip
        assert f'  "{limit}",\n' in text
    assert read_report(Path("budget.report.json")).accounting.clock_cycles == view["clock_cycles"]
    code, output, _ = uma(*model, "--budget", "budget.toml")
    assert code == 0 and "within all 8 limits" in output
    # A is the first of --compare, and not the budget's report.
    assert uma("--compare", "slow.json", "fast.json", "--budget", "budget.toml")[0] == 0
    code, output, error = uma("--compare", "fast.json", "slow.json", "--budget", "budget.toml",
                              "--json")  # fmt: skip
    assert code == 1 and "beyond a limit: cycles: 1,991 in A" in error
    assert json.loads(output)["limits"][0]["source"] == "budget.toml"
    # Only amounts of today change.
    edited = text.replace("arena > 2048", "arena > 1").replace("+2%", "+3%") + "# mine\n"
    Path("budget.toml").write_text(edited)
    code, output, error = uma(*model, "--budget", "budget.toml", "--json")
    assert (code, error) == (1, "beyond a limit: arena: 2,048 in A, 2,048 in B, +0 (+0.00 %); "
                                "the limit is 'arena > 1'\n")  # fmt: skip
    assert json.loads(output)["within_limits"] is False
    assert uma(*model, "--write-budget", "budget.toml")[0] == 0
    assert Path("budget.toml").read_text() == text.replace("+2%", "+3%") + "# mine\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "holds no budget of umakit"),
        ('format = "umakit budget"\nversion = 2', "is of version 2, this umakit reads 1"),
        ('format = "umakit budget"\nversion = 1\nfailif = []', "no key 'failif'; write fail_if"),
        ('format = "umakit budget"\nversion = 1\nfail_if = [1]', "fail_if.0: "),
        ('format = "umakit budget"\nversion = 1\nfail_if = ["a > 1"]', "there is no figure 'a'"),
        ('format = "umakit budget"\nversion = 1\nreport = "no.json"', "no.json: no such file"),
        ("format = ", "is not valid TOML"),
        ("\x00", "is not valid TOML"),
    ],
)
def test_budgets_that_cannot_be_read(text: str, said: str, written: Path, uma: Uma) -> None:
    Path("b.toml").write_text(text)
    code, output, error = uma(DIGITS, "-b", "vanilla_accelerator", "--budget", "b.toml")
    assert (code, output, error.count("\n")) == (2, "", 1) and said in error, error
    if "no.json" not in text:
        code, _, error = uma(DIGITS, "--write-budget", "b.toml")
        assert code == 2, error
        assert Path("b.toml").read_text() == text


def test_a_budget_and_its_report_of_somebody_else_stay(written: Path, uma: Uma) -> None:
    Path("b.report.json").write_text("mine")
    code, _, error = uma(DIGITS, "--write-budget", "b.toml")
    assert code == 2 and "b.report.json: exists and is not a report of umakit" in error
    assert not Path("b.toml").exists()


def test_names_of_layers_are_no_html(written: Path) -> None:
    name = "<script>alert(1)</script>"
    a, b = (report_of(small(row("layer", name, "npu", [name], {"computing": cycles})))
            for cycles in (1, 2))  # fmt: skip
    page = html(Comparison(a, b, (name, name)))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 3
    with pytest.raises(UmakitError):
        read_report(written / "missing.json")
