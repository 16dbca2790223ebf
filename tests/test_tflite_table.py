# SPDX-License-Identifier: Apache-2.0
"""The table of operators in `docs/tflite.md` says of each what its file registers.

A commit that adds an operator leaves the table alone; a release has all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import umakit
import umakit.operators
from umakit.operators.tflite import CONVERSIONS, TfliteConversion

PAGE = Path(__file__).parents[1] / "docs/tflite.md"
END = "<!-- end of the table -->"
DTYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")


def taken(conversion: TfliteConversion) -> str:
    """The dtypes of an operator, those of equal data and result first."""
    pairs = sorted(conversion.pairs, key=lambda pair: tuple(map(DTYPES.index, pair)))
    same = [source for source, result in pairs if source == result]
    results = [result for source, result in pairs if source != result]
    changed = [
        f"{', '.join(sources)} -> {result}"
        for result in DTYPES
        if result in results
        and (sources := [source for source, other in pairs if other == result != source])
    ]
    return "; ".join([", ".join(same), *changed] if same else changed)


def table() -> str:
    """Markdown of all registered operators."""
    rows = [f"| {code} | {taken(CONVERSIONS[code])} |" for code in sorted(CONVERSIONS)]
    return "\n".join(["| operator | dtypes |", "|---|---|", *rows])


def rows_of(text: str) -> list[str]:
    start = text.index("| operator |", text.index("<!-- table:"))
    return text[start : text.index(END)].strip().splitlines()


def test_rows_of_the_table_are_what_is_registered(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    expected, found = table().splitlines(), rows_of(text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text.replace("\n".join(found), "\n".join(expected)), encoding="utf-8")
        found = expected
    assert umakit.operators.__path__ and len(found) > 80
    assert found == [row for row in expected if row in found], "run it with --update-golden"


@pytest.mark.skipif("dev" in umakit.__version__, reason="a release's table has all operators")
def test_a_release_lists_all_operators() -> None:
    assert rows_of(PAGE.read_text(encoding="utf-8")) == table().splitlines()
