# SPDX-License-Identifier: Apache-2.0
"""Cutting layers into tiles that fit an accelerator's scratchpad, and what that costs in cycles.

::

    hardware.py   Hardware   the numbers of an accelerator
    costs.py      Cost       cycles of an array job, a pool and a transfer
    clock.py      run        a list of commands on the clock of the device
    waits.py      HeldBy     what the array waited for meanwhile
    bound.py      Bound      what no tiling can beat
"""
