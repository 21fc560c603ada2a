"""What a broker imports before it answers: the start-up budget of DESIGN, held by names and not by a clock."""

import subprocess
import sys

#: Slow to import, or not installed with `pip install ottla`, and of no use before the first request.
_NOT_WANTED = (
    "importlib.metadata",
    "pyarrow",
    "typer",
    "rich",
    "kio",
    "hypothesis",
    "re2",
    "ottla.client",
    "ottla.spark",
)


def test_a_broker_starts_without_what_it_does_not_need() -> None:
    code = f"import ottla.broker.process, ottla.broker.app, sys; print(*(set({_NOT_WANTED!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
