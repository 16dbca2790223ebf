# SPDX-License-Identifier: Apache-2.0
"""Identifiers, escaping and templates for text that goes into generated code and messages."""
