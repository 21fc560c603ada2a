"""Our clients on both brokers: members come, leave and crash while transactions are written; the history is judged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import Admin, ClientError, NewTopic, TopicPartition
from ottla.testing import History
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.ours import RecordingConsumer, RecordingProducer

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_PARTITIONS = 4
_WAIT_S = 60.0


class _Writer:
    """A thread that writes transactions, of which every third is aborted, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, history: History, who: str) -> None:
        self._producer = RecordingProducer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{who}"}, history, who
        )
        self._topic, self._who = topic, who
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._producer.init_transactions()
            number = 0
            while not self._stop.is_set():
                number += 1
                self._producer.begin_transaction()
                for partition in range(_PARTITIONS):
                    value = b"%s %d %d" % (self._who.encode(), number, partition)
                    self._producer.send(self._topic, value, partition=partition)
                if number % 3:
                    self._producer.commit_transaction()
                else:
                    self._producer.flush()
                    self._producer.abort_transaction()
            self._producer.close()
        except BaseException as failed:  # noqa: BLE001  # raised where it is waited for
            self._failed = failed

    def finish(self) -> None:
        """Stop, and raise what went wrong."""
        self._stop.set()
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed


class _Group:
    """Members of one group, polled in turn; each commits what it was given."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History, protocol: str) -> None:
        timeouts = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200} if protocol == "classic" else {}
        self._base = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **timeouts,
        }
        self._topic = topic
        self._history = history
        self.members: dict[str, RecordingConsumer] = {}
        self.reached: dict[int, int] = {}

    def join(self, who: str, **more: Any) -> None:
        """One more member."""
        settings = {key.replace("_", "."): value for key, value in more.items()}
        self.members[who] = RecordingConsumer(self._base | settings, self._history, who)
        self.members[who].subscribe([self._topic])

    def poll_until(self, done: Callable[[], bool]) -> None:
        """Poll all members until `done`."""
        until = time.monotonic() + _WAIT_S
        while not done():
            assert time.monotonic() < until, f"not so: {[sorted(m.assignment()) for m in self.members.values()]}"
            for member in self.members.values():
                records = member.poll(0.02)
                self.reached.update((record.partition, record.offset) for record in records)
                if records:
                    try:
                        member.commit()
                    except ClientError as refused:  # the group has rebalanced: whoever has the partition reads it again
                        assert "rebalance" in str(refused).lower() or refused.retriable, refused

    def settled(self) -> bool:
        """Whether every member has its share."""
        shares = [len(member.assignment()) for member in self.members.values()]
        return sum(shares) == _PARTITIONS and min(shares) >= _PARTITIONS // len(shares)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g11_our_members_come_leave_and_crash_under_transactions(any_broker: str, fresh: Fresh, protocol: str) -> None:
    topic, group_id, history = fresh("histories"), fresh("histories-group"), History()
    with Admin({"bootstrap.servers": any_broker}) as admin:
        admin.create_topics([NewTopic(topic, _PARTITIONS)])
    writers = [_Writer(any_broker, topic, history, f"writer {number}") for number in range(2)]
    group = _Group(any_broker, topic, group_id, history, protocol)
    try:
        group.join("first")
        group.poll_until(group.settled)
        group.join("static", group_instance_id="static")
        group.poll_until(group.settled)
        group.members.pop("first").close()
        group.poll_until(group.settled)
        group.join("third")
        group.poll_until(group.settled)
        group.members.pop("static").close()  # a static member does not leave
        group.join("static again", group_instance_id="static")
        group.poll_until(group.settled)
        crashed = group.members.pop("third")
        crashed.close(leave_group=False)
        if protocol == "consumer":  # a session lasts 45 s at least there, so that somebody has to help
            with Admin({"bootstrap.servers": any_broker}) as admin:
                admin.remove_members(group_id, [crashed.group_metadata().member_id])
        group.poll_until(group.settled)
    finally:
        for writer in writers:
            writer.finish()
    logs = note_logs(history, any_broker, {topic: _PARTITIONS})
    last = {tp.partition: max(record.offset for record in log if record.visible) for tp, log in logs.items()}
    group.poll_until(lambda: all(group.reached.get(number, -1) >= at for number, at in last.items()))
    for member in group.members.values():
        member.close()
    note_positions(history, any_broker, group_id)
    history.drained(group_id, [TopicPartition(topic, number) for number in range(_PARTITIONS)])
    assert_good(history)
