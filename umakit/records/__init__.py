# SPDX-License-Identifier: Apache-2.0
"""Tuning records: the best tilings of accelerators, and choices for kernels of the CPU."""
