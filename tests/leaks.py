"""The search at the end of each run: no secret of a test is in anything that the suites have written.

What is written comes together in the run's own directory (pytest's `basetemp`): files of the tests, logs of brokers
(`OTTLA_BROKER_LOGS`), and what tests and the processes they start print and log, which is taken from pytest's reports.
A secret there ends the run as failed, and the place is named. What a test that has failed says of itself is left out:
it shows lines of the test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.marked import Leak, leaks_below, leaks_in

_LOGS: Final = "broker-logs"
_found = pytest.StashKey[list[Leak]]()


def _is_worker(config: pytest.Config) -> bool:
    """Whether this process only runs tests for another one (pytest-xdist)."""
    return hasattr(config, "workerinput")


def _basetemp(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp()


class _Reports:
    """Looks at what each test has printed and logged."""

    def __init__(self, found: list[Leak]) -> None:
        self._found = found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The sections of a report hold all that was captured so far, so those of the last phase are enough."""
        if report.when == "teardown":
            for name, text in report.sections:
                self._found += leaks_in(text.encode(errors="replace"), f"{report.nodeid}: {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to look, where the reports come together."""
    if not _is_worker(config):
        config.stash[_found] = []
        config.pluginmanager.register(_Reports(config.stash[_found]), "ottla-leaks")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have brokers leave their logs in this run's directory."""
    logs = _basetemp(session.config) / _LOGS
    logs.mkdir(exist_ok=True)
    os.environ["OTTLA_BROKER_LOGS"] = str(logs)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look through all files. A secret makes the run fail."""
    if _is_worker(session.config):
        return
    found = session.config.stash[_found]
    found += leaks_below(_basetemp(session.config))
    if found and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the places."""
    found = config.stash.get(_found, [])
    if found:
        terminalreporter.section("secrets in what was written", red=True, bold=True)
        for leak in found:
            terminalreporter.line(f"{leak.where}: …{leak.text}…")
