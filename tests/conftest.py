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
from statistics import fmean

# As many workers as processors: threads of their libraries would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import compiler_flags
import cpus_here
import onnxruntime
import pytest
import selection
import warm_python
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
PROCESSOR_TIME, OWN_TIME = "processor time", "processor time without shared fixtures"
SHARED_TIME = "processor time of shared fixtures, whoever made them"
CPU_RUNS = "CPUs whose code ran"
COVERED = "covered"
"""Property of a test with a line about what a search tried, which the summary prints."""

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
        help="fast tests with their first parameters and one drawn example",
    )
    parser.addoption(
        "--update-costs",
        action="store_true",
        help=f"write the processor time of the tests that run into {selection.COSTS.name}",
    )


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
    """Leave out what other commits run, or what is not quick.

    Tutorials take minutes: started last, one would run alone when all others are done.
    """
    costs, commit = selection.read_costs(), selection.commit_number()
    left = set(selection.left_to_others(items, commit, costs))
    quick = bool(config.getoption("--quick"))
    if "UMAKIT_EXAMPLES" in os.environ:
        for item in left:
            item.add_marker("soak")
        left = set()
    # A test by its name runs whole, and so does `make pages`.
    elif any("::" in argument for argument in config.args) or config.option.markexpr == "page":
        left = set()
    if quick:
        left = {*items} - {*selection.quick(items, costs)}
    if left:
        config.hook.pytest_deselected(items=[*left])
        items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: item.path.name != "test_tutorials.py")
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
        is_shared = fixturedef.scope != "function"
        _spent[is_shared] += spent
        if is_shared:
            _shared_fixtures[fixturedef.argname, fixturedef.baseid] = spent


_spent = [0.0, 0.0]
"""Processor time of fixtures made for the running test: of its own, and of shared ones."""

_shared_fixtures: dict[tuple[str, str], float] = {}
"""Processor time of shared fixtures, by name and the file that they are of."""


def _time_of_shared_fixtures(item: pytest.Item) -> float:
    """Return the processor time of shared fixtures of a test, whichever test came first."""
    info = getattr(item, "_fixtureinfo", None)
    used = [each for some in info.name2fixturedefs.values() for each in some] if info else []
    return sum(_shared_fixtures.get((each.argname, each.baseid), 0.0) for each in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Count the examples that a test draws, for the summary of all workers."""
    before, start = _drawn[0], _processor_time()
    cpus_here.RUNS.clear()
    try:
        return (yield)
    finally:
        own = _processor_time() - start + _spent[0]
        item.user_properties.append((PROCESSOR_TIME, own + _spent[1]))
        item.user_properties.append((OWN_TIME, own))
        _spent[:] = [0.0, 0.0]
        item.user_properties.append((SHARED_TIME, _time_of_shared_fixtures(item)))
        if cpus_here.RUNS:
            item.user_properties.append((CPU_RUNS, sorted(set(cpus_here.RUNS))))
        if _drawn[0] > before:
            item.user_properties.append((DRAWN, _drawn[0] - before))


def _processor_time() -> float:
    """Return the processor time of this process and of its ended children, in seconds.

    Commands of `warm_python` are children of its server.
    """
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + warm_python.processor_time()


def _values(reports: list[pytest.TestReport], name: str) -> list[float]:
    return [
        float(str(value))
        for report in reports
        for each, value in report.user_properties
        if each == name
    ]


def _costs(reports: list[pytest.TestReport]) -> dict[str, selection.Cost]:
    """Return the mean costs of functions."""
    found: dict[str, list[tuple[float, float]]] = {}
    for report in reports:
        measured = dict(report.user_properties)
        seconds = float(str(measured[OWN_TIME])), float(str(measured[SHARED_TIME]))
        found.setdefault(report.nodeid.split("[")[0], []).append(seconds)
    return {
        name: selection.Cost(*map(fmean, zip(*each, strict=True))) for name, each in found.items()
    }


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
    drawn = _values(reports, DRAWN)
    seconds = sum(_values(reports, PROCESSOR_TIME))
    for report in reports:
        for name, value in report.user_properties:
            if name == COVERED:
                terminalreporter.write_line(f"covered: {value}")
    if config.getoption("--update-costs"):
        selection.write_costs(_costs(reports))
    if reports:
        terminalreporter.write_line(
            f"{len(reports)} tests in {seconds:.0f} s of processor time; "
            f"{sum(drawn):.0f} examples drawn in {len(drawn)} of them"
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
