# SPDX-License-Identifier: Apache-2.0
"""ATen operators in Relax, one node at a time: by TVM's converters where these are right.

TVM finds a converter by the operator's name and ignores unknown arguments, for example `alpha` of
an addition. So only registered operators are converted, unregistered arguments must have their
defaults, and every result must have torch's shape and dtype.
"""

from __future__ import annotations

from typing import Any

import torch

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.checks import ELEMENT_TYPES
from umakit.frontend.relax_modules import name_calls
from umakit.frontend.simplify import quiet
from umakit.frontend.torch.names import Names
from umakit.frontend.torch.operators import CONVERTERS
from umakit.frontend.torch.quantization import (
    in_front_of_dequantize,
    is_quantized_operator,
    refusal,
)
from umakit.frontend.torch.registry import Expr, Node, arguments_of
from umakit.frontend.torch.static import StaticProgram, is_fake
from umakit.tvm_api import IRModule, relax

frontend = tvm_api.torch_frontend()
Importer: Any = frontend.ExportedProgramImporter

ACTIVATIONS = ("relu.default", "hardtanh.default", "clamp.default")
"""Activations at the end of a quantized layer; their calls get the name of the layer."""

HARMLESS = frozenset("memory_format layout device pin_memory non_blocking".split())
"""Arguments about the storage of values, without effect on the values."""

CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range")


def is_activation(node: Node) -> bool:
    return node.op == "call_function" and node.target.__name__ in ACTIVATIONS


def ends_quantized_layer(node: Node) -> bool:
    """Return whether an activation, directly or through further activations, feeds a quantize."""
    return any(
        is_quantized_operator(user, "quantize")
        or (is_activation(user) and ends_quantized_layer(user))
        for user in node.users
    )


class Converter(Importer):  # type: ignore[misc]
    """Converter of a decomposed program to a Relax module. Calls carry the names of their nodes.

    The methods of `registry.Graph` are for the conversions.
    """

    def __init__(self, program: StaticProgram, names: Names) -> None:
        super().__init__()
        self._program = program
        self._names = names
        self._labels: dict[str, str] = {}
        self._constants: dict[tuple[Any, ...], tvm_api.Expr] = {}
        self.env: dict[Node, tvm_api.Expr] = {}
        self.block_builder = tvm_api.BlockBuilder()

    def run(self, outputs: int) -> IRModule:
        """Return the module, whose `main` returns `outputs` tensors, several of them as a tuple."""
        try:
            return name_calls(self._module(outputs), self._labels)
        except ModelError:
            tvm_api.abandon(self.block_builder)
            raise

    def _module(self, outputs: int) -> IRModule:
        program, builder = self._program, self.block_builder
        for node in program.inputs:
            shape, dtype = self.type_of(node)
            self.env[node] = relax.Var(node.name, tvm_api.tensor_type(shape, dtype))
        with quiet(), builder.function("main", [self.env[node] for node in program.inputs]):
            with builder.dataflow():
                for node in program.graph.nodes:
                    if node.op == "call_function" and is_fake(program.values[node]):
                        self._convert_node(node)
                fields = [self.value(node) for node in program.graph.output_node().args[0]]
                assert len(fields) == outputs, "outputs of the program and of its graph differ"
                result = fields[0] if outputs == 1 else relax.Tuple(fields)
                result = builder.emit_output(result)
            builder.emit_func_output(result)
        return builder.get()

    def refusals(self) -> dict[Node, ModelError]:
        """Return the refusal of each node that cannot be imported.

        A refused node counts as an input of later nodes.
        """
        found: dict[Node, ModelError] = {}
        program, builder = self._program, self.block_builder
        with quiet(), builder.function("main", []):
            with builder.dataflow():
                for node in program.graph.nodes:
                    if node.op != "call_function":
                        self._stand_in(node)
                    elif is_fake(program.values[node]):
                        try:
                            self._check_types(node)
                            self._convert_node(node)
                        except ModelError as error:
                            found[node] = error
                            self._stand_in(node)
                nothing = builder.emit_output(relax.Tuple([]))
            builder.emit_func_output(nothing)
        return found

    def _check_types(self, node: Node) -> None:
        for used in (*node.all_input_nodes, node):
            value = self.fake(used)
            for each in value if isinstance(value, (tuple, list)) else [value]:
                if isinstance(each, torch.Tensor):
                    self.dtype(each.dtype, node)

    def _stand_in(self, node: Node) -> None:
        value: Any = self._program.values.get(node)
        if not is_fake(value):
            return
        several = isinstance(value, (tuple, list))
        tensors = [each for each in (value if several else [value]) if is_fake(each)]
        # The type of an unsupported dtype does not matter: users of the tensor are refused.
        names = [str(each.dtype).removeprefix("torch.") for each in tensors]
        types = [
            tvm_api.tensor_type(tuple(each.shape), name if name in ELEMENT_TYPES else "float32")
            for each, name in zip(tensors, names, strict=True)
        ]
        self.env[node] = relax.Var(node.name, tvm_api.TupleType(types) if several else types[0])

    def value(self, node: Node) -> tvm_api.Expr:
        if node not in self.env:
            self.env[node] = self._constant(node)
        return self.env[node]

    def definition(self, value: tvm_api.Expr) -> tvm_api.Expr:
        bound = self.block_builder.lookup_binding(value) if isinstance(value, relax.Var) else None
        return value if bound is None else self.definition(bound)

    def fake(self, node: Node) -> Any:
        return self._program.values[node]

    def depends_on_inputs(self, node: Node) -> bool:
        return is_fake(self.fake(node))

    def type_of(self, node: Node) -> tuple[tuple[int, ...], str]:
        value = self.fake(node)
        return tuple(value.shape), self.dtype(value.dtype, node)

    def types_of(self, node: Node) -> list[tuple[tuple[int, ...], str]]:
        return [(tuple(v.shape), self.dtype(v.dtype, node)) for v in self.fake(node)]

    def dtype(self, dtype: torch.dtype, node: Node) -> str:
        name = str(dtype).removeprefix("torch.")
        if name not in ELEMENT_TYPES:
            raise self._names.error(node, f"has the dtype {name}, which is not supported")
        return name

    def by_tvm(self, node: Node) -> Expr:
        converted: Expr = self.convert_map[node.target.__name__](node)
        return converted

    def refuse(self, node: Node, what: str, fix: str = "") -> ModelError:
        return self._names.error(node, what, fix)

    def _convert_node(self, node: Node) -> None:
        for used in node.all_input_nodes:
            if self._program.is_constant(used):
                self.value(used)
        name = node.target.__name__
        try:
            value = self._result(node, name)
            if value is not None and name != "getitem":
                value = self._bound(in_front_of_dequantize(self, self._bound(value)))
        except ModelError:
            raise
        except Exception as error:  # TVM's converters raise arbitrary exceptions
            raise self.refuse(
                node,
                "is not supported for these inputs and attributes",
                "export the model with other ones, or without the operator",
            ) from error
        if value is None:
            return
        self._check_result(node, value)
        self.env[node] = value
        if isinstance(value, tvm_api.Var):
            self._labels.setdefault(str(value.name), self._label_of(node))

    def _result(self, node: Node, name: str) -> tvm_api.Expr | None:
        """Return the expression of a node; None for assertions of torch, which compute nothing."""
        if name == "getitem":
            return self._item_of(node)
        namespace = getattr(node.target, "namespace", "")
        if namespace == "aten" and name.startswith(CHECKS):
            return None
        key = name if namespace == "aten" else f"{namespace}.{name}"
        converter = CONVERTERS.get(key)
        if converter is None:
            quantized = refusal(str(node.target))
            if quantized is not None:
                raise self.refuse(node, *quantized)
            raise self.refuse(node, "is not supported", "write the model with other operators")
        arguments = arguments_of(node)
        for argument in node.target._schema.arguments:
            given = arguments.get(argument.name)
            harmless = argument.name in converter.arguments or argument.name in HARMLESS
            usual = argument.default_value if argument.has_default_value() else False
            if not harmless and given != usual:
                raise self.refuse(node, f"has {argument.name}={given}, which is not supported")
        return converter.convert(self, node, arguments)

    def _label_of(self, node: Node) -> str:
        """Return a node's name; a quantize or dequantize has that of the related operator."""
        follows = False
        while any(is_quantized_operator(node, kind) for kind in ("quantize", "dequantize")):
            follows = True
            is_weight = not self.depends_on_inputs(node.args[0])
            node = next(iter(node.users)) if is_weight else node.args[0]
        while is_activation(node) and (follows or ends_quantized_layer(node)):
            source = node.args[0]
            if source.op != "call_function" or is_quantized_operator(source, "dequantize"):
                break
            node = source
        return node.name if node.op == "placeholder" else self._names.label(node)

    def _item_of(self, node: Node) -> tvm_api.Expr | None:
        """Return one of several results; None for an unused, unsupported one."""
        source, position = node.args
        whole: tvm_api.Expr = self.env[source]
        if isinstance(whole.ty, relax.TensorType):
            whole_of_one = position == 0
            if not whole_of_one and node.users:
                raise self.refuse(source, f"has a result number {position} that is not supported",
                                  "use its first result only")  # fmt: skip
            return whole if whole_of_one else None
        if str(source.target.__name__).startswith("max_pool") and position:
            raise self.refuse(source, "has indices that are not supported",
                              "use its first result only")  # fmt: skip
        parts = self.definition(whole)
        if isinstance(parts, relax.Tuple):
            return parts.fields[int(position)]
        return self.block_builder.emit(relax.TupleGetItem(whole, position))

    def _bound(self, value: object) -> tvm_api.Expr:
        if isinstance(value, tvm_api.Var):
            return value
        if not isinstance(value, tvm_api.Expr):
            raise TypeError(f"the result is a {type(value).__name__}")
        return self.block_builder.emit(value)

    def _check_result(self, node: Node, value: tvm_api.Expr) -> None:
        if not isinstance(self.fake(node), torch.Tensor):
            return
        wanted = self.type_of(node)
        if isinstance(value.ty, relax.TupleType):
            raise self.refuse(node, "yields one tensor by torch, but several here")
        got = (tvm_api.static_shape(value), tvm_api.dtype_of(value))
        if got != wanted:
            raise self.refuse(
                node,
                f"yields {wanted[1]}{list(wanted[0])} by torch, "
                f"but {got[1]}{list(got[0] or ())} here",
                "export the model with other attributes, or without the operator",
            )

    def _constant(self, node: Node) -> tvm_api.Expr:
        """Return a tensor that depends on weights only; equal tensors share one constant."""
        tensor = self.fake(node)
        dtype = self.dtype(tensor.dtype, node)
        if tensor.layout != torch.strided:
            raise self.refuse(node, f"is a tensor of {tensor.layout}, which is not supported")
        array = tensor.detach().cpu().resolve_neg().contiguous().numpy()
        key = (array.shape, dtype, array.tobytes())
        if key not in self._constants:
            self._constants[key] = relax.const(array, dtype)
        return self._constants[key]
