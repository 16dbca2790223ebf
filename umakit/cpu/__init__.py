# SPDX-License-Identifier: Apache-2.0
"""Kernels of the CPU: legalizations of operators, loop schedules and dot products."""
