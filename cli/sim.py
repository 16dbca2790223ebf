# SPDX-License-Identifier: Apache-2.0
"""`uma sim`: cycles of a matrix product on a systolic array, without a model."""

from __future__ import annotations

from typing import Annotated

import typer
from umakit.cli.console import console, print_json
from umakit.cli.tables import new_table

from umakit.machine.systolic import (
    Dataflow,
    SystolicArray,
    SystolicCycles,
    parse_product,
    systolic_cycles,
)

HELP = """Cycles of a matrix product on a systolic array: a what-if without any model.

The product of an M x K with a K x N matrix is cut into folds of the array's size, which do not \
overlap. A convolution is one with M = rows x columns of its result, N = output channels and \
K = kernel rows x kernel columns x input channels. Without drain the counts are those of \
SCALE-Sim; an array that moves results out in cycles of their own needs --drain ROWS; one that \
takes the next fold's operands in while it computes, --preload: it is filled and drained once.

"utilisation" is the product's multiply-accumulates over those that the array could do in all \
cycles; "filled" the share of the folds that the product fills."""

EPILOG = "Example:  uma sim --gemm 1024,16,27 --rows 16 --cols 16 --dataflow all"

ALL = "all"


def sim(
    gemm: Annotated[
        str, typer.Option(help="Sizes of the product: M,N,K.", show_default=False, metavar="M,N,K")
    ],
    rows: Annotated[int, typer.Option(help="Rows of the array.")] = 16,
    cols: Annotated[int, typer.Option(help="Columns of the array.")] = 16,
    dataflow: Annotated[
        str,
        typer.Option(
            help="Dataflow: os, ws, is (outputs, weights, inputs are stationary), or all."
        ),
    ] = "os",
    drain: Annotated[
        int, typer.Option(help="Cycles that move the results of a fold out of the array.")
    ] = 0,
    preload: Annotated[
        bool, typer.Option("--preload", help="The next fold's operands enter while one computes.")
    ] = False,
    pack_columns: Annotated[
        bool,
        typer.Option("--pack-columns", help="Few channels share the columns among positions (os)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Registered with the help text above."""
    product = parse_product(gemm)
    dataflows = list(Dataflow) if dataflow == ALL else [Dataflow.named(dataflow)]
    found = {
        flow: systolic_cycles(
            product, SystolicArray(rows, cols, flow, drain, preload, pack_columns)
        )
        for flow in dataflows
    }
    if as_json:
        views = [{"dataflow": flow.value, **cost.as_json()} for flow, cost in found.items()]
        print_json(views if dataflow == ALL else views[0])
        return
    columns = ["folds", "compute", "drain", "cycles", "MACs/cycle", "utilisation", "filled"]
    table = new_table("dataflow", *columns, right=columns)
    for flow, cost in found.items():
        table.add_row(flow.value, *_cells(cost))
    console().print(f"{product.m:,} x {product.k:,} by {product.k:,} x {product.n:,}: "
                    f"{product.macs:,} MACs on {rows} x {cols} cells")  # fmt: skip
    console().print(table)


def _cells(cost: SystolicCycles) -> list[str]:
    return [
        f"{cost.folds:,}",
        f"{cost.compute_cycles:,}",
        f"{cost.drain_cycles:,}",
        f"{cost.cycles:,}",
        f"{cost.macs / cost.cycles:.1f}",
        f"{100 * cost.utilisation:.1f} %",
        f"{100 * cost.mapping_efficiency:.1f} %",
    ]
