# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests against umakit: imported, compiled to C, run, compared.

    python tests/onnx_node_tests.py                  all of them, about 5 minutes on two cores
    python tests/onnx_node_tests.py -k 'resize|pad'  those whose names match
    python tests/onnx_node_tests.py --list wrong     names and messages of a column
    python tests/onnx_node_tests.py --cpu x86-64-v4  with kernels for a CPU
    python tests/onnx_node_tests.py --update-golden  the counts of docs/onnx.md again

A run of all tests compares its counts with those of docs/onnx.md.

Each test runs in a process of its own, with a limit of time and memory: with every input given at
run time, and where that is refused with all inputs but the first one as constants (`--thorough`:
always). It counts as right when no run is wrong and one is right. Columns:

    right         outputs have the shapes, dtypes and values that ONNX states
    wrong         another value, shape or dtype, without an error
    refused       an error of umakit, or a status of the library
    traceback     another exception, a crash, undefined behaviour in C, a time limit
    out of scope  refused, and it uses a type of `OUT_OF_SCOPE`
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import multiprocessing
import os
import pkgutil
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from cpus_here import cpu_here
from onnx.backend.test.case import node as node_tests
from onnx.backend.test.case.test_case import TestCase

from umakit.cpu.description import GENERIC, find_cpu
from umakit.errors import UmakitError
from umakit.library.options import ExportOptions
from umakit.pipeline import compile_model
from umakit.version import __version__

COLUMNS = ("right", "wrong", "refused", "traceback", "out of scope")

OUT_OF_SCOPE = frozenset(
    "FLOAT16 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ FLOAT8E8M0 FLOAT4E2M1 "
    "INT4 UINT4 INT2 UINT2 COMPLEX64 COMPLEX128 STRING sequence optional map".split()
)
"""Element types and kinds of values that C99 or umakit has no type for."""

RELEASE = __version__.partition(".dev")[0]

BASELINE = Path(__file__).parent / "data" / "onnx_node_tests_right.txt"
"""Tests that were right in umakit 0.1.0, one name a line."""

PAGE = Path(__file__).parents[1] / "docs" / "onnx.md"

MODULES = 8
"""Of so many modules of node tests one is read for a sample."""

SECONDS = 120
"""That one test may take."""

BYTES = 16 << 30
"""Limit of a test's address space; libraries of TVM and PyTorch map some of it."""

COMPILER = (
    "cc", "-std=c99", "-O0", "-pipe", "-ffp-contract=off", "-w", "-shared", "-fPIC",
    "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error",
)  # fmt: skip


CPU = GENERIC
"""What kernels are for: what `--cpu` says."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test.

    Attributes:
        name: of the test.
        operator: that it tests.
        column: one of `COLUMNS`.
        message: why it is not right.
    """

    name: str
    operator: str
    column: str
    message: str = ""


_CASES_OF: dict[str, list[TestCase]] = {}
"""Node tests by module: importing a module adds its tests to a list of the package onnx, once."""


def collected(every: int = 1) -> list[TestCase]:
    """ONNX's node tests, those of one of `every` modules: all of them take 8 s to compute."""
    modules = [each.name for each in pkgutil.iter_modules(node_tests.__path__)][every // 2 :: every]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name in modules:
            if name not in _CASES_OF:
                known = len(node_tests._NodeTestCases)
                importlib.import_module(f"{node_tests.__name__}.{name}")
                _CASES_OF[name] = node_tests._NodeTestCases[known:]
    return [case for name in modules for case in _CASES_OF[name]]


def all_cases(every: int = 1) -> dict[str, TestCase]:
    """ONNX's node tests by name, as `collected`."""
    return {case.name: case for case in collected(every)}


def operator_of(case: TestCase, cases: dict[str, TestCase]) -> str:
    """The operator that a test is about; that of a function whose body it is."""
    whole = cases.get(re.sub(r"_expanded.*", "", case.name), case)
    return str(whole.model.graph.node[-1].op_type)


# --- one test -----------------------------------------------------------------------------------


def types_of(model: onnx.ModelProto) -> set[str]:
    """Names of all element types and kinds of values in a model."""
    found: set[str] = set()

    def number(value: int) -> None:
        found.add(onnx.TensorProto.DataType.Name(value))

    def kind(type_: onnx.TypeProto) -> None:
        which = type_.WhichOneof("value") or ""
        if which == "tensor_type":
            number(type_.tensor_type.elem_type)
        else:
            found.add(which.removesuffix("_type"))

    def graph(proto: onnx.GraphProto) -> None:
        for value in (*proto.input, *proto.output, *proto.value_info):
            kind(value.type)
        for tensor in proto.initializer:
            number(tensor.data_type)
        for node in proto.node:
            if node.op_type.startswith(("Sequence", "Optional", "SplitToSequence")):
                found.add("sequence" if "Sequence" in node.op_type else "optional")
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    graph(attribute.g)
                elif attribute.type == onnx.AttributeProto.TENSOR:
                    number(attribute.t.data_type)
                elif attribute.type in (onnx.AttributeProto.STRING, onnx.AttributeProto.STRINGS):
                    if attribute.name.startswith("value_string"):
                        found.add("STRING")
                elif attribute.name in ("to", "dtype", "output_dtype", "stash_type"):
                    number(attribute.i)

    graph(model.graph)
    return found


def with_constants(model: onnx.ModelProto, inputs: Sequence[Any]) -> onnx.ModelProto | None:
    """The model with the values of all inputs but the first as initializers."""
    given = list(zip(model.graph.input, inputs, strict=False))
    if len(given) < 2 or not all(isinstance(value, np.ndarray) for _, value in given[1:]):
        return None
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.input[1:]
    for information, value in given[1:]:
        tensor = onnx.numpy_helper.from_array(value, information.name)
        if tensor.data_type != information.type.tensor_type.elem_type:
            return None
        changed.graph.initializer.append(tensor)
    # Initializers that are not inputs are constants since IR version 4.
    changed.ir_version = max(changed.ir_version, 4)
    return changed


def run_model(
    model: onnx.ModelProto, inputs: Sequence[Any], folder: Path
) -> list[np.ndarray[Any, Any]] | str:
    """Compile a model for the CPU and run it once in this process.

    Returns:
        Its outputs, or the status and its meaning where the library stopped.
    """
    path = folder / "model.onnx"
    onnx.save(model, path)
    cpu = cpu_here(CPU)
    library = compile_model(path, [], folder / "library", options=ExportOptions(cpu=cpu))
    source = library.path / "codegen" / "host" / "src"
    shared = folder / "model.so"
    header = library.path / "codegen" / "host" / "include"
    unit = folder / "unit.c"
    unit.write_text("".join(f'#include "{file}"\n' for file in sorted(source.glob("*.c"))))
    command = [
        *COMPILER,
        *find_cpu(cpu).flags,
        f"-I{header}",
        f"-I{source}",
        str(unit),
        "-o",
        str(shared),
        "-lm",
    ]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        raise RuntimeError(f"the C compiler refused: {compiled.stderr[:500]}")
    description = library.metadata["umakit"]
    interface = description["interface"]
    arrays = []
    for expected, value in zip(description["inputs"], inputs, strict=True):
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if str(array.dtype) != expected["dtype"] or list(array.shape) != expected["shape"]:
            raise Mismatch(f"takes {expected}, not {array.dtype}{list(array.shape)}")
        arrays.append(array)
    outputs = [
        np.full(expected["shape"], 77, expected["dtype"]) for expected in description["outputs"]
    ]
    function = getattr(ctypes.CDLL(str(shared)), f"{interface}_run")
    pointers = [
        (ctypes.c_void_p * max(1, len(group)))(*(array.ctypes.data for array in group))
        for group in (arrays, outputs)
    ]
    takes_inputs = f"struct {interface}_inputs" in (header / f"{interface}.h").read_text()
    status = function(*(pointers if takes_inputs else pointers[1:]))
    return f"status {status}" if status else outputs


class Mismatch(Exception):
    """Shapes or dtypes of the interface that the model does not have."""


def difference(got: Sequence[np.ndarray[Any, Any]], expected: Sequence[Any], case: TestCase) -> str:
    """What is wrong with the outputs; empty if nothing is."""
    if len(got) != len(expected):
        return f"{len(got)} outputs, not {len(expected)}"
    for number, (values, wanted) in enumerate(zip(got, expected, strict=True)):
        wanted = np.asarray(wanted)
        if values.dtype != wanted.dtype or values.shape != wanted.shape:
            return (
                f"output {number} is {values.dtype}{list(values.shape)}, "
                f"not {wanted.dtype}{list(wanted.shape)}"
            )
        tolerances = {"rtol": case.rtol, "atol": case.atol}
        exact = wanted.dtype.kind not in "fc"
        try:
            np.testing.assert_allclose(values, wanted, **({"rtol": 0} if exact else tolerances))
        except AssertionError as error:
            return f"output {number}: {' '.join(str(error).split())[:300]}"
    return ""


def run_case(case: TestCase, constants: bool) -> tuple[str, str]:
    """Column and message of a test, with inputs at run time or as constants."""
    inputs, expected = ([_array(v) for v in values] for values in case.data_sets[0])
    model = with_constants(case.model, inputs) if constants else case.model
    if model is None:
        return "refused", "inputs cannot be constants"
    try:
        with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
            got = run_model(model, inputs[:1] if constants else inputs, Path(folder))
    except UmakitError as error:
        return "refused", str(error)
    except Mismatch as error:
        return "wrong", str(error)
    except Exception:
        return "traceback", traceback.format_exc()[-1500:]
    if isinstance(got, str):
        return "refused", got
    message = difference(got, expected, case)
    return ("wrong", message) if message else ("right", "")


def _array(value: Any) -> Any:
    """An array where a test has a tensor or a scalar; other values as they are."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# --- all tests ----------------------------------------------------------------------------------


def as_child(
    function: Callable[[], tuple[str, str]], answer: Connection, most: int = BYTES
) -> None:
    """Send what a function returns and end this process, with a limit of memory, in silence."""
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer.send(function())
    answer.close()
    os._exit(0)


def isolated(
    jobs: Iterable[tuple[Any, Callable[[Connection], None]]],
    processes: int,
    seconds: float = SECONDS,
) -> Iterator[tuple[Any, Any]]:
    """Run functions in forked processes; yields what each sent, or how its process ended.

    Args:
        jobs: keys, and functions that send a column and a message.
        processes: how many run at a time.
        seconds: that each may take.
    """
    context = multiprocessing.get_context("fork")
    waiting = iter(jobs)
    running: dict[Connection, tuple[Any, Any, float]] = {}
    while True:
        while len(running) < processes and (job := next(waiting, None)) is not None:
            key, function = job
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=function, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            running[ours] = (key, process, time.monotonic() + seconds)
        if not running:
            return
        ready = {pipe for pipe in wait(list(running), timeout=1) if isinstance(pipe, Connection)}
        for pipe, (key, process, deadline) in list(running.items()):
            if pipe not in ready and time.monotonic() < deadline:
                continue
            result: Any = ("traceback", f"no end after {seconds} s")
            if pipe in ready:
                try:
                    result = pipe.recv()
                except EOFError:
                    process.join()
                    result = ("traceback", f"the process ended with {process.exitcode}")
            else:
                process.kill()
            process.join()
            pipe.close()
            del running[pipe]
            yield key, result


def run_cases(
    cases: dict[str, TestCase],
    names: Sequence[str],
    processes: int = 2,
    progress: Callable[[int], None] = lambda count: None,
    thorough: bool = False,
) -> list[Outcome]:
    """Run tests by name.

    Args:
        cases: all tests.
        names: of those to run.
        processes: how many run at a time.
        progress: told how many runs are done.
        thorough: whether tests that are not refused run with constants too.
    """

    def job(name: str, constants: bool) -> Callable[[Connection], None]:
        return lambda answer: as_child(lambda: run_case(cases[name], constants), answer)

    results: dict[str, dict[bool, tuple[str, str]]] = {name: {} for name in names}

    def run(constants: bool, chosen: Sequence[str]) -> None:
        jobs = ((name, job(name, constants)) for name in chosen)
        for count, (name, result) in enumerate(isolated(jobs, processes), 1):
            results[name][constants] = result
            progress(count)

    run(False, names)
    again = [
        name
        for name in names
        if len(cases[name].model.graph.input) > 1
        and (thorough or results[name][False][0] == "refused")
    ]
    run(True, again)
    return [_outcome(cases[name], cases, results[name]) for name in names]


def _outcome(
    case: TestCase, cases: dict[str, TestCase], results: dict[bool, tuple[str, str]]
) -> Outcome:
    operator = operator_of(case, cases)
    for column in ("traceback", "wrong", "right"):
        for constants, (found, message) in results.items():
            if found == column:
                note = "with constants: " if constants and message else ""
                return Outcome(case.name, operator, column, note + message)
    message = " | with constants: ".join(message for _, message in results.values())
    types = types_of(case.model) & OUT_OF_SCOPE
    if types:
        return Outcome(
            case.name, operator, "out of scope", f"{', '.join(sorted(types))}: {message}"
        )
    return Outcome(case.name, operator, "refused", message)


def table(outcomes: Sequence[Outcome]) -> str:
    """The five columns with totals, and by operator what is wrong or a traceback."""
    counts = Counter(outcome.column for outcome in outcomes)
    lines = ["| " + " | ".join((*COLUMNS, "total")) + " |", "|---:" * 6 + "|"]
    figures = [*(counts[column] for column in COLUMNS), len(outcomes)]
    lines.append("| " + " | ".join(map(str, figures)) + " |")
    for column in ("wrong", "traceback"):
        operators = Counter(o.operator for o in outcomes if o.column == column)
        named = ", ".join(f"{operator} {count}" for operator, count in sorted(operators.items()))
        lines.append(f"\n{column}: {named or 'none'}")
    return "\n".join(lines)


def row_of_page(outcomes: Sequence[Outcome]) -> str:
    """The row of this version in the table of docs/onnx.md."""
    counts = Counter(outcome.column for outcome in outcomes)
    figures = [*(str(counts[column]) for column in COLUMNS), str(len(outcomes))]
    return f"| {' | '.join([RELEASE, *figures])} |"


def update_page(row: str) -> None:
    """Put a row in the place of the one of the same version, or behind the last one."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    last = max(n for n, line in enumerate(lines) if re.match(r"\| \d+\.\d+\.\d+ \|", line))
    is_same = lines[last].startswith(f"| {RELEASE} |")
    lines[last : last + 1] = [row] if is_same else [lines[last], row]
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


def sample(cases: dict[str, TestCase], count: int, seed: int) -> list[str]:
    """Some names, the same for a seed."""
    return sorted(random.Random(seed).sample(sorted(cases), count))


def must_be_right() -> set[str]:
    """Names of the tests that umakit 0.1.0 had right."""
    return set(BASELINE.read_text(encoding="utf-8").split())


def no_longer_right(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that umakit 0.1.0 had right."""
    names = must_be_right()
    return [outcome for outcome in outcomes if outcome.name in names and outcome.column != "right"]


def main() -> int:
    """The command line.

    The exit code is 1 if a test is wrong, a traceback or no longer right, or if all tests ran and
    docs/onnx.md has other counts.
    """
    parser = argparse.ArgumentParser(description="ONNX's node tests against umakit")
    parser.add_argument("-k", default="", help="regular expression of names")
    parser.add_argument("-j", type=int, default=2, help="processes")
    parser.add_argument("--list", nargs="*", choices=COLUMNS, help="columns to list")
    parser.add_argument("--cpu", default=GENERIC, help="the CPU that kernels are for")
    parser.add_argument("--right", action="store_true", help="only those that must be right")
    parser.add_argument("--thorough", action="store_true", help="all of them with constants too")
    parser.add_argument("--sample", type=int, help="only so many, drawn with seed 0")
    parser.add_argument("--json", type=Path, help="write all outcomes into this file")
    parser.add_argument("--update-golden", action="store_true", help="write docs/onnx.md again")
    options = parser.parse_args()
    global CPU
    CPU = options.cpu
    cases = all_cases(MODULES if options.sample else 1)
    names = [name for name in sorted(cases) if re.search(options.k, name)]
    if options.right:
        names = [name for name in names if name in must_be_right()]
    if options.sample:
        names = sample({name: cases[name] for name in names}, options.sample, 0)

    def progress(count: int) -> None:
        if count % 200 == 0:
            print(f"{count} runs", file=sys.stderr, flush=True)

    outcomes = run_cases(cases, names, options.j, progress, options.thorough)
    for outcome in outcomes:
        if outcome.column in (options.list or ("wrong", "traceback")):
            print(f"{outcome.column}: {outcome.name}: {outcome.message}")
    print(table(outcomes))
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    lost = no_longer_right(outcomes)
    for outcome in lost:
        print(f"no longer right: {outcome.name}: {outcome.column}: {outcome.message}")
    stale = False
    if len(outcomes) == len(cases) and GENERIC == CPU:
        row = row_of_page(outcomes)
        if options.update_golden:
            update_page(row)
        is_written = row in PAGE.read_text(encoding="utf-8").splitlines()
        stale = not is_written and "dev" not in __version__  # written before a release
        if stale:
            print(f"docs/onnx.md lacks the row {row}: --update-golden writes it")
    failed = any(o.column in ("wrong", "traceback") for o in outcomes)
    return int(bool(lost) or failed or stale)


if __name__ == "__main__":
    sys.exit(main())
