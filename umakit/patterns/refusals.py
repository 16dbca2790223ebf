# SPDX-License-Identifier: Apache-2.0
"""Reasons why an accelerator does not take an operator."""


class OtherOperator(str):
    """A refusal because the match is another operator; told only if no pattern says more."""
