# SPDX-License-Identifier: Apache-2.0
"""Counts of events of an inference, and their energy.

::

    predicted.py   predicted_counts   counts predicted by the cost model
    picojoules.py  energy_of          energy of counts, from `[energy]` of `accel.toml`
    events.py      events_json        events of an inference, as printed by `--json`
    columns.py     event_table        the events as a table of texts
"""

from umakit.tools.energy.events import counts_of
from umakit.tools.energy.picojoules import Energy, energy_of

__all__ = ["Energy", "counts_of", "energy_of"]
