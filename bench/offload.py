# SPDX-License-Identifier: Apache-2.0
"""`umakit.torch.offload`: MACs beside those of `uma partition`, numbers and times beside PyTorch's.

Accelerators are simulated: the times are those of simulators.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tools
from test_torch import TOKENS, Recurrent, Transformer, mobilenet, resnet
from test_torch_quantized import normalized_block, pt2e, quantizer_of
from torch_networks import randomize, tensor

import umakit.torch

OUTPUT = Path(__file__).parents[1] / "build/bench/offload.md"

NETWORKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "resnet": (resnet, tensor(1, 3, 32, 40)),
    "mobilenet": (mobilenet, tensor(1, 3, 20, 24)),
    "lstm": (Recurrent, TOKENS.T),
    "transformer": (Transformer, TOKENS),
}
QUANTIZED: dict[str, tuple[Callable[[], Any], Any]] = {
    "resnet": NETWORKS["resnet"],
    "mobilenet": NETWORKS["mobilenet"],
    "depthwise block": (normalized_block, tensor(1, 3, 8, 8)),
}


def row(name: str, module: Any, backend: str, x: Any) -> str:
    """Return a line of the table: a network on an accelerator."""
    offloaded = umakit.torch.offload(module, backend, x)
    layers = umakit.torch.offload(module, backend, x, by_layer=True)
    found, times = offloaded.offload, offloaded.compare(x)
    parts = layers.compare(x, repeats=1).differences[:-1]
    integers = [each.largest for each in parts if not each.dtype.startswith("float")]
    floats = [relative(each) for each in parts if each.dtype.startswith("float")]
    cells = [
        name,
        backend.removesuffix("_accelerator"),
        f"{found.total_macs:,}",
        f"{found.partitioned_macs:,}",
        f"{found.offloaded_macs:,}",
        str(len(offloaded.regions)),
        f"{max(floats):.1e}" if floats else "",
        f"{max(integers):.0f} LSB" if integers else "",
        f"{relative(times.differences[-1]):.1e}",
        f"{times.offloaded_seconds / times.eager_seconds:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def relative(difference: Any) -> float:
    """Return the largest difference divided by the largest value."""
    return float(difference.largest / (difference.magnitude or 1))


def main() -> int:
    """Write the table."""
    warnings.simplefilter("ignore")
    rows = []
    for name, (make, x) in NETWORKS.items():
        rows.append(row(name, randomize(make()), "vanilla_accelerator", x))
    for name, (make, x) in QUANTIZED.items():
        program = pt2e(randomize(make()), x, quantizer_of("xnnpack", is_per_channel=True))
        for backend in ("strawberry_accelerator", "chocolate_accelerator"):
            rows.append(row(f"{name}, int8", program, backend, x))
    lines = [
        "| network | accelerator | MACs | offloaded by `uma partition` | by `offload` | parts | "
        "layers in float | layers in integers | whole network | time |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *rows,
        "",
        "Largest differences from PyTorch, of layers with the same inputs and of the network's "
        "result; those in float divided by the largest value. Times of a call, accelerators "
        "simulated, divided by those of PyTorch alone, measured by turns.",
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
