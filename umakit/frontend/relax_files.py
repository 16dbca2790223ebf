# SPDX-License-Identifier: Apache-2.0
"""Relax modules in files: what `tvm.ir.save_json` writes.

The text is a list of plain objects, which TVM puts together; nothing in it is evaluated. Modules in
TVMScript (`.py`) are Python code and are not read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

from umakit import tvm_api
from umakit.errors import ModelError, UmakitError
from umakit.frontend.model import InputShapes, Model
from umakit.frontend.relax_modules import import_relax
from umakit.frontend.simplify import simplify
from umakit.text.escaping import shown
from umakit.text.names import header_of
from umakit.tvm_api import IRModule

REPORT_FORMAT = "umakit report"
"""The key `format` of `umakit.tools.record`."""

HOW_TO_SAVE = "write it with pathlib.Path('model.json').write_text(tvm.ir.save_json(module))"
FORK_SECONDS = 120.0
"""Timeout for a fork of the process, which may wait for a lock of a missing thread."""

KNOWN_TYPES = re.compile(
    r"None|int|float|bool|dtype|DataType|Device|"
    r"(ffi\.(Array|Map|String|SmallStr|Bytes|Shape|Tensor|Dict|List)|ir|relax|tirx|tir|arith|"
    r"target|Target)(\..*)?"
)
"""Types of the objects in a module; no host functions and no compiled code."""


def is_json(path: Path) -> bool:
    """Return whether a file starts with a JSON object, which distinguishes Relax files."""
    try:
        with path.open("rb") as stream:
            return stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    except OSError:
        return False


def import_relax_file(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    try:
        text = path.read_text("utf-8-sig")
        _check_graph(json.loads(text), path)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"is not valid JSON: {_place(error)}", where=str(path), fix=HOW_TO_SAVE
        ) from None
    _check_in_another_process(path, input_shapes)
    module = load(path)
    if not isinstance(module, IRModule):
        raise ModelError(
            f"holds a {type(module).__name__}, not a module", where=str(path), fix=HOW_TO_SAVE
        )
    _check_functions_called(module, path)
    return import_relax(module, name or path.stem, {}, input_shapes, str(path))


def _check_functions_called(module: IRModule, path: Path) -> None:
    """Refuse a module whose kernels call C functions outside of math.h, such as `system`."""
    for variable, function in tvm_api.prim_functions(module):
        for call in tvm_api.collect(function.body, tvm_api.Call):
            if str(getattr(call.op, "name", "")).endswith("_extern"):
                called = str(getattr(call.args[0], "value", ""))
                if header_of(called) is None:
                    raise ModelError(
                        f"kernel {shown(str(variable.name_hint), 100)!r} calls the C function "
                        f"{shown(called, 100)!r}, which is not one of math.h",
                        where=str(path),
                        fix="save it without that; backends call the functions of their drivers",
                    )


def _place(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno} column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it is not UTF-8"


def load(path: Path) -> object:
    try:
        module = tvm_api.load_json(path.read_text("utf-8-sig"))
        if isinstance(module, IRModule):
            module.script()  # fails for an object of the wrong type
    except Exception:  # TVM raises arbitrary exceptions for damaged text
        raise ModelError(
            f"cannot be loaded by TVM {tvm_api.VERSION}: it is damaged, or of another version",
            where=str(path),
            fix="save it again with this version of TVM",
        ) from None
    return module


def check(path: Path, input_shapes: InputShapes) -> None:
    """Run every import step in which a damaged module could crash the process.

    Errors of TVM are raised. Refusals of umakit are not, as the import repeats them.
    """
    with contextlib.suppress(UmakitError):
        module = load(path)
        if isinstance(module, IRModule):
            simplify(import_relax(module, "check", {}, input_shapes).module, "check")


def _check_in_another_process(path: Path, input_shapes: InputShapes) -> None:
    """Import a file in another process, because TVM aborts its process if objects are missing."""
    status = _status_of_fork(path, input_shapes)
    if status is None:
        shapes = {name: [int(size) for size in shape] for name, shape in input_shapes.items()}
        code = f"from pathlib import Path; from {__name__} import check; "
        code += f"check(Path({str(path)!r}), {shapes!r})"
        command = [sys.executable, "-c", code]
        status = subprocess.run(command, capture_output=True, check=False).returncode
    if status != 0:
        raise ModelError(
            "is damaged: objects of the module are missing or do not fit together",
            where=str(path),
            fix=HOW_TO_SAVE,
        )


def _status_of_fork(path: Path, input_shapes: InputShapes) -> int | None:
    """Import a file in a fork, and return the exit code, or the negative signal number.

    None if a fork is unsafe: other threads may hold locks that the fork would wait for.
    """
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return None
    with warnings.catch_warnings():
        # Python warns about idle threads of libraries.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        status = 1
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            check(path, input_shapes)
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + FORK_SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _check_graph(graph: object, path: Path) -> None:
    """Refuse JSON that is not a Relax module, and modules with parts foreign to a network."""
    if isinstance(graph, dict) and graph.get("format") == REPORT_FORMAT:
        raise ModelError(
            "is a report that `uma report --json` printed, not a model",
            where=str(path),
            fix=f"compare it with another one: `uma report --compare {path} OTHER`",
        )
    nodes = graph.get("nodes") if isinstance(graph, dict) else None
    listed = nodes if isinstance(nodes, list) else [None]
    types = [node.get("type") if isinstance(node, dict) else None for node in listed]
    root = graph.get("root_index") if isinstance(graph, dict) else None
    if not isinstance(root, int) or not all(isinstance(kind, str) for kind in types):
        raise ModelError(
            "is JSON, but no Relax module as tvm.ir.save_json writes it",
            where=str(path),
            fix=HOW_TO_SAVE,
        )
    for kind in types:
        if not KNOWN_TYPES.fullmatch(str(kind)):
            raise ModelError(
                f"holds a {kind}, which is not part of a network", where=str(path), fix=HOW_TO_SAVE
            )
