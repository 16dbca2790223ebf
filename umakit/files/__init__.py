# SPDX-License-Identifier: Apache-2.0
"""Reading input files and writing output files, with checks that protect the user's files."""
