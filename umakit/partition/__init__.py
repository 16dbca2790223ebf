# SPDX-License-Identifier: Apache-2.0
"""The partition stage: which operators run where, and why."""
