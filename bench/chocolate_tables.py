# SPDX-License-Identifier: Apache-2.0
"""What `chocolate.py` measured, and the tables that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

FULL = "full"
"""What the array should do all the time: every cell works."""

NEAR = 1.15
"""Ratio of cycles to bound above which a layer is explained."""


@dataclass(frozen=True)
class LayerResult:
    """One offloaded layer.

    Attributes:
        name: of the layer in its network.
        kind: what it computes.
        shape: of its input and its output.
        is_convolution: depthwise ones too.
        macs: multiply-accumulates.
        simulated, predicted: cycles.
        compute_bound, memory_bound: cycles that no tiling can beat.
        spent: predicted cycles by what the array does or waits for; together they are all.
    """

    name: str
    kind: str
    shape: str
    is_convolution: bool
    macs: int
    simulated: int
    predicted: int
    compute_bound: int
    memory_bound: int
    spent: Mapping[str, int]

    @property
    def bound(self) -> int:
        """The larger one."""
        return max(self.compute_bound, self.memory_bound)


@dataclass(frozen=True)
class NetworkResult:
    """One network.

    Attributes:
        layers: that run on the accelerator, in order.
        on_cpu: operators that do not.
        tuned: the same layers with the tilings that a search found; None if there was none.
    """

    network: str
    layers: list[LayerResult]
    on_cpu: list[str]
    tuned: list[LayerResult] | None = None


@dataclass(frozen=True)
class TuningResult:
    """What a search took.

    Attributes:
        layers: different ones.
        seen: tilings that were looked at, or ruled out by a bound.
        seconds: of processor time.
    """

    network: str
    layers: int
    seen: int
    seconds: float


@dataclass(frozen=True)
class VariantResult:
    """Cycles of the convolutions without a feature.

    Attributes:
        variant, how: its name, and how a user gets it.
        cycles: predicted, by network.
        checked: predicted over simulated cycles, minus 1, of the network that was simulated.
    """

    variant: str
    how: str
    cycles: dict[str, int]
    checked: float


@dataclass(frozen=True)
class WidthResult:
    """Convolutions with another DMA engine.

    Attributes:
        bytes_per_cycle: of it.
        cycles, bound: predicted, by network.
        memory_bound: of the bound, cycles of layers that transfers bound and not the array.
    """

    bytes_per_cycle: int
    cycles: dict[str, int]
    bound: dict[str, int]
    memory_bound: dict[str, int]


@dataclass(frozen=True)
class CompileResult:
    """Seconds of processor time to compile a chain of convolutions to C.

    Attributes:
        layers: convolutions.
        equal: whether all have the same shape.
        cpu: without a backend.
        chocolate: with the accelerator.
    """

    layers: int
    equal: bool
    cpu: float
    chocolate: float


@dataclass(frozen=True)
class Results:
    """Everything that was measured."""

    networks: list[NetworkResult]
    widths: list[WidthResult]
    variants: list[VariantResult]
    compile_times: list[CompileResult]
    tuning: list[TuningResult]
    machine: str


def markdown(results: Results) -> str:
    """All tables, and what they mean."""
    return "\n".join(
        [
            _introduction(),
            "## How near to the limit\n",
            _summary(results.networks, "convolutions, depthwise and fused additions among them",
                     lambda layer: layer.is_convolution),
            _summary(results.networks, "all layers on the accelerator: pools, fully connected too",
                     lambda _: True),
            _widths(results.widths),
            _variants(results),
            _compile_times(results.compile_times, results.machine),
            _tuning(results.tuning),
            "## Layer by layer\n",
            _layers_text(),
            *map(_layers, results.networks),
        ]
    )  # fmt: skip


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    texts: int = 1,
    *,
    last_is_text: bool = False,
) -> str:
    """A Markdown table whose columns are aligned as text too.

    Args:
        header: of the columns.
        rows: of cells.
        texts: the first columns, which are aligned to the left; the others to the right.
        last_is_text: whether the last column is aligned to the left too.
    """
    left = {*range(texts), len(header) - 1} if last_is_text else {*range(texts)}
    lines = [list(header), *map(list, rows)]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(header))]
    marks = ["-" * w if n in left else "-" * (w - 1) + ":" for n, w in enumerate(widths)]
    lines.insert(1, marks)
    return "".join(
        "| "
        + " | ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |\n"
        for line in lines
    )


def _introduction() -> str:
    return (
        "# Chocolate: cycles against the lower bound\n\n"
        "`UMAKIT_MODELS=FOLDER make bench-chocolate`, with the trained networks of MLPerf Tiny in "
        "FOLDER. Every network ran on the simulated accelerator with what is in its "
        "`accel.toml`, one image, and gave the outputs of TensorFlow Lite Micro.\n\n"
        "* *simulated*: cycles of the device's clock from a layer's first access of a register to "
        "its last; the driver's accesses take a cycle each.\n"
        "* *predicted*: the same by the cost model, which knows the layer's sizes and "
        "`accel.toml` only.\n"
        "* *bound*: what no way to cut the layer can beat, the larger one of multiply-accumulates "
        "/ cells of the array, and bytes that have to move at least once / bytes that the DMA "
        "engine moves in a cycle.\n"
        "* *tuned*: simulated cycles with the tilings of `uma tune`; without them each layer has "
        "a default one. A network within a hundredth of its bound was not tuned.\n"
    )


def _summary(
    networks: Sequence[NetworkResult], title: str, wanted: Callable[[LayerResult], bool]
) -> str:
    rows = []
    everything: list[LayerResult] = []
    tuned: list[LayerResult] = []
    for network in networks:
        layers = [layer for layer in network.layers if wanted(layer)]
        better = [layer for layer in network.tuned or network.layers if wanted(layer)]
        everything += layers
        tuned += better
        rows.append(_summary_row(network.network, layers, better if network.tuned else None))
    rows.append(_summary_row("together", everything, tuned))
    header = ("network", "layers", "MMAC", "simulated", "predicted", "off by", "bound",
              "simulated / bound", "tuned", "tuned / bound")  # fmt: skip
    return f"Cycles of {title}:\n\n{table(header, rows)}"


def _summary_row(
    name: str, layers: Sequence[LayerResult], tuned: Sequence[LayerResult] | None
) -> tuple[str, ...]:
    simulated = sum(layer.simulated for layer in layers)
    predicted = sum(layer.predicted for layer in layers)
    bound = sum(layer.bound for layer in layers)
    macs = sum(layer.macs for layer in layers)
    best = None if tuned is None else sum(layer.simulated for layer in tuned)
    return (
        name, f"{len(layers)}", f"{macs / 1e6:,.1f}", f"{simulated:,}", f"{predicted:,}",
        _percent(predicted / simulated - 1), f"{bound:,}", f"{simulated / bound:.3f}",
        "" if best is None else f"{best:,}", "" if best is None else f"{best / bound:.3f}",
    )  # fmt: skip


def _widths(widths: Sequence[WidthResult]) -> str:
    rows = [
        (
            name,
            *(f"{each.cycles[name] / each.bound[name]:.3f}" for each in widths),
            *(_percent(each.memory_bound[name] / each.bound[name], 0) for each in widths),
        )
        for name in widths[0].cycles
    ]
    names = [f"{each.bytes_per_cycle} B" for each in widths]
    header = ["convolutions", *(f"/ bound, {name}" for name in names)]
    header += [f"memory-bound, {name}" for name in names]
    enough = [each.bytes_per_cycle for each in widths if _array_bounds_most(each)]
    return (
        "## The width of the DMA engine\n\n"
        "Predicted cycles over their bound with other values of `bytes_per_cycle`, and the part of "
        "the bound that is of layers which transfers bound and not the array. The array bounds the "
        f"larger part of each network from {min(enough, default='no')} bytes on.\n\n"
        f"{table(header, rows)}"
    )


def _array_bounds_most(width: WidthResult) -> bool:
    return all(2 * width.memory_bound[name] < width.bound[name] for name in width.bound)


def _variants(results: Results) -> str:
    full = {
        network.network: sum(each.predicted for each in network.layers if each.is_convolution)
        for network in results.networks
    }
    rows = []
    for each in results.variants:
        ratios = [f"{each.cycles[name] / full[name]:.2f}" for name in full]
        together = f"{sum(each.cycles.values()) / sum(full.values()):.2f}"
        rows.append((each.variant, *ratios, together, _percent(each.checked), each.how))
    header = ("without", *full, "together", "off by", "how")
    return (
        "## What each feature is worth\n\n"
        "Predicted cycles of the convolutions when something is taken away, over those with "
        "everything: 1.20 means that they take 20 % longer without it. Layers are cut anew for "
        "each line. `key = value` is in `accel.toml`; `buffers=1` leaves room for one tile of a "
        "tensor. *off by*: predicted over simulated cycles, less 1, of all layers of "
        f"{results.networks[0].network}, which ran on the simulator of each line.\n\n"
        f"{table(header, rows, last_is_text=True)}"
    )


def _compile_times(times: Sequence[CompileResult], machine: str) -> str:
    rows = [
        (
            "equal" if each.equal else "different",
            f"{each.layers}",
            f"{each.cpu:.1f}",
            f"{each.chocolate:.1f}",
            f"{(each.chocolate - each.cpu) / each.layers * 1000:.0f}",
        )
        for each in times
    ]
    growth = []
    for kind, equal in (("equal", True), ("different", False)):
        same = [each for each in times if each.equal is equal]
        first, last = same[0], same[-1]
        growth.append(
            f"{last.layers} {kind} layers take {last.chocolate / first.chocolate:.1f} times as "
            f"long as {first.layers}"
        )
    header = ("convolutions", "layers", "CPU only, s", "Chocolate, s", "more, ms a layer")
    return (
        "## Compile time\n\n"
        "Seconds of processor time from a chain of 3x3 convolutions on 8 x 8 positions to C: "
        "equal ones of 64 channels, or of 16 to 115. Layers of equal sizes are cut once."
        f" {'; '.join(growth)}. Measured on {machine}.\n\n{table(header, rows)}"
    )


def _tuning(found: Sequence[TuningResult]) -> str:
    rows = [
        (each.network, f"{each.layers}", f"{each.seen:,}", f"{each.seconds:.0f}",
         f"{each.seconds / each.layers:.1f}")
        for each in found
    ]  # fmt: skip
    header = ("network", "different layers", "tilings", "s", "s a layer")
    return (
        "## Tuning time\n\n"
        "Seconds of processor time of `uma tune --simulate 0`, one worker, on the same machine. "
        "Layers of equal sizes are tuned once, and one layer after the other: the time grows "
        "with the number of different layers, as the chains of 3x3 convolutions show.\n\n"
        f"{table(header, rows)}"
    )


def _layers_text() -> str:
    return (
        "The last six columns are the predicted cycles in percent, by what the array does: it "
        "works and is *full*; it works *in part*, because channels or positions do not fill its "
        "columns or rows; it waits for results to *drain*, for a *load* into or a *store* out of "
        "the scratchpad, or for the *driver*. *Held by*: which of the last five takes most, where "
        f"a layer is above {NEAR} of its bound.\n"
    )


def _layers(network: NetworkResult) -> str:
    rows = []
    for number, layer in enumerate(network.layers, 1):
        spent = [f"{100 * value / layer.predicted:.0f}" for value in layer.spent.values()]
        memory = "memory" if layer.memory_bound > layer.compute_bound else "array"
        rows.append(
            (
                f"{number}", layer.kind, layer.shape, memory, held_by(layer),
                f"{layer.simulated:,}", f"{layer.predicted:,}",
                _percent(layer.predicted / layer.simulated - 1), f"{layer.bound:,}",
                f"{layer.simulated / layer.bound:.3f}", *spent,
            )
        )  # fmt: skip
    header = ("layer", "computes", "from, to", "bound by", "held by", "simulated", "predicted",
              "off by", "bound", "/ bound", *network.layers[0].spent)  # fmt: skip
    cpu = ", ".join(network.on_cpu) or "nothing"
    return f"### {network.network}\n\nOn the CPU: {cpu}.\n\n{table(header, rows, 5)}"


def held_by(layer: LayerResult) -> str:
    """What takes most of the cycles beyond the bound; empty where there are few."""
    if layer.simulated <= NEAR * layer.bound:
        return ""
    others = {name: cycles for name, cycles in layer.spent.items() if name != FULL}
    return max(others, key=others.__getitem__)


def _percent(part: float, digits: int = 2) -> str:
    return f"{100 * part:.{digits}f} %"
