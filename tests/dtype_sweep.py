# SPDX-License-Identifier: Apache-2.0
"""Every operator of every frontend with every dtype: right or refused, and no access out of bounds.

    python tests/dtype_sweep.py                       all frontends, an hour on two cores
    python tests/dtype_sweep.py onnx -k 'Reduce'      operators of one whose names match
    python tests/dtype_sweep.py --sample 8 --seed 3   some that were right, drawn with a seed
    python tests/dtype_sweep.py --update-baseline     `data/dtype_sweep_right.txt` again

Operators of ONNX have the dtypes that their schemas allow; of Relax and PyTorch those that TVM's
type inference and PyTorch itself take; of TensorFlow Lite all. C is compiled with all warnings as
errors and with the sanitizers of addresses and of undefined behaviour, and tensors have exactly
their sizes. Results equal those of ONNX Runtime or ONNX's reference evaluator, of NumPy, of
PyTorch, and of TensorFlow Lite Micro. Columns:

    right       results have the dtypes, shapes and values of one of the oracles
    wrong       other results
    refused     an error of umakit, or a status of the library
    traceback   another exception, a warning of the C compiler, a report of a sanitizer
    no oracle   none of the oracles computes it; it ran without a report
"""

from __future__ import annotations

import argparse
import atexit
import functools
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_sweep
from comparisons import SANITIZED
from onnx import helper
from onnx_drawing import DTYPES, MAKERS, NEWEST, Array, Draw
from onnx_node_tests import Mismatch, as_child, isolated
from strict import WARNINGS

from umakit.errors import UmakitError
from umakit.pipeline import compile_model

COLUMNS = ("right", "wrong", "refused", "traceback", "no oracle")
BASELINE = Path(__file__).parent / "data" / "dtype_sweep_right.txt"
"""What is right: a line for each operator, with its frontend and dtypes."""
DRAWS = 2
"""Networks of each operator of ONNX and dtype."""

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int sweep_run(void **inputs, void **outputs);
int main(int count, char **arguments)
{
    FILE *in = fopen(arguments[1], "rb"), *out = fopen(arguments[2], "wb");
    int runs = atoi(arguments[3]), inputs = atoi(arguments[4]), all = count - 5;
    void *tensors[64];
    for (int run = 0; run < runs; ++run) {
        for (int i = 0; i < all; ++i) {
            size_t size = (size_t)atol(arguments[5 + i]);
            tensors[i] = malloc(size);
            memset(tensors[i], 77, size);
            if (i < inputs && fread(tensors[i], 1, size, in) != size) return 99;
        }
        int status = sweep_run(tensors, tensors + inputs);
        if (status != 0) return 100;
        for (int i = 0; i < all; ++i) {
            if (i >= inputs) fwrite(tensors[i], 1, (size_t)atol(arguments[5 + i]), out);
            free(tensors[i]);
        }
    }
    return fclose(in) + fclose(out);
}
"""
COMPILER = ("cc", *SANITIZED, "-std=c99", "-O0", "-pipe")
STOPPED = 100
"""Exit code where the library returned a status."""


@dataclass(frozen=True)
class Network:
    """A network to compile.

    Attributes:
        source: of `compile_model`: a module, a program, or the content of a file.
        inputs: by position, one more dimension in front for inferences.
        oracles: functions that return the outputs, by inference.
        suffix: of the file.
        is_doubtful: whether a single oracle that differs is none: ONNX's reference evaluator
            computes some operators of older opsets as the newest one defines them.
    """

    source: Any
    inputs: Sequence[Array]
    oracles: Sequence[Callable[[], list[list[Array]]]]
    suffix: str = ""
    is_doubtful: bool = False


@dataclass(frozen=True)
class Case:
    """An operator with a dtype.

    Attributes:
        frontend, operator, dtype: what it is of.
        make: makes the network; None if the operator does not take the dtype.
    """

    frontend: str
    operator: str
    dtype: str
    make: Callable[[], Network | None]

    @property
    def key(self) -> tuple[str, str, str]:
        """Frontend, operator and dtype."""
        return self.frontend, self.operator, self.dtype


# --- one network --------------------------------------------------------------------------------


def run_sanitized(network: Network, folder: Path) -> list[list[Array]] | str:
    """Compile a network and run it, in a process that ends at the first fault.

    Returns:
        The outputs of each inference, or the report of a status.

    Raises:
        RuntimeError: the C compiler or a sanitizer has something to say.
    """
    source = network.source
    if network.suffix:
        source = folder / f"model.{network.suffix}"
        source.write_bytes(network.source)
    library = compile_model(source, [], folder / "library", name="model")
    description = library.metadata["umakit"]
    interface = description["interface"]
    code = library.path / "codegen" / "host" / "src"
    header = library.path / "codegen" / "host" / "include"
    takes = f"struct {interface}_inputs" in (header / f"{interface}.h").read_text()
    files = "".join(f'#include "{file}"\n' for file in sorted(code.glob("*.c")))
    (folder / "unit.c").write_text(
        f"{files}int sweep_run(void **inputs, void **outputs);\n"
        "int sweep_run(void **inputs, void **outputs)\n{\n    (void)inputs;\n"
        f"    return {interface}_run({'(void *)inputs, ' if takes else ''}(void *)outputs);\n}}\n"
    )
    command = [*COMPILER, *WARNINGS, f"-I{header}", f"-I{code}", "unit.c", main_object()]
    command += ["-o", "program", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"the C compiler says: {done.stderr[:700]}")
    runs = len(network.inputs[0])
    arrays = [np.ascontiguousarray(array) for array in network.inputs]
    for expected, array in zip(description["inputs"], arrays, strict=True):
        if str(array.dtype) != expected["dtype"] or list(array.shape[1:]) != expected["shape"]:
            raise Mismatch(f"takes {expected}, not {array.dtype}{list(array.shape[1:])}")
    (folder / "in").write_bytes(b"".join(a[i].tobytes() for i in range(runs) for a in arrays))
    outputs = [(tuple(o["shape"]), np.dtype(o["dtype"])) for o in description["outputs"]]
    output_sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in outputs]
    sizes = [array[0].nbytes for array in arrays] + output_sizes
    arguments = ["in", "out", str(runs), str(len(arrays)), *map(str, sizes)]
    done = subprocess.run(
        ["./program", *arguments], capture_output=True, text=True, check=False, cwd=folder,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )  # fmt: skip
    if done.returncode == STOPPED:
        return "the library returned a status"
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[:1500]}")
    content, place, results = (folder / "out").read_bytes(), 0, []
    for _ in range(runs):
        row = []
        for (shape, dtype), size in zip(outputs, output_sizes, strict=True):
            row.append(np.frombuffer(content[place : place + size], dtype).reshape(shape))
            place += size
        results.append(row)
    return results


@functools.cache
def main_object() -> str:
    """The program around a library, compiled: for all processes, if called before they start."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "main.c").write_text(MAIN)
    subprocess.run([*COMPILER, "-c", "main.c", "-o", "main.o"], check=True, cwd=folder)
    return str(folder / "main.o")


def check(case: Case) -> tuple[str, str]:
    """Column and message of a case; `not taken` where the operator does not take the dtype."""
    network = case.make()
    if network is None:
        return "not taken", ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = run_sanitized(network, Path(folder))
    except UmakitError as error:
        return "refused", str(error)
    except Mismatch as error:
        return "wrong", str(error)
    except Exception:
        return "traceback", traceback.format_exc()[-2500:]
    if isinstance(found, str):
        return "refused", found
    differences = []
    for oracle in network.oracles:
        try:
            with np.errstate(all="ignore"):
                wanted = oracle()
        except Exception:  # each of them lacks some operators or dtypes
            continue
        pairs = zip(found, wanted, strict=True)
        difference = next(filter(None, (onnx_sweep.unequal(*pair) for pair in pairs)), "")
        if not difference:
            return "right", ""
        differences.append(difference)
    if not differences or (network.is_doubtful and len(differences) == 1):
        return "no oracle", "".join(differences)
    return "wrong", differences[0]


# --- ONNX ---------------------------------------------------------------------------------------


class Typed(Draw):
    """Random choices for an operator of its newest opset, with a given element type.

    Attributes:
        variable: the type variable of the schema that has the given type.
    """

    def __init__(self, operator: str, seed: int, variable: str = "", dtype: str = "") -> None:
        super().__init__(operator, seed)
        if not self.domain:
            schema = onnx.defs.get_schema(self.operator, max(NEWEST, self.opset), "")
            if not schema.deprecated:
                self.opset, self.schema = max(schema.since_version, self.opset), schema
        self.variable, self._dtype = variable, dtype

    def dtype(self, position: int = 0, among: Sequence[str] = DTYPES) -> str:
        if self._dtype and self.schema.inputs[position].type_str == self.variable:
            return self._dtype
        return super().dtype(position, among)


def onnx_cases() -> Iterator[Case]:
    """Every operator that is drawn, with every type of every type variable of its inputs."""
    onnx_sweep.load_tests_of_operators()
    for operator in sorted(MAKERS):
        schema = Typed(operator, 0).schema
        if schema is None:
            continue
        variables = list(dict.fromkeys(each.type_str for each in schema.inputs))
        for number, variable in enumerate(variables):
            allowed = {variable}
            for constraint in schema.type_constraints:
                if constraint.type_param_str == variable:
                    allowed = set(constraint.allowed_type_strs)
            named = {"float32": "float", "float64": "double"}
            for dtype in DTYPES:
                if f"tensor({named.get(dtype, dtype)})" not in allowed:
                    continue
                key = f"{variable}={dtype}" if number else dtype
                for seed in range(DRAWS):
                    yield Case("onnx", operator, key, _onnx_maker(operator, seed, variable, dtype))


def _onnx_maker(
    operator: str, seed: int, variable: str, dtype: str
) -> Callable[[], Network | None]:
    def make() -> Network | None:
        draw = Typed(operator, seed, variable, dtype)
        try:
            drawn = MAKERS[operator](draw)
            formal, inputs = draw.schema.inputs, drawn.inputs
            is_typed = False
            for number, array in enumerate(inputs):
                # Some functions draw values of one type only.
                if array is None or formal[min(number, len(formal) - 1)].type_str != variable:
                    continue
                is_typed, array = True, np.asarray(array)
                is_same = str(array.dtype) == dtype
                inputs[number] = array if is_same else np.abs(array).astype(dtype)
            model, given = onnx_sweep.build(draw, drawn)
            onnx.checker.check_model(model, full_check=True)
        except Exception:  # attributes and shapes that another type would allow
            return None
        if not is_typed or not given:
            return None

        expected = onnx_sweep.expectations(model, given)

        def oracle() -> list[list[Array]]:
            values = [np.asarray(value) for value in next(expected)]
            for value, output in zip(values, model.graph.output, strict=True):
                tensor = output.type.tensor_type
                sizes = tuple(
                    dimension.dim_value if dimension.HasField("dim_value") else size
                    for dimension, size in zip(tensor.shape.dim, value.shape, strict=True)
                )
                # An oracle that contradicts ONNX's inference of types and shapes is none.
                assert value.dtype == helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                assert value.shape == sizes
            return [values]

        arrays = [array[None] for array in given.values()]
        is_newest = onnx_sweep.is_newest(model)
        return Network(model.SerializeToString(), arrays, [oracle, oracle], "onnx", not is_newest)

    return make


# --- TensorFlow Lite ----------------------------------------------------------------------------


def tflite_cases() -> Iterator[Case]:
    """Every operator with every dtype, as `test_tflite_sweep` has them."""
    from test_tflite_sweep import candidates

    for code, dtype, case in candidates():
        yield Case("tflite", code, dtype, _tflite_maker(case))


def _tflite_maker(case: Any) -> Callable[[], Network | None]:
    from tflite_cases import file_of, oracle

    def make() -> Network | None:
        content, tensors, names = file_of([case])
        random = np.random.default_rng(0)
        inputs = {
            name: tensor.drawn(random) if tensor.values is None else tensor.values
            for name, tensor in tensors.items()
        }

        def micro() -> list[list[Array]]:
            rows = oracle(content, inputs, names)
            count = len(next(iter(inputs.values())))
            return [[rows[name][i] for name in names] for i in range(count)]

        return Network(content, list(inputs.values()), [micro], "tflite")

    return make


# --- Relax and PyTorch --------------------------------------------------------------------------


def drawn_inputs(operator: str, dtype: str, shapes: Sequence[Sequence[int]]) -> list[Array]:
    """Values from -5 to 5, from 1 on where an operator takes no others."""
    positive = re.search(r"log|sqrt|div|mod|remainder|pow|shift|acosh|reciprocal", operator)
    draw = Draw("Abs", len(operator))
    least = 1 if positive else 0
    arrays = [draw.array(shape, dtype, 5) for shape in shapes]
    if re.search(r"asin|acos$|atanh", operator) and "float" in dtype:
        arrays = [array / 6 for array in arrays]
    if least:
        arrays = [
            np.ones_like(array) if dtype == "bool" else np.abs(array) + np.asarray(1, dtype)
            for array in arrays
        ]
    return arrays


def relax_cases() -> Iterator[Case]:
    """The operators of `relax_operators.TABLE`."""
    from relax_operators import TABLE

    for operator, entry in TABLE.items():
        for dtype in DTYPES:
            yield Case("relax", operator, dtype, _relax_maker(operator, dtype, *entry))


def _relax_maker(
    operator: str,
    dtype: str,
    build: Callable[..., Any],
    numpy: Callable[..., Any],
    shapes: Sequence[Sequence[int]],
) -> Callable[[], Network | None]:
    from relax_operators import module_of

    def make() -> Network | None:
        inputs = drawn_inputs(operator, dtype, shapes)
        try:
            module, dtypes = module_of(build, dtype, shapes)
        except Exception:  # TVM's type inference
            return None

        def oracle() -> list[list[Array]]:
            results = numpy(*inputs)
            results = results if isinstance(results, (list, tuple)) else [results]
            return [[_as(each, to) for each, to in zip(results, dtypes, strict=True)]]

        return Network(module, [array[None] for array in inputs], [oracle])

    return make


def _as(values: Any, dtype: str) -> Array:
    """Values in the dtype of a result; real numbers are cut off where it is of integers."""
    array = np.asarray(values)
    return array.astype(dtype) if array.dtype.kind != "f" else np.asarray(array).astype(dtype)


def torch_cases() -> Iterator[Case]:
    """The functions of `torch_operators.TABLE`."""
    import torch
    from torch_operators import TABLE

    torch.set_num_threads(1)
    for operator, (function, shapes) in TABLE.items():
        for dtype in DTYPES:
            if dtype not in ("uint16", "uint32", "uint64"):
                yield Case(
                    "torch", operator, dtype, _torch_maker(operator, dtype, function, shapes)
                )


def _torch_maker(
    operator: str, dtype: str, function: Callable[..., Any], shapes: Sequence[Sequence[int]]
) -> Callable[[], Network | None]:
    import torch
    from torch_operators import Function

    def make() -> Network | None:
        inputs = drawn_inputs(operator, dtype, shapes)
        tensors = tuple(torch.from_numpy(np.array(array)) for array in inputs)
        try:
            results = function(*tensors)
            program = torch.export.export(Function(function), tensors)
        except Exception:  # PyTorch has no such function of the dtype
            return None
        listed = results if isinstance(results, (list, tuple)) else [results]
        wanted = [[np.asarray(each) for each in listed]]
        return Network(program, [array[None] for array in inputs], [lambda: wanted])

    return make


FRONTENDS: Mapping[str, Callable[[], Iterator[Case]]] = {
    "onnx": onnx_cases,
    "tflite": tflite_cases,
    "relax": relax_cases,
    "torch": torch_cases,
}

# --- all of them --------------------------------------------------------------------------------


def sweep(
    cases: Sequence[Case], processes: int = 2, progress: Callable[[int], None] = lambda count: None
) -> dict[tuple[str, str, str], tuple[str, str]]:
    """Column and message by key, each case in a process of its own.

    Of several networks of one key the worst counts, and the refused ones only if none is right.
    """

    def job(case: Case) -> Callable[[Connection], None]:
        # The sanitizer of addresses reserves terabytes of them.
        return lambda answer: as_child(lambda: check(case), answer, resource.RLIM_INFINITY)

    main_object()
    # What every case imports is imported once, before processes start.
    right = baseline() if BASELINE.is_file() else set()
    for case in {c.frontend: c for c in sorted(cases, key=lambda c: c.key in right)}.values():
        check(case)
    order = ("traceback", "wrong", "right", "no oracle", "refused", "not taken")
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    jobs = ((case.key, job(case)) for case in cases)
    for count, (key, result) in enumerate(isolated(jobs, processes), 1):
        found[key] = min(found.get(key, result), result, key=lambda r: order.index(r[0]))
        progress(count)
    return {key: result for key, result in found.items() if result[0] != "not taken"}


def baseline() -> set[tuple[str, str, str]]:
    """What was right when the baseline was written."""
    lines = [line.split() for line in BASELINE.read_text(encoding="utf-8").splitlines()]
    return {(line[0], line[1], dtype) for line in lines for dtype in line[2:]}


def write_baseline(found: Mapping[tuple[str, str, str], tuple[str, str]]) -> None:
    """Write what is right; frontends and operators that were not swept stay."""
    swept = {key[:2] for key in found}
    kept = {key for key in baseline() if key[:2] not in swept} if BASELINE.is_file() else set()
    right = kept | {key for key, (column, _) in found.items() if column == "right"}
    lines: dict[tuple[str, str], list[str]] = defaultdict(list)
    for frontend, operator, dtype in sorted(right):
        lines[frontend, operator].append(dtype)
    text = "".join(f"{' '.join([*key, *dtypes])}\n" for key, dtypes in lines.items())
    BASELINE.write_text(text, encoding="utf-8")


def _short(message: str) -> str:
    """The end of a message in one line, or the error of the C compiler or the sanitizer in it."""
    found = re.search(r"(error: [^\n]*|ERROR: AddressSanitizer[^\n]*|runtime error[^\n]*)", message)
    return " ".join((found[0] if found else message[-400:]).split())


def main() -> int:
    """The command line; the exit code is 1 if a case is wrong, a traceback or no longer right."""
    parser = argparse.ArgumentParser(description="every operator with every dtype")
    parser.add_argument("frontends", nargs="*", help=f"of {', '.join(FRONTENDS)}; default: all")
    parser.add_argument("-k", default="", help="regular expression of operators and dtypes")
    parser.add_argument("-j", type=int, default=2, help="processes")
    parser.add_argument("--list", nargs="*", choices=COLUMNS, help="columns to list")
    parser.add_argument("--sample", type=int, help="only so many of each frontend that were right")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--json", type=Path, help="write all outcomes into this file")
    parser.add_argument("--update-baseline", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    frontends = options.frontends or list(FRONTENDS)
    cases = [c for name in frontends for c in FRONTENDS[name]()]
    cases = [c for c in cases if re.search(options.k, f"{c.operator} {c.dtype}")]
    right = baseline() if BASELINE.is_file() else set()
    if options.sample:
        chosen: set[tuple[str, str, str]] = set()
        for name in frontends:
            keys = sorted({case.key for case in cases if case.frontend == name} & right)
            drawn = random.Random(options.seed).sample(keys, min(options.sample, len(keys)))
            chosen.update(drawn)
        cases = [case for case in cases if case.key in chosen]

    def progress(count: int) -> None:
        if count % 25 == 0:
            print(f"{count} of {len(cases)}", file=sys.stderr, flush=True)

    found = sweep(cases, options.j, progress)
    for key, (column, message) in sorted(found.items()):
        if column in (options.list or ("wrong", "traceback")):
            print(f"{column}: {' '.join(key)}: {_short(message)}")
    lost = sorted(key for key, result in found.items() if key in right and result[0] != "right")
    for key in lost:
        print(f"no longer right: {' '.join(key)}: {': '.join(found[key])}")
    print(f"{'':10}{''.join(f'{column:>11}' for column in COLUMNS)}      total")
    for name in frontends:
        counts = Counter(column for key, (column, _) in found.items() if key[0] == name)
        figures = [*(counts[column] for column in COLUMNS), counts.total()]
        print(f"{name:10}{''.join(f'{figure:>11}' for figure in figures)}")
    if options.json:
        listed = [[*key, *result] for key, result in sorted(found.items())]
        options.json.write_text(json.dumps(listed, indent=1))
    if options.update_baseline:
        write_baseline(found)
    failed = any(column in ("wrong", "traceback") for column, _ in found.values())
    return int(failed or (bool(lost) and not options.update_baseline))


if __name__ == "__main__":
    sys.exit(main())
