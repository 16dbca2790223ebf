# SPDX-License-Identifier: Apache-2.0
"""Sixth stage: a planned program becomes C99 text."""

from umakit.codegen.model_source import generate_code

__all__ = ["generate_code"]
