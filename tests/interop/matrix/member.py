"""A member in a process of its own: `python -m tests.interop.matrix.member CLIENT JSON`.

The JSON has the arguments of its class in `members.py`. What it says is told in `spoken.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading

from tests.interop.members import AioKafka, KafkaPython, Kind, Librdkafka, Ours
from tests.interop.spoken import SpokenHistory, has_line

_KINDS: dict[str, Kind] = {
    "ours": Ours,
    "confluent-kafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


def _wait_for_a_line(leaves: threading.Event) -> None:
    sys.stdin.readline()
    leaves.set()


async def _run(kind: Kind, settings: dict[str, object]) -> None:
    leaves = threading.Event()
    threading.Thread(target=_wait_for_a_line, args=(leaves,), daemon=True).start()
    member = kind(history=SpokenHistory(), **settings)
    had = None
    while not leaves.is_set():
        await member.poll()
        has = await member.owned()
        if has != had:
            had = has
            print(has_line(has), flush=True)
    await member.close()


def main() -> None:
    """Be a member until a line comes on standard input."""
    kind, settings = _KINDS[sys.argv[1]], json.loads(sys.argv[2])
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
    logging.getLogger("kafka.cluster").setLevel(logging.WARNING)  # it tells of every look at the metadata
    print("READY", flush=True)
    sys.stdin.readline()
    asyncio.run(_run(kind, settings))


if __name__ == "__main__":
    main()
