"""Run by the Python that Spark's workers would use, which need not have Ottla: prints what it has, as JSON.

It is sent as text, so it imports nothing of ours at its head, and is written for Python 3.6 and newer.
"""

import json
import pkgutil
import sys
from importlib import import_module


def version_of(name: str) -> "tuple[str | None, str | None]":
    """A package's version; None with the reason if it cannot be imported."""
    try:
        return getattr(import_module(name), "__version__", "unknown"), None
    except Exception as fault:  # noqa: BLE001 - a package may raise anything when it is imported
        return None, "%s: %s" % (type(fault).__name__, fault)  # noqa: UP031


def main() -> None:
    """Print one JSON document."""
    packages = {name: version_of(name) for name in ("pyspark", "pyarrow", "pandas", "ottla")}
    too_old = {}
    for name in ("pyarrow", "pandas"):
        if packages["pyspark"][0] is not None and packages[name][0] is not None:
            try:
                checks = import_module("pyspark.sql.pandas.utils")
                getattr(checks, "require_minimum_%s_version" % name)()  # noqa: UP031
            except Exception as fault:  # noqa: BLE001 - Spark's own words about the version
                too_old[name] = str(fault)
    sources = {}
    for module in pkgutil.iter_modules():
        if module.name.startswith("pyspark_"):
            sources[module.name] = version_of(module.name)[1]
    said = {
        "version": list(sys.version_info[:3]),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "packages": packages,
        "too_old": too_old,
        "sources": sources,
    }
    print("ottla-doctor " + json.dumps(said))


if __name__ == "__main__":
    main()
