"""How the ledger is read from a real broker, and from one that has just taken over."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from ottla.base.types import TopicPartition
from ottla.spark.ledger import BatchKey, Decision, Done, Handle, Ledger
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import KafkaLink
from ottla.spark.protocol import Append, ReadLedger, Steps
from ottla.wire.messages.fetch import PartitionData
from tests.spark.brokers import on_either_broker
from tests.spark.throttled_link import throttled_link

KEY = BatchKey("q", 7)


class NewLeader(KafkaLink):
    """A link to a leader that does not know yet, for its first fetches, what its followers have (KIP-207)."""

    lags = 2

    async def fetch(self, tp: TopicPartition, offset: int, **how: Any) -> PartitionData | None:
        """Nothing, below an old high watermark; then what there is."""
        data = await super().fetch(tp, offset, **how)
        assert data is not None
        self.lags -= 1
        return data._replace(records=b"", high_watermark=0) if self.lags >= 0 else data


def read(ledger: LedgerKafka, link: KafkaLink) -> Ledger:
    """What a driver sees that comes now."""

    def steps() -> Steps:
        return (yield ReadLedger())

    found: Ledger = link.run(ledger.drive(steps()))
    return found


def note(ledger: LedgerKafka, link: KafkaLink) -> None:
    """A decision and its end."""

    def steps() -> Steps:
        yield Append(Decision(KEY, Handle("s-driver", 1, 0), ()))
        yield Append(Done(KEY))

    link.run(ledger.drive(steps()))


@on_either_broker
@pytest.mark.parametrize("kind", [KafkaLink, NewLeader, throttled_link])
def test_s2_a_decision_is_found_whatever_high_watermark_a_new_leader_answers(
    bootstrap: str, fresh_name: Callable[[str], str], kind: Callable[[dict[str, object]], KafkaLink]
) -> None:
    topic, link = fresh_name("ledger"), kind({"bootstrap.servers": bootstrap})
    try:
        ledger = LedgerKafka(link, "s", topic, 1, 60_000)
        note(ledger, link)
        past = read(ledger, link).past()["q"]
        assert (past.complete, past.latest) == (7, 7)
    finally:
        link.shut()


def test_s2_a_ledger_that_was_made_anew_is_read_from_its_beginning(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic, link = fresh_name("ledger"), KafkaLink({"bootstrap.servers": bootstrap})
    try:
        ledger = LedgerKafka(link, "s", topic, 1, 60_000)
        note(ledger, link)
        assert read(ledger, link).next_offset == 2
        link.run(link.admin.delete_topics([topic]))
        link.memory.pop(("ledger topic", topic))
        fresh = read(LedgerKafka(link, "s", topic, 1, 60_000), link)
        assert (fresh.next_offset, fresh.past()) == (0, {})
    finally:
        link.shut()
