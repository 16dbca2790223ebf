# SPDX-License-Identifier: Apache-2.0
"""The JSON parts of exported programs, reduced to what torch's schema knows and a network needs.

torch reads the parts into the dataclasses of `torch._export.serde.schema` without type checks, and
looks names up: operators as attributes of `torch` (`torch.os.system` is one), nodes and sizes as
Python source. Here every value is checked against the schema's type, and every text against the
rule of its field. A field without a rule is left out if it has a default, and refused otherwise.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any

import torch
from torch._export.serde import schema

from umakit.frontend.torch.trees import UnknownTree, plain_tree

# Sizes in exported programs: tests whether a text is arithmetic of bounded time and memory.
#
# torch passes the texts to `sympy.sympify`, which evaluates them as Python.

FUNCTIONS = frozenset(
    "Abs Add And CeilDiv CeilToInt CleanDiv Eq Equality Float FloatPow FloatTrueDiv FloorDiv "
    "FloorToInt Ge GreaterThan Gt Identity IntTrueDiv Integer Le LessThan Lt Max Min Mod "
    "ModularIndexing Mul Ne Not Or Pow PowByNatural PythonMod Rational StrictGreaterThan "
    "StrictLessThan Symbol ToFloat TruncToFloat TruncToInt Unequality Where".split()
)
POWERS = ("FloatPow", "Pow", "PowByNatural")
NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Load, ast.keyword, ast.Call,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.unaryop, ast.cmpop,
)  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
CONSTANTS = frozenset(("int_oo", "oo", "zoo", "nan"))
SYMBOL = re.compile(r"[a-z]{1,4}_?\d{1,6}")
"""Names that torch gives symbolic sizes: `s77`, `u0`, `zf3`."""

PLAIN_TEXT = re.compile(r"(?![\w.+-]*[eE][+-]?\d{5})[\w.+-]{1,64}", re.ASCII)
"""Text of symbols and numbers, without calls."""

LONGEST, MOST_NODES, LARGEST, LARGEST_POWER = 20_000, 2_000, 2**63, 64


def is_arithmetic(text: str) -> bool:
    """Return whether a text has only bounded numbers, symbols, operators, known functions."""
    if len(text) > LONGEST:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return len(nodes) <= MOST_NODES and all(_is_plain(node, id(node) in called) for node in nodes)


def _is_plain(node: ast.AST, is_called: bool) -> bool:
    """Return whether one node of an expression, without its children, is arithmetic."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return PLAIN_TEXT.fullmatch(node.value) is not None
        return isinstance(node.value, (int, float)) and abs(node.value) <= LARGEST
    if isinstance(node, ast.Name):
        if is_called:
            return node.id in FUNCTIONS
        return node.id in CONSTANTS or SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            return False
        return node.func.id not in POWERS or _is_small_power(node.args)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_small_power([node.left, node.right])
    if isinstance(node, ast.keyword):
        # The precision of a Float is a number of bits.
        value = getattr(node.value, "value", None)
        return node.arg is not None and isinstance(value, int) and 0 <= value <= 1024
    return isinstance(node, NODES)


def _is_small_power(operands: list[ast.expr]) -> bool:
    """Return whether a power has a small constant exponent and a base without powers."""
    if len(operands) != 2:
        return False
    exponent = ast.unparse(operands[1])
    number = re.fullmatch(r"(?:Integer\()?-?(\d{1,3}(?:\.\d+)?)\)?|Rational\(-?1, 2\)", exponent)
    small = number is not None and float(number[1] or 1) <= LARGEST_POWER
    return small and not any(
        isinstance(node, ast.Pow)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", None) in POWERS)
        for node in ast.walk(operands[0])
    )  # fmt: skip


LARGEST_INTEGER = 2**63 - 1
OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed|torchao)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)"
)
GRAPH_OPERATORS = frozenset(
    f"torch.ops.higher_order.{name}"
    for name in "cond while_loop map_impl scan associative_scan wrap_with_set_grad_enabled "
    "wrap_with_autocast".split()
)
"""Operators with graphs of their own. What is left of them after decomposition is refused then."""

SIZE_OPERATORS = frozenset(
    f"_operator.{name}"
    for name in "eq ne le ge lt gt neg pos mul add sub floordiv mod truediv and_ or_ "
    "getitem".split()
) | frozenset(
    ("math.trunc", "torch.sym_not", "torch.sym_int", "torch.sym_float", "torch.sym_ite",
     "torch.sym_max", "torch.sym_min", "torch.sym_sqrt", "torch._sym_sqrt")
)  # fmt: skip
"""Python functions of sizes. Powers and shifts of integers have no bound and are left out."""

TEXT_ARGUMENTS = frozenset(
    "UPLO approximate assert_msg driver equation indexing interpolation mapping_type mode norm ord "
    "p pad_mode padding padding_mode padding_side reduce rounding_mode side zero_point_domain"
    .split()
)  # fmt: skip
"""Arguments of operators that are text: none of them names a file or code."""

DEVICES = ("cpu", "cuda", "mps", "xpu", "meta")
KEPT_METADATA = ("stack_trace", "nn_module_stack", "from_node")
"""Metadata from which a node's name and source line are taken."""


class Refused(Exception):
    """The message names a part of a program that is damaged or would make torch load something."""


def plain_program(content: Any) -> dict[str, Any]:
    """Return the content of `models/model.json` reduced to known fields with checked values.

    Raises:
        Refused: names the content that is not part of a network.
    """
    program: dict[str, Any] = _checked(content, schema.ExportedProgram, "the program")
    module = program["graph_module"]
    definitions = module.get("treespec_namedtuple_fields") or {}
    fields = {name: definition["field_names"] for name, definition in definitions.items()}
    # Only the call of the whole program is needed, not the calls of modules inside it.
    module["module_call_graph"] = module["module_call_graph"][:1]
    if not all(e.get("signature") for e in module["module_call_graph"] or [{}]):
        raise Refused("the program does not say how it is called")
    for entry in module["module_call_graph"]:
        signature = entry.get("signature")
        for key in ("in_spec", "out_spec") if signature else ():
            try:
                signature[key] = plain_tree(signature[key], fields)
            except UnknownTree as error:
                what = "inputs" if key == "in_spec" else "outputs"
                raise Refused(f"the tree of its {what} {error}") from None
    module["treespec_namedtuple_fields"] = {}
    program["guards_code"] = []
    return program


def plain_payloads(content: Any) -> dict[str, Any]:
    """Return the content of a table of weights or constants, checked like `plain_program`.

    Raises:
        Refused: names the content that is not part of a network.
    """
    table: dict[str, Any] = _checked(content, schema.PayloadConfig, "the table of its weights")
    return table


def _checked(value: Any, kind: Any, place: str) -> Any:
    """Return a JSON value checked against a type; `place` is `Class.field`, the key of its rule."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _checked(value, arguments[0], place)
    if origin is list:
        _expect(isinstance(value, list), value, place)
        return [_checked(item, arguments[0], place) for item in value]
    if origin is dict:
        _expect(isinstance(value, dict), value, place)
        return _dictionary(value, arguments[1], place)
    if isinstance(kind, type) and issubclass(kind, schema._Union):
        _expect(isinstance(value, dict) and len(value) == 1, value, place)
        ((key, inner),) = value.items()
        _expect(key in _types(kind), key, place)
        return {key: _checked(inner, _types(kind)[key], f"{kind.__name__}.{key}")}
    if dataclasses.is_dataclass(kind):
        _expect(isinstance(value, dict), value, place)
        return _fields(value, kind)
    return _scalar(value, kind, place)


def _dictionary(value: dict[str, Any], kind: Any, place: str) -> dict[str, Any]:
    if place == "Node.metadata":
        return {key: _metadata(key, value[key]) for key in KEPT_METADATA if value.get(key)}
    return {_text(key, place): _checked(inner, kind, f"{place}[]") for key, inner in value.items()}


def _fields(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    result = {}
    for field in dataclasses.fields(kind):
        place = f"{kind.__name__}.{field.name}"
        optional = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if field.name not in value:
            _expect(optional or field.name == "tensor_meta", None, place)
            continue
        if not optional or place in RULES or not _holds_text(_types(kind)[field.name]):
            result[field.name] = _checked(value[field.name], _types(kind)[field.name], place)
    if kind is schema.Node:
        _check_arguments(result)
    return result


def _scalar(value: Any, kind: Any, place: str) -> Any:
    if kind is str:
        _expect(isinstance(value, str), value, place)
        return _text(value, place)
    if kind is float:
        numbers = (int, float)
        is_valid = value in ("Infinity", "-Infinity", "NaN") or type(value) in numbers
        _expect(
            is_valid and (type(value) is not int or abs(value) <= LARGEST_INTEGER), value, place
        )
    elif kind is bool:
        _expect(type(value) is bool, value, place)
    elif isinstance(kind, type) and issubclass(kind, enum.IntEnum):
        _expect(type(value) is int and value in set(kind), value, place)
    else:
        _expect(kind is int and type(value) is int, value, place)
        _expect(abs(value) <= LARGEST_INTEGER, value, place)
    return value


def _expect(condition: bool, value: Any, place: str) -> None:
    if not condition:
        shown = json.dumps(value)
        raise Refused(
            f"{place} of the program is {shown if len(shown) < 60 else 'damaged'}, which torch "
            "does not write there"
        )


@functools.cache
def _types(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, globalns=vars(schema))


def _holds_text(kind: Any) -> bool:
    return kind is str or any(_holds_text(inner) for inner in typing.get_args(kind))


def _text(text: str, place: str) -> str:
    rule = RULES.get(place)
    if rule is None:
        raise Refused(f"it holds {place} {text!r}, which is not known")
    if not rule(text):
        shown = text if len(text) < 200 else f"{text[:200]}..."
        if place == "SymExpr.expr_str":
            raise Refused(f"size {shown!r} is not arithmetic")
        what = {"Node.target": "operator", "PayloadMeta.path_name": "file"}.get(place, place)
        raise Refused(f"{what} {shown!r} of the program is not loaded")
    return text


def _is_identifier(text: str) -> bool:
    return text.isidentifier() and len(text) <= 1_000


def _is_path(text: str) -> bool:
    """Return whether a name is short and printable, without quotes or backslashes."""
    return len(text) <= 10_000 and text.isprintable() and not set("\"'\\") & set(text)


def _is_operator(text: str) -> bool:
    if text in SIZE_OPERATORS or text in GRAPH_OPERATORS:
        return True
    match = OPERATOR.fullmatch(text)
    if match is None:
        return False
    found = getattr(getattr(getattr(torch.ops, match[1]), match[2], None), match[3], None)
    return isinstance(found, torch._ops.OpOverload)


def _check_arguments(node: dict[str, Any]) -> None:
    """Refuse text arguments that may name a file or hold code."""
    for argument in node["inputs"]:
        texts = argument["arg"].keys() & {"as_string", "as_strings", "as_string_to_argument"}
        if texts and argument["name"] not in TEXT_ARGUMENTS:
            if node["target"] in GRAPH_OPERATORS and argument["arg"].get("as_string") in DEVICES:
                continue
            raise Refused(
                f"argument {argument['name']!r} of {node['target']} is text, which is not loaded"
            )


def _metadata(key: str, text: Any) -> str:
    """Return metadata that torch can parse. Other metadata is dropped: it is only displayed."""
    _expect(isinstance(text, str), text, f"Node.metadata[{key}]")
    if key == "nn_module_stack":
        items = text.split(";")
        return text if all(_parts(item) == 3 for item in items) else ""
    if key == "from_node":
        try:
            return text if isinstance(json.loads(text), list) else ""
        except (ValueError, RecursionError):
            return ""
    return str(text)


def _parts(item: str) -> int:
    depth, count = 0, 1
    for letter in item:
        depth += (letter in "[(") - (letter in ")]")
        count += letter == "," and depth == 0
    return count


RULES: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(
        "ExportedProgram.opset_version GradientToUserInputSpec.user_input_name "
        "Graph.sym_bool_values Graph.sym_float_values Graph.sym_int_values Graph.tensor_values "
        "GraphArgument.name InputToConstantInputSpec.name ModuleCallSignature.forward_arg_names "
        "NamedTupleDef.field_names Node.name SymBoolArgument.as_name SymFloatArgument.as_name "
        "SymIntArgument.as_name TensorArgument.name UserInputMutationSpec.user_input_name".split(),
        _is_identifier,
    ),
    **dict.fromkeys(
        "BufferMutationSpec.buffer_name ExportedProgram.torch_version "
        "GradientToParameterSpec.parameter_name GraphModule.treespec_namedtuple_fields "
        "InputToBufferSpec.buffer_name InputToParameterSpec.parameter_name "
        "InputToTensorConstantSpec.tensor_constant_name ModuleCallEntry.fqn "
        "ParameterMutationSpec.parameter_name PayloadConfig.config".split(),
        _is_path,
    ),
    # Others restrict these: _check_arguments the arguments; plain_tree writes both trees anew.
    **dict.fromkeys(
        "Argument.as_string Argument.as_strings ConstantValue.as_string "
        "ModuleCallSignature.in_spec ModuleCallSignature.out_spec".split(),
        lambda text: True,
    ),
    **dict.fromkeys(
        "Argument.as_string_to_argument CustomObjArgument.class_fqn CustomObjArgument.name "
        "Graph.custom_obj_values InputToCustomObjSpec.custom_obj_name TokenArgument.name".split(),
        lambda text: False,
    ),
    "Argument.as_operator": lambda text: (
        OPERATOR.fullmatch(text) is not None and _is_operator(text)
    ),
    "Device.type": DEVICES.__contains__,
    "ExportedProgram.range_constraints": lambda text: SYMBOL.fullmatch(text) is not None,
    "ExportedProgram.verifiers": ("", "ATEN", "TRAINING").__contains__,
    "NamedArgument.name": lambda text: not text or _is_identifier(text),
    "Node.target": _is_operator,
    "PayloadMeta.path_name": lambda text: re.fullmatch(r"[\w-]+", text, re.ASCII) is not None,
    "SymExpr.expr_str": is_arithmetic,
}
"""Rule for the text of each field of torch's schema, by `Class.field`; for keys of dictionaries."""
