# SPDX-License-Identifier: Apache-2.0
"""Jinja2 templates: the only source of files that umakit writes."""
