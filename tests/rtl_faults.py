# SPDX-License-Identifier: Apache-2.0
"""Faults of RTL and drivers that have to be found; as a program it prints a table.

    python tests/rtl_faults.py [options] [WORD]...    faults whose names have all the words; one
                                                      that ends in a colon is a backend

Some come from `rtl_mutator` with a fixed seed, `MECHANICAL` of each design: Strawberry's, that of
the small Chocolate, and `square`, whose driver and model the kit writes. The others are in
data/rtl_faults.toml. With `--clean N`, N varied programs run on each design without a fault
instead, and none may differ. A copy of the backend gets the fault. What looks for it, in this
order, until it is found:

    digits      `uma cosim` of the digits network; a driver's fault is in both that it compares, so
                that `uma diff --rtl` with a reference looks for these
    pauses      `uma cosim` again, while the memory bus pauses at random
    registers   `uma check --registers --rtl`
    layers      `uma check --rtl`
    programs    Strawberry's RTL beside the C model over register accesses, tests/rtl/compare*.py;
                not a command of the kit, and run only if `--stages` names it

Each fault has a process of its own. A design that hangs is found when the time of a stage is over.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import rtl_mutator
from square import write_square

from umakit.devices import verilator
from umakit.devices.designs import design_of

MAKE = verilator._make
ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests/data/rtl_faults.toml"
DIGITS = ROOT / "examples/digits/digits_int8.onnx"
STRAWBERRY = "backends/strawberry_accelerator"
CHOCOLATE = "backends/small_chocolate_accelerator"
SQUARE = "square"
MECHANICAL, SEED = 20, 0
STAGES = ("digits", "pauses", "registers", "layers")
LIMIT = {"digits": 90.0, "pauses": 90.0}
"""Seconds of a co-simulation, of which digits takes one."""

FEW = 40
"""Layers of a first, short `uma check --rtl`."""

PROGRAMS = 60
"""Random programs of register accesses."""

QUICK = ("-O0", "-fno-strict-aliasing")
"""How designs are compiled that run for a moment."""

CATCH_UP = 100_000
"""Cycles by which the RTL may be later than the model in a co-simulation."""

LONGEST = 900.0
"""Seconds after which a fault's process is ended."""


@dataclass(frozen=True)
class RtlFault:
    """One text of a file of a backend replaced by another one.

    Attributes:
        backend: folder.
        kind: what is wrong.
        file: in that folder.
        old, new: texts.
        begin: where the old text begins; -1: where it occurs, which is once.
        equivalent: why no test can find it; empty if one can.
    """

    backend: str
    kind: str
    file: str
    old: str
    new: str
    begin: int = -1
    equivalent: str = ""

    @property
    def name(self) -> str:
        """Backend and kind."""
        return f"{Path(self.backend).name}: {self.kind}"

    @property
    def text(self) -> str:
        """Text of the unmodified file."""
        return (ROOT / self.backend / self.file).read_text(encoding="utf-8")

    def planted(self, folder: Path) -> Path:
        """Return a copy of the backend that has the fault.

        Args:
            folder: where the copy is made.
        """
        text = self.text
        begin = text.index(self.old) if self.begin < 0 else self.begin
        assert self.begin >= 0 or text.count(self.old) == 1, self.name
        assert text[begin:].startswith(self.old), self.name
        copy = folder / Path(self.backend).name
        ignored = shutil.ignore_patterns("__pycache__", "build")
        shutil.copytree(ROOT / self.backend, copy, ignore=ignored)
        changed = text[:begin] + self.new + text[begin + len(self.old) :]
        (copy / self.file).write_text(changed, encoding="utf-8")
        return copy


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    Attributes:
        fault: its name.
        found_by: one of `STAGES`; empty if nothing found it.
        how: what was said.
        seconds: time that it took.
        equivalent: why nothing can find it; empty if something can.
    """

    fault: str
    found_by: str
    how: str
    seconds: float
    equivalent: str = ""

    @property
    def result(self) -> str:
        """Found, equivalent or missed."""
        if self.found_by:
            return "found"
        return "equivalent" if self.equivalent else "MISSED"


def manual_faults() -> list[RtlFault]:
    """Return the faults of the data file."""
    return [RtlFault(**each) for each in tomllib.loads(DATA.read_text(encoding="utf-8"))["fault"]]


def mechanical_faults(
    backend: str = STRAWBERRY, count: int = MECHANICAL, seed: int = SEED
) -> list[RtlFault]:
    """Return faults of a design that the mutator draws.

    Args:
        backend: folder of the backend.
        count: how many.
        seed: equal seeds draw equal faults.
    """
    design = design_of(ROOT / backend)
    paths = {path.name: path for path in design.files.sources}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    drawn = rtl_mutator.drawn(texts, seed, design.files.top)
    equivalents = tomllib.loads(DATA.read_text(encoding="utf-8")).get("equivalent", [])
    return [
        RtlFault(
            backend, f"{mutant.kind} {mutant.name}",
            str(paths[mutant.file].relative_to(ROOT / backend)),
            mutant.old, mutant.new, mutant.begin, _why(mutant, equivalents),
        )
        for mutant in itertools.islice(drawn, count)
    ]  # fmt: skip


def _why(mutant: rtl_mutator.Mutant, equivalents: Sequence[dict[str, str]]) -> str:
    """Return why a mutant is equivalent, if the data file says so."""
    for each in equivalents:
        told = (each["file"], each["code"], each["old"], each["new"])
        if told == (mutant.file, mutant.code, mutant.old, mutant.new):
            return each["why"]
    return ""


# --- in the process of a fault -------------------------------------------------------------------


def _digits(copy: Path, pauses: int = 0) -> str:
    from umakit import find_backend
    from umakit.errors import AcceleratorConfigError, DeviceError
    from umakit.tools.cosim import cosim_model

    limit = LIMIT["pauses" if pauses else "digits"]
    backends = [find_backend(str(copy))]
    try:
        difference = cosim_model(DIGITS, backends, pauses=pauses, timeout=limit).difference
    except (AcceleratorConfigError, DeviceError) as error:
        return str(error)
    return "" if difference is None else f"{difference.layer}: {difference.sentence}"


def _diff(copy: Path) -> str:
    from umakit import find_backend
    from umakit.errors import DeviceError
    from umakit.tools.diff import diff_model

    def end(number: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, end)
    signal.alarm(int(LIMIT["digits"]))
    try:
        result = diff_model(DIGITS, [find_backend(str(copy))], device="rtl", most=1)
    except DeviceError as error:
        return str(error)
    except TimeoutError:
        return f"digits does not end within {LIMIT['digits']:g} s"
    finally:
        signal.alarm(0)
    return "" if result.agrees else "digits differs from the reference"


def _layers(copy: Path, seconds: float) -> str:
    from umakit import find_backend
    from umakit.testing import check_backend

    backend = find_backend(str(copy))
    for draws in (FEW, None):  # most faults are found by few layers
        report = check_backend(backend, seconds=seconds, draws=draws, device="rtl")
        if report.failures:
            return f"{report.failures[0].what} ({report.failures[0].case})"
    return ""


def _registers(copy: Path) -> str:
    from umakit import find_backend
    from umakit.testing.check.backend_check import check_only_registers

    report = check_only_registers(find_backend(str(copy)), device="rtl")
    return report.failures[0].what if report.failures else ""


def _quick_make(folder: Path, top: str, compiler: Sequence[str]) -> None:
    """Compile a design with Verilator's own objects of an earlier one."""
    kept = Path(tempfile.gettempdir()) / f"umakit-rtl-faults-{os.getuid()}"
    kept.mkdir(exist_ok=True)
    names = verilator._runtime_objects(folder, top)
    for name in names:
        if (kept / name).exists():
            shutil.copy(kept / name, folder / name)
    MAKE(folder, top, compiler)
    for name in names:
        if not (kept / name).exists():
            shutil.copy(folder / name, kept / name)


class _Found(Exception):
    """The first difference of a comparison."""


def _programs(copy: Path) -> str:
    """Compare random programs, and what can go wrong, on the design and on the C model."""
    sys.path.insert(0, str(ROOT / "tests/rtl"))
    import compare
    import compare_faults
    from verilated_strawberry import RtlDevice, build, sources

    class First(compare.Report):
        def expect(self, what: str, expected: object, found: object) -> None:
            if expected != found:
                raise _Found(f"{what}: model {expected}, RTL {found}")

    report = First()
    with tempfile.TemporaryDirectory(prefix="umakit-rtl-fault-") as folder:
        device = RtlDevice(build(Path(folder), sources(copy / "rtl")))
        try:
            for seed in range(1, PROGRAMS + 1):
                device.randomize(seed, seed if seed % 4 == 0 else 0)
                pair = compare.Pair(device, report)
                compare.run_program(pair, seed)
            for phase in compare_faults.PHASES:
                compare_faults.run_phase(phase, device, report)
        except _Found as found:
            return str(found)
    return ""


def run_one(fault: RtlFault, seconds: float, stages: Sequence[str]) -> None:
    """Look for a fault; prints a line of JSON for each stage.

    Args:
        fault: the fault.
        seconds: time of `layers`.
        stages: those to run.
    """
    from umakit.devices import designs
    from umakit.errors import AcceleratorConfigError

    os.environ["UMAKIT_COSIM_CATCH_UP"] = str(CATCH_UP)
    usual = verilator.CXX_FLAGS, designs.HARNESS_FLAGS, verilator.SPEED, verilator._make
    quick = QUICK, ("-std=c++17", "-O0"), verilator.SPEED[:-2], _quick_make  # one file of C++
    in_driver, is_strawberry = fault.file.endswith(".c"), fault.backend == STRAWBERRY
    is_square = Path(fault.backend).name == SQUARE  # whose digits take a million cycles
    with tempfile.TemporaryDirectory(prefix="umakit-rtl-fault-") as temporary:
        copy = fault.planted(Path(temporary))
        runs: dict[str, Callable[[], str]] = {
            "digits": lambda: "" if is_square else _diff(copy) if in_driver else _digits(copy),
            "pauses": lambda: "" if in_driver or is_square else _digits(copy, pauses=1),
            "registers": lambda: "" if in_driver else _registers(copy),
            "programs": lambda: "" if in_driver or not is_strawberry else _programs(copy),
            "layers": lambda: _layers(copy, seconds),
        }
        for stage in stages:
            # Designs that run for a moment only are not worth the compiler's time.
            is_long = stage == "layers"
            chosen = usual if is_long else quick
            verilator.CXX_FLAGS, designs.HARNESS_FLAGS, verilator.SPEED, verilator._make = chosen
            print(json.dumps({"stage": stage}), flush=True)
            try:
                how = runs[stage]()
            except AcceleratorConfigError as error:  # the design contradicts its description
                how = error.what
            print(json.dumps({"stage": stage, "how": how}), flush=True)
            if how:
                return


# --- in the process that starts them --------------------------------------------------------------


def outcome_of(fault: RtlFault, seconds: float, stages: Sequence[str]) -> Outcome:
    """Look for a fault in a process of its own, which is ended after `LONGEST` seconds."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = os.fork()  # TVM is loaded once
        if process == 0:
            _in_child(said.fileno(), fault, seconds, stages)
        ended = _ended(process, started + LONGEST)
        said.seek(0)
        lines = said.read().splitlines()
    took = time.monotonic() - started
    reports = [json.loads(line) for line in lines if line.startswith('{"stage"')]
    last = reports[-1] if reports else {"stage": ""}
    if not ended:
        return Outcome(fault.name, last["stage"], f"does not end within {LONGEST:g} s", took)
    if "how" not in last:
        return Outcome(fault.name, "", f"the test itself failed: {' '.join(lines[-1:])}", took)
    if last["how"]:
        return Outcome(fault.name, last["stage"], last["how"], took)
    return Outcome(fault.name, "", "", took, fault.equivalent)


def _in_child(said: int, fault: RtlFault, seconds: float, stages: Sequence[str]) -> None:
    """Run the stages with all output in a file; does not return."""
    try:
        os.setsid()
        os.dup2(said, 1)
        os.dup2(said, 2)
        run_one(fault, seconds, stages)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _ended(process: int, end: float) -> bool:
    """Wait for a process until a time, and end it and what it runs then."""
    while time.monotonic() < end:
        if os.waitpid(process, os.WNOHANG)[0]:
            return True
        time.sleep(0.1)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def _load() -> None:
    """Load what processes of faults need, so that each begins with it."""
    from umakit import find_backend
    from umakit.pipeline import import_network

    for module in ("umakit.testing", "umakit.tools.cosim", "umakit.tools.diff"):
        importlib.import_module(module)
    find_backend(str(ROOT / STRAWBERRY))
    import_network(DIGITS)


def clean_programs(folder: Path, count: int) -> str:
    """Run varied programs on a design without a fault; return what they found, in a line.

    Args:
        folder: of the backend.
        count: number of programs.
    """
    from umakit import find_backend
    from umakit.testing.check.backend_check import check_only_programs
    from umakit.testing.programs.program_check import Wanted

    report = check_only_programs(find_backend(str(folder)), Wanted(most=count))
    jobs = report.jobs
    lengths = f"layers of {min(jobs):,} to {max(jobs):,} cycles" if jobs else "no layer"
    lines = [f"{folder.name}: {report.summary}; {lengths}, {report.seconds:.0f} s"]
    return "\n".join(lines + [f"    {each.sentence}" for each in report.differences])


def main(words: Sequence[str]) -> int:
    """Print a table of faults and what found them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the processor, of layers")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--mechanical", type=int, default=MECHANICAL, help="of each design")
    parser.add_argument("--clean", type=int, help="programs on each design without a fault")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--part", default="1/1", help="such as 2/3: the second of three parts")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--again", type=Path, help="table whose missed faults are looked for again")
    given = parser.parse_args(words)
    stages = given.stages.split(",")
    with tempfile.TemporaryDirectory(prefix="umakit-square-") as folder:
        backends = [STRAWBERRY, CHOCOLATE, str(write_square(Path(folder)))]
        if given.clean:
            chosen = [each for each in backends if all(word in each for word in given.words)]
            found = [clean_programs(ROOT / each, given.clean) for each in chosen]
            print("\n".join(found), flush=True)
            return int(any("differ" in each for each in found))
        return _search(given, stages, backends)


def _search(given: argparse.Namespace, stages: Sequence[str], backends: Sequence[str]) -> int:
    only = [word[:-1] for word in given.words if word.endswith(":")]
    chosen = [each for each in backends if not only or Path(each).name in only]
    drawn = [mechanical_faults(each, given.mechanical, given.seed) for each in chosen]
    faults = [*itertools.chain(*drawn), *manual_faults()]
    faults = [each for each in faults if all(word in each.name for word in given.words)]
    faults.sort(key=lambda fault: bool(fault.equivalent))  # all stages run for these
    part, parts = map(int, given.part.split("/"))
    faults = faults[part - 1 :: parts]
    before = json.loads(given.again.read_text()) if given.again else []
    known = {each["fault"]: Outcome(**each) for each in before if each["found_by"]}
    _load()
    outcomes: list[Outcome] = []
    for number, fault in enumerate(faults, 1):
        outcome = known.get(fault.name) or outcome_of(fault, given.seconds, stages)
        outcomes.append(outcome)
        print(f"{number:3} {outcome.result:10} {outcome.found_by:9} {outcome.seconds:6.1f} s  "
              f"{outcome.fault}", flush=True)  # fmt: skip
        for line in filter(None, (outcome.how[:160], outcome.equivalent)):
            print(f"      {line}", flush=True)
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    for name in dict.fromkeys(each.fault.partition(":")[0] for each in outcomes):
        print(coverage(name, [each for each in outcomes if each.fault.startswith(f"{name}:")]))
    print(coverage("all", outcomes))
    found = sum(bool(each.found_by) for each in outcomes)
    observable = sum(each.result != "equivalent" for each in outcomes)
    return 0 if found >= 0.95 * observable else 1


def coverage(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return how many faults were found, of those that can be observed, in a line."""
    count = Counter(each.result for each in outcomes)
    stages = Counter(each.found_by for each in outcomes if each.found_by)
    observable = len(outcomes) - count["equivalent"]
    by = ", ".join(f"{number} by {stage}" for stage, number in stages.items())
    return (
        f"{name}: {count['found']} of {observable} found ({count['found'] / max(observable, 1):.0%}"
        f"; {by}), {count['equivalent']} more are equivalent, {count['MISSED']} missed"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
