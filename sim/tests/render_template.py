# SPDX-License-Identifier: Apache-2.0
"""Render one template for a test: template, output, then variable=value pairs."""

from __future__ import annotations

import pathlib
import sys

import jinja2


def main() -> None:
    template, output, *assignments = sys.argv[1:]
    variables = dict(assignment.split("=", 1) for assignment in assignments)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    text = pathlib.Path(template).read_text(encoding="utf-8")
    rendered = environment.from_string(text).render(variables)
    pathlib.Path(output).write_text(rendered, encoding="utf-8")


if __name__ == "__main__":
    main()
