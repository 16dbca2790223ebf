# SPDX-License-Identifier: Apache-2.0
"""`uma tune`: searches the best tiling for each layer, or good choices for kernels on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from umakit.cli.options import (
    DeviceOption,
    JsonOption,
    KeepLayoutOption,
    ModelArgument,
    RoundingOption,
    ShapesOption,
    device_of_library,
    parse_shapes,
)
from umakit.cli.tune_backend import BackendSearch, tune_for_backend
from umakit.cli.tune_call import TuneCall
from umakit.cli.tune_cpu import CpuSearch, tune_for_cpu

from umakit.devices import HOST
from umakit.errors import InputError

HELP = """Find the best tiling for each layer, or better choices for kernels on a CPU, and write \
them down for `uma compile --records`.

A layer larger than the scratchpad is cut into tiles. Without records the backend chooses at once \
how, by an estimate; here all sizes of tiles, dataflows, orders of loops and numbers of buffers \
are looked at: all by the estimate, the best --clock of them on the exact clock of the cost model, \
the best --simulate of those in the simulator, each as a library of this layer alone.

Each layer is written down when it is done. After Ctrl-C the same command goes on where it \
stopped: layers that have a record of this effort are skipped, unless --again asks for them.

Records are of one model, and of one backend or CPU. They are refused when the model, a figure of \
the hardware, or the way in which umakit counts cycles has changed.

The result does not depend on who does the work: this process, --workers more of them, or the \
workers of a dask scheduler, which need umakit and the backend at the same path \
(`pip install 'umakit\\[cluster]'`).

A tiling such as "os, 4x16x32 by 8, channels > rows, x4" is output stationary, with tiles of 4 \
rows, 16 columns and 32 output channels, in steps over 8 input channels; the loop over channels \
is outside of that over rows, and there are 4 buffers instead of 2.

With --cpu instead of --backend, kernels for a CPU are tuned. The rules for them choose at once \
how many results are computed together, and in which order. Here each of up to --trials libraries \
has another choice for each kernel: on this machine it runs in turns with the library by the \
rules, and processor times of kernels are compared; on a --device, instructions are counted. A \
choice is kept if its times are 2 % less in the median of 15 rounds, and less at all in three \
quarters of them; in two measurements, and in a last one of all choices together. Of \
instructions, it is kept if there are fewer. Each trial is written down when it is done, and \
Ctrl-C and --again are as above.

Exit code: 0 if all layers are tuned, 130 after Ctrl-C, 2 for a mistake of the call, 1 if a run \
failed."""

EPILOG = """Examples:  uma tune net.tflite --backend my_npu --records net.json --workers 4

uma tune net.onnx --cpu native --records net.json

uma tune net_int8.onnx --cpu cortex-m4 --device qemu-cortex-m4 --records net.json"""

TunedBackendOption = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="Name or folder of the accelerator.", show_default=False),
]
TunedCpuOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        help="CPU whose kernels are tuned, in place of --backend: native (this machine), another "
        "name that `uma compile --cpu` takes, or a TOML file.",
        show_default=False,
    ),
]
TrialsOption = Annotated[
    int, typer.Option(min=1, max=1000, help="With --cpu: other choices of a kernel to try.")
]
SecondsOption = Annotated[
    float,
    typer.Option(min=1, max=1e7, help="With --cpu: no trial begins after this time."),
]
RecordsOption = Annotated[
    Path,
    typer.Option(
        "--records",
        "-r",
        "--output",
        "-o",
        help="The file to write, or to go on with.",
        show_default=False,
    ),
]
ClockOption = Annotated[
    int, typer.Option(min=1, max=100_000, help="Tilings of a layer to run on the exact clock.")
]
SimulateOption = Annotated[
    int,
    typer.Option(
        min=0, max=100, help="Of the best of them, how many to run in the simulator; 0 for none."
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, max=1024, help="Processes of this machine.")]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        help="Use the workers of the dask scheduler at this address, such as tcp://host:8786.",
        show_default=False,
    ),
]
AgainOption = Annotated[
    bool, typer.Option("--again", help="Also look at layers or kernels that have a record.")
]


OF_BACKENDS = ("clock", "simulate", "workers", "scheduler")
OF_CPUS = ("device", "trials", "seconds")
"""Options that are for accelerators alone, and for CPUs alone."""


def tune(
    context: typer.Context,
    model: ModelArgument,
    records: RecordsOption,
    backend: TunedBackendOption = None,
    cpu: TunedCpuOption = None,
    clock: ClockOption = 64,
    simulate: SimulateOption = 3,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    device: DeviceOption = HOST.name,
    trials: TrialsOption = 12,
    seconds: SecondsOption = 900.0,
    again: AgainOption = False,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    keep_layout: KeepLayoutOption = False,
    as_json: JsonOption = False,
) -> int:
    _check_kind(context, backend, cpu)
    shapes = parse_shapes(input_shapes)
    call = TuneCall(model, records, again, shapes, rounding, keep_layout, as_json)
    if cpu is not None:
        return tune_for_cpu(call, CpuSearch(cpu, device_of_library(device), trials, seconds))
    assert backend is not None  # as `_check_kind` says
    return tune_for_backend(call, BackendSearch(backend, clock, simulate, workers, scheduler))


def _check_kind(context: typer.Context, backend: str | None, cpu: str | None) -> None:
    """Refuse a call with both or neither of accelerator and CPU, or with options of the other."""
    if (backend is None) == (cpu is None):
        given = "both --backend and --cpu" if cpu is not None else "neither --backend nor --cpu"
        raise InputError(f"there is {given}", fix="give one of them")
    kind, others = ("--cpu", OF_BACKENDS) if cpu is not None else ("--backend", OF_CPUS)
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--{name} has no meaning with {kind}", fix="leave it out")
