# SPDX-License-Identifier: Apache-2.0
"""Regions of a network get the layout of an accelerator's patterns, if the change pays."""
