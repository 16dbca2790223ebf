# SPDX-License-Identifier: Apache-2.0
"""Why there is no integer form of a quantized operator."""


class NotAnIsland(Exception):
    """Operators around a quantize that are not an integer operator; the message says why."""


class FloatInTheModel(NotAnIsland):
    """The same, because the model asks for floating point."""
