# SPDX-License-Identifier: Apache-2.0
"""The table of operators in `docs/tflite.md` is what files of operators register."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_the_table_is_what_is_registered(request: pytest.FixtureRequest) -> None:
    assert umakit.operators.__path__ and len(CONVERSIONS) > 80
    text = PAGE.read_text(encoding="utf-8")
    start = text.index("-->\n", text.index("<!-- table:")) + 4
    written = text[:start] + "\n" + table() + "\n\n" + text[text.index(END) :]
    if request.config.getoption("--update-golden"):
        PAGE.write_text(written, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == written, "run it with --update-golden"
