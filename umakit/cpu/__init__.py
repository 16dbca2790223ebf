# SPDX-License-Identifier: Apache-2.0
"""CPUs and their kernels: descriptions with costs, legalizations of operators, loop schedules and
dot products."""
