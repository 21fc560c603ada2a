"""Writes the history of groups to `__ottla_group_events` (docs/group-events.md): off the path of every answer.

Shards tell facts once their decisions hold. Here they become events, which wait a moment for others and are then
written in batches, in slices of the loop. Nothing waits for them: where the disk refuses one, or too much waits, events
are lost, the log says so once, and the next event that can be written says how many are missing. What waits when the
process is killed is lost without a word.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.base.limits import EVENTS_LINGER_MS, MAX_EVENT_BYTES_PER_BATCH, MAX_EVENT_WEIGHT, MAX_EVENTS_PER_BATCH
from ottla.base.types import TopicPartition
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.metadata.names import GROUP_EVENTS_TOPIC
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.timers import Timers
from ottla.coordinator.facts import GroupFacts
from ottla.coordinator.group.history import VERSION, Event, History
from ottla.log.results import Origin
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, encode_batch

_log = logging.getLogger(__name__)

_KEY: Final = ("group-events",)
_PARTITION: Final = TopicPartition(GROUP_EVENTS_TOPIC, 0)


class GroupEvents:
    """The history of this broker's groups. `heard` and `close` raise nothing."""

    def __init__(
        self,
        partitions: Partitions,
        timers: Timers,
        clock: Clock,
        slices: Slices,
        image: MetadataImage,
        create_topic: Callable[[str], Coroutine[Any, Any, TopicImage]],
    ) -> None:
        self._partitions = partitions
        self._timers = timers
        self._clock = clock
        self._slices = slices
        self._image = image
        self._create_topic = create_topic
        self._history = History()
        self._waiting: deque[Event] = deque()
        self._weight = 0
        #: Events that were lost since the last batch that was written.
        self._lost = 0
        self._is_writing = False

    def heard(self, facts: Sequence[GroupFacts]) -> None:
        """What decisions mean. Cheap: it is called between a request's decision and the next request."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        for told in facts:
            for event in self._history.take(told, now_ms, monotonic_ms):
                if self._weight + event.weight > MAX_EVENT_WEIGHT:
                    self._lose(1, "too many wait to be written")
                else:
                    self._waiting.append(event)
                    self._weight += event.weight
        if self._waiting and not self._is_writing:
            self._is_writing = True
            self._timers.set(_KEY, EVENTS_LINGER_MS, self._begin)

    async def close(self) -> None:
        """The broker stops: write what waits, as much as goes into one batch."""
        self._timers.cancel(_KEY)
        await self._prepare()
        deque(self._write_batch(), 0)

    def _begin(self) -> None:
        self._slices.start(self._write(), "writing the history of groups")

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._prepare()
                await self._slices.run(self._write_batch())
        finally:
            self._is_writing = False

    async def _prepare(self) -> None:
        """Make the topic where there is none; while the disk refuses it, events are lost."""
        if self._waiting and GROUP_EVENTS_TOPIC not in self._image.topics:
            try:
                await self._create_topic(GROUP_EVENTS_TOPIC)
            except StorageError as fault:
                self._lose(len(self._waiting), str(fault))
                self._waiting.clear()
                self._weight = 0

    def _write_batch(self) -> Iterator[None]:
        """Append what waits, up to a batch. One member of one group a step."""
        batch: list[tuple[Event, bytes]] = []
        size_bytes = 0
        while self._waiting and len(batch) < MAX_EVENTS_PER_BATCH and size_bytes < MAX_EVENT_BYTES_PER_BATCH:
            event = self._waiting.popleft()
            self._weight -= event.weight
            value = yield from event.write(self._topic_name)
            batch.append((event, value))
            size_bytes += len(value) + len(event.group_id)
        if batch:
            self._append(batch)

    def _append(self, batch: list[tuple[Event, bytes]]) -> None:
        records = [
            Record(at, event.time_ms, event.group_id.encode("utf-8", "replace"), value, ())
            for at, (event, value) in enumerate(batch)
        ]
        if self._lost:
            now_ms = self._clock.now_ms()
            gap = {"version": VERSION, "event": "events-lost", "time_ms": now_ms, "count": self._lost}
            records.append(Record(len(records), now_ms, None, json.dumps(gap, separators=(",", ":")).encode(), ()))
        try:
            appended = self._partitions.append(_PARTITION, encode_batch(records), origin=Origin.COORDINATOR)
        except StorageError as fault:
            self._lose(len(batch), str(fault))
            return
        if appended.error is not ErrorCode.NONE:
            self._lose(len(batch), f"{appended.error.name} {appended.message}".rstrip())
        elif self._lost:
            _log.warning("%s is written again; %d events are missing", GROUP_EVENTS_TOPIC, self._lost)
            self._lost = 0

    def _lose(self, count: int, why: str) -> None:
        if not self._lost:
            _log.warning("events of %s are lost: %s. Groups go on without them", GROUP_EVENTS_TOPIC, why)
        self._lost += count

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name
