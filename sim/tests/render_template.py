# SPDX-License-Identifier: Apache-2.0
"""Render one template for a test: template, output, then variable=value pairs.

`array.rows=8` is the member `rows` of `array`.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import jinja2


def main() -> None:
    template, output, *assignments = sys.argv[1:]
    variables: dict[str, Any] = {}
    for assignment in assignments:
        path, value = assignment.split("=", 1)
        *parents, name = path.split(".")
        scope = variables
        for parent in parents:
            scope = scope.setdefault(parent, {})
        scope[name] = value
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    text = pathlib.Path(template).read_text(encoding="utf-8")
    rendered = environment.from_string(text).render(variables)
    pathlib.Path(output).write_text(rendered, encoding="utf-8")


if __name__ == "__main__":
    main()
