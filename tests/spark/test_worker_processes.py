"""Processes of Spark that serve many tasks: what is there after the first one is looked at by no collection."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from ottla.spark.worker_processes import rest

#: A process that looks like one of Spark's, and does what such a process does.
_PROGRAM = """
import gc, importlib.util, sys
sys.modules["__main__"].__spec__ = importlib.util.find_spec(sys.argv[1])
from ottla.spark.worker_processes import rest
class Node: pass
def cycle(note):
    one, other = Node(), Node()
    one.other, other.one = other, one
    one.note = note
class Note:
    def __del__(self): print("freed", flush=True)
cycle(Note())
rest("read")
first = gc.get_freeze_count()
rest("read")
cycle(Note())
gc.collect()
print(first > 1000, gc.get_freeze_count() == first)
rest("write")
print(gc.get_freeze_count() >= first)
second = gc.get_freeze_count()
import xml.dom.minidom
rest("write")
third = gc.get_freeze_count()
rest("write")
print(third > second, gc.get_freeze_count() == third)
"""


def _run(main: str) -> list[str]:
    program = [sys.executable, "-c", _PROGRAM, main]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()


def test_after_its_first_task_of_a_kind_or_new_modules_a_worker_s_objects_are_at_rest() -> None:
    assert _run("pyspark.daemon") == ["freed", "freed", "True True", "True", "True True"]


def test_no_other_process_is_changed() -> None:
    assert _run("pyspark.version") == ["freed", "freed", "False True", "True", "False True"]
    before = gc.get_freeze_count()
    rest("read")
    assert gc.get_freeze_count() == before


def test_signals_that_end_a_worker_are_heard_in_a_task_and_as_before_behind_it() -> None:
    program = (
        "import signal\nfrom ottla.spark.worker_processes import ends_in_order\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "def now(): return [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]\n"
        "before = now()\n"
        "with ends_in_order(): print(callable(now()[0]), now()[1] == before[1])\n"
        "print(now() == before)\n"
        "try:\n    with ends_in_order(): raise ValueError\nexcept ValueError: print(now() == before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True True", "True", "True"]
