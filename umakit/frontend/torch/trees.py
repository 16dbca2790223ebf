# SPDX-License-Identifier: Apache-2.0
"""Tree specifications of exported programs: how inputs and outputs are nested.

A specification names Python types, for which torch imports modules (`enum_object_hook`,
`_defaultdict_deserialize` in torch/utils/_pytree.py). A network needs only the names of the leaves:
every specification is reduced to tuples and dictionaries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SEQUENCES = frozenset(
    ("builtins.tuple", "builtins.list", "collections.deque", "torch.Size",
     "torch.fx.immutable_collections.immutable_list")
)  # fmt: skip
MAPPINGS = frozenset(
    ("builtins.dict", "collections.OrderedDict", "collections.defaultdict",
     "torch.fx.immutable_collections.immutable_dict")
)  # fmt: skip
NAMED_TUPLE = "collections.namedtuple"
PROTOCOL = 1
DEEPEST = 64


class UnknownTree(Exception):
    """The message names what a tree has besides tuples, lists and dictionaries."""


def plain_tree(text: str, fields: Mapping[str, list[str]]) -> str:
    """Return a tree of `treespec_dumps` reduced to tuples and dictionaries with text or integer
    keys.

    `fields` has the field names of named tuples by type.

    Raises:
        UnknownTree: the text is damaged, or names an unknown type or key.
    """
    try:
        protocol, tree = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise UnknownTree("is not a tree") from None
    if protocol != PROTOCOL or isinstance(protocol, bool):
        raise UnknownTree(f"has the protocol {protocol!r}, not {PROTOCOL}")
    return json.dumps([PROTOCOL, _plain(tree, fields, 0)])


def _plain(tree: Any, fields: Mapping[str, list[str]], depth: int) -> dict[str, Any]:
    if not isinstance(tree, dict) or tree.keys() < {"type", "context", "children_spec"}:
        raise UnknownTree("is not a tree")
    kind, context, children = tree["type"], tree["context"], tree["children_spec"]
    if not isinstance(children, list) or depth > DEEPEST:
        raise UnknownTree("is not a tree")
    if kind is None:
        if context is not None or children:
            raise UnknownTree("is not a tree")
        return {"type": None, "context": None, "children_spec": []}
    below = [_plain(child, fields, depth + 1) for child in children]
    if kind in SEQUENCES:
        return {"type": "builtins.tuple", "context": "null", "children_spec": below}
    if not isinstance(kind, str):
        raise UnknownTree("is not a tree")
    keys = _keys(kind, context, fields)
    if len(keys) != len(children) or len(set(keys)) != len(keys):
        raise UnknownTree(f"has a {kind} whose keys are not one for each value")
    return {"type": "builtins.dict", "context": json.dumps(keys), "children_spec": below}


def _keys(kind: str, context: Any, fields: Mapping[str, list[str]]) -> list[Any]:
    """Return the names of the children of a dictionary, named tuple or data class."""
    if kind == NAMED_TUPLE:
        if not isinstance(context, str) or context not in fields:
            raise UnknownTree(f"has a named tuple {context!r} whose fields are not known")
        return list(fields[context])
    if kind == "collections.defaultdict":
        context = context.get("dict_context") if isinstance(context, dict) else None
        keys = context
    else:
        try:
            keys = json.loads(context)
        except (ValueError, TypeError, RecursionError):
            raise UnknownTree("is not a tree") from None
    if kind not in MAPPINGS:
        keys = _field_names(kind, keys)
    if not isinstance(keys, list):
        raise UnknownTree("is not a tree")
    for key in keys:
        if isinstance(key, dict) and "__enum__" in key:
            raise UnknownTree(
                f"has the key {key.get('name')!r} of the enumeration {key.get('fqn')!r}, whose "
                "module is not imported"
            )
        if type(key) not in (str, int, bool):
            raise UnknownTree(f"has the key {key!r}, which is neither text nor an integer")
    return keys


def _field_names(kind: str, context: Any) -> Any:
    """Return the field names of a registered data class.

    `torch.utils._pytree.register_dataclass` writes [names, names of fields that are None].
    """
    match context:
        case [[*names], [*_]] if names and all(isinstance(name, str) for name in names):
            return names
    raise UnknownTree(f"has the type {kind!r}, which is not loaded")
