"""Writes docs/apis.md from the broker's table of APIs.

usage: python tools/gen_apis.py [--check]
"""

import sys
from pathlib import Path

from ottla.broker.handlers.table import document

TARGET = Path(__file__).resolve().parent.parent / "docs" / "apis.md"


def main() -> int:
    """Write the page, or with --check say whether it is as it should be."""
    text = document()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET.name} is out of date: run python tools/gen_apis.py")
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
