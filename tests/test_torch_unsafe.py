# SPDX-License-Identifier: Apache-2.0
"""Exported programs that would make torch import, call or compile something: none of it happens."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
import typing
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import umakit
from umakit.errors import ModelError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
schema = pytest.importorskip("torch._export.serde.schema")

Content = dict[str, Any]


@pytest.fixture(scope="module")
def program() -> bytes:
    """An archive: a linear layer, a relu, and a size that is symbolic."""

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return OrderedDict(a=torch.relu(self.fc(x)), b=(x, -x))

    shapes = ({0: torch.export.Dim("batch")},)
    stream = io.BytesIO()
    exported = torch.export.export(Network().eval(), (torch.ones(4, 3),), dynamic_shapes=shapes)
    torch.export.save(exported, stream)
    return stream.getvalue()


def members_of(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        return {name.partition("/")[2]: source.read(name) for name in source.namelist()}


def write(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as target:
        for name, data in members.items():
            target.writestr(f"m/{name}", data)
    return path


def edited(program: bytes, path: Path, change: Callable[[Content], None]) -> Path:
    """The archive with another graph."""
    members = members_of(program)
    content = json.loads(members["models/model.json"])
    change(content)
    members["models/model.json"] = json.dumps(content).encode()
    return write(path, members)


def graph(content: Content) -> Content:
    found: Content = content["graph_module"]["graph"]
    return found


def tree(kind: str, context: Any) -> str:
    leaf = {"type": None, "context": None, "children_spec": []}
    text = context if kind.endswith("defaultdict") else json.dumps(context)
    return json.dumps([1, {"type": kind, "context": text, "children_spec": [leaf] * 3}])


def set_tree(kind: str, context: Any) -> Callable[[Content, str], None]:
    def change(content: Content, module: str) -> None:
        call = content["graph_module"]["module_call_graph"][0]["signature"]
        call["out_spec"] = tree(kind, json.loads(json.dumps(context).replace("MODULE", module)))

    return change


def call_python(content: Content, module: str) -> None:
    """An operator that is a function of Python: its argument is a text."""
    node = graph(content)["nodes"][-1]
    node["target"] = "torch.importlib.import_module"
    node["inputs"] = [{"name": "", "arg": {"as_string": module}, "kind": 1}]


def call_loader(content: Content, module: str) -> None:
    node = graph(content)["nodes"][-1]
    node["target"] = "torch.ops.import_module"
    node["inputs"] = [{"name": "", "arg": {"as_string": module}, "kind": 1}]


def operator_argument(content: Content, module: str) -> None:
    node = graph(content)["nodes"][-1]
    node["inputs"].append({"name": "more", "arg": {"as_operator": "torch.hub.load"}, "kind": 2})


def name_of_node(content: Content, module: str) -> None:
    """torch.fx writes names of nodes into Python source, which it compiles and executes."""
    old = graph(content)["inputs"][-1]["as_tensor"]["name"]
    evil = f"x): pass\nimport {module}\ndef f({old}"
    content.update(json.loads(json.dumps(content).replace(json.dumps(old), json.dumps(evil))))


def guard(content: Content, module: str) -> None:
    content["guards_code"] = [f"__import__('{module}')"]


def size(content: Content, module: str) -> None:
    next(iter(graph(content)["tensor_values"].values()))["sizes"][0] = {
        "as_expr": {"expr_str": f"__import__('{module}')", "hint": None}
    }


def file_as_tensor(content: Content, module: str) -> None:
    node = graph(content)["nodes"][-1]
    node["target"] = "torch.ops.aten.from_file.default"
    node["inputs"] = [{"name": "filename", "arg": {"as_string": "/etc/passwd"}, "kind": 1}]


ENUM = {"__enum__": True, "fqn": "MODULE:Kind", "name": "a"}
FACTORY = {"default_factory_module": "MODULE", "default_factory_name": "Kind",
           "dict_context": ["a", "b", "c"]}  # fmt: skip
HOSTILE: dict[str, tuple[Callable[[Content, str], None], str]] = {
    "enumeration": (set_tree("builtins.dict", [ENUM, "b", "c"]), "whose module is not imported"),
    "enumeration in a tuple": (set_tree("builtins.tuple", ENUM), ""),
    "factory": (set_tree("collections.defaultdict", FACTORY), ""),
    "named tuple": (set_tree("collections.namedtuple", "MODULE.Kind"), "named tuple"),
    "type": (set_tree("MODULE.Kind", [["a", "b", "c"], []]), ""),
    "unknown type": (set_tree("MODULE.Kind", {"a": 1}), "which is not loaded"),
    "function of Python": (call_python, "operator 'torch.importlib.import_module' .* not loaded"),
    "loader of torch.ops": (call_loader, "operator 'torch.ops.import_module' .* not loaded"),
    "operator as argument": (operator_argument, r"'torch\.hub\.load' .* is not loaded"),
    "name of a node": (name_of_node, "is not loaded"),
    "guard": (guard, ""),
    "size": (size, "is not arithmetic"),
    "no call": (
        lambda c, _: c["graph_module"]["module_call_graph"][0].update(signature=None),
        "does not say how it is called",
    ),
    "file": (file_as_tensor, "argument 'filename' .* is text, which is not loaded"),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_nothing_is_imported_or_called(
    why: str, program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = HOSTILE[why]
    module = f"umakit_unsafe_{abs(hash(why))}"
    (tmp_path / f"{module}.py").write_text(
        f"import enum, pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class Kind(enum.Enum):\n    a = 'a'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = edited(program, tmp_path / "hostile.pt2", lambda content: change(content, module))
    if said:
        with pytest.raises(ModelError, match=said):
            umakit.import_model(path)
    else:
        with contextlib.suppress(ModelError):
            umakit.import_model(path)
    assert module not in sys.modules and not (tmp_path / "ran").exists()


def test_the_hostile_files_do_harm_without_checks(
    program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, why in enumerate(("enumeration", "factory", "size")):
        module = f"umakit_harm_{number}"
        (tmp_path / f"{module}.py").write_text("")
        path = edited(
            program, tmp_path / f"{number}.pt2", lambda c, w=why, m=module: HOSTILE[w][0](c, m)
        )  # type: ignore[misc]
        with contextlib.suppress(Exception):
            torch.export.load(path)
        assert module in sys.modules, f"{why} does no harm"


def test_trees_keep_the_names_of_outputs(program: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plain.pt2"
    path.write_bytes(program)
    assert [o.name for o in umakit.import_model(path).outputs] == ["a", "b_0", "b_1"]
    for kind, context in (
        ("collections.defaultdict", {**FACTORY, "default_factory_module": "builtins"}),
        ("collections.OrderedDict", ["a", "b", "c"]),
        ("somewhere.Dataclass", [["a", "b", "c"], ["d"]]),
    ):
        path = edited(program, path, lambda c, k=kind, x=context: set_tree(k, x)(c, ""))  # type: ignore[misc]
        assert [o.name for o in umakit.import_model(path).outputs] == ["a", "b", "c"]


def test_every_text_of_the_schema_has_a_rule_or_is_left_out() -> None:
    from umakit.frontend.torch import schema as torch_schema

    left_out = {"ExportedProgram.guards_code", "GraphModule.metadata", "Node.metadata"}
    classes = [
        c for c in vars(schema).values() if isinstance(c, type) and dataclasses.is_dataclass(c)
    ]
    names = set()
    for kind in classes:
        for field in dataclasses.fields(kind):
            hints = typing.get_type_hints(kind, globalns=vars(schema))
            if "str" in str(hints[field.name]) and "AOTI" not in kind.__name__:
                names.add(f"{kind.__name__}.{field.name}")
    unknown = {n for n in names if not n.startswith(("ExternKernel", "Argument.as_string_"))}
    assert unknown - left_out <= torch_schema.RULES.keys()


def rewritten(program: bytes, path: Path, name: str, data: bytes) -> Path:
    return write(path, {**members_of(program), name: data})


def bomb(program: bytes, path: Path) -> Path:
    """An archive of some kilobytes whose weight would be a gigabyte."""
    write(path, {k: v for k, v in members_of(program).items() if k != "data/weights/weight_0"},
          compression=zipfile.ZIP_DEFLATED)  # fmt: skip
    with (
        zipfile.ZipFile(path, "a", compression=zipfile.ZIP_DEFLATED) as target,
        target.open("m/data/weights/weight_0", "w") as stream,
    ):
        for _ in range(1024):
            stream.write(bytes(2**17))
    return path


def twice(program: bytes, path: Path) -> Path:
    with pytest.warns(UserWarning, match="Duplicate"):
        write(path, members_of(program))
        with zipfile.ZipFile(path, "a") as target:
            target.writestr("m/models/model.json", b"{}")
    return path


def encrypted(program: bytes, path: Path) -> Path:
    data = bytearray(write(path, members_of(program)).read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(signature)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(signature, place + 4)
    path.write_bytes(data)
    return path


ARCHIVES: dict[str, Callable[[bytes, Path], Path]] = {
    "bomb": bomb,
    "two of one name": twice,
    "encrypted": encrypted,
    "nested deeply": lambda p, f: rewritten(p, f, "models/model.json", b"[" * 100_000),
    "a number of many digits": lambda p, f: rewritten(p, f, "models/model.json", b"9" * 10_000),
    "another version": lambda p, f: rewritten(p, f, "archive_version", b"99"),
    "another order of bytes": lambda p, f: rewritten(p, f, "byteorder", b"big"),
    "no archive": lambda p, f: f.write_bytes(p[: len(p) // 2]) and f,  # type: ignore[func-returns-value,return-value]
}  # fmt: skip


@pytest.mark.parametrize("why", ARCHIVES)
def test_damaged_archives_are_refused(why: str, program: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        umakit.import_model(ARCHIVES[why](program, tmp_path / "damaged.pt2"))
    assert "damaged.pt2" in str(caught.value) and "\n" not in str(caught.value)


def test_compressed_archives_are_read(program: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", members_of(program), compression=zipfile.ZIP_DEFLATED)
    assert umakit.import_model(path).inputs[0].shape == (1, 3)
