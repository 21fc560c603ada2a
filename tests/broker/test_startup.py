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
    "ottla.wire.messages.produce",
    "ottla.wire.messages.create_acls",
)


def test_a_broker_starts_without_what_it_does_not_need() -> None:
    code = f"import ottla.broker.process, ottla.broker.app, sys; print(*(set({_NOT_WANTED!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_broker_that_is_ready_collects_garbage() -> None:
    """Its start does without: all that it makes is there to stay."""
    code = (
        "import asyncio, gc\n"
        "from ottla.base.clock import ManualClock\n"
        "from ottla.broker.garbage import keep_out_of_the_way\n"
        "async def ready(): keep_out_of_the_way(ManualClock(), lambda: 0)\n"
        "gc.disable()\n"
        "asyncio.run(ready())\n"
        "print(gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
