# SPDX-License-Identifier: Apache-2.0
"""Converters of Core ATen operators."""
