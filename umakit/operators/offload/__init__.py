# SPDX-License-Identifier: Apache-2.0
"""Base classes of patterns: constraints, layouts, and the driver's parameters."""
