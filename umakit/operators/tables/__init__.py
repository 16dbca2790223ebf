# SPDX-License-Identifier: Apache-2.0
"""Functions of integers as tables."""
