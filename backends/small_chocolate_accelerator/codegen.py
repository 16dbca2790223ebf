# SPDX-License-Identifier: Apache-2.0
"""What the generated C needs besides the network itself."""


def gen_includes() -> str:
    """Text for the top of the generated C: the driver's declarations."""
    return '#include "small_chocolate_accelerator.h"'
