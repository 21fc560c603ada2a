"""The record codec in its two forms: compiled, if it was, and interpreted from the same source."""

import importlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ottla.wire

_FOLDER = Path(ottla.wire.__file__).parent
#: In the order in which they import each other.
_HOT = ("record_codec", "record_writer")
_USERS = ("records", "columns")


def _from_source(name: str) -> ModuleType:
    full_name = f"ottla.wire.{name}"
    loader = SourceFileLoader(full_name, str(_FOLDER / f"{name}.py"))
    spec = importlib.util.spec_from_loader(full_name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    loader.exec_module(module)
    return module


def interpreted() -> dict[str, Any]:
    """Second copies of the modules, all run from their sources; those that were imported before stay what they are."""
    names = [f"ottla.wire.{name}" for name in (*_HOT, *_USERS)]
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        return {name: _from_source(name) for name in (*_HOT, *_USERS)}
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
        for name, module in before.items():
            setattr(ottla.wire, name.rpartition(".")[2], module)


def as_installed() -> dict[str, Any]:
    """The modules as everybody imports them: compiled where a compiler was there."""
    return {name: importlib.import_module(f"ottla.wire.{name}") for name in (*_HOT, *_USERS)}


class Form:
    """One form of the codec, as its modules."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self.codec = modules["record_codec"]
        self.writer = modules["record_writer"]
        self.records = modules["records"]
        self.columns = modules["columns"]


INTERPRETED = Form(interpreted())
INSTALLED = Form(as_installed())
both_forms = pytest.mark.parametrize(
    "form", [pytest.param(INSTALLED, id="installed"), pytest.param(INTERPRETED, id="interpreted")]
)
