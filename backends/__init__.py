# SPDX-License-Identifier: Apache-2.0
"""Reference backends: each folder is exactly what `uma new` writes."""
