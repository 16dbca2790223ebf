# SPDX-License-Identifier: Apache-2.0
"""The choice between several accelerators by cycles."""
