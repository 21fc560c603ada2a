"""One group of the matrix: its members, each in a process of its own, its topics, and the judge of its history.

with Crew(node, topic, group, clients=["ours", "java"], protocol="classic", strategy="range", …) as crew:
    crew.join()
    crew.works()        # every partition has one member, and everything that is produced is read
    crew.judge()
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from ottla import Admin, AlterConfig, ConfigResource, NewTopic, ResourceType, TopicPartition
from ottla.testing import History
from tests.interop.matrix.remote import Remote
from tests.interop.nodes import Node
from tests.recording.final import assert_good, note_logs, note_positions
from tests.recording.librdkafka import RecordingProducer

_WAIT_S = 120.0
_RECORDS = 5
#: After so long without a change, a member that has nothing gets nothing.
_STARVES_FOR_S = 10.0
#: Short, so that a death is soon noticed, and not so short that a busy machine takes the living for dead.
SESSION_MS = 8_000
_HEARTBEAT_MS = 300
_METADATA_MS = 1_000


class Crew:
    """The members of one group. Those that come take turns among `clients`."""

    def __init__(
        self,
        node: Node,
        topic: str,
        group: str,
        *,
        clients: Sequence[str],
        protocol: str,
        strategy: str,
        next_strategy: str,
    ) -> None:
        self.node = node
        self.group = group
        self.clients = tuple(clients)
        self.protocol = protocol
        self.strategy = strategy
        self.next_strategy = next_strategy
        self.members: list[Remote] = []
        self._session_ms = SESSION_MS
        self._topics = {topic: 4}
        self._pattern = f"^{topic}.*"
        self._everybody: list[Remote] = []
        self._history = History()
        self._turns = itertools.count(1)
        self._ends: dict[TopicPartition, int] = {}
        self._changed = threading.Condition()
        #: Whether there is a static member, or one that has stopped and was not removed.
        self._has_static = False

    def __enter__(self) -> Crew:
        with Admin({"bootstrap.servers": self.node.bootstrap}) as admin:
            admin.create_topics([NewTopic(name, count, 1) for name, count in self._topics.items()])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in list(self.members):
            self.kill(member)

    # who comes and goes

    def prepare(self, client: str | None = None, *, instance: str = "") -> Remote:
        """A process that is ready to join; its client is the next in turn unless told."""
        number = len(self._everybody)
        chosen = self.clients[number % len(self.clients)] if client is None else client
        settings: dict[str, object] = {
            "who": f"{chosen} {number}",
            "bootstrap": self.node.bootstrap,
            "topic": self._pattern,
            "group": self.group,
            "strategy": self.strategy,
            "metadata_max_age_ms": _METADATA_MS,
        }
        if self.protocol == "consumer":
            settings["group_protocol"] = "consumer"
        else:
            settings |= {"session_timeout_ms": self._session_ms, "heartbeat_interval_ms": _HEARTBEAT_MS}
        if instance:
            settings["group_instance_id"] = instance
            self._has_static = True
        member = Remote(chosen, settings, self._heard)
        self._everybody.append(member)
        return member

    def go(self, member: Remote) -> None:
        """It joins."""
        self.members.append(member)
        member.go()

    def join(self, client: str | None = None, *, instance: str = "") -> Remote:
        """One more member."""
        member = self.prepare(client, instance=instance)
        self.go(member)
        return member

    def leave(self, member: Remote) -> None:
        """It leaves in order."""
        self.members.remove(member)
        member.leave()

    def kill(self, member: Remote) -> None:
        """kill -9."""
        self.members.remove(member)
        member.kill()

    def bounce(self, member: Remote) -> None:
        """It leaves, and comes back with the protocol and the strategy that are in force now."""
        again = self.prepare(member.client)
        self.leave(member)
        self.go(again)
        self.settle()

    def remove(self, instance: str) -> None:
        """An administrator removes a static member that has stopped."""
        with Admin({"bootstrap.servers": self.node.bootstrap}) as admin:
            assert len(admin.remove_members(self.group, instances=[instance])) == 1
        self._has_static = False

    def let_sessions_last(self, session_ms: int) -> None:
        """Those of members that come from now on, and of all members of a consumer group."""
        self._session_ms = session_ms
        change = AlterConfig("consumer.session.timeout.ms", str(session_ms))
        with Admin({"bootstrap.servers": self.node.bootstrap}) as admin:
            admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, self.group): [change]})

    def start_again(self, *, in_another_protocol: bool = False) -> None:
        """All leave, and as many come."""
        clients = [member.client for member in self.members]
        for member in list(self.members):
            self.leave(member)
        if in_another_protocol:
            self._history.group_began(self.group, keeps_offsets=True)
        for client in clients:
            self.join(client)
        self.settle()

    # what becomes of it

    def _heard(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, done: Callable[[], bool], what: str) -> None:
        """Until `done`; a member that ends by itself ends the test."""
        deadline_s = time.monotonic() + _WAIT_S
        with self._changed:
            while not done():
                for member in self.members:
                    if member.deaf is not None:
                        raise AssertionError(f"what {member.who} says cannot be read") from member.deaf
                ended = [member for member in self.members if member.has_ended]
                assert not ended, f"{ended[0].who} has ended: {ended[0].last_words()}"
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, f"not within {_WAIT_S} s: {what}\n{self._situation()}"
                self._changed.wait(min(left_s, 1.0))

    def _situation(self) -> str:
        said = [f"{each.who}: {sorted(each.owned)}; said: {each.last_words()[-2_000:]}" for each in self.members]
        return "\n".join([f"not read: {sorted(self._unread())}", *said])

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that the group reads."""
        return [TopicPartition(topic, number) for topic, count in self._topics.items() for number in range(count)]

    def settle(self) -> None:
        """Wait until every partition has one member, every member a partition, and the coordinator has no more to move.

        In a group of the consumer protocol all may have something before it is stable: a partition is still to go from
        one to another.

        Where kafka-python leads a group with a static member, one may have nothing: its range strategy forgets the
        members that are in front of a static one in the leader's list, if others are behind it.
        """
        since_s, seen = time.monotonic(), list[list[TopicPartition]]()

        def is_settled() -> bool:
            nonlocal since_s, seen
            shares = [sorted(member.owned) for member in self.members]
            if shares != seen:
                since_s, seen = time.monotonic(), shares
            may_starve = self._has_static and any(map(_leads_by_runs, self.members))
            is_fed = all(shares) or (may_starve and time.monotonic() - since_s > _STARVES_FOR_S)
            is_whole = sorted(tp for share in shares for tp in share) == self.partitions
            return is_fed and is_whole and admin.describe_groups([self.group])[self.group].state == "Stable"

        with Admin({"bootstrap.servers": self.node.bootstrap}) as admin:
            self.wait_for(is_settled, "every partition has one member, and every member a partition, and is stable")

    def produce(self) -> None:
        """Some records to every partition."""
        turn = next(self._turns)
        producer = RecordingProducer({"bootstrap.servers": self.node.bootstrap}, self._history, f"producer {turn}")
        for tp in self.partitions:
            for number in range(_RECORDS):
                producer.produce(tp.topic, b"%d %d %d" % (turn, tp.partition, number), partition=tp.partition)
            self._ends[tp] = self._ends.get(tp, 0) + _RECORDS
        assert producer.flush(_WAIT_S) == 0

    def catch_up(self) -> None:
        """Wait until everything was read."""
        self.wait_for(lambda: not self._unread(), "all has been read")

    def _unread(self) -> set[tuple[TopicPartition, int]]:
        """What nobody has read."""
        produced = {(tp, offset) for tp, end in self._ends.items() for offset in range(end)}
        return produced.difference(*(each.read for each in self._everybody))

    def works(self) -> None:
        """It settles, and reads what is produced."""
        self.settle()
        self.produce()
        self.catch_up()

    # what happens to its topics

    def add_partitions(self, count: int) -> None:
        """To its first topic."""
        topic = next(iter(self._topics))
        self._topics[topic] += count
        with Admin({"bootstrap.servers": self.node.bootstrap}) as admin:
            admin.create_partitions({topic: self._topics[topic]})

    def add_topic(self, count: int) -> None:
        """One more that its members' pattern matches."""
        name = f"{next(iter(self._topics))}-too"
        self._topics[name] = count
        with Admin({"bootstrap.servers": self.node.bootstrap}) as admin:
            admin.create_topics([NewTopic(name, count, 1)])

    # the end

    def judge(self) -> None:
        """All leave. Nothing may have happened that must not."""
        for member in list(self.members):
            self.leave(member)
        events = [event for each in self._everybody for event in each.events]
        history = History(events=sorted([*self._history.events, *events], key=lambda event: event.at_s))
        note_logs(history, self.node.bootstrap, self._topics)
        note_positions(history, self.node.bootstrap, self.group)
        history.drained(self.group, self.partitions, read_committed=False)
        assert_good(history)


def _leads_by_runs(member: Remote) -> bool:
    """Whether it is kafka-python's, and has divided the partitions of the present generation."""
    said = member.last_words()
    return member.client == "kafka-python" and said.rfind("Elected group leader") > said.rfind("(Re-)joining group")
