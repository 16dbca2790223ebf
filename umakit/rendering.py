# SPDX-License-Identifier: Apache-2.0
"""Rendering of the Jinja2 templates in `umakit.templates`."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2


@functools.cache
def _environment(escape: bool = False) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(template_folder())),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=escape,
    )
    environment.filters["quoted"] = _c_string
    environment.filters["suffixed"] = lambda text, suffix: f"{text}{suffix}"
    return environment


def template_folder() -> Path:
    """The folder that holds the templates."""
    return Path(str(files("umakit.templates")))


def render(template: str, **values: Any) -> str:
    """The text of a template; a value it needs and does not get is an error."""
    return _environment().get_template(template).render(**values)


def render_html(template: str, **values: Any) -> str:
    """The same for HTML: special characters in values are escaped."""
    return _environment(escape=True).get_template(template).render(**values)


def _c_string(text: str) -> str:
    """A C string literal; what is not printable ASCII becomes octal escapes of its UTF-8 bytes."""
    out = []
    for byte in text.encode("utf-8"):
        character = chr(byte)
        if character in '"\\?':
            out.append("\\" + character)
        elif 32 <= byte < 127:
            out.append(character)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'
