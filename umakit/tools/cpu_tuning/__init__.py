# SPDX-License-Identifier: Apache-2.0
"""`uma tune --cpu`: the search for kernel choices, recorded for `uma compile --records`.

::

    trials.py   Trials, Meter            libraries with other choices, and their figures by kernel
    search.py   Search                   results of trials for each kernel, and faster choices
    (records/choices.py: the file)
    tune.py     tune_cpu                 all kernels of a model
"""

from umakit.tools.cpu_tuning.search import Total
from umakit.tools.cpu_tuning.trials import DeviceMeter, HostMeter, Meter, meter_for
from umakit.tools.cpu_tuning.tune import (
    CpuEffort,
    CpuProgress,
    TunedCpu,
    TunedKernel,
    tune_cpu,
)

__all__ = [
    "CpuEffort",
    "CpuProgress",
    "DeviceMeter",
    "HostMeter",
    "Meter",
    "Total",
    "TunedCpu",
    "TunedKernel",
    "meter_for",
    "tune_cpu",
]
