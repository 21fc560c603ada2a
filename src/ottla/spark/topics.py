"""Looks up, for a query, which partitions it reads and where its offsets lie. Runs on the driver, and blocks."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition, topic_id_text
from ottla.client.core.metadata import NO_TOPIC_ID, ClusterSnapshot, TopicInfo
from ottla.client.errors import ClientError
from ottla.spark import bounds, plan
from ottla.spark.bounds import LATEST, AtTimes, Bound
from ottla.spark.errors import OpenTransactionError
from ottla.spark.ids import TOPIC_PREFIX
from ottla.spark.link import KafkaLink, link
from ottla.spark.options import SourceOptions
from ottla.spark.patterns import topic_pattern
from ottla.spark.plan import Logs, Offsets, SourceOffset

log = logging.getLogger("ottla.spark")
_NONE = (-1, -1), -1


class There(NamedTuple):
    """The existing partitions that the options ask for, in order, and their topics' ids as Kafka prints them."""

    partitions: list[TopicPartition]
    ids: dict[str, str]


def _found(snapshot: ClusterSnapshot, pattern: str) -> dict[str, TopicInfo]:
    """What a pattern means: no ledger and, as in Kafka, no internal topic. Both are read when they are named."""
    is_meant = topic_pattern(pattern)
    return {
        topic: info
        for topic, info in snapshot.topics.items()
        if not info.is_internal and not topic.startswith(TOPIC_PREFIX) and is_meant(topic)
    }


def _logs(there: There, earliest: Offsets, ends: Mapping[TopicPartition, tuple[int, int]]) -> Logs:
    epochs = {tp: epoch for tp, (_, epoch) in ends.items() if epoch >= 0}
    return Logs(earliest, {tp: end for tp, (end, _) in ends.items()}, there.ids, epochs=epochs)


class Topics:
    """Asks the cluster about the topics and partitions that the options name."""

    def __init__(self, options: SourceOptions, kafka: Callable[[], KafkaLink] | None = None) -> None:
        """`kafka` is for tests: the link, if not the process's own."""
        self._options = options
        self._said: set[str] = set()
        #: Partitions of which bad news was doubted, and stayed.
        self._believed: set[TopicPartition] = set()
        #: Of partitions with a new leader: the epoch of which it was asked and its own, and where it leaves the former.
        self._reached: dict[TopicPartition, tuple[tuple[int, int], int]] = {}
        self._kafka = kafka
        #: What was there when metadata was this.
        self._known: tuple[ClusterSnapshot, There] | None = None

    @property
    def kafka(self) -> KafkaLink:
        """This process's link to Kafka."""
        return link(self._options.kafka) if self._kafka is None else self._kafka()

    def there(self, *, as_of_now: bool) -> There:
        """Every partition that exists. Raises ConfigError if the options name a topic that never existed.

        Who asks once asks `as_of_now`. Who asks again and again, as a stream does, learns of new topics and partitions
        within `metadata.max.age.ms`.
        """
        options = self._options
        snapshot = self.kafka.run(self.kafka.topics(self._names, as_of_now=as_of_now))
        if options.pattern is None:
            topics = {topic: info for topic, info in snapshot.topics.items() if topic in (self._names or ())}
        else:
            topics = _found(snapshot, options.pattern)
        found = {TopicPartition(topic, partition) for topic, info in topics.items() for partition in info.partitions}
        ids = {topic: topic_id_text(info.topic_id) for topic, info in topics.items() if info.topic_id != NO_TOPIC_ID}
        there = There(sorted(found & set(options.partitions) if options.partitions else found), ids)
        self._known = snapshot, there
        return there

    @property
    def _names(self) -> set[str] | None:
        """Of the topics that are named; None if all topics are looked at."""
        options = self._options
        if options.pattern is not None:
            return None
        return {tp.topic for tp in options.partitions} | set(options.topics)

    def asked(self, tp: TopicPartition) -> bool:
        """Whether the options mean this partition, be it there or not."""
        options = self._options
        if options.pattern is not None:
            return topic_pattern(options.pattern)(tp.topic)
        return tp in options.partitions or tp.topic in options.topics

    def logs(self, there: There) -> Logs:
        """The earliest offset and the end of each partition, and the topics' ids."""
        return _logs(there, *self.kafka.run(self.kafka.extents(there.partitions, committed=self._committed)))

    def logs_there(self, *, as_of_now: bool) -> Logs:
        """`logs` of what is `there`; both in one step when metadata is what it was the last time."""
        known = self._known
        if known is not None and not as_of_now:
            snapshot, there = known
            extents = self.kafka.run(self._extents_if(snapshot, there.partitions))
            if extents is not None:
                return _logs(there, *extents)
        return self.logs(self.there(as_of_now=as_of_now))

    async def _extents_if(
        self, snapshot: ClusterSnapshot, tps: Collection[TopicPartition]
    ) -> tuple[Offsets, dict[TopicPartition, tuple[int, int]]] | None:
        """None if metadata is no more what it was."""
        kafka = self.kafka
        if await kafka.topics(self._names, as_of_now=False) is not snapshot:
            return None
        return await kafka.extents(tps, committed=self._committed)

    def with_cuts(self, logs: Logs, read: SourceOffset) -> Logs:
        """`logs`, and where they have lost what was `read`. A leader that came since is asked, once."""
        earlier = plan.of_an_earlier_epoch(read, logs)
        new = {
            tp: epoch for tp, epoch in earlier.items() if self._reached.get(tp, _NONE)[0] != (epoch, logs.epochs[tp])
        }
        if new:
            ends = self.kafka.run(self.kafka.epoch_ends(new))
            self._reached |= {tp: ((epoch, logs.epochs[tp]), ends.get(tp, -1)) for tp, epoch in new.items()}
        reached = {tp: self._reached[tp][1] for tp in earlier}
        return logs._replace(cuts={tp: end for tp, end in reached.items() if 0 <= end < read.end[tp]})

    def confirmed(self, logs: Logs, offsets: Offsets, ids: Mapping[str, str]) -> Logs:
        """`logs` if they have `offsets`, of topics with these ids. If not, brokers are asked again for as long as their
        word is to be doubted; what is still so after that is believed. Where they end before `offsets`, the ends of the
        logs themselves are there, too."""
        doubt = self.kafka.doubt()
        doubtful = plan.doubtful(offsets, ids, logs)
        self._believed &= doubtful
        while new := doubtful - self._believed:
            holds: bool = self.kafka.run(doubt.holds_after_a_pause(new))
            if not holds:
                break
            logs = self.logs(self.there(as_of_now=True))
            doubtful = plan.doubtful(offsets, ids, logs)
        self._believed |= doubtful
        short = {tp: LATEST for tp, offset in offsets.items() if logs.latest.get(tp, offset) < offset}
        return logs._replace(ends=self.kafka.run(self.kafka.offsets_at(short, committed=False)) if short else {})

    def at(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """For each partition the offset at its time; the time may be EARLIEST, or LATEST for the end of what this query
        may read."""
        return self.kafka.run(self.kafka.offsets_at(times, committed=self._committed))

    @property
    def _committed(self) -> bool:
        return self._options.client.isolation_level == "read_committed"

    def resolve(self, bound: Bound, partitions: list[TopicPartition]) -> Offsets:
        """The offset that `bound` means, in each of `partitions`. Raises ConfigError."""
        asked = bounds.asked(bound, partitions)
        if not isinstance(bound, AtTimes):
            given = {tp: offset for tp, offset in asked.items() if offset >= 0}
            return {**given, **self.at({tp: offset for tp, offset in asked.items() if offset < 0})}
        found = self.at(asked)
        if not bound.late_is_latest:
            bounds.require_times_found(bound, asked, found)
        late = [tp for tp, offset in found.items() if offset < 0]
        return {**found, **(self.at(dict.fromkeys(late, LATEST)) if late else {})}

    def require_stable(self, option: str, offsets: Offsets) -> None:
        """Raise OpenTransactionError if one of `offsets` is in the log, but after the last stable offset."""
        if not offsets:
            return
        # Ask for the end of the log first, and for the last stable offset second. Both only grow. In this order records
        # that are written and committed between the two questions cannot look as if a transaction held them back.
        ends = self.kafka.run(self.kafka.offsets_at(dict.fromkeys(offsets, LATEST), committed=False))
        there = {tp: LATEST for tp, offset in offsets.items() if offset <= ends.get(tp, -1)}
        stable = self.at(there) if there else {}
        for tp in sorted(stable):
            if offsets[tp] > stable[tp]:
                name = self.kafka.run(self._holding_back(tp))
                raise OpenTransactionError(
                    f"{option}: offset {offsets[tp]} of {tp} lies behind an open transaction, {name}, which holds back "
                    f"readers of committed records at offset {stable[tp]} (the log ends at {ends[tp]}). Wait until it "
                    "ends, end it (`ottla transactions` describes and aborts it), or read with "
                    "kafka.isolation.level=read_uncommitted"
                )

    async def _holding_back(self, tp: TopicPartition) -> str:
        """The transactional id of the first open transaction in `tp`; its producer's id if only that is known."""
        try:
            producers = (await self.kafka.admin.describe_producers([tp]))[tp]
            first = min(
                (p for p in producers if p.transaction_start_offset >= 0), key=lambda p: p.transaction_start_offset
            )
            listed = await self.kafka.admin.list_transactions(producer_ids=[first.producer_id])
            return listed[0].transactional_id if listed else f"of producer {first.producer_id}"
        except (ClientError, ValueError):  # an old broker, a missing right, or the transaction has just ended
            return "whose id the broker does not tell"

    def losses(self, losses: list[str]) -> None:
        """Stop the query for lost records, or only log them, as the option `failOnDataLoss` says."""
        if self._options.fail_on_data_loss:
            plan.require_no_loss(losses)
        for loss in sorted(set(losses) - self._said):
            log.warning("failOnDataLoss is false, going on although %s", loss)
        self._said.update(losses)
