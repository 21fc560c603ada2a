"""Write the two `talks.txt` of groups anew, from a node of Apache Kafka: `python -m tests.interop.record_group_talks`.

A difference to what was there is a question to answer, not a file to commit: did the talk change, or the broker?
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType

from tests.coordinator.group.classic import talks as classic
from tests.coordinator.group.consumer import talks as consumer
from tests.coordinator.group.talking import TALK_SETTINGS
from tests.interop.apache import KAFKA_VERSION, ApacheKafka


def record(talks: ModuleType, port: int) -> None:
    """Hold every talk with the broker at `port`, and write what it answered beside them."""
    lines = [f"# What Apache Kafka {KAFKA_VERSION} answered to the talks of talks.py, one KRaft node."]
    for name in talks.TALKS:
        lines += ["", f"[{name}]", *talks.talk(name, port)]
    Path(str(talks.__file__)).with_name("talks.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, ApacheKafka(Path(directory), TALK_SETTINGS) as node:
        record(consumer, node.port)
        record(classic, node.port)
