# SPDX-License-Identifier: Apache-2.0
"""Jinja2 templates: the source of files that umakit writes, with those of `umakit.sim`."""
