# SPDX-License-Identifier: Apache-2.0
"""Drawn networks of all operators for every CPU: clean C, and the numbers of other runtimes.

    python tests/cpu_sweep.py                              every operator for every CPU, in hours
    python tests/cpu_sweep.py --sample 20 --seed 7         20 networks, each for one CPU
    python tests/cpu_sweep.py onnx:Pad qdq:Conv:int8 --cpus cortex-m4 --seed 3    some of them again

A network of an ONNX operator (`onnx_drawing`) has other operators before and behind it; operators
of quantized ONNX files and of TensorFlow Lite (`diff_sweep`) stand side by side in one file. Its C
must compile with gcc and clang without a warning of `warnings.txt`, and runs where the CPU is
(`cpu_programs`), in memory of garbage. Results equal those of ONNX Runtime without optimizations,
ONNX's reference evaluator or TensorFlow Lite Micro; integers are those of `generic`, bit by bit.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from cpu_programs import run_on_garbage
from cpus_here import need
from diff_sweep import INFERENCES, ONNX, ONNX_DTYPES, TFLITE, Drawing, draw_one
from onnx import numpy_helper
from onnx_chains import OLDEST, STEPS, chained
from onnx_drawing import MAKERS, Draw
from onnx_node_tests import isolated
from onnx_sweep import build, expectations, is_newest, load_tests_of_operators
from strict import WARNINGS
from test_tflite_sweep import SCALED, candidates
from tflite_cases import Case, file_of, oracle

from umakit.cpu.description import GENERIC, Cpu, cpu_names, find_cpu
from umakit.devices import find_device
from umakit.devices.build import library_sources
from umakit.errors import DeviceError, UmakitError

Array = np.ndarray[Any, Any]
Key = tuple[str, str, str]
"""Format, operator and dtype."""

TOGETHER = 8
"""Operators of quantized files side by side in one network."""

NEW, ATTEMPTS = 8, 32
"""Networks of an operator that are drawn until one can be compared, the first of new opsets."""

WIDE = (8, 1, 16)
"""Factors of the last sizes of shapes: vectors have 4, 8 or 16 numbers."""

TRIES = 6
"""Seeds of an operator that are tried until umakit does not refuse its network."""


@dataclass(frozen=True)
class Network:
    """A model file.

    Attributes:
        content, suffix: of it.
        inputs: by name, one row for each inference.
        expected: outputs by name as other runtimes compute them, of each runtime.
        steps: by which an output may differ from them, of outputs that are multiples of one.
        keys: of its operators, which the sweep is about.
        around: names of the steps of `onnx_chains` that were drawn.
        certain: whether a runtime knows the operator: ONNX's evaluator alone computes some
            operators of older opsets as the newest one defines them.
    """

    content: bytes
    suffix: str
    inputs: Mapping[str, Array]
    expected: Sequence[Mapping[str, Array]]
    keys: Sequence[Key]
    steps: Mapping[str, float] = field(default_factory=dict)
    around: Sequence[str] = ()
    certain: bool = True


REFUSED = {("onnx", "Compress"), ("tflite", "EMBEDDING_LOOKUP"), ("tflite", "L2_POOL_2D")}
"""Operators that umakit refuses in all networks that are drawn."""

# --- what is drawn -------------------------------------------------------------------------------


@cache
def tflite_cases() -> dict[Key, list[Case]]:
    """Cases of each operator of TensorFlow Lite and dtype, with fixed shapes."""
    found: dict[Key, list[Case]] = defaultdict(list)
    for code, dtype, case in candidates():
        found["tflite", code, dtype].append(case)
    return found


@cache
def all_keys() -> tuple[Key, ...]:
    """Everything that can be drawn; a dtype `any` is drawn with the network."""
    load_tests_of_operators()
    plain = [("onnx", name, "any") for name in sorted(MAKERS)]
    quantized = [("qdq", name, dtype) for name in ONNX for dtype in ONNX_DTYPES]
    drawn = [
        ("tflite", maker.__name__, dtype) for maker in set(TFLITE) for dtype in ("float32", *SCALED)
    ]
    return (*plain, *quantized, *tflite_cases(), *sorted(drawn))


def drawn_network(keys: Sequence[Key], seed: int) -> Network | str:
    """A network of some operators of one format, or why there is none."""
    (form,) = {key[0] for key in keys}
    if form == "onnx":
        (key,) = keys
        return onnx_network(key[1], seed)
    return qdq_network(keys, seed) if form == "qdq" else tflite_network(keys, seed)


def onnx_network(operator: str, seed: int) -> Network | str:
    """A network of one operator between others."""
    reason = "nothing was drawn"
    for attempt in range(ATTEMPTS):
        draw = Draw(operator, seed * ATTEMPTS + attempt, WIDE[(seed + attempt) % len(WIDE)])
        if draw.opset < OLDEST and attempt < NEW:
            continue
        try:
            alone, inputs = build(draw, MAKERS[operator](draw))
            dtype = str(next(iter(inputs.values())).dtype) if inputs else ""
            model, around = chained(alone, [zlib.crc32(operator.encode()), seed, attempt])
            onnx.checker.check_model(model)
        except Exception as error:
            reason = f"not valid: {error}"
            continue
        found = list(expectations(model, inputs))
        if not found:
            reason = "no oracle"
            continue
        names = [value.name for value in model.graph.output]
        expected = [
            {name: np.asarray(a)[None] for name, a in zip(names, arrays, strict=True)}
            for arrays in found
        ]
        rows = {name: np.asarray(array)[None] for name, array in inputs.items()}
        key = ("onnx", operator, dtype)
        return Network(
            model.SerializeToString(), ".onnx", rows, expected, [key], around=tuple(around),
            certain=len(found) > 1 or is_newest(alone),
        )  # fmt: skip
    return reason


def qdq_network(keys: Sequence[Key], seed: int) -> Network | str:
    """Operators of a quantized ONNX file side by side."""
    q, steps = Drawing(0), {}
    for _, name, dtype in keys:
        result = draw_one(q, name, dtype, [zlib.crc32(f"{name} {dtype}".encode()), seed])
        constants = {tensor.name: tensor for tensor in q.constants}
        node = next(each for each in q.nodes if result in each.output)
        if node.op_type == "DequantizeLinear":
            steps[result] = float(numpy_helper.to_array(constants[node.input[1]]).max())
    q.random = np.random.default_rng(seed)
    rows = {name: values[:INFERENCES] for name, values in q.samples(4.0).items()}
    model = q.model_of_all()
    names = [output.name for output in model.graph.output]
    runs = [
        list(expectations(model, {name: values[i] for name, values in rows.items()}))
        for i in range(INFERENCES)
    ]
    expected = [
        {name: np.stack([run[n] for run in both]) for n, name in enumerate(names)}
        for both in zip(*runs, strict=False)
    ]
    if not expected:
        return "no oracle"
    return Network(model.SerializeToString(), ".onnx", rows, expected, list(keys), steps)


def tflite_network(keys: Sequence[Key], seed: int) -> Network | str:
    """Operators of a TensorFlow Lite file side by side."""
    makers = {maker.__name__: maker for maker in TFLITE}
    cases = []
    for key in keys:
        _, name, dtype = key
        random = np.random.default_rng([zlib.crc32(f"{name} {dtype}".encode()), seed])
        known = tflite_cases().get(key)
        cases.append(known[seed % len(known)] if known else makers[name](random, dtype))
    content, tensors, outputs = file_of(cases)
    random = np.random.default_rng(seed)
    rows = {
        name: (t.drawn(random)[2:] if t.values is None else t.values)[:INFERENCES]
        for name, t in tensors.items()
    }
    try:
        expected = [oracle(content, rows, outputs)]
    except (RuntimeError, ValueError):  # no kernel: kernels for CPUs are compared with each other
        expected = [{}]
    return Network(content, ".tflite", rows, expected, list(keys))


# --- one network for one CPU ---------------------------------------------------------------------


def compilers(cpu: Cpu) -> list[list[str]]:
    """Command lines of gcc and clang for a CPU, without its flags; those that know the CPU."""
    arm = ["--target=arm-none-eabi", "-isystem", "/usr/include/newlib"]
    risc_v = find_device("qemu-riscv32")
    if cpu.architecture == "riscv64":  # gcc 12 has no riscv_vector.h
        return [find_device("qemu-riscv64-linux").compiler()]
    if cpu.architecture == "aarch64":
        headers = ["-isystem", "/usr/aarch64-linux-gnu/include"]
        return [["aarch64-linux-gnu-gcc"], ["clang", "--target=aarch64-linux-gnu", *headers]]
    if cpu.architecture == "riscv32":
        picolibc = "/usr/lib/picolibc/riscv64-unknown-elf/include"
        clang = ["clang", "--target=riscv32-unknown-elf", "-isystem", picolibc]
        return [[risc_v.command, "--specs=picolibc.specs"], clang]
    if cpu.architecture.startswith("arm"):
        return [["arm-none-eabi-gcc"], ["clang", *arm]]
    return [["gcc"], ["clang"]]


OPTIONS = ("-std=c99", "-O2", "-c")


def warnings_of(library: Path, cpu: str, folder: Path, options: Sequence[str] = OPTIONS) -> str:
    """What compilers say of a library's C; empty if they say nothing."""
    described, said = find_cpu(cpu), []
    sources = [str(path.resolve()) for path in library_sources(library)]
    for command in compilers(described):
        need(command[0])
        line = [*command, *options, *WARNINGS, *described.flags, *sources]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            said.append(f"{command[0]}: {done.stderr[:800]}")
    return "\n".join(said)


def differences(network: Network, found: Mapping[str, Array], generic: Mapping[str, Array]) -> str:
    """How outputs differ from all other runtimes' or from `generic`; empty if they do not."""
    said: list[str] = []
    for expected in network.expected:
        wrong = [
            text
            for name, wanted in expected.items()
            if (text := difference(found[name], wanted, network.steps.get(name, 0.0)))
        ]
        said += [f"{name}: {text}" for name, text in zip(expected, wrong, strict=False)][:1]
        if not wrong:
            said = []
            break
    if not network.certain:
        said = []
    for name, wanted in generic.items():
        is_exact = wanted.dtype.kind != "f" or name in network.steps
        if is_exact and not np.array_equal(found[name], wanted, equal_nan=wanted.dtype.kind == "f"):
            said.append(f"{name}: other integers than with {GENERIC}")
        elif not any(network.expected) and (text := difference(found[name], wanted, 0.0)):
            said.append(f"{name}: other numbers than with {GENERIC}: {text}")
    return "\n".join(said)


def difference(found: Array, wanted: Array, step: float) -> str:
    """How an output differs from another runtime's; empty if it does not.

    Args:
        found, wanted: the two.
        step: by which it may differ.
    """
    if found.dtype != wanted.dtype or found.size != wanted.size:
        return f"{found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    found = found.reshape(wanted.shape)
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(found, wanted) else _shown(found, wanted)
    finite = np.abs(wanted[np.isfinite(wanted)])
    limit = max(1e-5 * max(1.0, float(finite.max(initial=0.0))), 1.001 * step)
    is_near = np.isclose(found, wanted, rtol=1e-4, atol=limit, equal_nan=True)
    return "" if is_near.all() else _shown(found[~is_near], wanted[~is_near])


def _shown(found: Array, wanted: Array) -> str:
    return f"{found.ravel()[:6].tolist()}, not {wanted.ravel()[:6].tolist()} (of {found.size})"


@dataclass
class Result:
    """What became of a network: by CPU empty for right, else what was wrong."""

    keys: Sequence[Key]
    seed: int
    around: Sequence[str] = ()
    refused: str = ""
    by_cpu: dict[str, str] = field(default_factory=dict)


def check(keys: Sequence[Key], seed: int, cpus: Sequence[str]) -> Result:
    """Draw a network and try it for some CPUs."""
    network = drawn_network(keys, seed)
    if isinstance(network, str):
        return Result(keys, seed, refused=network)
    result = Result(network.keys, seed, network.around)
    generic: Mapping[str, Array] = {}
    (first, *_) = network.expected
    has_integers = bool(network.steps) or any(a.dtype.kind != "f" for a in first.values())
    has_integers |= not first
    tried = [GENERIC, *cpus] if has_integers else cpus
    for cpu in dict.fromkeys(tried):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            try:
                found = run_on_garbage(network.content, network.suffix, network.inputs, cpu, folder)
            except DeviceError as error:
                result.by_cpu[cpu] = f"{error}"
                continue
            except UmakitError as error:
                if (folder / "library").exists():
                    result.by_cpu[cpu] = f"{type(error).__name__}: {error}"
                    continue
                result.refused = str(error)
                return result
            except Exception:
                result.by_cpu[cpu] = traceback.format_exc()[-1500:]
                continue
            generic = found if cpu == GENERIC else generic
            said = [differences(network, found, generic if cpu != GENERIC else {})]
            said.append(warnings_of(folder / "library", cpu, folder))
            result.by_cpu[cpu] = "\n".join(filter(None, said))
    return result


# --- all networks --------------------------------------------------------------------------------


@dataclass
class Coverage:
    """What was drawn, and what was wrong.

    Attributes:
        counts: networks by operator, CPU and dtype.
        around: how often each step of `onnx_chains` was drawn.
        refused: reasons by key.
        complaints: what was wrong.
    """

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    around: Counter[str] = field(default_factory=Counter)
    refused: dict[Key, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    ran: set[Key] = field(default_factory=set)

    def add(self, keys: Sequence[Key], result: Result) -> None:
        """Count the result of a network."""
        if result.refused:
            self.refused |= dict.fromkeys(keys, result.refused)
            return
        self.ran |= {*keys}
        self.around.update(result.around)
        for (form, operator, dtype), cpu in itertools.product(result.keys, result.by_cpu):
            self.counts[f"{form} {operator}", cpu, dtype] += 1
        for cpu, said in result.by_cpu.items():
            if said:
                named = " ".join(":".join(key) for key in keys)
                self.complaints.append(f"{named} --cpus {cpu} --seed {result.seed}: {said}")

    def never_drawn(self, keys: Sequence[Key]) -> list[str]:
        """What could be drawn and never ran: operators of each format, and steps of chains."""
        ran = {key[:2] for key in self.ran}
        operators = {key[:2] for key in keys} - ran - REFUSED
        return [*sorted(map(":".join, operators)), *sorted(set(STEPS) - set(self.around))]

    def summary(self) -> str:
        """A line of counts."""
        operators, cpus, dtypes = (len({key[n] for key in self.counts}) for n in range(3))
        return (
            f"{self.counts.total()} runs: {operators} operators, {cpus} CPUs, {dtypes} dtypes, "
            f"{len(self.counts)} of their combinations; {len(self.around)} of {len(STEPS)} "
            f"operators around others; {len(self.refused)} refused or without an oracle"
        )

    def table(self) -> str:
        """Networks of each operator by CPU, and its dtypes."""
        cpus = sorted({cpu for _, cpu, _ in self.counts})
        rows = [f"{'operator':34}" + "".join(f"{cpu:>16}" for cpu in cpus) + "  dtypes"]
        for operator in sorted({name for name, _, _ in self.counts}):
            own = {key: n for key, n in self.counts.items() if key[0] == operator}
            cells = (sum(n for (_, cpu, _), n in own.items() if cpu == each) for each in cpus)
            dtypes = " ".join(sorted({dtype for _, _, dtype in own}))
            rows.append(f"{operator:34}" + "".join(f"{n:>16}" for n in cells) + f"  {dtypes}")
        return "\n".join(rows)


def groups_of(keys: Sequence[Key]) -> list[list[Key]]:
    """Keys whose operators are drawn into one network each."""
    groups = [[key] for key in keys if key[0] == "onnx"]
    for form in ("qdq", "tflite"):
        own = [key for key in keys if key[0] == form]
        groups += [own[n : n + TOGETHER] for n in range(0, len(own), TOGETHER)]
    return groups


def split_of_refused(
    keys: Sequence[Key], seed: int, cpus: Sequence[str]
) -> list[tuple[Sequence[Key], Result]]:
    """Results of a group; of its halves where a part of the group is refused."""
    result = check(keys, seed, cpus)
    if len(keys) == 1 and keys[0] not in tflite_cases():  # those are the same for each seed
        for other in range(1, TRIES):
            result = check(keys, seed + 1000 * other, cpus) if result.refused else result
    if not result.refused or len(keys) == 1:
        return [(keys, result)]
    half = len(keys) // 2
    return [
        each for part in (keys[:half], keys[half:]) for each in split_of_refused(part, seed, cpus)
    ]


def sweep(jobs: Sequence[tuple[Sequence[Key], int, Sequence[str]]], processes: int) -> Coverage:
    """Try networks, each in a process of its own.

    Args:
        jobs: keys of a group, the seed and the CPUs.
        processes: how many run at a time.
    """
    coverage = Coverage()

    def job(keys: Sequence[Key], seed: int, cpus: Sequence[str]) -> Callable[[Connection], None]:
        def run(answer: Connection) -> None:
            with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null):
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
                answer.send(split_of_refused(keys, seed, cpus))
            answer.close()
            os._exit(0)

        return run

    described = [((tuple(keys), seed), job(keys, seed, cpus)) for keys, seed, cpus in jobs]
    results: Any
    for number, ((keys, seed), results) in enumerate(isolated(described, processes, 1800), 1):
        before = len(coverage.complaints)
        if results[0] == "traceback":
            named = " ".join(":".join(key) for key in keys)
            coverage.complaints.append(f"{named} --seed {seed}: {results[1]}")
            results = []
        for part, result in results:
            coverage.add(part, result)
        for text in coverage.complaints[before:]:
            print(text, file=sys.stderr, flush=True)
        if number % 25 == 0:
            print(f"{number} of {len(jobs)} networks", file=sys.stderr, flush=True)
    return coverage


def sample(
    count: int, seed: int, cpus: Sequence[str]
) -> Iterator[tuple[list[Key], int, list[str]]]:
    """Networks of drawn operators, each for one CPU, in turns of the CPUs."""
    random = np.random.default_rng(seed)
    keys = all_keys()
    plain = [key for key in keys if key[0] == "onnx"]
    others = [key for key in keys if key[0] != "onnx"]
    for number, start in enumerate(random.permutation(len(plain))[:count]):
        cpu = cpus[(number + seed) % len(cpus)]
        if number % 4 < 3:
            yield [plain[start]], seed, [cpu]
            continue
        form = ("qdq", "tflite")[int(random.integers(2))]
        own = [key for key in others if key[0] == form]
        chosen = [own[int(n)] for n in random.permutation(len(own))[: TOGETHER // 2]]
        yield chosen, seed, [cpu]


def rotating_seed() -> int:
    """A seed that each commit has another one of; UMAKIT_CPU_SEED gives one again."""
    given = os.environ.get("UMAKIT_CPU_SEED")
    if given:
        return int(given)
    line = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=7", "HEAD"]
    try:
        commit = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(commit.strip(), 16) % 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Print coverage and what was wrong; the exit code is 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("keys", nargs="*", help="FORMAT:OPERATOR[:DTYPE], default: all")
    parser.add_argument("--cpus", nargs="*", choices=cpu_names(), default=[*cpu_names()])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, help="so many networks, each for one CPU")
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("--all-refused", action="store_true", help="list what is refused")
    options = parser.parse_args(arguments)
    keys = [
        key for key in all_keys()
        if not options.keys or any(_matches(key, word) for word in options.keys)
    ]  # fmt: skip
    if options.sample:
        jobs = [*sample(options.sample, options.seed, options.cpus)]
    else:
        jobs = [(group, options.seed, options.cpus) for group in groups_of(keys)]
    coverage = sweep(jobs, options.j)
    print(coverage.table())
    if options.all_refused:
        print(*(f"{':'.join(key)}: {said}" for key, said in coverage.refused.items()), sep="\n")
    missing = [] if options.sample or options.keys else coverage.never_drawn(keys)
    if missing:
        print(f"never drawn: {', '.join(missing)}")
    print(coverage.summary())
    return int(bool(coverage.complaints or missing))


def _matches(key: Key, word: str) -> bool:
    return f"{':'.join(key)}:".startswith(f"{word}:")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
