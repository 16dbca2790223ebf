# SPDX-License-Identifier: Apache-2.0
"""Code generation: a program with its memory plan becomes C99 source files."""

from umakit.codegen.model_source import generate_code

__all__ = ["generate_code"]
