# SPDX-License-Identifier: Apache-2.0
"""The partition stage: assigns operators to accelerators or the CPU, with reasons."""
