# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands, and parsing of their values."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import say

from umakit.devices import DEVICES, HOST
from umakit.devices.addresses import is_address
from umakit.devices.catalogue import ADDRESSES, RTL, device_file
from umakit.errors import BackendError, DeviceError, InputError, LibraryError
from umakit.memory.planners import LARGEST_SCRATCH_LIMIT, PLANNERS

if TYPE_CHECKING:
    from umakit.devices.waveforms import WaveFile

ModelArgument = Annotated[
    Path,
    typer.Argument(
        help="An ONNX (.onnx), TensorFlow Lite (.tflite) or PyTorch (.pt2) file, or a Relax module "
        "(.json).",
        show_default=False,
    ),
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        "-b",
        help="Name or folder of an accelerator; repeat it for several, the first has priority.",
        show_default=False,
    ),
]
ShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shapes",
        help='All sizes of an input with symbolic dimensions, as "NAME:[SIZE,...]", such as '
        '"image:[1,3,224,224]"; repeat it for several inputs.',
        show_default=False,
    ),
]
RoundingOption = Annotated[
    str | None,
    typer.Option(
        "--rounding",
        help="How a quantized network's products are rounded: ort (once, ties to even: ONNX "
        "Runtime's; default for ONNX and PyTorch) or tflm (TensorFlow Lite Micro's).",
        show_default=False,
    ),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        help="A memory of the board: NAME, NAME=BYTES or NAME=96K,align=32; repeat it, the "
        "first that fits has priority. Also gives a backend's memory another size.",
        show_default=False,
    ),
]
PlannerOption = Annotated[
    str,
    typer.Option(help=f"Memory planner: {', '.join(PLANNERS)}."),
]
WeightsOption = Annotated[
    str, typer.Option(help="Where constants go: c, or blob (one binary file and its loader).")
]
RecordsOption = Annotated[
    Path | None,
    typer.Option(
        "--records",
        help="Tilings, or choices for kernels on the CPU, that `uma tune` found for this model; "
        "default: each layer's own choice.",
        show_default=False,
    ),
]
OverlapOption = Annotated[
    str,
    typer.Option(
        help="When the CPU works while an accelerator does: free (where it costs no memory), "
        "always or never."
    ),
]
IndexChecksOption = Annotated[
    bool,
    typer.Option(
        "--index-checks/--no-index-checks",
        help="Whether indices that are computed at run time are checked; without, one out of "
        "range reads or writes outside of its tensor.",
    ),
]
KeepLayoutOption = Annotated[
    bool,
    typer.Option(
        "--keep-layout",
        help="Do not transpose regions of the network to the layout that an accelerator takes.",
    ),
]
ChooseOption = Annotated[
    str,
    typer.Option(
        help="Which of several accelerators gets a layer: order (the first one that takes it) or "
        "cycles (that with the fewest, as measured in runs of the network)."
    ),
]
DEVICE_NAMES = f"{', '.join(device.name for device in DEVICES)}, {ADDRESSES}"

DeviceOption = Annotated[str, typer.Option(help=f"Where to run: {DEVICE_NAMES}.")]
InferencesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10_000,
        help="Number of inferences, one after the other, of which the first is told apart from "
        "all later ones.",
        show_default=False,
    ),
]
CpuClockOption = Annotated[
    float | None,
    typer.Option(
        "--cpu-clock",
        min=1,
        max=1e12,
        help="Cycles a second of the CPU: steps on it count as their host time times this, marked "
        "as scaled; default: they are unknown.",
        show_default=False,
    ),
]
RequireOffloadOption = Annotated[
    bool,
    typer.Option(
        "--require-offload",
        help="Refuse a network of which no layer runs on one of the accelerators (exit code 1).",
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Also replace output files that were changed since umakit wrote them, or that it did "
        "not write. Inputs are never replaced.",
    ),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        help="Where to write a trace (JSON) for Perfetto (ui.perfetto.dev) or chrome://tracing; an "
        "earlier trace is replaced.",
        show_default=False,
    ),
]
CpuOption = Annotated[
    str,
    typer.Option(
        "--cpu",
        help="CPU that kernels are scheduled for: generic (C99 for any), native (this machine), "
        "x86-64-v3, x86-64-v4, cortex-a76, or a TOML file; several with commas between them.",
    ),
]
ChosenCpuOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        help="CPU that a model is compiled for, as of `uma compile`; of a library for several CPUs "
        "the one whose code is meant.",
        show_default=False,
    ),
]
ScratchLimitOption = Annotated[
    int,
    typer.Option(
        "--scratch-limit",
        min=0,
        max=LARGEST_SCRATCH_LIMIT,
        help="Percent above the live-set bound that kernels for a CPU may take as scratch; those "
        "with more are as for generic. 0: no larger arena than for generic.",
    ),
]
ParallelOption = Annotated[
    int,
    typer.Option(
        "--parallel-for",
        min=0,
        help="Maximum number of parts of a layer that a callback of the caller may compute at the "
        "same time; 0: no function takes one.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


RtlFlag = Annotated[
    bool,
    typer.Option(
        "--rtl",
        help="Run accelerators on their designs (\\[rtl] of accel.toml), compiled by Verilator, in "
        "place of their simulators.",
    ),
]


WaveOption = Annotated[
    Path | None,
    typer.Option(
        "--wave",
        help="Where to write the waveform of the design (FST), at most a million cycles; needs "
        "--rtl.",
        show_default=False,
    ),
]


def check_wave(wave: Path | None, is_rtl: bool) -> None:
    """Refuse a waveform if no design runs."""
    if wave is not None and not is_rtl:
        from umakit.devices.waveforms import no_design

        raise no_design()


@contextlib.contextmanager
def said_when_it_fails(file: WaveFile | None) -> Iterator[None]:
    """Print the path of the waveform if a run fails."""
    try:
        yield
    except DeviceError:
        if file is not None:
            say(file.sentence, error=True)
        raise


def device_with(rtl: bool, device: str) -> str:
    if rtl and device != HOST.name:
        raise InputError(f"--rtl runs on this machine, not on {device}", fix="leave --device out")
    return RTL.name if rtl else device


def device_of(device: str, backends: list[str] | None) -> str:
    """Return a backend's device file of this name, else the device unchanged.

    Args:
        device: a name or a path.
        backends: names or folders of backends, which may have `devices/NAME.toml`.
    """
    if _is_known(device):
        return device
    return next((str(file) for each in backends or [] if (file := _board_of(each, device))), device)


def device_of_library(device: str, library: Path | None = None) -> str:
    """Return a backend's device file of this name, else the device, without given backends.

    The library's backends are searched first, then all other backends known by name.

    Args:
        library: an exported library; None, or a model, if there is no library.
    """
    if _is_known(device):
        return device
    from umakit.backend.registry import list_backends
    from umakit.library.metadata import load_metadata
    from umakit.tools.model_or_library import is_model

    names: list[str] = []
    if library is not None and not is_model(library):
        with contextlib.suppress(LibraryError):  # reported when the library is read
            names = [str(each["name"]) for each in load_metadata(library)["umakit"]["backends"]]
    for name in dict.fromkeys([*names, *(source.name for source in list_backends())]):
        with contextlib.suppress(BackendError):  # the backend may be in an unknown folder
            file = _board_of(name, device)
            if file is not None:
                return str(file)
    return device


def _is_known(device: str) -> bool:
    """Whether a device is built in, an address or a path, so that no backend is searched."""
    is_own = any(each.name == device for each in (*DEVICES, RTL))
    return is_own or is_address(device) or device_file(device) is not None


def _board_of(backend: str, device: str) -> Path | None:
    """Return a backend's file of a device; None if the backend has no such file."""
    from umakit.backend.registry import locate_backend

    found = locate_backend(backend)
    file = Path(found.folder or found.load().folder) / "devices" / f"{device}.toml"
    return file if file.is_file() else None


def path_of(options: Mapping[str, Any], name: str) -> Path | None:
    return None if options[name] is None else Path(options[name])


def parse_shapes(texts: list[str] | None) -> dict[str, list[int]]:
    """Parse texts of the form `name:[1,2,3]`; the brackets may be omitted."""
    shapes = {}
    for text in texts or []:
        name, separator, sizes = text.rpartition(":")
        try:
            shape = [int(size) for size in sizes.strip().strip("[]").split(",")]
        except ValueError:
            shape = []
        if not separator or not shape or min(shape) < 1:
            raise InputError(f"--input-shapes {text!r} is not of the form name:[1,3,224,224]")
        shapes[name.strip()] = shape
    return shapes


def find_backends(names: list[str] | None) -> list[Any]:
    """Load accelerators by name or folder."""
    from umakit.backend.registry import find_backend

    found = [find_backend(name) for name in names or []]
    for backend in found:
        _ = backend.configuration
    return found


def repeated_options(context: typer.Context, left_out: Collection[str]) -> list[str]:
    """Return the given options of a command as words of a command line."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params[str(option.name)]
        if option.param_type_name != "option" or option.name in left_out:
            continue
        if value is True:
            words.append(option.opts[0])
        elif value and value != option.default:
            for item in value if isinstance(value, (list, tuple)) else [value]:
                words += [option.opts[0], str(item)]
    return words


def find_designs(names: list[str] | None) -> list[Any]:
    """Return the designs of backends, given by name or folder, without loading the backends."""
    if not names:
        return []
    from umakit.backend.registry import locate_backend
    from umakit.devices.designs import design_of

    found = [locate_backend(name) for name in names]
    return [design_of(each.folder or each.load().folder) for each in found]
