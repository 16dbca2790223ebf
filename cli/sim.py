# SPDX-License-Identifier: Apache-2.0
"""`uma sim`: predicted cycles of a matrix product, of a network, and of a sweep over machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from umakit.cli.console import console, print_json
from umakit.cli.options import (
    ForceOption,
    InferencesOption,
    KeepLayoutOption,
    RoundingOption,
    ShapesOption,
)
from umakit.cli.sim_network import SweepFiles, simulate_network
from umakit.cli.tables import new_table

from umakit.errors import InputError
from umakit.machine.systolic import (
    Dataflow,
    SystolicArray,
    SystolicCycles,
    parse_product,
    systolic_cycles,
)

HELP = """Predict cycles without compiling or running: of a network, or of a matrix product.

`uma sim MODEL -b BACKEND` runs all stages up to the memory plan, and asks the cost model of the \
backend for the cycles of each layer, as `uma report` shows them beside simulated ones. Layers on \
the CPU, and layers that the backend does not cut into tiles, have no prediction.

--set changes a value of accel.toml in a copy of the backend, such as --set array.rows=32 or \
--set scratchpad.size=64K; --sweep tries several values, and all combinations of several --sweep. \
A machine that the backend refuses is a row with the reason. A machine is on the front (marked *) \
if no other one that takes the same operators, or more, needs fewer cycles or costs less, and is \
in nothing worse. --simulate compiles and runs the network on the machines of the front.

With --records each finished machine is written down; after Ctrl-C the same command goes on. The \
result does not depend on who does the work: this process, --workers more of them, or the workers \
of a dask scheduler, which need umakit, the model and the backend at the same paths \
(`pip install 'umakit\\[cluster]'`).

`uma sim --gemm M,N,K` needs no model. The product of an M x K with a K x N matrix is cut into \
folds of the array's size, which do not \
overlap. A convolution is one with M = rows x columns of its result, N = output channels and \
K = kernel rows x kernel columns x input channels. Without drain the counts are those of \
SCALE-Sim; an array that moves results out in cycles of their own needs --drain ROWS; one that \
takes the next fold's operands in while it computes, --preload: it is filled and drained once.

"utilisation" is the multiply-accumulates over those that the array could do in all \
cycles; "filled" the share of the folds that a product fills.

Exit code: 0; 1 if a run of --simulate failed, 130 after Ctrl-C, 2 for a mistake of the call."""

EPILOG = """Examples:  uma sim net.tflite -b chocolate_accelerator

uma sim net.tflite -b ./my_npu --set array.rows=32 --json

uma sim net.tflite -b chocolate_accelerator --inferences 10

uma sim net.tflite -b ./my_npu --sweep scratchpad.size=32K,64K --sweep array.rows=8,16 \
--records sweep.jsonl --plot sweep.svg --workers 4 --simulate

uma sim --gemm 1024,16,27 --rows 16 --cols 16 --dataflow all"""

ALL = "all"

SHARED = ("as_json",)
OF_PRODUCTS = ("gemm", "rows", "cols", "dataflow", "drain", "preload", "pack_columns")
"""Parameters of `uma sim --gemm`; but for `SHARED`, all others are of `uma sim MODEL`."""

SimModelArgument = Annotated[
    Path | None,
    typer.Argument(
        help="An ONNX (.onnx), TensorFlow Lite (.tflite) or PyTorch (.pt2) file, or a Relax module "
        "(.json).",
        show_default=False,
    ),
]
SimBackendOption = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="Name or folder of the accelerator.", show_default=False),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A value of accel.toml, as KEY=VALUE; K and M are 1,024 and 1,048,576. Repeat it.",
        show_default=False,
        metavar="KEY=VALUE",
    ),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        help="Several values of a key, as KEY=VALUE,VALUE; repeat it for all combinations.",
        show_default=False,
        metavar="KEY=VALUE,...",
    ),
]
CostOption = Annotated[
    str,
    typer.Option(help="Cost beside cycles that the front is of: cells, scratchpad, or both."),
]
SimulateFlag = Annotated[
    bool,
    typer.Option("--simulate", help="Compile and run the network on the machines of the front."),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(help="Draw the sweep as .svg, .png or .pdf.", show_default=False),
]
SweepRecordsOption = Annotated[
    Path | None,
    typer.Option(
        "--records",
        "-r",
        help="The file of finished machines (JSON Lines) to write, or to go on with.",
        show_default=False,
    ),
]
WorkersOption = Annotated[
    int,
    typer.Option("--workers", "--jobs", "-j", min=1, max=1024, help="Processes of this machine."),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        help="Use the workers of the dask scheduler at this address, such as tcp://host:8786.",
        show_default=False,
    ),
]


GemmOption = Annotated[
    str | None, typer.Option(help="Sizes of a product: M,N,K.", show_default=False, metavar="M,N,K")
]
RowsOption = Annotated[int, typer.Option(help="Rows of the array.")]
ColumnsOption = Annotated[int, typer.Option(help="Columns of the array.")]
DataflowOption = Annotated[
    str,
    typer.Option(help="Dataflow: os, ws, is (outputs, weights, inputs are stationary), or all."),
]
DrainOption = Annotated[
    int, typer.Option(help="Cycles that move the results of a fold out of the array.")
]
PreloadOption = Annotated[
    bool, typer.Option("--preload", help="The next fold's operands enter while one computes.")
]
PackOption = Annotated[
    bool,
    typer.Option("--pack-columns", help="Few channels share the columns among positions (os)."),
]
ProductJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def sim(
    context: typer.Context,
    model: SimModelArgument = None,
    backend: SimBackendOption = None,
    inferences: InferencesOption = None,
    set_: SetOption = None,
    sweep: SweepOption = None,
    cost: CostOption = "both",
    simulate: SimulateFlag = False,
    records: SweepRecordsOption = None,
    plot: PlotOption = None,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    keep_layout: KeepLayoutOption = False,
    force: ForceOption = False,
    gemm: GemmOption = None,
    rows: RowsOption = 16,
    cols: ColumnsOption = 16,
    dataflow: DataflowOption = "os",
    drain: DrainOption = 0,
    preload: PreloadOption = False,
    pack_columns: PackOption = False,
    as_json: ProductJsonOption = False,
) -> int:
    _check_one(context, model, gemm)
    if gemm is not None:
        array = (rows, cols, drain, preload, pack_columns)
        _product(gemm, array, dataflow, as_json)
        return 0
    assert model is not None  # `_check_one` ensures a model or a product
    if backend is None:
        raise InputError("a network needs an accelerator", fix="name it with --backend")
    return simulate_network(model, context.params, SweepFiles(records, plot, force))


def _check_one(context: typer.Context, model: Path | None, gemm: str | None) -> None:
    """Refuse a call with both or neither of model and product, or with options of the other."""
    if (model is None) == (gemm is None):
        raise InputError(
            "give either a network or --gemm M,N,K"
            + ("" if model is None else ", not both of them")
        )
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in SHARED:
            continue
        if (name in OF_PRODUCTS) != (gemm is not None):
            goes = "with a network" if gemm is not None else "with --gemm"
            raise InputError(f"{parameter.opts[0]} goes {goes} only", fix="leave it out")


def _product(
    gemm: str, array: tuple[int, int, int, bool, bool], dataflow: str, as_json: bool
) -> None:
    """Print the cycles of a matrix product on an array: rows, columns, drain, preload, packing."""
    rows, cols, drain, preload, pack_columns = array
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
