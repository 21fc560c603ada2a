"""Reads the events that our broker writes of its groups (docs/group-events.md), for `ottla groups watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.cli.common import only, print_json_line, printable, say
from ottla.cli.groups.common import Heard, find_group, until_s
from ottla.cli.groups.events import Events, Told, decoded
from ottla.cli.watch import ANSWER_WITHIN_MS, Watch

if TYPE_CHECKING:
    from ottla import Admin, Consumer, ConsumerRecord
    from ottla.client.admin.types import GroupDescription

_PARTITION = TopicPartition("__ottla_group_events", 0)
_SWITCH = "group.events.enable"
#: How long a poll waits, and the time between two looks for a topic that is not there yet.
_TURN_S = 0.5


def keeps_events(admin: Admin) -> bool:
    """Whether the broker writes the events of its groups: ours does, unless it was told not to."""
    from ottla import KafkaError
    from ottla.client.admin.types import ConfigResource, ResourceType

    (node, *_) = admin.describe_cluster().nodes
    broker = ConfigResource(ResourceType.BROKER, str(node.node_id))
    try:
        entry = admin.describe_configs([broker])[broker].get(_SWITCH)
    except KafkaError as fault:  # Apache Kafka: may be forbidden, or another broker's settings
        if fault.retriable:
            raise
        return False
    return entry is not None and entry.value == "true"


def first_offset(admin: Admin, since_ms: int) -> int | None:
    """The offset of the first event since then, or the log's end; None when there is no event yet, nor a topic.

    `since_ms` is in milliseconds since the epoch, or an `OffsetSpec`.
    """
    from ottla.client.admin.types import OffsetSpec
    from ottla.client.errors import UnknownTopicOrPartitionError

    try:
        admin.describe_topics([_PARTITION.topic])
    except UnknownTopicOrPartitionError:
        return None
    offset = admin.list_offsets({_PARTITION: since_ms})[_PARTITION].offset
    return offset if offset >= 0 else admin.list_offsets({_PARTITION: OffsetSpec.LATEST})[_PARTITION].offset


class Reader:
    """Prints the events of some groups, or of all when none is named. `settings` are those of an admin client."""

    def __init__(
        self, settings: Mapping[str, object], groups: Sequence[str], *, as_json: bool, for_s: float | None
    ) -> None:
        """It ends after `for_s` seconds; None: never. What is past is shown whole, and takes nothing of this time."""
        self._settings = settings
        self._groups = groups
        self._keys = {group.encode("utf-8", "replace") for group in groups}
        self._as_json = as_json
        self._for_s = for_s
        self._until_s = until_s(for_s, time.monotonic())
        #: Where what is past ends, until that has been read.
        self._past_end: int | None = None
        self._events = Events()
        self._is_past = False

    def run(self, admin: Admin, since_ms: int | None) -> None:
        """Print what has happened since then (None: nothing past) and what happens, until it is time to end."""
        from ottla import Consumer
        from ottla.client.admin.types import OffsetSpec
        from ottla.client.config.consumer import CONSUMER_CONFIG

        self._is_past = since_ms is not None
        offset = first_offset(admin, OffsetSpec.LATEST if since_ms is None else since_ms)
        if self._is_past and offset is not None:
            self._past_end = first_offset(admin, OffsetSpec.LATEST)
        self._meet({group: find_group(admin, group) for group in self._groups})
        if offset is None and not self._wait_for_topic(admin):
            return
        settings = {
            **only(self._settings, CONSUMER_CONFIG),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        with Consumer(settings) as consumer:
            consumer.assign([_PARTITION])
            consumer.seek(_PARTITION, offset or 0)
            self._read(consumer)

    def _meet(self, groups: Mapping[str, GroupDescription | None]) -> None:
        """Learn the names of those that are there; when nothing past is asked for, say how their groups are."""
        from ottla.cli.groups.changes import Changes, name_of

        self._events = Events(
            {
                group: {member.member_id: name_of(member) for member in found.members}
                for group, found in groups.items()
                if found is not None
            }
        )
        if not groups:
            say("ottla: showing what happens to all groups; Ctrl-C to stop")
        if self._as_json or self._is_past:
            return
        now_ms = time.time_ns() // 1_000_000
        for group, found in groups.items():
            for change in Changes().seen(found, 0.0):
                self._print(Told(printable(str(change)), group and printable(group), now_ms))

    def _wait_for_topic(self, admin: Admin) -> bool:
        """Wait for the first event that this broker ever writes. False if the time was over before."""
        heard = Heard()
        while (left_s := self._left_s()) > 0:
            time.sleep(left_s)
            if heard.of(lambda: first_offset(admin, 0)) is not None:
                return True
        return False

    def _read(self, consumer: Consumer) -> None:
        from ottla import Admin, OffsetReset

        with Admin({**self._settings, "default.api.timeout.ms": ANSWER_WITHIN_MS}) as asker:
            must_end = self._past_end is not None and self._for_s is not None
            watch = Watch(asker, [_PARTITION], group=None, give_up=must_end)
            while (left_s := self._left_s(consumer.position(_PARTITION))) > 0:
                records = consumer.poll(left_s)
                if records:
                    watch.heard()
                else:
                    watch.heard_nothing()
                self._tell(records)
                for event in consumer.events():
                    if isinstance(event, OffsetReset):
                        say(f"ottla: events are missing: {event}")

    def _left_s(self, position: int = 0) -> float:
        """How long the next wait may last; 0 or less when it is time to end. `position`: so much has been read."""
        if self._past_end is not None:
            if position < self._past_end:
                return _TURN_S
            self._past_end = None
            self._until_s = until_s(self._for_s, time.monotonic())
        return _TURN_S if self._until_s is None else min(_TURN_S, self._until_s - time.monotonic())

    def _tell(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            # Events that were lost have no key, and may have been of any group.
            if self._keys and record.key is not None and bytes(record.key) not in self._keys:
                continue
            value = None if record.value is None else bytes(record.value)
            told = self._events.told(value)
            if told is not None and told.time_ms is None:
                say(f"ottla: offset {record.offset}: {told.text}")
            elif told is not None and not self._as_json:
                self._print(told)
            if self._as_json and (event := decoded(value)) is not None:
                print_json_line(event)
        sys.stdout.flush()

    def _print(self, told: Told) -> None:
        at = datetime.fromtimestamp((told.time_ms or 0) / 1000, UTC)
        date = f"{at:%Y-%m-%d} " if self._is_past else ""
        group = "" if len(self._groups) == 1 or told.group is None else f"{told.group}: "
        print(f"{date}{at:%H:%M:%S}.{at.microsecond // 1000:03}  {group}{told.text}", flush=True)
