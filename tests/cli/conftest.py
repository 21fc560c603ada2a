"""The command line as a function: what a person types, what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ottla.cli.main import main
from ottla.testing import Broker


class Said(NamedTuple):
    """The exit code and both outputs of one command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


Ottla = Callable[..., Said]


@pytest.fixture
def ottla(ottla_broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ottla:
    """Runs `ottla ARGUMENTS…` against the session's broker."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", ottla_broker.bootstrap_servers)

    def run(*arguments: str) -> Said:
        code = main(arguments)
        return Said(code, *capfd.readouterr())

    return run
