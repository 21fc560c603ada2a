"""What Apache Kafka's own classes answer to the first cases of `histories.case_for`: `recorded.json`, one line a case.

`tests/interop/test_assignors.py` asks the classes again, and writes the file when OTTLA_RECORD=1. A case in which the
Java class is wrong has no answer (null).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

#: Answer: member → its partitions, `topic:number`.
Answer = dict[str, list[str]]
#: How many cases of each assignor.
COUNT: Final = 60
_FILE: Final = Path(__file__).with_suffix(".json")


def read() -> dict[str, list[Answer | None]]:
    """The answers, by assignor."""
    found: dict[str, list[Answer | None]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found


def write(answers: Mapping[str, Sequence[Answer | None]]) -> None:
    """Record these."""
    parts = [f"{json.dumps(name)}: [\n" + ",\n".join(map(_line, found)) + "\n]" for name, found in answers.items()]
    _FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _line(answer: Answer | None) -> str:
    return json.dumps(answer, ensure_ascii=False, sort_keys=True)
