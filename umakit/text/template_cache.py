# SPDX-License-Identifier: Apache-2.0
"""Compiled Jinja2 templates, kept where Python keeps its own compiled modules.

Compiling the templates of a small export takes as long as all stages before it. The files lie in
`__pycache__` of the templates' folder, or where `PYTHONPYCACHEPREFIX` says; none are written with
`PYTHONDONTWRITEBYTECODE`, or into a folder that cannot be written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket


class TemplateCache(jinja2.BytecodeCache):
    """The compiled templates of one environment.

    Args:
        folder: the folder of the templates.
        environment: name of the environment, which distinguishes files of the same template.
        sources: Python files with filters, which Jinja2 calls for constants while it compiles.
    """

    def __init__(self, folder: Path, environment: str, sources: tuple[str, ...]) -> None:
        self._folder = folder
        self._environment = environment
        self._sources = sources

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the part of the file's name that says which template it is of."""
        return f"{name.replace('/', '-')}-{self._environment}"

    def get_source_checksum(self, source: str) -> str:
        """Return a digest of all that compiled code depends on."""
        return hashlib.sha256(f"{self._code_digest} {source}".encode()).hexdigest()

    @functools.cached_property
    def _code_digest(self) -> str:
        digest = hashlib.sha256(jinja2.__version__.encode())
        for source in self._sources:
            digest.update(Path(source).read_bytes())
        return digest.hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read the code of a template if there is any that fits."""
        try:
            with self._file(bucket).open("rb") as stream:
                bucket.load_bytecode(stream)
        except Exception:  # absent, or damaged: unpickling may raise anything
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the code of a template, whole or not at all."""
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
        return Path(importlib.util.cache_from_source(str(self._folder / f"{bucket.key}.j2")))
