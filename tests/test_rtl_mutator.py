# SPDX-License-Identifier: Apache-2.0
"""The mutator of SystemVerilog: what it replaces, what it leaves alone, and what it draws."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
import rtl_mutator
from rtl_mutator import Mutant, drawn, mutants

COUNTER = """\
// SPDX-License-Identifier: Apache-2.0
/* a + b == c && d */
module counter #(
    parameter int unsigned BITS = 4  // 1 + 2
) (
    input  logic            clk,
    input  logic            rst_n,
    input  logic            step,
    output logic [BITS-1:0] value,
    output logic            full
);
  assign full = value >= 4'd9 && !(value == 4'hF);
  always_ff @(posedge clk or negedge rst_n) begin
    if (!rst_n) begin
      value <= '0;
    end else if (step) begin
      value <= value <= 4'd9 ? value + 4'b1 : 4'd0;
    end
  end
  logic unused;
  assign unused = &{1'b0, 8'd3 + 8'd4};
  initial $display("1 + 2 == %0d && !x", 3);
endmodule
"""


def found(text: str, kind: str) -> list[tuple[str, str]]:
    return [(each.old, each.new) for each in mutants(text, "x.sv") if each.kind == kind]


def test_operators_are_replaced_outside_of_comments_and_texts_and_assignments_stay() -> None:
    assert found(COUNTER, "operator") == [
        ("-", "+"),  # of BITS-1
        (">=", ">"), ("&&", "||"), ("!", ""), ("==", "!="), ("!", ""),
        ("<=", "<"),  # the second one of its line: the first is an assignment
        ("+", "-"), ("&", "|"), ("+", "-"),
    ]  # fmt: skip


def test_constants_become_one_more_within_their_width() -> None:
    assert found("x = 4'hF;", "constant") == [("4'hF", "4'h0")]
    assert found("x = 1'b1;", "constant") == [("1'b1", "1'b0")]
    assert sorted(found("x = 8'sd1;", "constant")) == [("8'sd1", "8'sd0"), ("8'sd1", "8'sd2")]
    assert found("x = 32'h0000_01FF;", "constant") == [("32'h0000_01FF", "32'h200")]
    assert found("x = '0;", "constant") == [("'0", "'1")]
    assert found("x[7] = y1;", "constant") == [("7", "8")]


def test_conditions_become_constants_but_those_of_resets_lose_an_assignment() -> None:
    assert found(COUNTER, "enable") == [("step", "1'b0"), ("step", "1'b1")]
    assert found(COUNTER, "reset") == [("value <= '0", "")]
    several = "if (!rst_n || clear) begin a <= 0; for (int i = 0; i < 2; ++i) b[i] <= 0; end"
    assert found(several, "reset") == [("a <= 0", ""), ("b[i] <= 0", "")]
    assert found("if (!rst_n) a <= 0; else if (go) a <= 1;", "reset") == [("a <= 0", "")]
    assert found("if (W > 2) begin : gen_wide end", "enable") == []
    assert found('if (W > 2) $error("too wide");', "enable") == []


def test_a_mutant_is_one_edit_at_its_line() -> None:
    for mutant in mutants(COUNTER, "counter.sv"):
        changed = mutant.applied(COUNTER)
        assert changed != COUNTER
        assert changed == COUNTER[: mutant.begin] + mutant.new + COUNTER[mutant.end :]
        assert mutant.old.splitlines()[0] in COUNTER.splitlines()[mutant.line - 1]
        assert mutant.name.startswith(f"counter.sv:{mutant.line}: ")


def test_equal_seeds_draw_equal_mutants_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtl_mutator, "translated", lambda files, top: dict(files))
    first, same, other = (
        list(itertools.islice(drawn({"counter.sv": COUNTER}, seed, "counter"), 12))
        for seed in (0, 0, 1)
    )
    assert first == same
    assert first != other
    assert {each.kind for each in first} == set(rtl_mutator.KINDS)
    assert len(set(first)) == 12


def test_mutants_that_verilator_refuses_or_that_change_nothing_are_left_out() -> None:
    if shutil.which("verilator") is None and not os.environ.get("UMAKIT_CI"):
        pytest.skip("Verilator is not installed")
    names = {each.name for each in _all_drawn()}
    assert "counter.sv:12: && -> ||" in names
    assert "counter.sv:15: value <= '0 -> nothing" in names
    assert "counter.sv:20: 8'd3 -> 8'd4" not in names  # nothing reads it
    everything = mutants(COUNTER, "counter.sv")
    assert 5 < len(names) < len(everything)


def _all_drawn() -> list[Mutant]:
    return list(drawn({"counter.sv": COUNTER}, 0, "counter"))


def test_all_files_of_strawberry_have_mutants_that_leave_comments_alone() -> None:
    folder = Path(__file__).parents[1] / "backends/strawberry_accelerator/rtl"
    for path in sorted(folder.glob("*.sv")):
        text = path.read_text(encoding="utf-8")
        listed = mutants(text, path.name)
        assert listed
        for mutant in listed:
            before = text[text.rfind("\n", 0, mutant.begin) + 1 : mutant.begin]
            assert "//" not in before
