"""How the ledger is read from a real broker, and from one that has just taken over."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from ottla import Admin, NewTopic
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.spark.errors import PipelineError
from ottla.spark.ids import driver_id, slot_id
from ottla.spark.ledger import MOST_SLOTS, BatchKey, Decision, Done, Handle, Ledger, SlotDecision
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.link import KafkaLink
from ottla.spark.requests import Append, AppendInTransaction, EndTransactions, InitProducer, ReadLedger, Steps
from ottla.wire.messages.fetch import PartitionData
from tests.spark.brokers import on_either_broker
from tests.spark.forbidding_link import forbidding_link
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


class Cutting(KafkaLink):
    """A link to a broker that answers a fetch with the beginning of a batch, which is not whole."""

    fetches = 0

    async def fetch(self, tp: TopicPartition, offset: int, **how: Any) -> PartitionData | None:
        """The first bytes."""
        data = await super().fetch(tp, offset, **how)
        assert data is not None and data.records is not None
        self.fetches += 1
        assert self.fetches < 20, "it is asked again and again"
        return data._replace(records=bytes(data.records)[:20])


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


@on_either_broker
def test_s2_a_decision_of_as_many_slots_as_there_may_be_fits(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    sink, link = fresh_name("wide"), KafkaLink({"bootstrap.servers": bootstrap})
    slots = tuple(SlotDecision(n, n, "0" * 32, Handle(slot_id(sink, n), n, 0)) for n in range(MOST_SLOTS))

    def steps() -> Steps:
        handle: Handle = yield InitProducer(driver_id(sink))
        yield AppendInTransaction(handle, (Decision(KEY, handle, slots),), {})
        yield EndTransactions((handle,), commit=True)
        yield InitProducer(driver_id(sink))  # it waits for the markers
        return (yield ReadLedger())

    try:
        ledger = LedgerKafka(link, sink, fresh_name("ledger"), 1, 60_000)
        (decision,) = link.run(ledger.drive(steps())).undone()
        assert decision.slots == tuple(slot._replace(digest="") for slot in slots)
    finally:
        link.shut()


def test_s2_a_decision_of_too_many_slots_says_what_to_do(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    sink, link = fresh_name("wide"), KafkaLink({"bootstrap.servers": bootstrap})
    topic = made(bootstrap, fresh_name("ledger"), {"cleanup.policy": "compact", "max.message.bytes": "100000"})
    slots = tuple(SlotDecision(n, 1, "0" * 32, Handle(slot_id(sink, n), n, 0)) for n in range(20_000))

    def steps() -> Steps:
        handle: Handle = yield InitProducer(driver_id(sink))
        return (yield AppendInTransaction(handle, (Decision(KEY, handle, slots),), {}))

    try:
        ledger = LedgerKafka(link, sink, topic, 1, 60_000)
        with pytest.raises(ConfigError, match=r"20000 slots.* coalesce .*raise max\.message\.bytes of ledger-"):
            link.run(ledger.drive(steps()))
    finally:
        link.shut()


def test_s2_what_a_worker_has_read_long_ago_is_read_anew(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic, link = fresh_name("ledger"), KafkaLink({"bootstrap.servers": bootstrap})
    try:
        ledger = LedgerKafka(link, "s", topic, 1, 60_000)
        note(ledger, link)
        first = read(ledger, link)
        assert read(ledger, link) is first
        ledger.forget_after_s = 0.0
        again = read(ledger, link)
        assert again is not first
        assert (again.next_offset, again.past()) == (first.next_offset + 1, first.past())
    finally:
        link.shut()


def test_s2_a_ledger_that_a_broker_does_not_give_is_not_read_for_ever(
    bootstrap: str, fresh_name: Callable[[str], str], use: Callable[..., int]
) -> None:
    topic = fresh_name("ledger")
    with pytest.raises(PipelineError, match=f"{topic}-0 .* brought no whole record batch"):
        use(topic, Cutting)


def test_s2_a_ledger_that_was_made_anew_is_read_from_its_beginning(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic, link = fresh_name("ledger"), KafkaLink({"bootstrap.servers": bootstrap})
    try:
        ledger = LedgerKafka(link, "s", topic, 1, 60_000)
        note(ledger, link)
        assert read(ledger, link).next_offset == 3
        link.run(link.admin.delete_topics([topic]))
        link.memory.pop(("ledger topic", topic))
        fresh = read(LedgerKafka(link, "s", topic, 1, 60_000), link)
        assert (fresh.next_offset, fresh.past()) == (1, {})
    finally:
        link.shut()


def made(bootstrap: str, topic: str, settings: dict[str, str]) -> str:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, settings)])
    return topic


@pytest.fixture
def use(bootstrap: str) -> Iterator[Callable[..., int]]:
    """Uses a topic as a ledger, over a link of some kind; up to which batch query q is complete."""
    links: list[KafkaLink] = []

    def use(topic: str, kind: Callable[[dict[str, object]], KafkaLink] = KafkaLink) -> int:
        links.append(kind({"bootstrap.servers": bootstrap}))
        ledger = LedgerKafka(links[-1], "s", topic, 1, 60_000)
        note(ledger, links[-1])
        return read(ledger, links[-1]).past()["q"].complete

    yield use
    for link in links:
        link.shut()


@on_either_broker
@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "delete", "retention.ms": "604800000"},
        {"cleanup.policy": "compact,delete", "retention.ms": "604800000"},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000000"},
    ],
)
def test_s2_a_topic_that_deletes_old_records_is_no_ledger(
    bootstrap: str, fresh_name: Callable[[str], str], use: Callable[..., int], settings: dict[str, str]
) -> None:
    topic = made(bootstrap, fresh_name("ledger"), settings)
    with pytest.raises(ConfigError, match=f"the ledger topic {topic} deletes old records .* cleanup.policy=compact"):
        use(topic)


@on_either_broker
@pytest.mark.parametrize("settings", [{"cleanup.policy": "compact"}, {"retention.ms": "-1"}])
def test_s2_a_topic_that_keeps_its_records_may_be_a_ledger(
    bootstrap: str, fresh_name: Callable[[str], str], use: Callable[..., int], settings: dict[str, str]
) -> None:
    assert use(made(bootstrap, fresh_name("ledger"), settings)) == 7


def test_s2_a_ledger_may_be_made_for_clients_that_may_not_make_it(
    bootstrap: str, fresh_name: Callable[[str], str], use: Callable[..., int]
) -> None:
    assert use(made(bootstrap, fresh_name("ledger"), {"cleanup.policy": "compact"}), forbidding_link) == 7
    with pytest.raises(
        ConfigError, match=r"could not be made \(TOPIC_AUTHORIZATION_FAILED.*; make it with one partition"
    ):
        use(fresh_name("ledger"), forbidding_link)


def test_s2_a_ledger_whose_name_no_topic_can_have_is_an_option_that_is_wrong(use: Callable[..., int]) -> None:
    with pytest.raises(ConfigError, match="ledger topic a b"):
        use("a b")
