# SPDX-License-Identifier: Apache-2.0
"""The command `uma`: argument parsing and printing, nothing else."""
