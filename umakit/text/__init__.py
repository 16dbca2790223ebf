# SPDX-License-Identifier: Apache-2.0
"""Names, escaping and templates: what flows from a model into other languages."""
