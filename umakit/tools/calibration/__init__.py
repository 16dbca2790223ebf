# SPDX-License-Identifier: Apache-2.0
"""`uma calibrate`: costs of commands that are measured on a simulator or device.

::

    tiles.py      tiles_of_group  which tiles are measured
    measure.py    measure         their commands, by the backend's driver
    fit.py        fitted          a formula of measured cycles
    costs.py      costs_of        formulas of all commands
    choice.py     choices_of      the formulas in use
    whole.py      measured_layers layers that are compared with the formulas
    accesses.py   driver_note     register accesses of the driver that are described wrongly
    outcome.py    Outcome         the costs in use, and advice for inexact ones
    calibrate.py  calibrate       all of it
    (machine/calibration.py: the file; machine/calibrated.py: the machine that costs what was
    measured)
"""

from umakit.tools.calibration.calibrate import Calibrating, calibrate, destination_of
from umakit.tools.calibration.outcome import Outcome

__all__ = ["Calibrating", "Outcome", "calibrate", "destination_of"]
