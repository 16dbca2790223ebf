# SPDX-License-Identifier: Apache-2.0
"""Rendering of the Jinja2 templates in `umakit.templates`, and of devices in `umakit.sim`.

A value in a template must be plain (numbers, identifiers, versions, paths without quotes) or pass a
filter that makes it safe: `comment` and `quoted` for C, `md` for Markdown, `code` for program text.
Any other value is refused, so that no text of unknown origin becomes code. In HTML, every value is
escaped.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import jinja2
from jinja2.bccache import Bucket

from umakit import sim
from umakit.errors import UmakitError
from umakit.text import escaping
from umakit.text.escaping import c_comment, c_string, markdown_code, shown

T = TypeVar("T")

PLAIN = re.compile(r"[A-Za-z0-9_.,+/ -]*")
"""Texts that no target language (C, CMake, Kconfig, YAML, Markdown, Python, shell) has to quote."""


class Code(str):
    """Text that a template may insert unchanged."""

    __slots__ = ()


@functools.cache
def _environment(escape: bool = False) -> jinja2.Environment:
    kind, sources = "html" if escape else "text", (__file__, escaping.__file__)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template_folder(), sim.source_directory()]),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=escape,
        finalize=_visible if escape else _checked,
        bytecode_cache=TemplateCache(template_folder(), kind, sources),
    )
    environment.filters["quoted"] = lambda text: Code(c_string(text))
    environment.filters["comment"] = lambda text: Code(c_comment(text))
    environment.filters["md"] = lambda text: Code(markdown_code(text))
    # Avoid a copy of code that holds all constants of a large network.
    environment.filters["code"] = lambda text: text if isinstance(text, Code) else Code(text)
    environment.filters["indented"] = lambda text: Code(textwrap.indent(text.strip("\n"), "    "))
    environment.filters["prefixed"] = lambda text, prefix: f"{prefix}{text}"
    environment.filters["suffixed"] = lambda text, suffix: f"{text}{suffix}"
    return environment


@jinja2.pass_context
def _checked(context: jinja2.runtime.Context, value: T) -> T:
    """Return a template value; refuse any value that is not plain."""
    numbers = isinstance(value, list) and all(isinstance(item, int) for item in value)
    if not isinstance(value, Code) and not numbers and not PLAIN.fullmatch(str(value)):
        raise UmakitError(
            f"{str(value)[:100]!r} cannot stand in what {context.name} makes",
            fix="use letters, digits and underscores",
        )
    return value


def _visible(value: object) -> object:
    if type(value) is not str:
        return value
    return "\n".join(shown(line) for line in value.split("\n"))


def template_folder() -> Path:
    return Path(str(files("umakit.templates")))


def render(template: str, **values: object) -> str:
    """Render a template of plain text or code. A missing value is an error."""
    return _environment().get_template(template).render(**values)


def render_html(template: str, **values: object) -> str:
    """Render a template of HTML. Special characters in values are escaped."""
    return _environment(escape=True).get_template(template).render(**values)


# Compiled Jinja2 templates, kept where Python keeps its own compiled modules.
#
# Compiling the templates of a small export takes as long as all stages before it. The files lie in
# `__pycache__` of the templates' folder or in `PYTHONPYCACHEPREFIX`. No file is written with
# `PYTHONDONTWRITEBYTECODE` or into a read-only folder.


@dataclass
class TemplateCache(jinja2.BytecodeCache):
    """Cache of the compiled templates of one environment.

    Attributes:
        sources: Python files with filters. Jinja2 calls filters on constants during compilation.
    """

    folder: Path
    environment: str
    sources: tuple[str, ...]

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the part of the cache file's name that identifies the template."""
        return f"{name.replace('/', '-')}-{self.environment}"

    def get_source_checksum(self, source: str) -> str:
        """Return a digest of everything that the compiled code depends on."""
        return hashlib.sha256(f"{self._code_digest} {source}".encode()).hexdigest()

    @functools.cached_property
    def _code_digest(self) -> str:
        digest = hashlib.sha256(jinja2.__version__.encode())
        for source in self.sources:
            digest.update(Path(source).read_bytes())
        return digest.hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the code of a template from a valid cache file, if there is one."""
        try:
            with self._file(bucket).open("rb") as stream:
                bucket.load_bytecode(stream)
        except Exception:  # absent, or damaged: unpickling may raise anything
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        file = self._file(bucket)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    bucket.write_bytecode(stream)
                Path(temporary).replace(file)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise

    def _file(self, bucket: Bucket) -> Path:
        return Path(importlib.util.cache_from_source(str(self.folder / f"{bucket.key}.j2")))
