"""A leader that was deposed and does not know it: nothing is written twice, lost or repeated because of its answers."""

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pyarrow")

from ottla.base.types import TopicPartition
from ottla.spark.errors import UnknownOutcomeError
from ottla.spark.ids import slot_id
from ottla.spark.ledger import NO_PLAN, BatchKey, SlotMarker
from ottla.spark.ledger_io import LedgerKafka
from ottla.spark.protocol import Claim, SlotReport, SlotTask, claim_sink, commit_batch, slot_task
from ottla.spark.requests import AppendInTransaction, EndTransactions, InitProducer, Steps
from ottla.wire.apis import ApiKey
from tests.spark.deposed_link import READS, WRITES_AND_READS, deposed_link

SINK, KEY, TOPIC = "s", BatchKey("q", 0), "rows"


class Driver:
    """A driver that makes batches of one slot; the slot's transaction has nothing but its marker."""

    def __init__(self, bootstrap: str, ledger: str, **config: object) -> None:
        self.link, self.cluster = deposed_link({"bootstrap.servers": bootstrap, **config})
        self.tp = TopicPartition(ledger, 0)
        self.ledger = LedgerKafka(self.link, SINK, ledger, 1, 60_000)

    def claim(self) -> Claim:
        claim: Claim = self.link.run(self.ledger.drive(claim_sink(SINK)))
        return claim

    def write(self, claim: Claim, key: BatchKey) -> SlotReport:
        """What a task does."""
        marker = SlotMarker(key, 0, 1, "aa")

        def steps() -> Steps:
            handle = yield InitProducer(slot_id(SINK, 0, 0))
            yield AppendInTransaction(handle, (marker,), {})
            return handle

        return SlotReport(claim, key, 0, SlotTask.WRITE, 1, "aa", self.link.run(self.ledger.drive(steps())))

    def commit(self, report: SlotReport) -> None:
        self.link.run(self.ledger.drive(commit_batch([report], {}, NO_PLAN)))

    def decide(self, report: SlotReport) -> None:
        """Commit it up to the decision."""

        def steps() -> Steps:
            following = commit_batch([report], {}, NO_PLAN)
            asked = next(following)
            while not isinstance(asked, EndTransactions):
                asked = following.send((yield asked))
            return (yield asked)

        self.link.run(self.ledger.drive(steps()))

    def end(self) -> int:
        """Where the ledger ends."""
        return self.link.run(self.link.offsets_at({self.tp: -1}, committed=False))[self.tp]


@pytest.fixture
def driver(bootstrap: str, fresh_name: Callable[[str], str]) -> Iterator[Callable[..., Driver]]:
    """Starts drivers of one sink, each in a process of its own as far as it can tell."""
    topic, drivers = fresh_name("ledger"), list[Driver]()

    def start(**config: object) -> Driver:
        drivers.append(Driver(bootstrap, topic, **config))
        return drivers[-1]

    yield start
    for each in drivers:
        each.link.shut()


#: A client writes to the leader that was deposed and reads from it; or it has found the successor after it has written.
_ASKED = pytest.mark.parametrize("apis", [WRITES_AND_READS, READS])


@_ASKED
def test_s2_a_batch_is_not_written_twice_because_a_deposed_leader_has_not_its_decision(
    driver: Callable[..., Driver], apis: frozenset[ApiKey]
) -> None:
    first = driver()
    claim = first.claim()
    before = first.end()
    first.commit(first.write(claim, KEY))
    second = driver()  # Spark died before it noted that the batch is committed
    second.cluster.depose({second.tp: before}, apis=apis)
    claim = second.claim()
    assert second.cluster.old_answers > 0
    assert slot_task(claim, KEY, 0, TOPIC) == (SlotTask.SKIP, None)


@_ASKED
def test_s2_a_driver_does_not_forget_what_it_has_read_because_a_deposed_leader_has_it_not(
    driver: Callable[..., Driver], apis: frozenset[ApiKey]
) -> None:
    only = driver()
    claim = only.claim()
    before = only.end()
    only.commit(only.write(claim, KEY))
    assert only.claim().past["q"].complete == 0
    only.cluster.depose({only.tp: before}, apis=apis)
    claim = only.claim()
    assert only.cluster.old_answers > 0
    assert slot_task(claim, KEY, 0, TOPIC) == (SlotTask.SKIP, None)


@_ASKED
def test_s2_a_decided_batch_is_not_aborted_because_a_deposed_leader_has_not_its_decision(
    driver: Callable[..., Driver], apis: frozenset[ApiKey]
) -> None:
    first = driver()
    claim = first.claim()
    before = first.end()
    first.decide(first.write(claim, KEY))  # it dies between the decision and the end of the slot
    second = driver()
    second.cluster.depose({second.tp: before}, apis=apis)
    claim = second.claim()
    assert (claim.recovered, claim.aborted) == (1, 0)
    assert slot_task(claim, KEY, 0, TOPIC) == (SlotTask.SKIP, None)


@_ASKED
def test_s2_a_commit_that_runs_twice_finds_its_decision_whatever_a_deposed_leader_says(
    driver: Callable[..., Driver], apis: frozenset[ApiKey]
) -> None:
    first = driver()
    claim = first.claim()
    before, report = first.end(), first.write(claim, KEY)
    first.commit(report)
    second = driver()
    second.cluster.depose({second.tp: before}, apis=apis)
    second.commit(report)
    assert second.cluster.old_answers > 0


def test_s2_a_leader_that_never_learns_that_it_was_deposed_stops_the_query_and_hides_nothing(
    driver: Callable[..., Driver],
) -> None:
    first = driver()
    claim = first.claim()
    before = first.end()
    first.commit(first.write(claim, KEY))
    # All but the write is answered; a busy machine may need seconds for it.
    second = driver(**{"default.api.timeout.ms": 5_000, "request.timeout.ms": 4_000})
    second.link.run(second.link.topics([second.tp.topic], as_of_now=True))
    second.cluster.depose({second.tp: before}, unaware=1_000_000)
    with pytest.raises(UnknownOutcomeError, match="Start the query again"):
        second.claim()
