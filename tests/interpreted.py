"""Ottla's compiled modules from their Python source, as on a machine without a C compiler (OTTLA_INTERPRETED=1)."""

from __future__ import annotations

import os
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path


def pass_over_compiled(package: Path) -> None:
    """From now on what is imported from below this folder is Python source, and the .so beside it is passed over."""
    loaded = [name for name in sys.modules if name.startswith((f"{package.name}.wire", f"{package.name}.log"))]
    if loaded:
        raise RuntimeError(f"OTTLA_INTERPRETED=1 came too late: {', '.join(loaded)}")
    only_source, inside = FileFinder.path_hook((SourceFileLoader, [".py"])), f"{package}{os.sep}"

    def hook(path: str) -> FileFinder:
        # Not any folder of that name: the checkout may have it, too, and its virtual environment is full of libraries.
        if not (path + os.sep).startswith(inside):
            raise ImportError
        return only_source(path)  # type: ignore[return-value]

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
