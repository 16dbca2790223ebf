# SPDX-License-Identifier: Apache-2.0
"""Mechanisms for importing modules of the package."""
