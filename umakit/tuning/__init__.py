# SPDX-License-Identifier: Apache-2.0
"""The search over tilings: what `uma tune` does, and what `uma compile --records` reads.

::

    records.py    Records          the file
    apply.py      using_records    compiling with it
"""

from umakit.tuning.apply import TunedLayers, using_records

__all__ = ["TunedLayers", "using_records"]
