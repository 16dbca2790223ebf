# SPDX-License-Identifier: Apache-2.0
"""Damaged files of every format that umakit reads: see `python -m mutators --help`."""
