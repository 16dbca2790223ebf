# SPDX-License-Identifier: Apache-2.0
"""Counts of events of an inference and the energy that they take.

::

    measured.py    counts_of          counts of a layer that its simulator measured
    predicted.py   predicted_counts   counts that the cost model predicts
    picojoules.py  energy_of          energy of counts, from `[energy]` of `accel.toml`
    events.py      events_of_run      all of an inference, as `--json` prints them
    columns.py     event_table        the same as a table of texts
"""

from umakit.tools.energy.events import LayerEvents, NetworkEvents, counts_of, events_of_run
from umakit.tools.energy.picojoules import Energy, energy_of

__all__ = ["Energy", "LayerEvents", "NetworkEvents", "counts_of", "energy_of", "events_of_run"]
