# SPDX-License-Identifier: Apache-2.0
"""Running a library layer by layer, with each layer's results right after the layer.

The library is built unchanged, with the hook of profiling. A surrounding program copies each
layer's outputs before a later layer can overwrite them, can replace the outputs, and checks that
the layer left other memory unmodified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.codegen.c_types import c_type
from umakit.codegen.constants import CONSTANT_ALIGNMENT, HEADER_SIZE
from umakit.devices import HOST, Device, execute
from umakit.devices.build import compile_c, what_answers
from umakit.devices.cpus import cpu_flags, device_for
from umakit.devices.designs import Design
from umakit.devices.execution import (
    Cause,
    cause_of,
    default_limit,
    fix_in_layer,
    idle_limit,
    simulator_failed,
    stop_error,
    stopped,
)
from umakit.devices.libraries import libraries_of
from umakit.devices.waveforms import traced_main
from umakit.errors import DeviceError
from umakit.files.staging import temporary_folder
from umakit.library.cpu_sections import chosen_cpu
from umakit.library.layout import RUNTIME
from umakit.library.metadata import read_weights
from umakit.library.roles import SOURCE_FOLDER
from umakit.library.tar_files import library_folder
from umakit.text.rendering import render
from umakit.version import __version__

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

FAILED = "failed"
"""Prefix of a simulator's sentence in the program's output."""

OUTSIDE = -1
"""Value of `first` for a tensor that exists before the first layer runs."""
END = -1


@dataclass(frozen=True)
class LayerTrace:
    """The observed effects of one layer.

    Attributes:
        outputs: raw bytes of the layer's outputs by C name.
    """

    outputs: dict[str, Bytes]
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class _Memory:
    name: str
    size: int
    alignment: int
    c_type: str = "void"


@dataclass(frozen=True)
class _Tensor:
    c_name: str
    label: str
    memory: int
    offset: int
    size: int
    first: int
    last: int


def build_around(
    library: Path,
    prefix: str,
    source: str,
    program: Path,
    device: Device,
    flags: Sequence[str] = (),
    designs: Sequence[Design] = (),
    *,
    is_traced: bool = False,
    cpu: str = "",
) -> None:
    """Build a library with the hook after each layer, and with a surrounding `main`."""
    folder = library_folder(library)
    main = program.with_suffix(".c")
    main.write_text(source, encoding="utf-8")
    all_flags = [f"-D{prefix.upper()}_PROFILE", f"-I{folder / 'codegen/host/include'}"]
    all_flags += [*device.program_flags(), *cpu_flags(folder, device, cpu), *flags]
    device = device_for(folder, device, cpu)
    if not device.is_bare_metal:
        all_flags.append("-DUMAKIT_PROBE_HOSTED")
    found = what_answers(folder, designs, device, program.parent, is_traced=is_traced)
    if is_traced:
        main = traced_main(main, prefix, found.answering, program.parent)
    sources = [main, *found.sources, *device.platform_sources(RUNTIME)]
    all_flags += found.flags
    simulators, libraries = found.simulators, libraries_of(folder)
    compile_c(sources, program, all_flags, device, simulators, libraries, found.designs)


class Probe:
    """A library's program for `uma diff`.

    Attributes:
        sizes: sizes of tensors in bytes by C name.
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        library: Path,
        program: Path,
        device: Device = HOST,
        flags: Sequence[str] = (),
        designs: Sequence[Design] = (),
        *,
        is_traced: bool = False,
    ) -> None:
        device.check_emulator()
        self._device = device
        self._limit = default_limit(device, description, inferences=1)
        self._description = description
        self._inputs = description["inputs"]
        self._outputs = description["outputs"]
        self._layers: Sequence[Mapping[str, Any]] = description["layers"]
        blob = description["weights"] == "blob"
        self._weights = read_weights(library)[HEADER_SIZE:] if blob else None
        self._memories = self._all_memories(description["memory"]["pools"])
        self._tensors = self._all_tensors(description["memory"]["pools"])
        self.sizes = {tensor.c_name: tensor.size for tensor in self._tensors}
        self._program = program
        headers = library_folder(library) / SOURCE_FOLDER
        self._devices = [each["name"] for each in description["backends"] if each["simulated"]]
        self._runs_designs = bool(designs)
        prefix = description["interface"]
        flags = [*flags, f"-I{headers}"]
        build_around(
            library, prefix, self._source(prefix), program, device, flags, designs,
            is_traced=is_traced, cpu=chosen_cpu(description),
        )  # fmt: skip

    def run(
        self,
        inputs: Mapping[str, Array],
        forced: Mapping[str, Array],
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> list[LayerTrace]:
        """Run one inference.

        Args:
            forced: values by C name that replace a layer's outputs after the layer.
        """
        with temporary_folder("umakit-diff-") as folder:
            with (folder / "inputs").open("wb") as stream:
                for item in self._inputs:
                    stream.write(np.ascontiguousarray(inputs[item["name"]]).tobytes())
                stream.write(self._weights or b"")
                for layer in self._layers:
                    for name in layer["outputs"]:
                        value = forced.get(name)
                        stream.write(b"\0" if value is None else b"\1" + value.tobytes())
            try:
                arguments = ["inputs", "outputs"]
                limit = self._limit if timeout is None else timeout
                ended = execute(
                    self._device, self._program, arguments, folder, limit,
                    idle=idle_limit(self._description), runs_designs=self._runs_designs,
                    environment=environment,
                )  # fmt: skip
            except DeviceError as error:
                traces, _ = self._traces(_bytes_of(folder / "outputs"))
                raise DeviceError(
                    error.what,
                    where=self._place(traces),
                    fix=fix_in_layer(error),
                    layer=len(traces),
                ) from None
            if ended.returncode != 0:
                raise DeviceError(
                    f"the program failed: {ended.stderr.strip()}", where=self._device.name
                )
            traces, status = self._traces(_bytes_of(folder / "outputs"))
        if status != 0:
            sentence, own, cause = self._ending(status, ended.stdout.strip())
            raise stop_error(
                sentence,
                cause,
                where=self._place(traces),
                fix=cause.value,
                status=own,
                layer=len(traces),
            )
        return traces

    def _ending(self, status: int, said: str) -> tuple[str, int, Cause]:
        """Return a sentence about a failed run, the status of the driver, and the cause."""
        word, _, rest = said.partition(" ")
        number, _, why = rest.partition(" ")
        if word == FAILED and number.isdecimal():
            return simulator_failed(self._devices[int(number)], why), status, cause_of(why, status)
        return *stopped(self._description, status, said), cause_of(said, status)

    def _place(self, traces: Sequence[LayerTrace]) -> str:
        if len(traces) >= len(self._layers):
            return "after the last layer"
        layer = self._layers[len(traces)]
        return f"layer {len(traces)}, {layer['name']} ({layer['where']})"

    def _traces(self, data: Bytes) -> tuple[list[LayerTrace], int]:
        traces: list[LayerTrace] = []
        reader = _Reader(data)
        try:
            while reader.number() != END:
                names = self._layers[len(traces)]["outputs"]
                outputs = {name: reader.bytes(self.sizes[name]) for name in names}
                damaged = []
                while (number := reader.number()) != END:
                    damaged.append(self._damaged(number))
                traces.append(LayerTrace(outputs, tuple(damaged)))
            return traces, reader.number()
        except EOFError:
            return traces, 0

    def _damaged(self, number: int) -> str:
        if number < len(self._tensors):
            return self._tensors[number].label
        memory = self._memories[number - len(self._tensors)]
        return f"memory around {memory.name}"

    # --- memories and tensors -------------------------------------------------------------------

    def _all_memories(self, pools: Sequence[Mapping[str, Any]]) -> list[_Memory]:
        tensors = [
            _Memory(
                f"{kind} {item['name']}",
                item["size_bytes"],
                max(16, item.get("alignment_bytes", 1)),
                c_type(item["dtype"]),
            )
            for kind, items in (("input", self._inputs), ("output", self._outputs))
            for item in items
        ]
        if self._weights is not None:
            tensors.append(_Memory("the weights", len(self._weights), CONSTANT_ALIGNMENT))
        return tensors + [
            _Memory(f"pool {pool['name']}", pool["used_bytes"], pool["alignment_bytes"])
            for pool in pools
        ]

    def _all_tensors(self, pools: Sequence[Mapping[str, Any]]) -> list[_Tensor]:
        writer = {n: step for step, layer in enumerate(self._layers) for n in layer["outputs"]}
        tensors = [
            _Tensor(
                item["c_name"],
                self._memories[number].name,
                number,
                0,
                item["size_bytes"],
                writer.get(item["c_name"], OUTSIDE),
                len(self._layers),
            )
            for number, item in enumerate([*self._inputs, *self._outputs])
        ]
        if self._weights is not None:
            memory = self._memories[len(tensors)]
            last = len(self._layers)
            tensors.append(_Tensor("", memory.name, len(tensors), 0, memory.size, OUTSIDE, last))
        for number, pool in enumerate(pools, len(tensors)):
            tensors += [
                _Tensor(
                    item["c_name"],
                    f"the result of {item['name']}",
                    number,
                    item["offset_bytes"],
                    item["size_bytes"],
                    item["first_layer"],
                    item["last_layer"],
                )
                for item in pool["tensors"]
                if item["role"] != "scratch"
            ]
        return tensors

    def _source(self, prefix: str) -> str:
        numbers = {tensor.c_name: number for number, tensor in enumerate(self._tensors)}
        return render(
            "diff/probe.c.j2",
            umakit_version=__version__,
            prefix=prefix,
            devices=self._devices,
            failed=FAILED,
            memories=self._memories,
            tensors=self._tensors,
            layers=[[numbers[name] for name in layer["outputs"]] for layer in self._layers],
            arguments=[
                {"c_type": memory.c_type, "memory": number}
                for number, memory in enumerate(self._memories)
            ],
        )


def _bytes_of(path: Path) -> Bytes:
    return np.fromfile(path, np.uint8) if path.exists() else np.zeros(0, np.uint8)


class _Reader:
    """Reads numbers and bytes of a file that may be truncated."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._position = 0

    def bytes(self, size: int) -> Bytes:
        start, self._position = self._position, self._position + size
        if self._position > self._data.size:
            raise EOFError
        return self._data[start : self._position]

    def number(self) -> int:
        return int(np.frombuffer(self.bytes(4).tobytes(), np.int32)[0])
