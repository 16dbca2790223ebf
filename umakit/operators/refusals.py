# SPDX-License-Identifier: Apache-2.0
"""Exceptions of derivations: a quantized operator has no integer form."""


class NoIntegerForm(Exception):
    """The operators before a quantize cannot be computed in integers; the message says why."""


class FloatInTheModel(NoIntegerForm):
    """There is no integer form because the model itself specifies floating point."""
