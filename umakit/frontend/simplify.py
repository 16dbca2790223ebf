# SPDX-License-Identifier: Apache-2.0
"""Clean-ups of an imported module that every later stage relies on."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.floats import constant_rules
from umakit.floats.rules import Rule
from umakit.tvm_api import BlockBuilder, Call, Expr, IRModule, relax


def failing_call(
    module: IRModule, run: Callable[[IRModule], object]
) -> tuple[Call, tvm_api.Var] | None:
    """Return the first operator call of `main`, and its variable, for which a pass fails in
    isolation.

    None if the pass succeeds for every single call.
    """
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if not isinstance(call, Call) or not tvm_api.operator_name(call) or call.ty is None:
            continue
        try:
            run(_alone(call))
        except tvm_api.TVM_ERRORS:
            return call, binding.var
    return None


def operand_types(call: Call) -> list[str]:
    """Return dtype and shape of each tensor operand, for example `float32[1, 3]`."""
    shown = []
    for argument in call.args:
        for item in argument.fields if isinstance(argument, tvm_api.RelaxTuple) else [argument]:
            dtype = tvm_api.dtype_of(item) if hasattr(item, "ty") else ""
            shape = tvm_api.static_shape(item) if dtype else None
            if shape is not None:
                shown.append(f"{dtype}{list(shape)}")
    return shown or ["its operands"]


def _alone(call: Call) -> IRModule:
    parameters: list[tvm_api.Var] = []
    for variable in tvm_api.collect(call, tvm_api.Var):
        is_tensor = tvm_api.dtype_of(variable) and hasattr(variable.ty, "shape")
        if is_tensor and not any(variable.same_as(parameter) for parameter in parameters):
            parameters.append(variable)
    result = relax.Var("result", call.ty)
    block = relax.BindingBlock([relax.VarBinding(result, call)])
    function = relax.Function(parameters, relax.SeqExpr([block], result), call.ty)
    return IRModule({"main": function.with_attr("global_symbol", "main")})


DIVISIONS = ("divide", "floor_divide", "mod", "floor_mod")
"""Operators whose second operand is a divisor."""


READING = frozenset(
    f"relax.{name}"
    for name in (
        "add subtract multiply divide maximum minimum clip exp sigmoid tanh matmul permute_dims "
        "nn.conv1d nn.conv2d nn.relu nn.softmax nn.max_pool2d nn.avg_pool2d"
    ).split()
)
"""Operators that read all their operands: one that is no constant makes the result none."""

SCATTER, TAKE = "relax.scatter_elements", "relax.take"


def simplify(module: IRModule, where: str) -> IRModule:
    """Clean up a module for later stages, without changing the meaning of results."""
    _refuse_zero_divisors(module, where)
    transform = tvm_api.relax_transform
    decomposing = [
        transform.CanonicalizeBindings(),
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
    ]
    # Folding dequantize(weight) would destroy the patterns that quantization looks for.
    used = {tvm_api.operator_name(b.value) for b in tvm_api.bindings_of(module["main"])}
    is_folded = not any("quantize" in name for name in used)
    folding = [transform.FoldConstant()] if is_folded else []
    folding.append(transform.DeadCodeElimination())
    scatter = _unless_narrow(tvm_api.legalization(SCATTER))
    rules = {**constant_rules(), SCATTER: scatter, TAKE: _take_of_constants}
    for name in {f"relax.{name}" for name in used} & READING:
        rules[name] = _of_constants(rules.get(name) or tvm_api.legalization(name))
    with quiet(), tvm_api.c_target(), tvm_api.legalizing_by(rules):
        try:
            module = transform.ConvertToDataflow(min_size=1)(module)
            folded = fold_with_numpy(module, where)
            decomposed = tvm_api.Sequential(decomposing)(folded)
            if is_folded:
                decomposed = fold_shapes_with_numpy(decomposed, where)
            simplified = tvm_api.Sequential(folding)(decomposed)
        except tvm_api.TVM_ERRORS as error:
            raise _not_supported(module, [*decomposing, *folding], where) from error
    _refuse_zero_divisors(simplified, where)
    return simplified


def _of_constants(rule: Rule) -> Rule:
    """Restrict a rule to calls whose operands are all constants.

    Constant folding legalizes every call before it checks whether the operands are constant.
    Without this restriction, legalization takes a third of the compilation time of a deep network.
    """

    def apply(builder: BlockBuilder, call: Call) -> Expr | None:
        if all(isinstance(operand, tvm_api.GenericConst) for operand in call.args):
            return rule(builder, call)
        return call

    return apply


def _unless_narrow(rule: Rule) -> Rule:
    """Restrict TVM's rule for ScatterElements to index dtypes that can hold the axis size.

    TVM converts the size to the index dtype, and constant folding applies the rule to every call.
    The CPU legalization handles the remaining calls.
    """

    def apply(builder: BlockBuilder, call: Call) -> Expr | None:
        shape, dtype = tvm_api.static_shape(call.args[0]), tvm_api.dtype_of(call.args[1])
        narrow = shape is not None and shape[int(call.attrs.axis)] > np.iinfo(dtype).max
        return call if narrow else rule(builder, call)

    return apply


def _take_of_constants(builder: BlockBuilder, call: Call) -> Expr:
    """Rule for `take` of constants with indices in range; other calls stay unchanged.

    TVM's own rule prints a warning for every call.
    """
    if any(tvm_api.constant_array(operand) is None for operand in call.args):
        return call
    mode = "clip" if str(call.attrs.mode) == "fast" else str(call.attrs.mode)
    return builder.call_te(tvm_api.topi.take, *call.args, call.attrs.axis, mode=mode)


def _refuse_zero_divisors(module: IRModule, where: str) -> None:
    for binding in tvm_api.bindings_of(module["main"]):
        operator = tvm_api.operator_name(binding.value)
        if operator not in DIVISIONS:
            continue
        divisor = tvm_api.constant_array(binding.value.args[1])
        if divisor is not None and divisor.dtype.kind in "iu" and not divisor.all():
            name = tvm_api.name_of(binding.value) or str(binding.var.name)
            raise ModelError(
                f"operator {operator} of node {name!r} divides an integer by a constant 0",
                where=where,
                fix="change the divisor in the model",
            )


def _not_supported(module: IRModule, passes: list[Any], where: str) -> ModelError:
    """Return the error for a network for which a pass fails.

    The message names the operator if the pass fails for a single call.
    """
    to_dataflow = tvm_api.relax_transform.ConvertToDataflow(min_size=1)
    every = tvm_api.Sequential([to_dataflow, *passes, tvm_api.relax_transform.LegalizeOps()])
    found = failing_call(module, every)
    if found is None:
        return ModelError("holds operators that cannot be simplified together", where=where)
    call, variable = found
    name = tvm_api.name_of(call) or variable.name
    return ModelError(
        f"operator {tvm_api.operator_name(call)} of node {str(name)!r} is not supported for "
        f"{', '.join(operand_types(call))}",
        where=where,
        fix="replace it in the model",
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress TVM's warnings and stray prints on the user's terminal."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


# Folding with NumPy: batch normalization into layers, shape operators of constants, sizes.
#
# TVM folds constants by compiling one function each, which takes seconds for a deep network, and
# folds no batch normalization behind a bias. TVM folds what these functions leave.

Array = npt.NDArray[Any]

SHAPES = ("reshape", "permute_dims", "expand_dims")
"""Operators that change the shape or the order of dimensions."""

SIZES = ("shape_to_tensor", "take", "astype")
"""Operators that yield or transform the size of a tensor."""


def fold_with_numpy(module: IRModule, where: str) -> IRModule:
    """Fold batch normalizations, sizes and shapes of constants in `main` with NumPy."""
    main = module["main"]
    folder = _Folder(module, _use_counts(main), where)
    folder.builder_.update_func(module.get_global_var("main"), folder.visit_expr(main))
    return tvm_api.relax_transform.DeadCodeElimination()(folder.builder_.get())


def fold_shapes_with_numpy(module: IRModule, where: str) -> IRModule:
    """Fold shape operators on constants of `main`, if there are any."""
    values = [binding.value for binding in tvm_api.bindings_of(module["main"])]
    if any(
        tvm_api.operator_name(value) in SHAPES and isinstance(value.args[0], tvm_api.GenericConst)
        for value in values
    ):
        return fold_with_numpy(module, where)
    return module


def _use_counts(function: tvm_api.Function) -> Counter[Any]:
    counts = Counter[Any]()

    def count(variable: tvm_api.Var) -> None:
        counts[variable] += 1

    for binding in tvm_api.bindings_of(function):
        tvm_api.walk(binding.value, [(tvm_api.Var, count)])
    tvm_api.walk(function.body.body, [(tvm_api.Var, count)])
    return counts


@tvm_api.mutator
class _Folder(tvm_api.PyExprMutator):
    def __init__(self, module: IRModule, uses: Counter[Any], where: str) -> None:
        super().__init__(module)
        self._uses = uses
        self._where = where
        self._single_use: set[tvm_api.Var] = set()
        self._sizes: set[Expr] = set()

    def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        emitted = tvm_api.emit_like(self.builder_, binding.var, value)
        self.set_var_remap(binding.var, emitted)
        if self._uses[binding.var] == 1:
            self._single_use.add(emitted)
        is_size = tvm_api.operator_name(binding.value) in SIZES
        if is_size and tvm_api.constant_array(value) is not None:
            self._sizes.add(emitted)

    def visit_call_(self, call: Call) -> Expr:
        call = self.visit_expr_post_order(call)
        operator = tvm_api.operator_name(call)
        if operator in SHAPES:
            return self._fold_shape(operator, call)
        if operator in SIZES:
            return self._fold_size(call)
        if operator == "nn.batch_norm":
            return self._fold_batch_norm(call)
        return call

    def _fold_shape(self, operator: str, call: Call) -> Expr:
        array = tvm_api.constant_array(call.args[0])
        if array is None:
            return call
        if operator == "permute_dims":
            axes = call.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            return relax.const(np.ascontiguousarray(array.transpose(order)), str(array.dtype))
        shape = tvm_api.static_type_shape(call.ty) if call.ty is not None else None
        return call if shape is None else relax.const(array.reshape(shape), str(array.dtype))

    def _fold_size(self, call: Call) -> Expr:
        """Fold the computation of tensor sizes, such as the offset of negative indices.

        TVM's own folding covers such sizes, but quantized networks do not use it. Other constants
        stay: the conversion of an int64 bias to int32, for example, tells the layer's arithmetic.
        """
        operator = tvm_api.operator_name(call)
        if operator == "shape_to_tensor":
            shape = call.args[0]
            shape = self.lookup_binding(shape) if isinstance(shape, tvm_api.Var) else shape
            if not isinstance(shape, Call) or tvm_api.operator_name(shape) != "shape_of":
                return call
            extents = tvm_api.static_shape(shape.args[0])
            return call if extents is None else relax.const(np.array(extents, "int64"), "int64")
        sizes = self._constant(call.args[0]) if call.args[0] in self._sizes else None
        if sizes is None:
            return call
        if operator == "astype":
            dtype = str(call.attrs.dtype)
            return relax.const(sizes.astype(dtype), dtype) if dtype in ("int32", "int64") else call
        number = self._constant(call.args[1])
        if sizes.ndim != 1 or number is None or not ((number >= 0) & (number < sizes.size)).all():
            return call
        return relax.const(sizes[number], str(sizes.dtype))

    def _fold_batch_norm(self, call: Call) -> Expr:
        if bool(getattr(call.attrs, "training", False)):
            raise ModelError(
                "a batch normalization is in training mode",
                where=self._where,
                fix="export the model in evaluation mode",
            )
        statistics = [tvm_api.constant_array(argument) for argument in call.args[1:]]
        root = self._chain(call.args[0])
        if root is None or any(item is None for item in statistics):
            return call
        gamma, beta, mean, variance = (
            np.asarray(item, dtype=np.float64) for item in statistics if item is not None
        )
        layer, weights, bias, dtype, channels = root
        rank, channel_axis = channels
        if int(call.attrs.axis) % rank != channel_axis:
            return call
        scale = gamma if call.attrs.scale else np.ones_like(mean)
        scale = scale / np.sqrt(variance + float(call.attrs.epsilon))
        shift = (beta if call.attrs.center else 0.0) + (bias - mean) * scale
        return self._scaled(call, layer, weights, scale, shift.astype(dtype))

    def _chain(
        self, expression: Expr
    ) -> tuple[Call, Array, Array, np.dtype[Any], tuple[int, int]] | None:
        """Return (layer, weights, bias, dtype, channels) of a convolution or matrix product.

        The layer may have a bias. Each step of the chain has a single use.
        """
        value = self._once(expression)
        constant = None
        if value is not None and tvm_api.operator_name(value) == "add":
            constant = tvm_api.constant_array(value.args[1])
            if constant is None:
                return None
            value = self._once(value.args[0])
        if value is None or tvm_api.operator_name(value) not in ("nn.conv2d", "matmul"):
            return None
        weights = self._constant(value.args[1])
        channels = _channels(value)
        if weights is None or channels is None:
            return None
        bias = np.zeros(1) if constant is None else _as_bias(constant, *channels)
        return None if bias is None else (value, weights, bias, weights.dtype, channels)

    def _constant(self, expression: Expr) -> Array | None:
        bound = (
            self.lookup_binding(expression) if isinstance(expression, tvm_api.Var) else expression
        )
        return None if bound is None else tvm_api.constant_array(bound)

    def _once(self, expression: Expr) -> Call | None:
        if not isinstance(expression, tvm_api.Var) or expression not in self._single_use:
            return None
        value = self.lookup_binding(expression)
        return value if isinstance(value, Call) else None

    def _scaled(self, call: Call, layer: Call, weights: Array, scale: Array, shift: Array) -> Expr:
        is_matrix = tvm_api.operator_name(layer) == "matmul"
        output_axis = 1 if is_matrix else str(layer.attrs.kernel_layout).index("O")
        extents = [1] * weights.ndim
        extents[output_axis] = -1
        scaled = (weights * scale.reshape(extents)).astype(weights.dtype)
        new = relax.Call(
            layer.op,
            [layer.args[0], relax.const(scaled, str(scaled.dtype))],
            layer.attrs,
            layer.ty_args,
            layer.span,
        )
        rank, channel_axis = _channels(layer) or (0, 0)
        bias_shape = [1] * rank
        bias_shape[channel_axis] = -1
        result = self.builder_.emit(new)
        shifts = np.broadcast_to(shift, scale.shape).reshape(bias_shape).copy()
        bias = relax.const(shifts, str(shifts.dtype))
        total = tvm_api.make_call(relax.op.add(result, bias), span=call.span)
        return relax.Tuple([self.builder_.emit(total), call.args[3], call.args[4]])


def _channels(layer: Call) -> tuple[int, int] | None:
    """Return rank and channel axis of a layer's result; None for unsupported layouts."""
    if tvm_api.operator_name(layer) == "matmul":
        ranks = [len(tvm_api.static_shape(argument) or ()) for argument in layer.args]
        return (2, 1) if ranks == [2, 2] else None
    axis = {"NCHW": 1, "NHWC": 3}.get(str(layer.attrs.data_layout))
    return None if axis is None else (4, axis)


def _as_bias(constant: Array, rank: int, channel_axis: int) -> Array | None:
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if len(shape) != rank or constant.size != shape[channel_axis]:
        return None
    return constant.reshape(-1).astype(np.float64)
