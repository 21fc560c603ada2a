"""What all tests share.

OTTLA_INTERPRETED=1 runs Ottla's compiled modules from their Python source, as on a machine without a C compiler:
`make test` runs the wire and log tests a second time that way.
Hypothesis has no deadline: how long an example takes says more about the machine than about the code. Its examples
are the same in every run, so that a red run can be repeated; OTTLA_EXPLORE=1 draws new ones.
The longest files are run first: a file stays in one process, and the last one would keep the others waiting.
At the end all that was written is searched for the tests' secrets (`tests/leaks.py`).
"""

import os
import sys
from importlib.machinery import FileFinder, SourceFileLoader

import pytest
from hypothesis import settings

from tests.ending import pytest_collection_finish as pytest_collection_finish
from tests.ending import pytest_unconfigure as pytest_unconfigure
from tests.leaks import pytest_configure as pytest_configure
from tests.leaks import pytest_sessionfinish as pytest_sessionfinish
from tests.leaks import pytest_sessionstart as pytest_sessionstart
from tests.leaks import pytest_terminal_summary as pytest_terminal_summary

settings.register_profile("ottla", deadline=None, derandomize=not os.environ.get("OTTLA_EXPLORE"))
settings.load_profile("ottla")

if os.environ.get("OTTLA_INTERPRETED"):
    loaded = [name for name in sys.modules if name.startswith("ottla.wire")]
    if loaded:
        raise RuntimeError(f"OTTLA_INTERPRETED=1 came too late: {', '.join(loaded)}")
    only_source = FileFinder.path_hook((SourceFileLoader, [".py"]))

    def hook(path: str) -> FileFinder:
        """Find only Python source under ottla/, so that the .so beside it is passed over."""
        if f"{os.sep}ottla{os.sep}" not in path + os.sep:
            raise ImportError
        return only_source(path)  # type: ignore[return-value]

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


#: Folders whose files take a minute and more.
_LONG = ("tests/sim/", "tests/spark/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `_LONG` come first; else the order stays."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
