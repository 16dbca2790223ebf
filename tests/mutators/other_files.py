# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs, Relax modules, npz archives, accel.toml and metadata.json."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import tomllib
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import umakit
from mutators.base import EXTREMES, TEXTS, mutate_bytes, mutate_tree, places
from mutators.models import Arrays, compare_network, read_network
from umakit.devices.run import load_inputs, select_inputs
from umakit.files.npz import npz_bytes, read_npz
from umakit.library.packages import package_library
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.testing.harness import llvm_runner
from umakit.tools.size import library_size

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "digits"


def json_bytes(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "replace")


class TorchFiles:
    name = "torch"
    suffix = ".pt2"

    def prepare(self, folder: Path) -> None:
        import torch
        from torch import nn

        class Network(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.fc = nn.Conv2d(2, 3, 3), nn.Linear(12, 2)
                self.norm = nn.BatchNorm2d(3)

            def forward(self, x: Any, y: Any) -> Any:
                x = torch.relu(self.norm(self.conv(x)))
                x = torch.max_pool2d(x, 2).flatten(1)
                return {"a": self.fc(x) + y * 0.5, "b": torch.softmax(y, 1)}

        torch.manual_seed(0)
        given = torch.ones(3, 2, 6, 6), torch.ones(3, 2)
        batch = torch.export.Dim("batch")
        self._archives = []
        for shapes in (None, ({0: batch}, {0: batch})):
            program = torch.export.export(Network().eval(), given, dynamic_shapes=shapes)
            stream = io.BytesIO()
            torch.export.save(program, stream)
            self._archives.append(stream.getvalue())

    def healthy(self) -> list[bytes]:
        """Files to start from."""
        return self._archives

    def mutate(self, chance: Random) -> bytes:
        data = chance.choice(self._archives)
        kind = chance.random()
        if kind < 0.15:
            return mutate_bytes(chance, data)
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            members = {name: source.read(name) for name in source.namelist()}
        name = chance.choice(sorted(members))
        if kind < 0.85:
            name = next(n for n in members if n.endswith("models/model.json"))
            if chance.random() < 0.15:
                name = next(n for n in members if n.endswith("weights_config.json"))
            tree = json.loads(members[name])
            members[name] = json_bytes(mutate_tree(chance, tree, _torch_value))
        elif chance.random() < 0.3:
            texts = [text for text in TEXTS if text.split("\0")[0]]  # zipfile ends names at NUL
            members[chance.choice((*texts, "m/data/weights/weight_9"))] = members.pop(name)
        else:
            members[name] = mutate_bytes(chance, members[name])
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", chance.choice((0, 0, 8))) as target:
            for member, content in members.items():
                target.writestr(member, content)
        return stream.getvalue()

    def read(self, path: Path, thorough: bool) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_network(path, thorough)

    def compare(self, path: Path) -> str:
        return compare_network(path, _torch_outputs, 1e-4, 1)


def _torch_value(chance: Random, value: Any) -> Any:
    """Names of other operators and values, besides those that any tree may get."""
    if isinstance(value, str) and chance.random() < 0.3:
        if value.startswith("torch.ops"):
            names = (
                "add.Tensor mul.Tensor neg.default sin.default view.default mean.dim cat.default"
            )
            return f"torch.ops.aten.{chance.choice(names.split())}"
        return chance.choice(("x", "y", "relu", "linear", "conv.weight", "s77", "torch.os.system"))
    return None


def _torch_outputs(path: Path, arrays: Arrays, model: Any) -> Arrays:
    import torch

    from umakit.frontend.torch.archive import load_program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = load_program(path)
        names = list(program.graph_signature.user_inputs)
        given = [torch.from_numpy(arrays[name]) for name in names]
        module = program.graph_module
        lifted = [
            program.state_dict.get(spec.target, program.constants.get(spec.target))
            for spec in program.graph_signature.input_specs
            if spec.target is not None
        ]
        results = torch.fx.Interpreter(module).run(*lifted, *given)
    arrays = [result.detach().numpy() for result in results]
    return dict(zip((item.name for item in model.outputs), arrays, strict=True))


class RelaxFiles:
    name = "relax"
    suffix = ".json"

    def prepare(self, folder: Path) -> None:
        text = (ROOT / "tests/relax_modules/quantized_convolution.json").read_bytes()
        self._texts = [text]
        self._trees = [json.loads(text)]

    def healthy(self) -> list[bytes]:
        """Files to start from."""
        return self._texts

    def mutate(self, chance: Random) -> bytes:
        if chance.random() < 0.3:
            return mutate_bytes(chance, chance.choice(self._texts))
        tree = chance.choice(self._trees)
        if chance.random() < 0.5:
            count = len(tree["nodes"])
            return json_bytes(mutate_tree(chance, tree, lambda c, v: c.randrange(count)))
        return json_bytes(mutate_tree(chance, tree))

    def read(self, path: Path, thorough: bool) -> None:
        read_network(path, thorough)

    def compare(self, path: Path) -> str:
        return compare_network(path, _llvm, 1e-4, 1)


def _llvm(path: Path, arrays: Arrays, model: Any) -> Arrays:
    outputs: Arrays = llvm_runner(umakit.import_model(path))(arrays)
    return outputs


class NpzFiles:
    name = "npz"
    suffix = ".npz"

    def prepare(self, folder: Path) -> None:
        arrays = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "label": np.arange(3)}
        self._plain = npz_bytes(arrays)
        np.savez_compressed(folder / "zipped.npz", **arrays)
        self._zipped = (folder / "zipped.npz").read_bytes()

    def mutate(self, chance: Random) -> bytes:
        if chance.random() < 0.6:
            return mutate_bytes(chance, chance.choice((self._plain, self._zipped)))
        stream, compression = io.BytesIO(), chance.choice((0, 8, 12, 14))
        with zipfile.ZipFile(io.BytesIO(self._plain)) as source:
            members = {name: source.read(name) for name in source.namelist()}
        name = chance.choice(sorted(members))
        header = members[name].find(b"\n")
        text = members[name][10:header].decode()
        for old, new in ((3, 4), ("<f4", "|O"), ("False", "True"), ("(", "((")):
            if chance.random() < 0.3:
                text = text.replace(str(old), chance.choice((str(new), *map(str, EXTREMES))))
        length = len(text).to_bytes(2, "little")
        members[name] = members[name][:8] + length + text.encode() + members[name][header:]
        members[name] = (
            mutate_bytes(chance, members[name]) if chance.random() < 0.3 else members[name]
        )
        with zipfile.ZipFile(stream, "w", compression) as target:
            for member, content in members.items():
                target.writestr(member, content)
        return stream.getvalue()

    def read(self, path: Path, thorough: bool) -> None:
        for array in read_npz(path).values():
            if not (array.dtype.isnative and array.flags.c_contiguous):
                raise AssertionError("an array is not in native order")

    def compare(self, path: Path) -> str:
        """What NumPy reads too is read as the same values."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                expected = {name: archive[name] for name in archive.files}
        except Exception:
            return ""
        got = read_npz(path)
        same = all(np.array_equal(got[n], expected[n]) or got[n].dtype.kind == "f" for n in got)
        return "" if same else "differs from what NumPy reads"


class AcceleratorFiles:
    """`accel.toml` of the three example backends."""

    name = "accel"
    suffix = ".toml"

    def prepare(self, folder: Path) -> None:
        files = sorted(ROOT.glob("backends/*/accel.toml"))
        self._texts = [path.read_bytes() for path in files]

    def mutate(self, chance: Random) -> bytes:
        text = chance.choice(self._texts)
        if chance.random() < 0.3:
            return mutate_bytes(chance, text)
        tree = mutate_tree(chance, tomllib.loads(text.decode()))
        return toml_text(tree).encode("utf-8", "replace")

    def read(self, path: Path, thorough: bool) -> None:
        config = load_accelerator_config(path)
        if thorough:
            folder = Path(tempfile.mkdtemp()) / "mutant_backend"
            try:
                name = config.accelerator.name
                source = ROOT / "backends" / name
                if source not in (ROOT / "backends").iterdir():  # the name may be too long for one
                    return
                shutil.copytree(source, folder)
                shutil.copy(path, folder / "accel.toml")
                backend = umakit.find_backend(folder)
                umakit.compile_model(EXAMPLES / "digits_int8.onnx", [backend], folder / "library")
            finally:
                shutil.rmtree(folder.parent)

    def compare(self, path: Path) -> str:
        return ""


def toml_text(tree: Any) -> str:
    """TOML of tables, lists and plain values; what TOML lacks becomes text."""
    lines: list[str] = []
    tables = tree if isinstance(tree, dict) else {}
    for key, value in tables.items():
        if not isinstance(value, dict):
            lines.append(f"{json.dumps(key)} = {_toml_value(value)}")
    for key, value in tables.items():
        if isinstance(value, dict):
            lines.append(f"[{json.dumps(key)}]")
            lines += [f"{json.dumps(name)} = {_toml_value(inner)}" for name, inner in value.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(k)} = {_toml_value(v)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps("" if value is None else value)


class MetadataFiles:
    """`metadata.json` of an exported folder, behind `uma run`, `uma size` and `uma package`."""

    name = "metadata"
    suffix = ".json"

    def prepare(self, folder: Path) -> None:
        self._library = folder / "exported"
        backend = umakit.find_backend(ROOT / "backends" / "vanilla_accelerator")
        umakit.compile_model(EXAMPLES / "digits.onnx", [backend], self._library)
        self._inputs = load_inputs(EXAMPLES / "held_out.npz")
        self._run(self._library)
        self._tree = json.loads((self._library / "metadata.json").read_text())

    def _run(self, library: Path) -> None:
        given = {name: rows[:1] for name, rows in select_inputs(library, self._inputs).items()}
        umakit.run_library(library, given)

    def mutate(self, chance: Random) -> bytes:
        if chance.random() < 0.2:
            return mutate_bytes(chance, json_bytes(self._tree))
        tree = self._tree
        if chance.random() < 0.5:  # what is not umakit's own is read by nobody
            branch = dict(self._tree["umakit"])
            keys = [key for key in branch if places([branch[key]])]
            key = chance.choice(keys)
            branch[key] = mutate_tree(chance, [branch[key]])
            branch[key] = branch[key][0] if branch[key] else None
            tree = {**self._tree, "umakit": branch}
            return json_bytes(tree)
        return json_bytes(mutate_tree(chance, tree))

    def read(self, path: Path, thorough: bool) -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            library = folder / "inside" / "library"
            shutil.copytree(self._library, library)
            shutil.copy(path, library / "metadata.json")
            refusals = []
            steps = [
                lambda: package_library(library, "arduino", folder / "inside" / "arduino"),
                lambda: package_library(library, "tar", folder / "inside" / "library.tar"),
            ]
            if thorough:
                steps += [lambda: library_size(library), lambda: self._run(library)]
            for step in steps:
                try:
                    step()
                except umakit.errors.UmakitError as error:
                    refusals.append(error)
            outside = [entry.name for entry in folder.iterdir() if entry.name != "inside"]
            if outside:
                raise AssertionError(f"{outside[0]!r} is written outside of the folder")
            if refusals:
                raise refusals[0]
        finally:
            shutil.rmtree(folder)

    def compare(self, path: Path) -> str:
        return ""
