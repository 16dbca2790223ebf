# SPDX-License-Identifier: Apache-2.0
"""`uma tune`: the search for tilings, recorded for `uma compile --records`.

::

    search.py     search           the best tiling of a layer
    simulate.py   simulated_cycles a layer alone in the simulator
    workers.py    Workers          processes for the tasks
    (records/tilings.py: the file)
    tune.py       tune_model       all layers of a model, and their totals
"""

from umakit.records.tilings import Effort, Record, Records, check_records_file, read_records
from umakit.tools.tuning.tune import Total, TunedLayer, kind_of, totals, tune_model
from umakit.tools.tuning.workers import Workers, cluster_workers, local_workers

__all__ = [
    "Effort",
    "Record",
    "Records",
    "Total",
    "TunedLayer",
    "Workers",
    "check_records_file",
    "cluster_workers",
    "kind_of",
    "local_workers",
    "read_records",
    "totals",
    "tune_model",
]
