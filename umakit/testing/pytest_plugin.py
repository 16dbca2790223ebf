# SPDX-License-Identifier: Apache-2.0
"""The fixture `uma_check` for pytest: `uma check` as one test for each operator of a backend.

In pyproject.toml:

    [tool.pytest.ini_options]
    uma_backend = "."       # name or folder, relative to the file
    uma_seconds = "60"      # for all operators together

In a test file:

    def test_layers_are_computed_right(uma_check):
        uma_check()

pytest loads this module wherever umakit is installed, so the module avoids slow imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from umakit.registration.backend import Backend
    from umakit.testing.check import CheckReport

FIXTURE = "uma_check"

OPTIONS = {
    "uma_backend": ("Name or folder of the accelerator that uma_check is about.", ""),
    "uma_seconds": ("Processor time for uma_check of all operators together, in seconds.", "600"),
    "uma_seed": ("Equal seeds let uma_check draw equal layers.", "0"),
    "uma_draws": (
        "Layers of all operators together; more are drawn where values need them.",
        "1000",
    ),
}

BACKEND = pytest.StashKey["Backend"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, (text, default) in OPTIONS.items():
        parser.addini(name, text, default=default)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test with the fixture by the operators that the backend claims."""
    if FIXTURE in metafunc.fixturenames:
        metafunc.parametrize(FIXTURE, _operators(metafunc.config), indirect=True)


@pytest.fixture
def uma_check(request: pytest.FixtureRequest) -> Callable[[], CheckReport]:
    """A function that checks one operator of the backend, and returns the report.

    The test fails with the report's sentences on a failure.
    """
    config, operator = request.config, str(request.param)

    def check() -> CheckReport:
        from umakit.errors import UmakitError
        from umakit.testing.check import check_backend

        share = len(_operators(config))
        try:
            report = check_backend(
                _backend(config),
                seconds=_number(config, "uma_seconds") / share,
                seed=int(_number(config, "uma_seed")),
                operators=[operator],
                least_draws=max(1, int(_number(config, "uma_draws")) // share),
            )
        except UmakitError as error:
            pytest.fail(str(error), pytrace=False)
        if report.passed is None:
            pytest.fail("\n".join(["incomplete:", *report.incomplete]), pytrace=False)
        if not report.passed:
            pytest.fail("\n".join(_lines(report)), pytrace=False)
        return report

    return check


def _lines(report: CheckReport) -> list[str]:
    lines = []
    for failure in report.failures:
        lines.append(f"{failure.pattern}: {failure.what}")
        if failure.case is not None:
            lines.append(f"    uma check {report.backend} --case '{failure.case}'")
        if failure.fix:
            lines.append(f"    {failure.fix}")
    return lines


def _operators(config: pytest.Config) -> list[str]:
    return [pattern.name for pattern in _backend(config).patterns]


def _backend(config: pytest.Config) -> Backend:
    """Return the backend of the configuration file, loaded once.

    Raises:
        pytest.UsageError: no backend is named, or it cannot be loaded.
    """
    if BACKEND not in config.stash:
        from umakit.backend.registry import locate_backend
        from umakit.errors import UmakitError

        name = str(config.getini("uma_backend"))
        if not name:
            raise pytest.UsageError(
                f"the fixture {FIXTURE} needs a backend: set uma_backend to its name or folder in"
                " the section [tool.pytest.ini_options] of pyproject.toml"
            )
        base = config.inipath.parent if config.inipath else config.rootpath
        try:
            config.stash[BACKEND] = locate_backend(name, base).load()
        except UmakitError as error:
            raise pytest.UsageError(f"uma_backend = {name}: {error}") from None
    return config.stash[BACKEND]


def _number(config: pytest.Config, name: str) -> float:
    text = str(config.getini(name))
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"{name} = {text} in the configuration is no number") from None
