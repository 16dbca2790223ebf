# SPDX-License-Identifier: Apache-2.0
"""What the templates of a new backend see, made of its name and answers."""

from __future__ import annotations

import json

from umakit.text.rendering import Code
from umakit.tools.scaffold.answers import OPERATORS, Answers, Kind
from umakit.tools.scaffold.names import names_of
from umakit.version import __version__

HEIGHT, WIDTH, CHANNELS = 12, 10, 8
"""Size of the input of the networks of tests."""


def template_values(name: str, answers: Answers, kind: Kind) -> dict[str, object]:
    """Return the values of the templates of a kind.

    `name`, `upper` (`MY_NPU`), `class_prefix` (`MyNpu`), `class_name` (`MyNpuBackend`); `kind`, its
    `page`; `operators` (names in `OPERATORS`); `layouts`,
    `roundings` (lists), `layout`, `rounding` (their first), `layout_argument`,
    `rounding_argument` (Python text of a pattern's argument); `rows`, `columns`, `scratchpad`
    (bytes), `simulator` (`own` or `none`); `network_size`, `network` (Python text of a
    `QuantizedNetwork` and its layers), `networks` (layers by operator); `version` of umakit; and
    what the kind adds.
    """
    layers = {operator: Code(OPERATORS[operator].layers) for operator in answers.operators}
    return {
        **names_of(name),
        "kind": kind.name,
        "page": kind.page,
        "operators": list(answers.operators),
        "layouts": list(answers.layouts),
        "roundings": list(answers.roundings),
        "layout": answers.layouts[0],
        "rounding": answers.roundings[0],
        "layout_argument": _python_names(answers.layouts),
        "rounding_argument": _python_names(answers.roundings),
        "rows": answers.rows,
        "columns": answers.columns,
        "scratchpad": answers.scratchpad,
        "simulator": answers.simulator,
        "flags": dict(answers.flags),
        "network_size": f"{HEIGHT}, {WIDTH}, {CHANNELS}",
        "network": Code("".join(layers.values())),
        "networks": layers,
        "version": __version__,
        **kind.values(answers, name),
    }


def _python_names(names: tuple[str, ...]) -> Code:
    """Return one name, or a list of several, as Python text."""
    return Code(json.dumps(names[0] if len(names) == 1 else names))
