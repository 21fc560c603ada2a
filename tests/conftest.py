"""What all tests share.

OTTLA_INTERPRETED=1 runs Ottla's compiled modules from their Python source, as on a machine without a C compiler:
`make test` runs the wire and log tests a second time that way.
Hypothesis has no deadline: how long an example takes says more about the machine than about the code. Its examples
are the same in every run, so that a red run can be repeated; OTTLA_EXPLORE=1 draws new ones.
The longest files are run first: a file stays in one process, and the last one would keep the others waiting.
At the end all that was written is searched for the tests' secrets (`tests/leaks.py`).
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.ending import pytest_collection_finish as pytest_collection_finish
from tests.ending import pytest_unconfigure as pytest_unconfigure
from tests.interpreted import pass_over_compiled
from tests.leaks import pytest_configure as pytest_configure
from tests.leaks import pytest_sessionfinish as pytest_sessionfinish
from tests.leaks import pytest_sessionstart as pytest_sessionstart
from tests.leaks import pytest_terminal_summary as pytest_terminal_summary

settings.register_profile("ottla", deadline=None, derandomize=not os.environ.get("OTTLA_EXPLORE"))
settings.load_profile("ottla")

if os.environ.get("OTTLA_INTERPRETED"):
    pass_over_compiled(Path(__file__).resolve().parents[1] / "src" / "ottla")


#: Folders whose files take a minute and more.
_LONG = ("tests/sim/", "tests/spark/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `_LONG` come first; else the order stays."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
