"""How many transactions ended in the output topic: counted from the markers in its files, ours or Apache Kafka's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_RECOVERED = re.compile(r"recovered (\d+) slots that were decided, aborted (\d+) open transactions")


class Transactions(NamedTuple):
    """Transactions that left a marker in the topic."""

    committed: int
    aborted: int


def count_transactions(data_dir: Path, topic: str) -> Transactions:
    """Count distinct (producer id, epoch) of the markers: with KIP-890 every transaction has an epoch of its own."""
    from ottla.wire.batch import iter_headers
    from ottla.wire.markers import parse_end_txn_marker

    ended: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for segment in sorted(data_dir.glob(f"{topic}-[0-9]*/*.log")):
        content = segment.read_bytes()
        for position, header in iter_headers(content):
            if header.is_control:
                commit, _epoch = parse_end_txn_marker(content[position : position + header.size_bytes])
                ended[commit].add((header.producer_id, header.producer_epoch))
    return Transactions(len(ended[True]), len(ended[False]))


def count_recovered(log: Iterable[str]) -> int:
    """Transactions that a restarted driver committed for its predecessor, from what the pipeline has said."""
    return sum(int(found.group(1)) for line in log if (found := _RECOVERED.search(line)))


def streamed_lines(checkpoint: Path) -> tuple[int, int]:
    """(micro-batches committed, input records in them), from the query's checkpoint."""
    import json

    done = sorted(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*") if each.name.isdigit())
    if not done:
        return 0, 0
    try:
        *_head, offset = (checkpoint / "offsets" / str(done[-1])).read_text().splitlines()
        topics: Mapping[str, Mapping[str, int]] = json.loads(offset)["to"]
    except (OSError, ValueError, KeyError):
        return done[-1] + 1, 0  # the file is being written: the next call will find it
    return done[-1] + 1, sum(end for partitions in topics.values() for end in partitions.values())
