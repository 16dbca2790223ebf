# SPDX-License-Identifier: Apache-2.0
"""Options that all tests share, and the summary of how much was drawn and which tests took long."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

# As many workers as processors: threads of their libraries would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import compiler_flags
import cpus_here
import onnxruntime
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from umakit.devices import DEVICES
from umakit.errors import MissingProgramError

# Importing all tests makes objects that stay; looking through them again and again takes a quarter
# of the time of it.
gc.disable()

# Compiled modules are kept, whatever PYTHONDONTWRITEBYTECODE says: without them each worker
# rewrites the assertions of all tests, and each process compiles umakit again. What tests write
# and import themselves, perhaps twice within the resolution of file times, is not kept.
_KEEPS_NO_COMPILED_MODULES, sys.dont_write_bytecode = sys.dont_write_bytecode, False

DRAWN = "drawn examples"
PROCESSOR_TIME = "processor time"
CPU_RUNS = "CPUs whose code ran"
COVERED = "covered"
"""Property of a test with a line about what a search tried, which the summary prints."""

SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
"""Names of tests that `make quick` leaves out; written by a run of all tests with --update-slow."""

SAMPLED_TESTS = Path(__file__).with_name("sampled_tests.txt")
"""Names of tests, and with how many of their parameters `make test` runs each, evenly spread; all
others are for `make soak`. Each set of parameters stays in that tests what no other does."""

SLOW_SECONDS = 0.2
"""Processor time of a test with its fastest parameters above which it is slow."""

SLOW_FIXTURE_SECONDS = 1.5
"""Processor time of a shared fixture above which all tests are slow that use it: without the first
of them, the next one would wait for it."""

# Tests assert no times: the machine may be busy, and the first example may import what it needs.
settings.register_profile("without deadline", settings.default, deadline=None)
settings.load_profile("without deadline")

if "UMAKIT_EXAMPLES" not in os.environ:
    # Hypothesis also draws the constants that it finds in modules of the project, in those that
    # this worker has imported so far: what is drawn would depend on which tests ran before.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test whose device needs a program that this machine lacks; CI has all of them."""
    try:
        return (yield)
    except MissingProgramError as error:
        if "UMAKIT_CI" in os.environ:
            raise
        pytest.skip(error.what)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is printed now into the files that show it (README.md)",
    )
    parser.addoption(
        "--quick",
        action="store_true",
        help="each test with its first parameters and one drawn example, slow ones left out",
    )
    parser.addoption(
        "--update-slow",
        action="store_true",
        help=f"write the tests that took long into {SLOW_TESTS.name}: for a run of all tests",
    )


def _function(item: pytest.Item) -> str:
    """Return the name of a test without parameters, as SLOW_TESTS lists it."""
    return item.nodeid.split("[")[0]


def _left_to_soak(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what SAMPLED_TESTS leaves out of some tests."""
    lines = SAMPLED_TESTS.read_text(encoding="utf-8").splitlines()
    counts = {name: int(count) for name, count in (line.split() for line in lines)}
    parameters: dict[str, list[pytest.Item]] = {name: [] for name in counts}
    for item in items:
        parameters.get(_function(item), []).append(item)
    left = []
    for name, found in parameters.items():
        kept = {number * len(found) // max(1, counts[name]) for number in range(counts[name])}
        left += [item for number, item in enumerate(found) if number not in kept]
    return left


def _let_onnx_runtime_be_exact() -> None:
    """Let each session of ONNX Runtime compute exact integers, as it does with VNNI.

    On other x86-64 processors it adds products of uint8 and int8 in 16 bits, where they saturate.
    """
    original = onnxruntime.InferenceSession.__init__

    def initialize(
        self: object, model: object, options: object = None, *rest: object, **named: object
    ) -> None:
        options = options or named.pop("sess_options", None) or onnxruntime.SessionOptions()
        try:
            options.get_session_config_entry("session.x64quantprecision")
        except RuntimeError:  # no test has decided otherwise
            options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            original(self, model, options, *rest, **named)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:  # of its change of weights
            options.add_session_config_entry("session.x64quantprecision", "0")
            original(self, model, options, *rest, **named)

    onnxruntime.InferenceSession.__init__ = initialize


def pytest_configure(config: pytest.Config) -> None:
    """On CI a missing program or package is a failure: tests would be skipped unseen."""
    _let_onnx_runtime_be_exact()
    cpus_here.mask_features()
    # A shell starts jobs in the background so that they, and what they start, ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "UMAKIT_EXAMPLES" not in os.environ:
        compiler_flags.choose(
            optimized=False
        )  # before modules of tests are imported, which read it
    if hasattr(config, "workerinput"):
        _leave_out_threads_of_xdist()
    else:
        compiler_flags.delete_old()
    if os.environ.get("UMAKIT_CI"):
        programs = ["gcc", "clang", "chromium", "verilator"]
        for device in DEVICES:
            programs += [device.command, device.size, *device.run[:1]]
        missing = [name for name in programs if name and shutil.which(name) is None]
        programs += ["ssh", "busybox", shutil.which("sshd") or "/usr/sbin/sshd"]
        packages = ["torch", "torchao"]
        missing += [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            raise pytest.UsageError(f"CI lacks {', '.join(missing)}: see .ci/run")


def _leave_out_threads_of_xdist() -> None:
    """Let a worker of xdist count its threads as pytest alone does.

    umakit forks only where there are no other threads, and starts Python again elsewhere. The
    thread that waits for messages of xdist holds nothing that a fork waits for.
    """
    count, others = threading.active_count, threading.active_count() - 1
    threading.active_count = lambda: count() - others


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests out that are for `make soak`, or not quick.

    Tutorials take minutes: started last, one would run alone when all others are done.
    """
    left = _left_to_soak(items)
    if "UMAKIT_EXAMPLES" in os.environ:
        for item in left:
            item.add_marker("soak")
    elif not any("::" in argument for argument in config.args):  # a test by its name runs whole
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    items.sort(key=lambda item: item.path.name != "test_tutorials.py")
    quick = bool(config.getoption("--quick"))
    if quick:
        first: dict[tuple[object, ...], pytest.Item] = {}
        slow = set(SLOW_TESTS.read_text(encoding="utf-8").split())
        for item in items:
            if _function(item) not in slow:
                first.setdefault((item.parent, getattr(item, "originalname", item.name)), item)
        kept = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = first.values()
    functions = {id(item.obj): item.obj for item in items if isinstance(item, pytest.Function)}
    for function in functions.values():  # one object for all parameters
        if hasattr(function, "hypothesis"):
            function.hypothesis.inner_test = _counted(function.hypothesis.inner_test)
            if quick:
                chosen = function._hypothesis_internal_use_settings or settings.default
                function._hypothesis_internal_use_settings = settings(chosen, max_examples=1)


def _counted(test: Callable[..., object]) -> Callable[..., object]:
    """A test of Hypothesis that counts the examples that it gets."""

    @functools.wraps(test)
    def run(*arguments: object, **drawn: object) -> object:
        _drawn[0] += 1
        return test(*arguments, **drawn)

    return run


_drawn = [0]
"""How many examples this process drew."""


def _leave_backends_of_pages() -> None:
    """Work where no folder has the name of a backend of umakit, as the README's commands write one.

    Elsewhere is everything else of the working folder, by links.
    """
    here = Path.cwd()
    named = {folder.name for folder in (Path(__file__).parents[1] / "backends").iterdir()}
    if not any((here / name / "backend.py").exists() for name in named):
        return
    place = Path(tempfile.mkdtemp(prefix="umakit-tests-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for each in here.iterdir():
        if each.name not in named:
            (place / each.name).symlink_to(each)
    os.chdir(place)


def pytest_collection_finish() -> None:
    """Look for garbage again, and not among what was made before the tests."""
    _leave_backends_of_pages()
    sys.dont_write_bytecode = _KEEPS_NO_COMPILED_MODULES
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the flags of the C compiler for a test and its fixtures."""
    if "UMAKIT_EXAMPLES" not in os.environ:
        optimized = item.get_closest_marker("optimized") is not None
        compiler_flags.choose(
            optimized=optimized,
            optimized_simulators=item.get_closest_marker("optimized_simulators") is not None,
        )
        os.environ[compiler_flags.SETTING] = "optimized" if optimized else "quick"


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """Measure fixtures that several tests share."""
    start = _processor_time()
    try:
        return (yield)
    finally:
        spent = _processor_time() - start
        if fixturedef.scope != "function" and spent > SLOW_FIXTURE_SECONDS:
            _slow_fixtures[fixturedef.argname, fixturedef.baseid] = spent


_slow_fixtures: dict[tuple[str, str], float] = {}
"""Processor time of shared fixtures that took long, by name and the file that they are of."""


def _time_of_fixtures(item: pytest.Item) -> float:
    """Return the processor time of slow shared fixtures of a test, whichever test came first."""
    info = getattr(item, "_fixtureinfo", None)
    used = [each for some in info.name2fixturedefs.values() for each in some] if info else []
    return sum(_slow_fixtures.get((each.argname, each.baseid), 0.0) for each in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Count the examples that a test draws, for the summary of all workers."""
    before, start = _drawn[0], _processor_time()
    cpus_here.RUNS.clear()
    try:
        return (yield)
    finally:
        spent = _processor_time() - start + _time_of_fixtures(item)
        item.user_properties.append((PROCESSOR_TIME, spent))
        if cpus_here.RUNS:
            item.user_properties.append((CPU_RUNS, sorted(set(cpus_here.RUNS))))
        if _drawn[0] > before:
            item.user_properties.append((DRAWN, _drawn[0] - before))


def _processor_time() -> float:
    """Return the processor time of this process and of its ended children, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _write_slow(reports: list[pytest.TestReport]) -> None:
    """Write the names of tests whose fastest parameters took long."""
    fastest: dict[str, float] = {}
    for report in reports:
        name = report.nodeid.split("[")[0]
        # Commands of warm_python are no children of the test: it waits for them.
        seconds = max(
            float(str(dict(report.user_properties)[PROCESSOR_TIME])), report.duration / 10
        )
        fastest[name] = min(seconds, fastest.get(name, seconds))
    names = sorted(name for name, seconds in fastest.items() if seconds > SLOW_SECONDS)
    SLOW_TESTS.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how many examples were drawn: what makes tests faster must not draw fewer."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call"
    ]
    drawn = [value for report in reports for name, value in report.user_properties if name == DRAWN]
    for report in reports:
        for name, value in report.user_properties:
            if name == COVERED:
                terminalreporter.write_line(f"covered: {value}")
    if config.getoption("--update-slow"):
        _write_slow(reports)
    if reports:
        terminalreporter.write_line(
            f"{len(reports)} tests; {sum(drawn)} examples drawn in {len(drawn)} of them"
        )
    for line in _lines_of_cpus(reports):
        terminalreporter.write_line(line)


def _lines_of_cpus(reports: list[pytest.TestReport]) -> list[str]:
    """Say of each CPU whose code ran in how many tests it ran, and on what."""
    properties = [each for report in reports for each in report.user_properties]
    runs = Counter(tuple(run) for name, found in properties if name == CPU_RUNS for run in found)
    ways: dict[str, list[str]] = {}
    for (cpu, way), count in sorted(runs.items()):
        ways.setdefault(cpu, []).append(f"{count} on {way}")
    return [f"tests of code for {cpu}: {', '.join(found)}" for cpu, found in ways.items()]
