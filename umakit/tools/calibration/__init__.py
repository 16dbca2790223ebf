# SPDX-License-Identifier: Apache-2.0
"""`uma calibrate`: costs of commands, measured on a simulator or device.

::

    tiles.py      tiles_of_group  tiles to measure
    measure.py    measure         their commands, by the backend's driver
    fit.py        fitted          a formula of measured cycles
    costs.py      costs_of        formulas of all commands
    choice.py     choices_of      the formulas in use
    whole.py      measured_layers layers compared with the formulas
    outcome.py    Outcome         the costs in use, and advice for inexact costs
    calibrate.py  calibrate       all steps, and wrongly described register accesses
    (machine/calibration.py: the file; machine/calibrated.py: the machine with measured costs)
"""

from umakit.tools.calibration.calibrate import Calibrating, calibrate, destination_of
from umakit.tools.calibration.outcome import Outcome

__all__ = ["Calibrating", "Outcome", "calibrate", "destination_of"]
