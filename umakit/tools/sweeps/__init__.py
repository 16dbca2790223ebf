# SPDX-License-Identifier: Apache-2.0
"""`uma sim MODEL`: predicts a network on an accelerator, and on many variants of it.

::

    settings.py  parse_settings    values of `accel.toml` in texts
    machines.py  machine_with      a copy of a backend with other values
    predict.py   predict_network   a network on one machine
    points.py    predict_machine,  a prediction as a task of a worker, and a simulation
                 simulate_machine
    records.py   SweepRecords      the file of finished machines
    sweep.py     sweep_machines    all machines, and the Pareto front
    plot.py      draw_sweep        a picture of cycles against costs
"""

from umakit.tools.sweeps.machines import machine_with
from umakit.tools.sweeps.points import PredictedMachine, SimulatedMachine, Source
from umakit.tools.sweeps.predict import PredictedNetwork, predict_network
from umakit.tools.sweeps.settings import parse_settings, parse_sweeps, read_configuration
from umakit.tools.sweeps.sweep import COSTS, Cost, Sweep, SweptMachine, sweep_machines

__all__ = [
    "COSTS",
    "Cost",
    "PredictedMachine",
    "PredictedNetwork",
    "SimulatedMachine",
    "Source",
    "Sweep",
    "SweptMachine",
    "machine_with",
    "parse_settings",
    "parse_sweeps",
    "predict_network",
    "read_configuration",
    "sweep_machines",
]
