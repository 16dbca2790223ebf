# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of cycles, and what a layer loses against its own.

They are computed from sizes and from what a machine says about itself: cells, widths, sizes of
memories. No function here asks the planner, the estimate or the clock; `losses.py` reads the times
of commands that the clock found, to say where the cycles above a bound went.

::

    limits.py      Limits        what a description says about the speed of a machine
    network.py     network_bound all offloaded layers together, for any schedule
    scratchpad.py  spilled_bytes what leaves a scratchpad and comes back, layer after layer
    array.py       array_bound   a layer on a systolic array: folds, drain, first load, last store
    losses.py      losses_of     the cycles of a layer above its bound, by cause

The bound of a layer by its multiply-accumulates and bytes alone is in `umakit.machine.bound`.
"""
