# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of cycles, and the cycles of a layer above the bound, by cause.

The bounds are computed from sizes of layers and from the description of a machine: cells, widths,
sizes of memories. No function here asks the planner, the estimate or the clock. Only `losses.py`
reads times of commands from the clock, to attribute the cycles above a bound.

::

    limits.py      Limits        speeds and sizes in the description of a machine
    network.py     network_bound all offloaded layers together, for any schedule
    scratchpad.py  spilled_bytes activations that leave a scratchpad and come back
    array.py       array_bound   a layer on a systolic array: folds, drain, first load, last store
    losses.py      losses_of     the cycles of a layer above its bound, by cause

The bound of a layer by its multiply-accumulates and bytes alone is in `umakit.machine.bound`.
"""
