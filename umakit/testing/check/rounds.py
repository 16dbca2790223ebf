# SPDX-License-Identifier: Apache-2.0
"""Several runs of a library in one program, with all effects of its layers observed.

The library is built unchanged around the hook of profiling. Before each layer, unused memory is
filled with arbitrary bytes. After the layer, all memory except its results and scratch is compared
with the earlier content. See `templates/check/rounds.c.j2`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.codegen.c_types import c_type
from umakit.codegen.constants import CONSTANT_ALIGNMENT, HEADER_SIZE
from umakit.devices import HOST, Device, execute
from umakit.devices.designs import Design
from umakit.devices.execution import SilenceError, UnansweredError, cause_of, idle_limit, stopped
from umakit.devices.probe import build_around
from umakit.errors import DeviceError
from umakit.files.processes import TimeLimitError, is_of_limit
from umakit.files.staging import temporary_folder
from umakit.library.metadata import read_weights
from umakit.library.tar_files import library_folder
from umakit.testing.check.runs import Event, LayerRun, Round, RoundRun
from umakit.text.rendering import render
from umakit.version import __version__

Array = npt.NDArray[Any]

GUARD = 256
"""Bytes before and after each memory that must keep their values."""

ALIGNMENT = 4096
LEAST_ALIGNMENT = 16
OUTSIDE = -1
"""Value of `first` for a tensor that exists before the first layer runs."""

COUNTERS = (
    "clock", "busy_cycles", "compute_cycles", "dma_cycles", "macs", "bytes_read", "bytes_written",
)  # fmt: skip
UNKNOWN = 2**64 - 1

ROUND, LAYER, RESULT, DIFFERS, DAMAGED, MEASURED = range(1, 7)
EVENT, DROPPED, MAPPED, INJECTED, FAILURE, MEANING, ENDED, UNRESOLVED = range(7, 15)


LAYER_CALL = re.compile(
    r"^(    /\* (\d+): [^\n]*\*/\n)((?:(?!^    /\* \d+: ).)*?)^    AFTER_LAYER\(\2\);",
    re.MULTILINE | re.DOTALL,
)
"""The call of a layer in the C of a library: a comment with its number, statements and the hook."""

LIMIT_HINT = (
    "let the driver give up waiting; a simulator of your own that needs longer has a larger "
    "timeout in [simulator] of accel.toml"
)

LAYER_SECONDS, RTL_FACTOR = 30.0, 4
"""Limit of processor time in seconds for a layer in one run, and the factor of this limit on RTL,
which is a thousand times slower than a simulator in C."""

LEAST_CYCLES, MOST_TIMES = 1_000_000, 1000
"""Minimum number of cycles until a silent design is given up, and its minimum factor over the
largest layer's predicted cycles."""


@dataclass(frozen=True)
class _Memory:
    size: int
    data: int
    shadow: int
    original: int
    element: int
    is_pool: int
    is_given: int
    is_inverted: int


@dataclass(frozen=True)
class _Tensor:
    memory: int
    offset: int
    size: int
    first: int
    last: int
    result: int


class Rounds:
    """A library's program for `uma check`.

    Args:
        wrong_writes: offset and value of an erroneous register write, by backend.

    Attributes:
        runs_rtl: whether designs replace simulators.
        wrong_writes: offset and value of an erroneous register write, by accelerator.
        layer_limit: limit of a layer's processor time, and of its idle time, in seconds.
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        library: Path,
        program: Path,
        device: Device = HOST,
        flags: Sequence[str] = (),
        designs: Sequence[Design] = (),
        wrong_writes: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        device.check_emulator()
        self._device, self._program = device, program
        own = description["sources"].get("own", {})
        self.layer_limit = idle_limit(description) if own else LAYER_SECONDS
        if designs:
            self.layer_limit *= RTL_FACTOR
        self._description = description
        self._layers: Sequence[Mapping[str, Any]] = description["layers"]
        self.devices = [each["name"] for each in description["backends"] if each["simulated"]]
        blob = description["weights"] == "blob"
        self._weights = read_weights(library)[HEADER_SIZE:] if blob else b""
        self._used = 0
        self._memories: list[_Memory] = []
        self._memory_names: list[str] = []
        self._tensors: list[_Tensor] = []
        self._tensor_names: list[str] = []
        self._arguments: list[str] = []
        self.runs_rtl = bool(designs)
        self.wrong_writes = {
            name: write for name, write in wrong_writes.items() if name in self.devices
        }
        self._of_designs = [each.backend for each in designs]
        self._place_all()
        prefix = description["interface"]
        headers = library_folder(library) / "codegen/host/src"
        _let_layers_be_left_out(headers / f"{prefix}.c", prefix)
        flags = [*flags, f"-I{headers}"]
        build_around(library, prefix, self._source(prefix), program, device, flags, designs)

    def run(
        self,
        inputs: Mapping[str, Array],
        rounds: Mapping[int, Round],
        left_out: Collection[int] = (),
        known: Mapping[str, npt.NDArray[np.uint8]] = MappingProxyType({}),
        timeout: float | None = None,
    ) -> list[RoundRun]:
        """Run rounds in one process, up to a round without faults in which a layer stops.

        Args:
            rounds: the runs by number; round 0 gives results.
            left_out: numbers of layers that do not run.
            known: results of round 0 by C name, if round 0 ran in another process.
            timeout: limit of a layer's processor time, and of its idle time, in seconds; on RTL,
                `RTL_FACTOR` times as much; at most and by default `layer_limit`.

        Returns:
            The observations of each run, up to the run in which the program ended.

        Raises:
            DeviceError: the program cannot run, or the device did not answer.
        """
        limit = self.layer_limit
        if timeout is not None:
            limit = min(limit, timeout * (RTL_FACTOR if self.runs_rtl else 1))
        ending, is_late = "", False
        with temporary_folder("umakit-check-") as folder:
            (folder / "inputs").write_bytes(
                self._given(inputs, list(rounds.values()), left_out, known)
            )
            outputs = folder / "outputs"
            try:
                ended = execute(
                    self._device, self._program, ["inputs", "outputs"], folder, limit, idle=limit,
                    progress=outputs,
                    environment={"UMAKIT_RTL_CYCLES": str(self._most_cycles())},
                )  # fmt: skip
                if ended.returncode != 0:
                    raise DeviceError(f"the program failed: {ended.stderr.strip()}")
            except SilenceError:
                raise  # no layer is to blame
            except DeviceError as error:
                ending = error.what
                is_late = isinstance(error, (TimeLimitError, UnansweredError))
            data = outputs.read_bytes() if outputs.exists() else b""
        found = self._read(data, list(rounds.items()))
        if ending:
            if not found:
                raise DeviceError(ending, where=self._device.name)
            found[-1].stopped, found[-1].is_late = ending, is_late
        return found

    def _most_cycles(self) -> int:
        most = max(
            (int(each.get("predicted_cycles") or each["macs"] or 1) for each in self._layers),
            default=0,
        )
        return max(LEAST_CYCLES, MOST_TIMES * most)

    def place(self, run: RoundRun) -> str:
        if run.completed >= len(self._layers):
            return "after the last layer"
        layer = self._layers[run.completed]
        return f"layer {run.completed}, {layer['name']} ({layer['where']})"

    def ended(self, run: RoundRun) -> str:
        """Return the ending of a run: a status with its meaning, or the end of the program."""
        if run.status is None:
            return run.stopped or "the program ended"
        return stopped(self._description, run.status, run.meaning)[0]

    def hint(self, run: RoundRun) -> str:
        """Return advice on a run that stopped; may be empty."""
        if is_of_limit(run.stopped):
            return LIMIT_HINT
        return cause_of(run.failure or run.meaning, run.status or 0).value

    # --- inputs of the program ------------------------------------------------------------------

    def _given(
        self,
        inputs: Mapping[str, Array],
        rounds: Sequence[Round],
        left_out: Collection[int],
        known: Mapping[str, npt.NDArray[np.uint8]],
    ) -> bytes:
        given = self._description["inputs"]
        arrays = [np.ascontiguousarray(inputs[each["name"]]) for each in given]
        parts = [array.tobytes() for array in arrays]
        parts += [self._weights, bytes(n in left_out for n in range(len(self._layers)))]
        parts.append(struct.pack("=i", bool(known)))
        if known:
            named = zip(self._tensor_names, self._tensors, strict=True)
            parts += [known[name].tobytes() if name in known else bytes(tensor.size)
                      for name, tensor in named]  # fmt: skip
        parts.append(struct.pack("=i", len(rounds)))
        for each in rounds:
            device = self.devices.index(each.device) if each.device else -1
            head = (each.is_reversed, each.seed, device, each.layer, each.follows_error)
            parts.append(struct.pack("=iIiii8I", *head, *astuple(each.fault)))
        return b"".join(parts)

    def _source(self, prefix: str) -> str:
        numbers = {name: number for number, name in enumerate(self._tensor_names)}
        scratch: dict[int, list[int]] = {}
        pools = self._description["memory"]["pools"]
        for item in (item for pool in pools for item in pool["tensors"]):
            if item["role"] == "scratch":
                scratch.setdefault(item["first_layer"], []).append(numbers[item["c_name"]])
        layers = [
            {
                "results": [numbers[name] for name in layer["outputs"]],
                "scratch": scratch.get(number, []),
            }
            for number, layer in enumerate(self._layers)
        ]
        sources = self._description["sources"]
        return render(
            "check/rounds.c.j2",
            umakit_version=__version__,
            prefix=prefix,
            devices=self.devices,
            wrong_writes=self.wrong_writes,
            own_simulators=[*sources.get("own", {}), *self._of_designs],
            has_weights=bool(self._weights),
            guard=GUARD,
            alignment=ALIGNMENT,
            storage=self._used,
            memories=[list(asdict(each).values()) for each in self._memories],
            tensors=[list(asdict(each).values()) for each in self._tensors],
            layers=layers,
            arguments=self._arguments,
        )

    def _place_all(self) -> None:
        """Place inputs, outputs, weights and pools, in the order of the arguments of a run."""
        writer = {n: step for step, layer in enumerate(self._layers) for n in layer["outputs"]}
        view = self._description
        for kind in ("input", "output"):
            for item in view[f"{kind}s"]:
                alignment = max(LEAST_ALIGNMENT, item.get("alignment_bytes", 1))
                elements = math.prod(item["shape"])
                element = item["size_bytes"] // elements if elements else 1
                self._memory(
                    f"{kind} {item['name']}", item["size_bytes"], alignment, element,
                    is_given=kind == "input", is_inverted=item["dtype"] == "int8",
                )  # fmt: skip
                self._arguments.append(c_type(item["dtype"]))
                first = writer.get(item["c_name"], OUTSIDE)
                self._tensor(item["c_name"], 0, item["size_bytes"], first, len(self._layers))
        if self._weights:
            size = len(self._weights)
            self._memory("the weights", size, CONSTANT_ALIGNMENT, size, is_given=True)
            self._arguments.append("void")
        for pool in view["memory"]["pools"]:
            self._memory(
                f"pool {pool['name']}", pool["used_bytes"], pool["alignment_bytes"], is_pool=True
            )
            self._arguments.append("void")
            for item in pool["tensors"]:
                self._tensor(
                    item["c_name"], item["offset_bytes"], item["size_bytes"],
                    item["first_layer"], item["last_layer"],
                )  # fmt: skip

    def _memory(
        self,
        name: str,
        size: int,
        alignment: int,
        element: int = 1,
        *,
        is_pool: bool = False,
        is_given: bool = False,
        is_inverted: bool = False,
    ) -> None:
        data = -(-(self._used + GUARD) // alignment) * alignment
        shadow = data + size + 2 * GUARD
        original = shadow + size + GUARD
        self._used = original + (size if is_given else 0)
        flags = (int(is_pool), int(is_given), int(is_inverted))
        self._memories.append(_Memory(size, data, shadow, original, max(1, element), *flags))
        self._memory_names.append(name)

    def _tensor(self, name: str, offset: int, size: int, first: int, last: int) -> None:
        memory = len(self._memories) - 1
        self._tensors.append(_Tensor(memory, offset, size, first, last, self._used))
        self._tensor_names.append(name)
        self._used += size

    # --- output of the program ------------------------------------------------------------------

    def _read(self, data: bytes, rounds: Sequence[tuple[int, Round]]) -> list[RoundRun]:
        runs: list[RoundRun] = []
        for tag, content in _records(data):
            if tag == ROUND:
                runs.append(RoundRun(*rounds[struct.unpack("=i", content)[0]]))
            else:
                self._note(runs[-1], tag, content)
        return runs

    def _note(self, run: RoundRun, tag: int, content: bytes) -> None:
        layer = run.layers[-1]
        if tag == LAYER:
            run.completed += 1
            run.layers.append(LayerRun())
        elif tag == RESULT:
            name = self._layers[run.completed]["outputs"][len(layer.outputs)]
            layer.outputs[name] = np.frombuffer(content, np.uint8)
        elif tag == DIFFERS:
            number, offset = struct.unpack("=2q", content)
            layer.differs.append((self._tensor_names[number], offset))
        elif tag == DAMAGED:
            number, offset = struct.unpack("=2q", content)
            layer.damaged.append(self._damaged(number, offset, run.completed))
        elif tag == MEASURED:
            numbers = struct.unpack(f"={1 + 2 * len(COUNTERS)}Q", content)
            known = [None if number == UNKNOWN else number for number in numbers[1:]]
            pairs = zip(known[: len(COUNTERS)], known[len(COUNTERS) :], strict=True)
            layer.counters[self.devices[numbers[0]]] = dict(zip(COUNTERS, pairs, strict=True))
        elif tag == EVENT:
            device, begin, end_of_busy, end = struct.unpack("=4Q", content[:32])
            engine, label = _text(content[32:56]), _text(content[56:88])
            layer.events.append(Event(self.devices[device], engine, label, begin, end_of_busy, end))
        elif tag == DROPPED:
            layer.dropped += struct.unpack("=2Q", content)[1]
        elif tag == MAPPED:
            layer.mapped.append(self._mapped(*struct.unpack("=4q", content)))
        elif tag == INJECTED:
            layer.injected = struct.unpack("=i", content)[0]
        elif tag == FAILURE:
            run.failure = content.decode(errors="replace")
        elif tag == MEANING:
            run.meaning = content.decode(errors="replace")
        elif tag == UNRESOLVED:
            (address,) = struct.unpack("=I", content)
            run.meaning += f" (no buffer has bus address 0x{address:08x})"
        elif tag == ENDED:
            run.status = struct.unpack("=i", content)[0]

    def _damaged(self, memory: int, offset: int, layer: int) -> str:
        size, name = self._memories[memory].size, self._memory_names[memory]
        if offset < 0:
            return f"{-offset} bytes before {name}"
        if offset >= size:
            return f"byte {offset - size} behind {name}"
        for tensor, c_name in zip(self._tensors, self._tensor_names, strict=True):
            is_live = tensor.first <= layer <= tensor.last
            if tensor.memory == memory and is_live and 0 <= offset - tensor.offset < tensor.size:
                return f"byte {offset - tensor.offset} of {c_name}, which it only may read"
        return f"byte {offset} of {name}, which no tensor of the layer has"

    def _mapped(self, memory: int, offset: int, size: int, direction: int) -> str:
        name, extent = self._memory_names[memory], self._memories[memory].size
        use = "to read" if direction == 1 else "to write"
        return f"bytes {offset} to {offset + size - 1} {use} of {name}, which has {extent} bytes"


def _let_layers_be_left_out(source: Path, prefix: str) -> None:
    """Put the call of each layer in a library's C file below a condition."""
    text, hook = source.read_text(encoding="utf-8"), f"{prefix}_runs_layer"
    changed = LAYER_CALL.sub(
        rf"\1    if ({hook}(\2) != 0) {{\n\3    }}\n    AFTER_LAYER(\2);", text
    )
    declared = f"int32_t {hook}(int32_t layer);\n\n/* A layer stays a function"
    source.write_text(changed.replace("/* A layer stays a function", declared), encoding="utf-8")


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 8 <= len(data):
        tag, size = struct.unpack_from("=ii", data, position)
        content = data[position + 8 : position + 8 + size]
        if len(content) < size:
            return
        yield tag, content
        position += 8 + size


def _text(content: bytes) -> str:
    return content.partition(b"\0")[0].decode(errors="replace")
