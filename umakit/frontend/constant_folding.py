# SPDX-License-Identifier: Apache-2.0
"""Folding with NumPy: batch normalization into convolutions, shape operators of constants.

TVM folds constants by compiling a function for each, which takes seconds for a deep network, and
it folds no batch normalization behind a bias. What is left over here is left to TVM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import ModelError

Array = npt.NDArray[Any]
relax = tvm_api.relax


def fold_with_numpy(module: Any, where: str) -> Any:
    """Fold what can be folded in `main`.

    Args:
        module: a Relax module.
        where: name of the model, for messages.

    Raises:
        ModelError: a batch normalization in training mode, which has no meaning for inference.
    """
    main = module["main"]
    folder = _Folder(module, _use_counts(main), where)
    folder.builder_.update_func(module.get_global_var("main"), folder.visit_expr(main))
    return tvm_api.relax_transform.DeadCodeElimination()(folder.builder_.get())


def _use_counts(function: Any) -> dict[Any, int]:
    """How often each variable of a function is used."""
    counts: dict[Any, int] = {}

    def count(variable: Any) -> None:
        counts[variable] = counts.get(variable, 0) + 1

    for binding in tvm_api.bindings_of(function):
        tvm_api.walk(binding.value, [(tvm_api.Var, count)])
    tvm_api.walk(function.body.body, [(tvm_api.Var, count)])
    return counts


@tvm_api.mutator
class _Folder(tvm_api.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, uses: dict[Any, int], where: str) -> None:
        super().__init__(module)
        self._uses = uses
        self._where = where
        self._single_use: set[Any] = set()

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        emitted = tvm_api.emit_like(self.builder_, binding.var, value)
        self.set_var_remap(binding.var, emitted)
        if self._uses.get(binding.var, 0) == 1:
            self._single_use.add(emitted)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        operator = tvm_api.operator_name(call)
        if operator in ("reshape", "permute_dims", "expand_dims"):
            return self._fold_shape(operator, call)
        if operator == "nn.batch_norm":
            return self._fold_batch_norm(call)
        return call

    def _fold_shape(self, operator: str, call: Any) -> Any:
        array = tvm_api.constant_array(call.args[0])
        if array is None:
            return call
        if operator == "permute_dims":
            axes = call.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            return relax.const(np.ascontiguousarray(array.transpose(order)))
        shape = tvm_api.static_type_shape(call.ty) if call.ty is not None else None
        return call if shape is None else relax.const(array.reshape(shape))

    def _fold_batch_norm(self, call: Any) -> Any:
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
        convolution, weights, bias, dtype = root
        channel_axis = 1 if str(convolution.attrs.data_layout) == "NCHW" else 3
        if int(call.attrs.axis) % 4 != channel_axis:
            return call
        scale = gamma if call.attrs.scale else np.ones_like(mean)
        scale = scale / np.sqrt(variance + float(call.attrs.epsilon))
        shift = (beta if call.attrs.center else 0.0) + (bias - mean) * scale
        return self._scaled(call, convolution, weights, scale, shift.astype(dtype))

    def _chain(self, expression: Any) -> tuple[Any, Array, Array, Any] | None:
        """(convolution, weights, bias, dtype) if a value is one, with a bias or not, used once."""
        value = self._once(expression)
        bias: Array = np.zeros(1)
        if tvm_api.operator_name(value) == "add":
            constant = tvm_api.constant_array(value.args[1])
            value, sum_ = self._once(value.args[0]), value
            shape = tvm_api.static_shape(sum_) or ()
            if constant is None or constant.ndim != len(shape):
                return None
            # A bias has one value for each channel: all other extents are 1.
            if constant.size != max(constant.shape, default=1):
                return None
            bias = constant.reshape(-1).astype(np.float64)
        if tvm_api.operator_name(value) != "nn.conv2d":
            return None
        weights = tvm_api.constant_array(value.args[1])
        if weights is None or str(value.attrs.data_layout) not in ("NCHW", "NHWC"):
            return None
        return value, weights, bias, weights.dtype

    def _once(self, expression: Any) -> Any:
        """What a variable is bound to, if this is its only use."""
        if not isinstance(expression, tvm_api.Var) or expression not in self._single_use:
            return None
        return self.lookup_binding(expression)

    def _scaled(
        self, call: Any, convolution: Any, weights: Array, scale: Array, shift: Array
    ) -> Any:
        """The convolution with scaled weights, plus the shift, as the tuple that the call was."""
        output_axis = str(convolution.attrs.kernel_layout).index("O")
        extents = [1] * weights.ndim
        extents[output_axis] = -1
        scaled = (weights * scale.reshape(extents)).astype(weights.dtype)
        new = relax.Call(
            convolution.op,
            [convolution.args[0], relax.const(scaled)],
            convolution.attrs,
            convolution.ty_args,
            convolution.span,
        )
        bias_shape = (
            (1, -1, 1, 1) if str(convolution.attrs.data_layout) == "NCHW" else (1, 1, 1, -1)
        )
        result = self.builder_.emit(new)
        bias = relax.const(np.broadcast_to(shift, scale.shape).reshape(bias_shape).copy())
        total = relax.op.add(result, bias)
        total = self.builder_.emit(tvm_api.make_call(total, span=call.span))
        return relax.Tuple([total, call.args[3], call.args[4]])
