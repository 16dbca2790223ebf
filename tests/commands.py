# SPDX-License-Identifier: Apache-2.0
"""The commands of `uma`, as they are registered."""

from __future__ import annotations

import typer
from umakit.cli.main import app

COMMANDS: dict[str, typer.core.TyperCommand] = dict(
    typer.main.get_command(app).commands  # type: ignore[attr-defined]
)
"""All commands by name."""
