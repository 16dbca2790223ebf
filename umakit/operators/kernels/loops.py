# SPDX-License-Identifier: Apache-2.0
"""Building blocks of integer kernels: loops, accumulators and rescaled stores as TIR.

Kernels are written as loops and not as scheduled tensor expressions, because no schedule gives
their small and fast form: loop bounds that leave out padding, so that no element is tested and no
padded copy is kept, and accumulators in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric.requantize import add_and_clamp, requantize
from umakit.operators.parameters import Parameters
from umakit.tvm_api import Buffer, PrimExpr, Stmt, int32, tirx

KEEPS_NAMES = "umakit.keeps_names"
BIAS_HAS_ZERO_POINT = "umakit.bias_has_zero_point"
"""Attribute of kernels whose bias includes -zero point of the data * sum of weights."""

WEIGHTS_LAYOUT = "umakit.weights_layout"
"""Attribute of a prim func whose parameters have names of its own."""

ELEMENTWISE = "umakit.is_elementwise"
"""Attribute of a prim func whose result may overwrite any input of equal size, even if calls of C
functions hide this property."""

INSIDE = "umakit.positions_are_inside"
"""Attribute of a prim func whose author vouches for its positions: they hold for all values of its
inputs, but by relations between them that intervals do not show."""

INDEPENDENT = "umakit.independent_turns"
"""Annotation of a loop whose author declares its turns independent; see `loop`."""

TILE = 64
"""Most accumulators that a kernel keeps at once, in a local array of as many int32."""


BLOCK = 4
"""Output channels whose accumulators are in registers at once, as a Cortex-M3 has room for."""

Extent = int | PrimExpr
"""A number of turns or elements: a constant, or an expression of int32."""


def buffer(name: str, shape: Sequence[int], dtype: str) -> Buffer:
    """A parameter of a kernel."""
    return tirx.decl_buffer(list(shape), dtype, name)


def buffers(
    names: Sequence[str], shapes: Sequence[Sequence[int]], dtypes: Sequence[str]
) -> list[Buffer]:
    """Parameters of a kernel, one for each name."""
    return [buffer(*each) for each in zip(names, shapes, dtypes, strict=True)]


def accumulators(count: int, bits: int = 32) -> Buffer:
    """Return a local array of accumulators.

    Accumulators are unsigned, because unsigned integers wrap around in C. GCC 12.2 at -O3
    miscompiles average pools with int32 accumulators that are cast to unsigned and back.
    `umakit.codegen.signed_sums` makes accumulators that cannot overflow signed.
    """
    return tirx.decl_buffer([count], f"uint{bits}", "sum", scope="local")


def set_to(accumulator: Buffer, index: PrimExpr, value: PrimExpr) -> Stmt:
    """`accumulator[index] = value`, for a signed value of no more bits."""
    return tirx.BufferStore(accumulator, value.astype(tvm_api.buffer_dtype(accumulator)), [index])


def total_of(accumulator: Buffer, index: PrimExpr, less: int = 0) -> PrimExpr:
    """`accumulator[index] - less`, signed."""
    dtype = tvm_api.buffer_dtype(accumulator)
    amount = tirx.const(abs(less), dtype)
    total = (
        accumulator[index] - amount
        if less > 0
        else accumulator[index] + amount
        if less
        else accumulator[index]
    )
    return total.astype(dtype.removeprefix("u"))


def total_with(accumulator: Buffer, index: PrimExpr, bias: PrimExpr) -> PrimExpr:
    """`accumulator[index] + bias`, signed, for a bias of no more bits."""
    dtype = tvm_api.buffer_dtype(accumulator)
    total = accumulator[index] + bias.astype(dtype)
    return total.astype(dtype.removeprefix("u"))


def sequence(*statements: Stmt) -> Stmt:
    """Statements one after the other."""
    flat = [inner for statement in statements for inner in tvm_api.flatten_statements(statement)]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def loop(name: str, extent: Extent, body: Callable[[PrimExpr], Stmt], independent: int = 0) -> Stmt:
    """`for name in range(extent)`; a loop of one turn becomes its body.

    Args:
        independent: 0 for unknown. Otherwise turns may run at the same time, each range of turns
            with working memory of its own, for any turn of the outer loops: the turns write
            different elements of the output, which no other turn reads, and read no working memory
            that an earlier turn has written. The last `independent` turns may write the same
            elements, with the same values.
    """
    if isinstance(extent, int) and extent == 1:
        return body(int32(0))
    variable = tirx.Var(name, "int32")
    count = int32(extent)
    notes = {INDEPENDENT: int32(independent)} if independent else {}
    return tirx.For(
        variable, int32(0), count, tirx.ForKind.SERIAL, body(variable), annotations=notes
    )


def loops(
    extents: Sequence[tuple[str, Extent]], body: Callable[..., Stmt], independent: int = 0
) -> Stmt:
    """Nested loops, the first loop outermost; see `loop`."""
    if not extents:
        return body()
    (name, extent), *rest = extents
    return loop(
        name, extent, lambda v: loops(rest, lambda *inner: body(v, *inner), independent),
        independent,
    )  # fmt: skip


def add_to(accumulator: Buffer, index: PrimExpr, value: PrimExpr) -> Stmt:
    """`accumulator[index] += value`, for a signed value of no more bits."""
    total = accumulator[index] + value.astype(tvm_api.buffer_dtype(accumulator))
    return tirx.BufferStore(accumulator, total, [index])


def add_products(
    accumulator: Buffer, elements: Sequence[PrimExpr], weights: Sequence[PrimExpr]
) -> Stmt:
    """Add the product of each element of the data and each weight to its own sum.

    One load serves several products. Factors are cast to 16 bits so that compilers use 16-bit
    multiplications; gcc does so only if the casts of the weights are not shared.

    Args:
        accumulator: sums; the sums of the first element come first.
        elements: int16 elements, or int32 for 16-bit data with a zero point.
        weights: int8 or int16 weights.
    """
    variables = [tirx.Var("element", tvm_api.dtype_of(value)) for value in elements]
    bindings = [tirx.Bind(v, value) for v, value in zip(variables, elements, strict=True)]
    products = [int32(v) * int32(w.astype("int16")) for v in variables for w in weights]
    additions = [add_to(accumulator, int32(i), product) for i, product in enumerate(products)]
    return sequence(*bindings, *additions)


def add_element_to(accumulator: Buffer, index: PrimExpr, value: PrimExpr) -> Stmt:
    """`accumulator[index] += value`, for an int32 value no larger than an element of the data.

    The value is bound to a variable first, because gcc mistakes the sum of a cast load for a
    change of sign.
    """
    element = tirx.Var("element", "int32")
    return sequence(tirx.Bind(element, value), add_to(accumulator, index, element))


def unflatten(index: PrimExpr, shape: Sequence[int]) -> list[PrimExpr]:
    """Indices of element number `index` of a tensor in memory."""
    indices = []
    for extent in reversed(shape):
        indices.append(tirx.floormod(index, int32(extent)))
        index = tirx.floordiv(index, int32(extent))
    return indices[::-1]


def tiles(count: int, body: Callable[[PrimExpr, Extent], Stmt]) -> Stmt:
    """`count` channels in tiles of at most `TILE`.

    Args:
        body: (first channel, number of channels) -> statements.
    """
    if count <= TILE:
        return body(int32(0), count)
    number = -(-count // TILE)

    def tile(index: PrimExpr) -> Stmt:
        first = index * int32(TILE)
        if count % TILE == 0:
            return body(first, TILE)
        return body(first, tirx.min(int32(TILE), int32(count) - first))

    return loop("tile", number, tile)


def blocks(
    count: int, body: Callable[[PrimExpr], Stmt], size: int = BLOCK, name: str = "channel_block"
) -> Stmt:
    """`count` channels or positions in blocks, or in one block if there are fewer.

    The last block ends with the last element and may overlap the previous block, so that it needs
    no code of its own.

    Args:
        body: (first element of a block) -> statements, which write no other elements of the output
            and are independent of other blocks, see `loop`.
    """
    if count <= size:
        return body(int32(0))

    def block(index: PrimExpr) -> Stmt:
        first = index * int32(size)
        return body(first if count % size == 0 else tirx.min(first, int32(count - size)))

    return loop(name, -(-count // size), block, independent=2 if count % size else 1)


def store_rescaled(
    output: Buffer,
    indices: Sequence[PrimExpr],
    value: PrimExpr,
    factor: tuple[PrimExpr, PrimExpr],
    parameters: Parameters,
) -> Stmt:
    """Store a requantized sum: rescaled to the output's scale, plus zero point, clipped.

    Args:
        value: an int32 or int64 expression (see `requantize`).
        factor: multiplier and shift.
    """
    statements, scaled = bound("scaled", requantize(value, *factor, parameters.arithmetic))
    store = store_shifted(output, indices, scaled, parameters.output_zero_point, parameters)
    return sequence(*statements, store)


def bound(name: str, value: PrimExpr) -> tuple[list[Stmt], PrimExpr]:
    """Return a variable for a value that reads data, and the binding.

    TVM would substitute other values for their variables, and leave the variables unused.
    """
    if not tvm_api.collect(value, tvm_api.TensorLoad):
        return [], value
    variable = tirx.Var(name, tvm_api.dtype_of(value))
    return [tirx.Bind(variable, value)], variable


def store_shifted(
    output: Buffer,
    indices: Sequence[PrimExpr],
    value: PrimExpr,
    zero_point: int,
    parameters: Parameters,
) -> Stmt:
    """Store an int32 value plus a zero point, clipped to the output's range."""
    clipped = add_and_clamp(value, zero_point, *parameters.clip)
    return tirx.BufferStore(output, clipped.astype(parameters.output_dtype), list(indices))


def store_clipped(
    output: Buffer, indices: Sequence[PrimExpr], value: PrimExpr, parameters: Parameters
) -> Stmt:
    """Store an int32 value within the output's dtype, clipped to the output's range."""
    low, high = parameters.clip
    limits = np.iinfo(parameters.output_dtype)
    if low > limits.min:
        value = tirx.max(value, int32(low))
    if high < limits.max:
        value = tirx.min(value, int32(high))
    return tirx.BufferStore(output, value.astype(parameters.output_dtype), list(indices))


def kernel(parameters: Sequence[Buffer], body: Stmt, *, inside: bool = False) -> tvm_api.PrimFunc:
    """Return a prim func that fusion ignores, without blocks for the CPU's scheduling rules.

    Args:
        inside: whether indices that depend on data are in range for all data.
    """
    attributes = {"op_pattern": tvm_api.OPAQUE_OPERATOR_PATTERN, KEEPS_NAMES: True}
    if inside:
        attributes[INSIDE] = True
    # TVM's passes over Relax expect a root block.
    root = tvm_api.s_tir.SBlockRealize([], True, tvm_api.s_tir.SBlock([], [], [], "root", body))
    return tvm_api.PrimFunc(list(parameters), root).with_attrs(attributes)


class Statements:
    """Statements that bind 32-bit intermediate values of a formula."""

    def __init__(self) -> None:
        self.list: list[Stmt] = []

    def bind(self, name: str, value: PrimExpr) -> tvm_api.Var:
        """A variable for a value."""
        variable = tirx.Var(name, "int32")
        self.list.append(tirx.Bind(variable, value))
        return variable
