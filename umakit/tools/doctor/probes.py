# SPDX-License-Identifier: Apache-2.0
"""Small networks compiled for a backend, to find the patterns, calls and memories it uses."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from umakit import sim, tir, tvm_api
from umakit.devices import HOST, Device, execute
from umakit.devices.build import compile_c
from umakit.devices.execution import UnansweredError
from umakit.devices.simulators import Simulator
from umakit.errors import DeviceError, UmakitError, short_path
from umakit.files.processes import TimeLimitError
from umakit.library.driver_notices import is_of_driver
from umakit.library.own_simulators import own_simulators, program_source
from umakit.library.roles import SIMULATOR_FOLDER
from umakit.lower import Lowered, lower
from umakit.lower.kernels import Kernel
from umakit.machine.simulator_config import SimulatorSection
from umakit.partition.partitioner import Partitioned
from umakit.pipeline import partition_model
from umakit.registration.backend import Backend
from umakit.testing import simulator_program
from umakit.testing.example_networks import QuantizedNetwork
from umakit.testing.harness import AOTModel, conv2d_model
from umakit.text.rendering import render
from umakit.tools.doctor.checks import Check, failed, ok, refused
from umakit.tools.doctor.compiling import StagedDriver

Progress = Callable[[str], None]


@dataclass
class Probes:
    """The results of compiling small networks for a backend.

    Attributes:
        taken: patterns that matched a layer.
        calls: patterns by C function and number of arguments.
        memories: patterns by name of the scratchpad with their buffers.
        first: the network with most patterns among those that can be compiled.
        errors: errors of stages, by the patterns of the network.
    """

    taken: set[str] = field(default_factory=set)
    calls: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    memories: dict[str, set[str]] = field(default_factory=dict)
    first: AOTModel | None = None
    errors: list[UmakitError] = field(default_factory=list)

    @property
    def functions(self) -> list[str]:
        """The names of the driver's functions that are called."""
        return sorted({function for function, _ in self.calls})


def probe(backend: Backend, tell: Progress) -> Probes:
    """Partition small networks for a backend until each of its patterns has matched a layer.

    Networks with new patterns are lowered.
    """
    found = Probes()
    most, wanted = 0, {pattern.name for pattern in backend.patterns}
    for label, model in networks():
        if found.taken >= wanted:
            break
        tell(f"compiling {label}")
        try:
            _, partitioned = partition_model(model.module, [backend], name=model.name)
            patterns = _patterns_of(partitioned, backend)
            if not patterns - found.taken:
                continue
            found.taken |= patterns
            _note(lower(partitioned, [backend]), backend, patterns, found)
        except UmakitError as error:
            if str(error) not in map(str, found.errors):
                found.errors.append(error)
            continue
        if len(patterns) > most:
            found.first, most = model, len(patterns)
    return found


def networks() -> Iterator[tuple[str, AOTModel]]:
    yield "a float32 convolution", conv2d_model(channels=8, height=8, width=8, filters=8, kernel=3)
    yield "a float32 network", float_network()
    for dtype in ("int8", "int16"):
        for layout in ("NHWC", "NCHW"):
            for rounding in ("tflm", "ort"):
                label = f"an {dtype} network ({layout}, rounding {rounding})"
                yield label, integer_network(dtype, layout, rounding)


def integer_network(dtype: str, layout: str, rounding: str) -> AOTModel:
    """Return a quantized network of convolutions, sums, pools and a fully connected layer."""
    start = QuantizedNetwork(12, 12, 16, layout=layout, rounding=rounding, dtype=dtype)
    start.conv2d(16).conv2d(16, 1)
    if dtype == "int8":
        start.residual()
    start.conv2d(32, 3, 2, padding="valid").conv2d(32, 1).conv2d(32, depthwise=True)
    return start.pool2d("max").pool2d("average").conv2d(32, 1).dense(16).model("doctor")


@tvm_api.one_at_a_time
def float_network() -> AOTModel:
    """Return a float32 network: two convolutions, one with bias and relu, a pool, a matmul."""
    relax = tvm_api.relax
    random = np.random.default_rng(0)

    def constant(*shape: int) -> object:
        return relax.const(random.standard_normal(shape).astype("float32"))

    image = random.standard_normal((1, 8, 8, 8)).astype("float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(image.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.nn.conv2d(x, constant(8, 8, 3, 3), padding=(1,) * 4))
            value = builder.emit(relax.op.add(value, constant(1, 8, 1, 1)))
            value = builder.emit(relax.op.nn.relu(value))
            value = builder.emit(relax.op.nn.conv2d(value, constant(16, 8, 1, 1)))
            value = builder.emit(relax.op.nn.max_pool2d(value, (2, 2), (2, 2)))
            value = builder.emit(relax.op.reshape(value, (1, 256)))
            value = builder.emit(relax.op.matmul(value, constant(256, 8)))
            result = builder.emit_output(relax.op.add(value, constant(1, 8)), "result")
        builder.emit_func_output(result)
    return AOTModel(builder.get(), {"x": image}, output_tolerance=1e-3, name="doctor")


def _patterns_of(partitioned: Partitioned, backend: Backend) -> set[str]:
    start = f"{backend.target_name}."
    outer = [function for _, function in tvm_api.relax_functions(partitioned.module)]
    inner = [
        binding.value
        for function in outer
        for binding in tvm_api.bindings_of(function)
        if isinstance(binding.value, tvm_api.Function)
    ]
    names = {str(tvm_api.function_attribute(each, "Composite") or "") for each in outer + inner}
    return {name.removeprefix(start) for name in names if name.startswith(start)}


def _note(lowered: Lowered, backend: Backend, patterns: set[str], found: Probes) -> None:
    for name, kernel in lowered.kernels.items():
        if kernel.target != backend.target_name:
            continue
        starts = {f"{backend.target_name}_{pattern}": pattern for pattern in patterns}
        longest = max((start for start in starts if name.startswith(start)), key=len, default="")
        of_kernel = {starts[longest]} if longest else patterns
        for function, count in _calls_of(kernel):
            if is_of_driver(function):
                found.calls.setdefault((function, count), set()).update(of_kernel)
        for parameter in kernel.scratch:
            if parameter.pool:
                found.memories.setdefault(parameter.pool, set()).update(of_kernel)


def _calls_of(kernel: Kernel) -> Iterator[tuple[str, int]]:
    for node in kernel.driver_calls:
        count = len(node.operands if node.text is None else node.text.call.arguments)
        yield node.function, count
    for call in tvm_api.collect([*kernel.statements], tvm_api.Call):
        if tvm_api.is_external_call(call) or tir.is_driver_call(call):
            yield str(call.args[0].value), len(call.args) - 1


SIMULATOR = "simulator"

PROGRAM = "umakit_doctor_start"

SECONDS = 60.0
"""Time limit for the start of a program apart from its answers, which have their own limit."""

MISSING = re.compile(r"ModuleNotFoundError: No module named '(umakit[\w.]*|simulator_program)'")
"""Python's message for a missing umakit, or a missing copy of its side of the protocol."""

ANSWERS = 3
"""Number of requests that are sent: the first, a reset, the counters."""


def staged_simulators(staged: StagedDriver) -> list[Simulator]:
    """Return the backend's own simulator in the layout of a library, if any."""
    name, folder = staged.backend.target_name, staged.folder
    return [
        Simulator(name, folder / SIMULATOR_FOLDER / name, folder / "src", files)
        for name, files in own_simulators({name: staged.backend}).items()
    ]


def time_limit(backend: Backend, device: Device) -> float | None:
    """Return the seconds of a run of a backend's linked simulator on the host; else None."""
    section = backend.configuration.simulator
    return section.timeout if device is HOST and section and not section.program else None


def not_returned(backend: Backend, seconds: float) -> DeviceError:
    return DeviceError(
        f"the simulator of {backend.target_name} did not return within {seconds:g} s "
        "([simulator] timeout in accel.toml)",
        where=short_path(backend.folder / "accel.toml"),
        fix="let its functions return, wait too when no interrupt comes, or give it more time with "
        "timeout",
    )


def start_checks(staged: StagedDriver) -> list[Check]:
    """Start the backend's own simulator on the host, if any, and check that it answers."""
    return [_start_check(staged, simulator) for simulator in staged_simulators(staged)]


def _start_check(staged: StagedDriver, simulator: Simulator) -> Check:
    section = staged.backend.configuration.filled_simulator
    assert section is not None
    limit = time_limit(staged.backend, HOST)
    seconds = SECONDS + ANSWERS * section.timeout if limit is None else limit
    where = short_path(staged.backend.folder / "accel.toml")
    try:
        program = _build(staged, simulator)
    except UmakitError as error:
        return refused(SIMULATOR, error)
    try:
        ended = execute(HOST, program, [], staged.folder, seconds)
    except (TimeLimitError, UnansweredError):  # a whole run has no longer than a call
        return refused(SIMULATOR, not_returned(staged.backend, seconds))
    except UmakitError as error:
        mend = "run it in a debugger: it fails before the driver's first access"
        return failed(SIMULATOR, error.what, where=where, mend=mend)
    kind, _, rest = ended.stdout.partition("\n")
    rest = rest.strip()
    if kind == "failed":
        return failed(SIMULATOR, rest, where=where, mend=_mend(section, rest))
    if ended.returncode != 0 or not kind.startswith("counts"):
        message = f"the simulator ended with exit code {ended.returncode} before a first access"
        return failed(
            SIMULATOR, message, where=where, mend="let create return: the program ended in it"
        )
    counted = kind.removeprefix("counts").split()
    text = f"{' '.join(section.program)} answers" if section.program else "it can be created"
    text += f" and counts {', '.join(counted)}" if counted else " and counts nothing"
    text += "" if "clock" in counted else ": its cycles are unknown"
    return ok(SIMULATOR, f"{text}; its standard error: {rest}" if rest else text)


def _mend(section: SimulatorSection, sentence: str) -> str:
    if not section.program:
        return "correct the table of the simulator: see umakit/own_simulator.h"
    missing = MISSING.search(sentence)
    copy = f"copy {simulator_program.__file__} next to it"
    if missing and missing[1] == "simulator_program":
        return copy
    if missing:
        name = section.program[0]
        return (
            f"{shutil.which(name) or name} has no umakit: name a Python that has, "
            f'program = ["{sys.executable}", ...], or activate its environment before, or {copy} '
            "and import simulator_program"
        )
    return "correct program in [simulator], or the program: see docs/simulator-protocol.md"


def _build(staged: StagedDriver, simulator: Simulator) -> Path:
    name, files = simulator.backend, simulator.files
    source = staged.folder / f"{PROGRAM}.c"
    text = render("doctor/start.c.j2", name=name, is_program=bool(files.program))
    source.write_text(text, encoding="utf-8")
    # The program's source is included, to show the state it keeps.
    rest = [each for each in files.sources if each != program_source(name)]
    others = Simulator(
        name, simulator.folder, simulator.headers, files.model_copy(update={"sources": rest})
    )
    kit = [staged.folder / "src" / Path(path).name
           for path in (*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES)]  # fmt: skip
    flags = [f"-I{staged.folder / 'src'}", f"-I{simulator.folder}"]
    program = staged.folder / PROGRAM
    compile_c([source, *kit], program, flags, HOST, [others])
    return program
