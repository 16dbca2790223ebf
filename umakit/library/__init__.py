# SPDX-License-Identifier: Apache-2.0
"""The library stage: a folder or tar that a C compiler takes, and what describes it."""
