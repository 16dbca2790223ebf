# SPDX-License-Identifier: Apache-2.0
"""Mechanical bugs in C: which there are, which are left out, and that a seed draws the same."""

from __future__ import annotations

import itertools

from c_mutator import KINDS, drawn, mutants

CODE = """\
#define MOST 4
static int first(struct job *job, int height, int width)
{
    int found = 0;

    if (height < 1) {
        return JOB_ERROR;
    }
    for (int i = 0; i < height; ++i) {
        found += width * 2;
        counters.cycles += 7;
    }
    start(job->high, job->low, found);
    return found > 9 ? found : width;
}

static int cycles(int rows)
{
    return rows * 3;
}
"""


def test_every_kind_of_mutant_replaces_a_piece_of_code() -> None:
    found = mutants(CODE, "driver.c")
    assert {each.kind for each in found} == set(KINDS)
    told = {(each.line, each.old, each.new) for each in found}
    assert told >= {
        (9, "height", "(height) - 1"), (10, "*", "+"), (10, "2", "1"), (10, "2", "3"),
        (10, "width", "found"), (10, "found += width * 2;", ";"),
        (13, "job->high, job->low", "job->low, job->high"), (13, "high", "low"),
        (14, ">", ">="), (14, "found > 9", "!(found > 9)"),
    }  # fmt: skip
    assert all(each.applied(CODE) != CODE for each in found)


def test_times_and_the_preprocessor_are_left_out_and_refusals_refuse_others() -> None:
    found = mutants(CODE, "driver.c")
    assert {each.line for each in found}.isdisjoint({1, 7, 11, 18, 20})
    assert {each.kind for each in found if each.line == 6} == {"condition", "variable"}


def test_drawn_mutants_compile_to_other_code_and_a_seed_draws_the_same() -> None:
    refused = CODE.replace("width * 2", "width + 2")

    def compiled(file: str, text: str) -> bytes | None:
        return None if text == refused else text.replace("found > 9", "found >= 9").encode()

    def names(seed: int) -> list[str]:
        found = drawn({"driver.c": CODE}, seed, 3, compiled)
        return [f"{each.kind} {each.name}" for each in itertools.islice(found, 60)]

    first = names(1)
    assert first == names(1) != names(2)
    assert [name.partition(" ")[0] for name in first[:3]] == list(KINDS[3:6])
    assert not any(name.endswith((": * -> +", ": > -> >=")) for name in first)
