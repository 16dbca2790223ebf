# SPDX-License-Identifier: Apache-2.0
"""Recognition of quantized operators: quantize(operator(dequantize(...))) becomes integers only.

Importers write a quantized operator as an island of real arithmetic between dequantize and
quantize (see `umakit.operators.islands`). The registry is asked for the derivations of the Relax
operator at the end of the island; the first derivation that does not return None wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from umakit import tvm_api
from umakit.frontend.model import Quantization, QuantizedSemantics, WeightsQuantization
from umakit.operators.islands import ACTIVATIONS, Island, Network, Result
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import FLOATS, QUANTIZE, integer_calls, operator_of, recognitions
from umakit.operators.tensors import FloatInTheModel, NoIntegerForm, Weights
from umakit.tvm_api import Call, Expr, IRModule


@dataclass(frozen=True)
class LeftInFloat:
    """An operator that still computes in floating point.

    Attributes:
        operator: Relax operator, for example `nn.conv2d`.
        float_in_model: whether the model itself specifies floating point for the operator.
    """

    name: str
    operator: str
    reason: str
    float_in_model: bool


@tvm_api.mutator
class IslandRecognizer(tvm_api.PyExprMutator):
    """Rewrite the islands of `main` as integer operators, and leave dead code behind.

    Args:
        arithmetic: runtime whose rounding to reproduce, `TFLM` or `ORT`.
        semantics: meaning of quantized operators. With `INTEGERS`, an island must come from a
            single node of the user's model: in TensorFlow Lite, explicit dequantize and quantize
            operators surround operators that compute in floating point. With `REALS`, an operator
            without an integer form in one arithmetic gets the form of the other arithmetic.
    """

    def __init__(
        self, module: IRModule, arithmetic: Arithmetic, semantics: QuantizedSemantics
    ) -> None:
        super().__init__(module)
        self._network = Network(
            builder=self.builder_,
            definition=self._definition,
            arithmetic=arithmetic,
            within_nodes=semantics is QuantizedSemantics.INTEGERS,
            means_reals=semantics is QuantizedSemantics.REALS,
        )
        others = [other for other in (Arithmetic.TFLM, Arithmetic.ORT) if other is not arithmetic]
        self._arithmetics = [arithmetic, *(others if semantics is QuantizedSemantics.REALS else [])]
        self.left: list[LeftInFloat] = []
        self.quantizations: dict[str, Quantization] = {}
        self.weights: dict[str, WeightsQuantization] = {}

    @property
    def rounded_biases(self) -> list[str]:
        """Return the names of layers whose float bias became integers."""
        return self._network.rounded_biases

    def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        emitted = tvm_api.emit_like(self.builder_, binding.var, value)
        self.set_var_remap(binding.var, emitted)

    def visit_tuple_getitem_(self, item: tvm_api.TupleGetItem) -> Expr:
        """Replace an element of a split tensor by a slice, which needs no tuple."""
        item = self.visit_expr_post_order(item)
        split = self._definition(item.tuple_value)
        if self._network.arithmetic is not Arithmetic.ORT:
            return item
        return part_of_split(item, split)

    def visit_call_(self, call: Call) -> Expr:
        call = self.visit_expr_post_order(call)
        operator = tvm_api.operator_name(call)
        if operator == "quantize":
            self._note_quantization(call)
            return self._quantize(call)
        if operator == "clip":
            return self._clip_integers(call)
        for candidate in integer_calls(operator):
            replaced = candidate.replace(call, self._network)
            if not replaced.same_as(call):
                return replaced
        return call

    def _clip_integers(self, call: Call) -> Expr:
        value = self._definition(call.args[0])
        if not isinstance(value, Call):
            return call
        operator = operator_of(value)
        if operator is None or operator.parameters is None or not operator.takes_clip:
            return call
        parameters = operator.parameters.of(value)
        low, high = (round(tvm_api.float_argument(argument)) for argument in call.args[1:3])
        clip = max(parameters.clip[0], low), min(parameters.clip[1], high)
        clipped, operands = parameters.clipped(value.args, clip)
        return clipped.call(operands, tvm_api.span_with_result(value.span, call.span))

    # --- islands ------------------------------------------------------------------------------

    def _note_quantization(self, call: Call) -> None:
        try:
            scale = self._network.scale(call, tvm_api.dtype_of(call))
        except NoIntegerForm:
            return
        name = tvm_api.name_of(call)
        if name:
            self.quantizations[name] = Quantization(float(scale.scale), int(scale.zero_point))

    def _quantize(self, call: Call) -> Expr:
        reasons: list[NoIntegerForm] = []
        for arithmetic in self._arithmetics:
            network = replace(self._network, arithmetic=arithmetic, weights={})
            try:
                integers = self._integer_form(call, network)
            except NoIntegerForm as reason:
                reasons.append(reason)
            else:
                self.weights |= _weights_quantizations(network.weights)
                return integers
        inner = self._definition(call.args[0])
        operator = tvm_api.operator_name(inner) or "quantize"
        name = tvm_api.span_name(self._span(call)) or str(call.args[0])
        float_in_model = isinstance(reasons[0], FloatInTheModel)
        self.left.append(LeftInFloat(name, operator, str(reasons[0]), float_in_model))
        if not float_in_model:
            # ONNX Runtime and PyTorch round ties to even, as Relax does.
            return call
        scale = self._network.scale(call, tvm_api.dtype_of(call))
        derived = self._derived(FLOATS, Island(Result.of(call, scale), self._network))
        return call if derived is None else derived

    def _integer_form(self, call: Call, network: Network) -> Expr:
        """Return the integer operator that computes a quantized value.

        Raises:
            NoIntegerForm: the operator has no integer form.
        """
        if recognitions(QUANTIZE, network.arithmetic):
            scale = network.scale(call, tvm_api.dtype_of(call))
            result = replace(Result.of(call, scale), span=self._span(call))
            whole = self._derived(QUANTIZE, Island(result, network))
            if whole is not None:
                return whole
        result = self._result(call, network)
        operator = tvm_api.operator_name(result.call)
        derived = self._derived(operator, Island(result, network))
        if derived is None:
            raise NoIntegerForm(f"there is no integer form of {operator}")
        return derived

    def _derived(self, relax: str, island: Island) -> Expr | None:
        for recognition in recognitions(relax, island.arithmetic):
            derived = recognition.derive(island)
            if derived is not None:
                return derived
        return None

    def _result(self, call: Call, network: Network) -> Result:
        scale = network.scale(call, tvm_api.dtype_of(call))
        (low, high), activation = scale.limits, False
        value = self._definition(call.args[0])
        network.check_node(value, call.span)
        while (bounds := network.clipping(value)) is not None:
            activation = True
            low = max(low, scale.integer(bounds[0]))
            high = min(high, scale.integer(bounds[1]))
            value = self._definition(value.args[0])
        shape = tvm_api.static_shape(call)
        if not isinstance(value, Call) or not tvm_api.operator_name(value):
            raise NoIntegerForm("an input or constant of the network is float here")
        if shape is None:
            raise NoIntegerForm("the quantized value has no static shape")
        return Result(value, scale, (low, high), activation, shape, self._span(call))

    def _span(self, call: Call) -> tvm_api.Span | None:
        value, worker = self._definition(call.args[0]), call
        while isinstance(value, Call) and tvm_api.operator_name(value) != "dequantize":
            worker = value
            if tvm_api.operator_name(value) not in ACTIVATIONS:
                break
            value = self._definition(value.args[0])
        return tvm_api.span_with_result(worker.span, call.span)

    def _definition(self, expression: Expr) -> Expr:
        if isinstance(expression, tvm_api.Var):
            bound = self.lookup_binding(expression)
            if isinstance(bound, tvm_api.Var):
                return self._definition(bound)
            return expression if bound is None else bound
        return expression


def _weights_quantizations(weights: Mapping[str, Weights]) -> dict[str, WeightsQuantization]:
    """Return scales and zero points of layers' weights for comments in generated C."""
    found = {}
    for name, each in weights.items():
        scales, zero_points = each.model_scales, each.model_zero_points
        if scales is not None and zero_points is not None and scales.size and zero_points.size:
            found[name] = WeightsQuantization(
                (float(scales.min()), float(scales.max())),
                (int(zero_points.min()), int(zero_points.max())),
                scales.size,
            )
    return found


def recognize_islands(
    module: IRModule, arithmetic: Arithmetic, semantics: QuantizedSemantics
) -> tuple[IRModule, IslandRecognizer]:
    """Rewrite the islands of `main` as integer operators.

    Returns:
        The module, and the recognizer. The recognizer's attributes list operators without an
        integer form, layers whose float bias became integers, and quantizations of results and
        weights.
    """
    recognizer = IslandRecognizer(module, arithmetic, semantics)
    main = module.get_global_var("main")
    recognizer.builder_.update_func(main, recognizer.visit_expr(module["main"]))
    clean = tvm_api.relax_transform.DeadCodeElimination()(recognizer.builder_.get())
    return clean, recognizer


def part_of_split(item: tvm_api.TupleGetItem, split: Expr) -> Expr:
    """Return an element of a split tensor as a slice; elements of other tuples unchanged."""
    if tvm_api.operator_name(split) != "split":
        return item
    index = int(item.index)
    axis, places = int(split.attrs.axis), split.attrs.indices_or_sections
    size = (tvm_api.static_shape(split.args[0]) or ())[axis]
    if hasattr(places, "__len__"):
        ends = [*(int(place) for place in places), size]
    else:
        length = -(-size // int(places))
        ends = [min(length * (part + 1), size) for part in range(int(places))]
    begin = ends[index - 1] if index else 0
    part = tvm_api.relax.op.strided_slice(split.args[0], [axis], [begin], [ends[index]])
    return tvm_api.make_call(part, span=split.span)
