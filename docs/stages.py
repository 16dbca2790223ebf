# SPDX-License-Identifier: Apache-2.0
"""One layer on its way through the stages: conv2 of the digits network, on Strawberry.

python docs/stages.py
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path

import umakit
from umakit import pipeline
from umakit.lower import lower

MODEL = "examples/digits/digits_int8.onnx"
BACKEND = "strawberry_accelerator"
LAYER = "conv2"
WIDTH = 88
"""Columns; what is longer is wrapped."""


def show(stage: str, lines: Iterable[str]) -> None:
    """Print what a stage yields."""
    print(f"{stage}:")
    for line in lines:
        print(textwrap.indent(textwrap.fill(line, WIDTH, subsequent_indent="    "), "    "))


def statements(text: str, *patterns: str) -> list[str]:
    """Lines of Relax that match a pattern, without types and without the places of constants."""
    text = re.sub(r'metadata\["ir.GenericConst"\]\[\d+\]', "constant", text)
    lines = [re.sub(r": R.Tensor\(.*?\) = ", " = ", line.strip()) for line in text.splitlines()]
    return [line for line in lines if any(re.match(pattern, line) for pattern in patterns)]


def main(folder: Path) -> None:
    """Compile the network and print what each stage made of the layer."""
    backend = umakit.find_backend(BACKEND)
    network, partitioned = pipeline.partition_model(MODEL, [backend])
    imported = network.imported.module["main"].script(show_meta=False)
    island = ("result14 =", r"\w+ = R.nn.conv2d\(result14", "result15 =", "result16 =")
    show("frontend", statements(imported, *island))
    integers = network.model.module["main"].script(show_meta=False)
    show("quantized", statements(integers, "result16 ="))

    composites = partitioned.module.script(show_meta=False).split("@R.function")
    (composite,) = [text for text in composites if "quantized.conv2d(result13," in text]
    (row,) = [row for row in partitioned.report.placements if row.name == LAYER]
    show("partition", statements(composite, "def", r"R.func_attr", r"\w+ = R.quantized"))
    show("    its row of the report", [f"{row.operator}, {row.where}, {row.macs:,} MACs"])

    kernels = lower(partitioned, [backend]).kernels
    kernel = kernels[f"{BACKEND}_qconv2d1_kernel"]
    show("lower", (f"{call.kind.name} {call.function}" for call in kernel.driver_calls))

    library = pipeline.compile_model(MODEL, [backend], folder)
    assert library.program is not None
    (step,) = [step for step in library.program.calls if step.label == LAYER]
    nodes = library.program.kernels[step.kernel].driver_calls
    show("program", (f"{call.kind.name} {call.function}" for call in nodes))
    show("    its result, and what an earlier layer left for it", [*step.outputs, *step.kept])

    memory = library.metadata["umakit"]["memory"]
    offsets = [
        f"{tensor['c_name']}: {pool['name']}, {tensor['offset_bytes']} to "
        f"{tensor['offset_bytes'] + tensor['size_bytes']} B"
        for pool in (*memory["pools"], *memory["scratchpads"])
        for tensor in pool["tensors"]
        if tensor["c_name"] in (*step.outputs, *step.kept)
    ]
    show("memory", offsets)

    source = (folder / "codegen/host/src/tvmgen_digits_int8.c").read_text(encoding="utf-8")
    (function,) = re.findall(rf"^KERNEL [^;]*_{step.symbol}_kernel\(.*?^}}", source, re.M | re.S)
    print("codegen:")
    print(textwrap.indent("\n".join(function.splitlines()[-18:]), "    "))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name) / "library")
