# SPDX-License-Identifier: Apache-2.0
"""`uma diff`: finds the first wrong layer of a library."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli import diff_text
from umakit.cli.console import console, print_json, progress, say, say_notices
from umakit.cli.options import (
    BackendOption,
    ChooseOption,
    CpuOption,
    DeviceOption,
    ForceOption,
    JsonOption,
    KeepLayoutOption,
    ModelArgument,
    PoolOption,
    RoundingOption,
    RtlFlag,
    ShapesOption,
    WaveOption,
    check_wave,
    device_of,
    device_with,
    find_backends,
    parse_shapes,
    path_of,
    repeated_options,
    said_when_it_fails,
)

from umakit.errors import InputError
from umakit.files.outputs import status_of
from umakit.memory.planners import DEFAULT_PLANNER
from umakit.text.escaping import shell_word

if TYPE_CHECKING:
    from umakit.devices.waveforms import WaveFile
    from umakit.pipeline import ExportOptions
    from umakit.tools.diff import DiffResult
    from umakit.tools.diff.result import DifferenceFiles

HELP = """Find the first operator whose result is wrong.

The network is compiled and run, accelerators in their simulators, and the result of every layer \
is compared as soon as the layer has run. A layer is fed with the reference's values, so that it \
is not blamed for errors of earlier ones. Integers must be equal, but for --integer-tolerance; \
floats may differ by the tolerance times the largest magnitude in the reference's tensor, and \
outputs of the whole run by that for each layer. With --integer-tolerance the layers alone \
decide; what their differences do to the outputs of the whole run is printed.

The reference is ONNX Runtime for .onnx and TensorFlow Lite Micro for .tflite, where they are \
installed, each in a process of its own; what they do not know under the same name is compared \
with umakit's own CPU kernels, one for each operator, and so is everything with --reference cpu. \
Where a reference differs from these kernels, or crashes, NumPy computes the operator as the model \
file says and decides; the verdict names the reference that is wrong.

What is compared is compiled with the options that you give here (`uma diff digits.onnx -b my_npu \
--device qemu-cortex-m3 --pool sram=64K`), or is the very library that you ship (`uma diff \
digits.onnx --library digits_library --inputs held_out.npz --most 100`).

Exit code: 0 if all agrees; 1 if something differs, or if the run stopped (a driver's status, a \
crash), which names the layer; 2 for a mistake of the call; 3 if nothing differs, but layers were \
not compared: a pass of a backend changed them, so that the model has no operator for them."""

NOT_COMPARED = 3
"""Exit code if nothing differs, but layers were not compared."""

EPILOG = """Examples:  uma diff digits.onnx --backend vanilla_accelerator

uma diff digits.onnx --backend ./my_npu --rtl --wave layer.fst"""

LibraryOption = Annotated[
    Path | None,
    typer.Option(
        "--library",
        "-l",
        help="What `uma compile` wrote of MODEL, folder or tar, instead of compiling it here.",
        show_default=False,
    ),
]
InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        "-i",
        help="Arrays by input name (npz), one more leading dimension for several inferences; "
        "default: three random ones, the same every time.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Folder for the wrong tensor and the right one (npz); default: MODEL_diff, "
        "written if something differs. Files of an earlier comparison are replaced.",
        show_default=False,
    ),
]
ReferenceOption = Annotated[
    str, typer.Option(help="What to compare with: auto, cpu, numpy, onnxruntime or tflite-micro.")
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        help="Of floats, relative to the largest magnitude in the reference's tensor, not to each "
        "element; absolute where all of them are 0."
    ),
]
IntegerToleranceOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Of integers, in LSB, for hardware that rounds in its own way; with a histogram of "
        "the differences of each layer, and what they do to the outputs.",
    ),
]
MostOption = Annotated[
    int | None,
    typer.Option(min=1, help="Inferences to run at most; default: all.", show_default=False),
]
SamePlannerOption = Annotated[
    str | None, typer.Option(help="Memory planner, as of `uma compile`.", show_default=False)
]
SameWeightsOption = Annotated[
    str | None,
    typer.Option(
        help="Where constants go: c or blob; default: c, but blob for more than 4 MiB if "
        "--pool and --planner are left out.",
        show_default=False,
    ),
]
DiffTimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=10_000_000,
        help="Processor time in seconds that each run of an inference may take; default: 600 with "
        "an accelerator or under emulation.",
        show_default=False,
    ),
]


def diff(
    context: typer.Context,
    model: ModelArgument,
    backend: BackendOption = None,
    library: LibraryOption = None,
    inputs: InputsOption = None,
    output: OutputOption = None,
    reference: ReferenceOption = "auto",
    tolerance: ToleranceOption = 1e-5,
    integer_tolerance: IntegerToleranceOption = 0,
    most: MostOption = None,
    device: DeviceOption = "host",
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    pool: PoolOption = None,
    planner: SamePlannerOption = None,
    weights: SameWeightsOption = None,
    keep_layout: KeepLayoutOption = False,
    choose: ChooseOption = "order",
    cpu: CpuOption = "generic",
    force: ForceOption = False,
    rtl: RtlFlag = False,
    wave: WaveOption = None,
    timeout: DiffTimeoutOption = None,
    as_json: JsonOption = False,
) -> int:
    options = {**context.params, "device": device_with(rtl, device_of(device, backend))}
    check_wave(wave, rtl)
    options["input_shapes"] = parse_shapes(input_shapes)
    folder = output or Path(f"{model.stem}_diff")
    if status_of(folder) is not None and not folder.is_dir():
        raise InputError(
            "exists and is not a folder", where=str(folder), fix="choose another --output"
        )
    given = _compiling(options)
    if library is not None and given:
        raise InputError(
            f"{given[0]} is for compiling, and {library} is compiled already",
            fix=f"leave out {given[0]} or --library",
        )
    with progress() as tell:
        result, files, file = _compare(model, options, folder, tell)
    written = files.write(result) if output or result.differs else {}
    say_notices(result.notices, as_json)
    if as_json:
        of_wave = None if file is None or file.written is None else file.written.as_json()
        print_json({**result.as_json(), "files": written, "wave": of_wave})
    else:
        _print(result, written, context, rtl)
        if file is not None and result.differs:
            say(file.sentence)
    return 1 if result.differs else 0 if result.agrees else NOT_COMPARED


def _compiling(options: Mapping[str, Any]) -> list[str]:
    """Return the given options of compiling, such as `--pool`."""
    defaults = {"backend": None, "pool": None, "planner": None, "weights": None,
                "keep_layout": False, "choose": "order", "cpu": "generic"}  # fmt: skip
    return [
        f"--{name.replace('_', '-')}" for name, default in defaults.items()
        if options[name] != default and (options[name] or default)
    ]  # fmt: skip


PASSED_ON = (
    "device reference tolerance integer_tolerance most input_shapes rounding timeout"
).split()
"""Options that are settings of the same names."""


def _compare(
    model: Path, options: Mapping[str, Any], folder: Path, tell: Callable[[str], None]
) -> tuple[DiffResult, DifferenceFiles, WaveFile | None]:
    """Run a network and its reference; return the result, its files, and the waveform.

    Args:
        options: options of the command by parameter name.
    """
    tell("loading TVM")
    from umakit.cpu.description import cpu_file
    from umakit.devices.catalogue import device_file
    from umakit.devices.run import load_inputs
    from umakit.devices.waveforms import WaveFile
    from umakit.frontend import model_files
    from umakit.library.metadata import library_files
    from umakit.registration.sources.tree import input_files
    from umakit.tools.diff import DiffSettings, diff_model
    from umakit.tools.diff.result import DifferenceFiles

    library, inputs, wave = (path_of(options, name) for name in ("library", "inputs", "wave"))
    found = find_backends(options["backend"])
    own = cpu_file(options["cpu"]), device_file(options["device"])
    read = input_files(*own, backends=found, model=model_files(model))
    if library is not None:
        # A folder inside the library's folder is harmless.
        is_output = os.path.realpath(folder) == os.path.realpath(library)
        read += [library] if is_output else library_files(library)
    files = DifferenceFiles(folder, inputs, read, options["force"])
    files.check()
    file = None if wave is None else WaveFile(wave, force=options["force"], inputs=files.inputs)
    if file is not None:
        file.check()
    with said_when_it_fails(file):
        settings = DiffSettings(
            library=library, options=_options(options), wave=file,
            inputs=None if inputs is None else load_inputs(inputs),
            **{name: options[name] for name in PASSED_ON},
        )  # fmt: skip
        return diff_model(model, found, settings, progress=tell), files, file


def _options(given: Mapping[str, Any]) -> ExportOptions | None:
    if not set(_compiling(given)) - {"--backend"}:
        return None
    from umakit.library.options import ExportOptions, parse_choose, parse_weights
    from umakit.memory.pools import parse_pool

    return ExportOptions(
        given["planner"] or DEFAULT_PLANNER, tuple(map(parse_pool, given["pool"] or [])),
        parse_weights(given["weights"] or "c"), keep_layout=given["keep_layout"],
        choose=parse_choose(given["choose"]), cpu=given["cpu"],
    )  # fmt: skip


def _print(
    result: DiffResult, written: dict[str, str], context: typer.Context, is_rtl: bool
) -> None:
    from umakit.tools.diff.result import CONTENTS

    out = console()
    out.print(diff_text.layer_table(result))
    out.print()
    if result.integer_tolerance:
        out.print(diff_text.histogram_table(result))
        out.print()
    for line in diff_text.verdict(result, is_rtl):
        say(line)
    for name, path in written.items():
        say(f"Wrote {path}: {CONTENTS[name]}")
    if written and result.differs:
        say(f"Again: {_again(context, written['inputs'])}")


NOT_REPEATED = ("inputs", "output", "most", "force", "wave", "as_json")
"""Options that do not affect the comparison."""


def _again(context: typer.Context, inputs: str) -> str:
    arguments = repeated_options(context, NOT_REPEATED)
    model = shell_word(str(context.params["model"]))
    return f"uma diff {model} {shlex.join([*arguments, '--inputs', inputs])}"
