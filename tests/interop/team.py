"""Members of one group, of several kinds of client and of both protocols, each polled in a thread of its own.

    team = Team(kafka.bootstrap, topic, partitions=6)
    team.ours("a", protocol="consumer")
    team.java("j", protocol="classic")
    team.settle()                       # every partition has one member
    team.produce(10)
    team.catch_up()
    team.judge()                        # the history of the whole test

What each member is given and reads goes into one history, which `judge` gives to the checkers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException

import ottla
from ottla import CommitFailedError, TopicPartition
from ottla.testing.history import History, Read
from tests.interop.apache import start_tool
from tests.interop.members import PASSING
from tests.recording import librdkafka, ours
from tests.recording.final import assert_good, note_logs, note_positions

_WAIT_S = 120.0
_VICTIM = Path(__file__).with_name("victim.py")


class Player(ABC):
    """One member."""

    def __init__(self, team: Team, name: str) -> None:
        self.name = name
        self.ended: BaseException | None = None
        self._team = team
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{name}", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    @abstractmethod
    def owned(self) -> frozenset[TopicPartition]:
        """What it has now."""

    @abstractmethod
    def _poll(self) -> Iterable[tuple[TopicPartition, int]]:
        """Poll once, and commit what came. Returns it."""

    @abstractmethod
    def _close(self) -> None:
        """Leave the group."""

    def leave(self) -> None:
        """Leave the group, and wait for that."""
        self._leaves.set()
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        try:
            while not self._leaves.is_set():
                self._team.read(self._poll())
            self._close()
        except BaseException as error:  # noqa: BLE001  the test raises it
            self.ended = error
        self._team.changed()


class Ours(Player):
    """Ottla's consumer."""

    def __init__(self, team: Team, name: str, wanted: Any, config: dict[str, object]) -> None:
        super().__init__(team, name)
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.consumer = ours.RecordingConsumer(config, team.history, name)
        self.consumer.subscribe(
            wanted,
            on_assigned=lambda tps: self.told.append(("assigned", tps)),
            on_revoked=lambda tps: self.told.append(("revoked", tps)),
            on_lost=lambda tps: self.told.append(("lost", tps)),
        )

    def owned(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment()

    def _poll(self) -> list[tuple[TopicPartition, int]]:
        records = self.consumer.poll(0.1)
        if records:
            try:
                self.consumer.commit(timeout_s=20)
            except CommitFailedError:
                pass  # the records go to another member
            except ottla.KafkaError as error:
                if not error.retriable:
                    raise
            except TimeoutError:
                pass
        return [(TopicPartition(each.topic, each.partition), each.offset) for each in records]

    def _close(self) -> None:
        self.consumer.close()


class Librdkafka(Player):
    """confluent-kafka's consumer."""

    def __init__(self, team: Team, name: str, topic: str, config: dict[str, object]) -> None:
        super().__init__(team, name)
        self._consumer = librdkafka.RecordingConsumer(config, team.history, name)
        self._consumer.subscribe([topic])

    def owned(self) -> frozenset[TopicPartition]:
        if self._leaves.is_set():
            return frozenset()
        return frozenset(TopicPartition(tp.topic, tp.partition) for tp in self._consumer.assignment())

    def _poll(self) -> list[tuple[TopicPartition, int]]:
        messages = [each for each in self._consumer.consume(50, timeout=0.1) if not each.error()]
        if messages:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as failed:
                if failed.args[0].code() not in PASSING:
                    raise
        return [(TopicPartition(each.topic(), each.partition()), each.offset()) for each in messages]

    def _close(self) -> None:
        self._consumer.close()


class Java(Player):
    """Java's consumer: VerifiableConsumer, which says what happens as lines of JSON."""

    def __init__(self, team: Team, name: str, topic: str, arguments: list[str]) -> None:
        super().__init__(team, name)
        self._notes = team.history.consumer(name, group=team.group, read_committed=False)
        self._owned: frozenset[TopicPartition] = frozenset()
        self._tool = start_tool("VerifiableConsumer", "--topic", topic, "--verbose", *arguments)

    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    def leave(self) -> None:
        self._tool.terminate()
        super().leave()

    def _poll(self) -> list[tuple[TopicPartition, int]]:
        stdout = self._tool.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            assert self._leaves.is_set() or self._tool.wait(_WAIT_S) in (0, 143), f"{self.name} has ended by itself"
            self._leaves.set()
            return []
        try:
            said = json.loads(line)
        except ValueError:
            return []  # a line of its log
        return self._heard(said)

    def _heard(self, said: dict[str, Any]) -> list[tuple[TopicPartition, int]]:
        match said["name"]:
            case "partitions_assigned":
                self._owned |= _partitions(said)
            case "partitions_revoked" | "partitions_lost":
                self._owned -= _partitions(said)
            case "record_data":
                tp = TopicPartition(said["topic"], said["partition"])
                self._notes.polled([Read(tp, said["offset"], f"{tp.topic}:{said['value']}")])
                return [(tp, said["offset"])]
            case "offsets_committed" if said["success"]:
                offsets = {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in said["offsets"]}
                self._notes.committed(offsets)
        return []

    def _close(self) -> None:
        self._tool.terminate()
        self._tool.wait(_WAIT_S)


def _partitions(said: dict[str, Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each["topic"], each["partition"]) for each in said["partitions"])


class Team:
    """The members of one group that reads one topic, and what was produced to it."""

    def __init__(self, bootstrap: str, topic: str, group: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.partitions = partitions
        self.history = History()
        self.players: dict[str, Player] = {}
        self._seen: set[tuple[TopicPartition, int]] = set()
        self._produced: dict[int, int] = {}
        self._turns = 0
        self._changed = threading.Condition()

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for player in self.players.values():
            player.leave()

    # who comes and goes

    def ours(self, name: str, *, protocol: str = "consumer", wanted: Any = None, **more: object) -> Ours:
        """Ottla's consumer joins. `more` are keys, with underscores for dots."""
        config = self._config(protocol) | {key.replace("_", "."): value for key, value in more.items()}
        player = Ours(self, name, [self.topic] if wanted is None else wanted, config)
        self._add(player)
        return player

    def librdkafka(self, name: str, *, protocol: str = "consumer", **more: object) -> Librdkafka:
        """confluent-kafka's consumer joins."""
        config = self._config(protocol) | {key.replace("_", "."): value for key, value in more.items()}
        player = Librdkafka(self, name, self.topic, config)
        self._add(player)
        return player

    def java(self, name: str, *, protocol: str = "consumer") -> Java:
        """Java's consumer joins."""
        where = ["--bootstrap-server", self.bootstrap, "--group-id", self.group, "--group-protocol", protocol.upper()]
        player = Java(self, name, self.topic, where)
        self._add(player)
        return player

    def victim(self, *, protocol: str = "consumer", instance: str = "") -> subprocess.Popen[str]:
        """Ottla's consumer in a process of its own, which commits nothing; returns when it has partitions.

        Kill it with `kill`. The history does not know it.
        """
        command = [sys.executable, str(_VICTIM), self.bootstrap, self.topic, self.group, protocol, instance]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("assigned"):
                return process
        raise AssertionError("the victim did not join")

    def _config(self, protocol: str) -> dict[str, object]:
        config: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
        if protocol == "classic":
            config |= {"heartbeat.interval.ms": 300, "session.timeout.ms": 6_000}
        return config

    def _add(self, player: Player) -> None:
        self.players[player.name] = player
        player.start()

    def leave(self, name: str) -> None:
        """This one leaves."""
        self.players.pop(name).leave()

    # what members tell

    def read(self, records: Iterable[tuple[TopicPartition, int]]) -> None:
        """A member has read these."""
        self._seen.update(records)
        self.changed()

    def changed(self) -> None:
        """Something may be as a test waits for it."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, done: Callable[[], bool], what: str) -> None:
        """Until `done`; what has ended a member ends the test."""
        deadline_s = time.monotonic() + _WAIT_S
        with self._changed:
            while not done():
                for player in self.players.values():
                    if player.ended is not None:
                        raise AssertionError(f"{player.name} has ended") from player.ended
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, f"not within {_WAIT_S} s: {what}; {self.shares()}"
                self._changed.wait(min(left_s, 1.0))

    def shares(self) -> dict[str, list[TopicPartition]]:
        """Who has what."""
        return {name: sorted(player.owned()) for name, player in self.players.items()}

    def is_settled(self) -> bool:
        """Whether every partition of the topic has one member, and every member one partition at least."""
        shares = self.shares()
        given = [tp.partition for share in shares.values() for tp in share if tp.topic == self.topic]
        return all(shares.values()) and sorted(given) == list(range(self.partitions))

    def settle(self) -> None:
        """Wait until the group has settled."""
        self.wait_for(self.is_settled, "every partition has one member, and every member a partition")

    # records

    def produce(self, each: int) -> None:
        """So many records to each partition."""
        self._turns += 1
        config = {"bootstrap.servers": self.bootstrap}
        producer = librdkafka.RecordingProducer(config, self.history, f"producer {self._turns}")
        for partition in range(self.partitions):
            for number in range(each):
                producer.produce(self.topic, b"%d %d %d" % (self._turns, partition, number), partition=partition)
            self._produced[partition] = self._produced.get(partition, 0) + each
        assert producer.flush(30) == 0

    def catch_up(self) -> None:
        """Wait until somebody has read everything."""
        wanted = {
            (TopicPartition(self.topic, partition), offset)
            for partition, count in self._produced.items()
            for offset in range(count)
        }
        self.wait_for(lambda: wanted <= self._seen, "every record was read")

    def judge(self) -> None:
        """All members leave. Nothing may have happened that must not."""
        for name in list(self.players):
            self.leave(name)
        note_logs(self.history, self.bootstrap, {self.topic: self.partitions})
        note_positions(self.history, self.bootstrap, self.group)
        everything = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        self.history.drained(self.group, everything, read_committed=False)
        assert_good(self.history)
