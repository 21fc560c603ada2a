"""`ottla groups` beside Apache Kafka's own `kafka-consumer-groups.sh`: the same numbers, on both brokers."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer

from ottla import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.cli.main import main
from tests.cli.processes import line_with, ottla_process
from tests.interop.apache import ApacheKafka, run_tool
from tests.recording.librdkafka import member_of

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

Fresh = Callable[[str], str]
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_HOUR_MS = 3_600_000
_START_MS = 1_750_000_000_000


def _ottla(bootstrap: str, *arguments: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["groups", *arguments, "--bootstrap", bootstrap]) == 0
    return out.getvalue()


def _tool(bootstrap: str, *arguments: str) -> str:
    return run_tool(_TOOL, "--bootstrap-server", bootstrap, *arguments).stdout


def _rows(said: str, first: str) -> list[list[str]]:
    """The words of the rows that begin so."""
    return [line.split() for line in said.splitlines() if line.split()[:1] == [first]]


@pytest.fixture
def topic(any_broker: str, fresh: Fresh) -> str:
    """Ten records in partitions 0 and 1, an hour between each; partition 2 is empty."""
    name = fresh("groups-command")
    with Admin({"bootstrap.servers": any_broker}) as admin:
        admin.create_topics([NewTopic(name, 3)])
    with Producer({"bootstrap.servers": any_broker}) as producer:
        for number in range(10):
            for partition in (0, 1):
                producer.send(name, b"x", partition=partition, timestamp_ms=_START_MS + number * _HOUR_MS)
    return name


@pytest.fixture
def group(any_broker: str, topic: str) -> str:
    committed = {TopicPartition(topic, 0): OffsetAndMetadata(4), TopicPartition(topic, 1): OffsetAndMetadata(10)}
    with Admin({"bootstrap.servers": any_broker}) as admin:
        admin.alter_group_offsets(f"{topic}-group", committed)
    return f"{topic}-group"


def test_g18_offsets_and_lag_are_the_same(any_broker: str, topic: str, group: str) -> None:
    ours = json.loads(_ottla(any_broker, "offsets", group, "--json"))
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …
    theirs = [row[1:6] for row in _rows(_tool(any_broker, "--describe", "--group", group), group)]
    columns = ("topic", "partition", "offset", "end_offset", "lag")
    assert [[str(row[name]) for name in columns] for row in ours] == theirs
    assert [(row[2], row[4]) for row in theirs] == [("4", "6"), ("10", "0")]


def test_g18_groups_are_the_same_by_state_and_type(any_broker: str, group: str) -> None:
    (theirs,) = _rows(_tool(any_broker, "--list", "--state", "Empty", "--type", "classic"), group)
    rows = json.loads(_ottla(any_broker, "list", "--state", "Empty", "--type", "classic", "--json"))
    (ours,) = (row for row in rows if row["group"] == group)
    assert theirs == [group, ours["type"].capitalize(), ours["state"]]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("--to", "earliest"), ("--to-earliest",)),
        (("--to", "latest"), ("--to-latest",)),
        (("--to", "current"), ("--to-current",)),
        (("--to", "7"), ("--to-offset", "7")),
        (("--to", "99"), ("--to-offset", "99")),
        (("--to", "2025-06-15T17:00:00.000"), ("--to-datetime", "2025-06-15T17:00:00.000")),
        (("--to", "2025-06-15T17:00:00.000+01:00"), ("--to-datetime", "2025-06-15T17:00:00.000+01:00")),
        (("--by-duration", "P10D"), ("--by-duration", "P10D")),
        (("--by-duration", "P10000D"), ("--by-duration", "P10000D")),
        (("--shift", "3"), ("--shift-by", "3")),
        (("--shift", "-8"), ("--shift-by", "-8")),
    ],
)
def test_g18_a_reset_would_move_to_the_same_offsets(
    any_broker: str, topic: str, group: str, ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    is_whole = "--shift" in ours  # of what is committed
    found = _ottla(any_broker, "reset", group, "--all-topics" if is_whole else topic, *ours, "--export")
    scope = ["--all-topics"] if is_whole else ["--topic", topic]
    tool = ("--reset-offsets", "--group", group, *scope, *theirs, "--export", "--dry-run")
    lines = [line for line in _tool(any_broker, *tool).splitlines() if line.startswith(f"{topic},")]
    assert found.splitlines() == sorted(lines)


def test_g18_each_reads_the_file_that_the_other_wrote(any_broker: str, topic: str, group: str, tmp_path: Path) -> None:
    def committed() -> dict[int, int]:
        return {row["partition"]: row["offset"] for row in json.loads(_ottla(any_broker, "offsets", group, "--json"))}

    file, reset = tmp_path / "offsets.csv", ("--reset-offsets", "--group", group)
    before = committed()
    file.write_text(_ottla(any_broker, "reset", group, "--all-topics", "--to", "current", "--export"))
    _ottla(any_broker, "reset", group, topic, "--to", "earliest", "--execute")
    assert committed() == {0: 0, 1: 0, 2: 0}
    _tool(any_broker, *reset, "--from-file", str(file), "--execute")
    assert committed() == before | {2: 0}
    two = ("--group", group, "--group", f"{group}-2")
    exported = _tool(any_broker, "--reset-offsets", *two, "--topic", f"{topic}:0,1", "--to-latest", "--export")
    file.write_text("".join(line + "\n" for line in exported.splitlines() if topic in line))
    assert len(file.read_text().splitlines()) == 4, "it names the groups, too"
    _ottla(any_broker, "reset", group, "--from-file", str(file), "--execute")
    assert committed() == {0: 10, 1: 10, 2: 0}


@pytest.fixture
def consumer_protocol_member(any_broker: str, fresh: Fresh) -> Iterator[Any]:
    settings = {"bootstrap.servers": any_broker, "group.protocol": "consumer", "client.id": "rd"}
    consumer = LibrdkafkaConsumer({**settings, "group.id": fresh("kip848-cli")})
    yield consumer
    consumer.close()


def test_g18_a_group_of_the_consumer_protocol_is_described_alike(
    any_broker: str, fresh: Fresh, consumer_protocol_member: Any
) -> None:
    topic, bootstrap = fresh("kip848-cli"), any_broker
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    consumer_protocol_member.subscribe([topic])
    while len(consumer_protocol_member.assignment()) < 2:
        consumer_protocol_member.poll(0.1)
    generation, group, member_id = member_of(consumer_protocol_member.consumer_group_metadata())
    ours = json.loads(_ottla(bootstrap, "describe", group, "--json"))
    describe = ("--describe", "--group", group, "--verbose")
    # GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH #MEMBERS
    (state,) = _rows(_tool(bootstrap, *describe, "--state"), group)
    shown = [ours["coordinator"], ours["protocol"], ours["state"], ours["epoch"], ours["target_epoch"], 1]
    assert state[2:] == [f"({shown[0]})", *(str(each) for each in shown[1:])]
    # GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS CURRENT-EPOCH CURRENT-ASSIGNMENT TARGET-EPOCH TARGET-ASSIGNMENT
    (row,) = _rows(_tool(bootstrap, *describe, "--members"), group)
    (member,) = ours["members"]
    assert row[1:6] == [member["member"], member["host"], member["client"], "2", str(member["epoch"])]
    assert row[6] == row[8] == f"{topic}:0,1"
    assert member["assignment"] == member["target"] == [f"{topic}-0", f"{topic}-1"]
    assert (member["member"], member["epoch"]) == (member_id, generation)


def test_g23_a_rebalance_of_foreign_members_is_watched(any_broker: str, fresh: Fresh) -> None:
    """Against Apache Kafka it shows what DescribeGroups gives."""
    topic, group = fresh("watched"), fresh("watched-group")
    with Admin({"bootstrap.servers": any_broker}) as admin:
        admin.create_topics([NewTopic(topic, 2)])
    settings = {"bootstrap.servers": any_broker, "group.id": group, "heartbeat.interval.ms": 200}
    members: list[Any] = []

    def join(name: str) -> None:
        members.append(LibrdkafkaConsumer({**settings, "client.id": name, "group.instance.id": name}))
        members[-1].subscribe([topic])
        while [len(each.assignment()) for each in members] != [2 // len(members)] * len(members):
            for each in members:
                each.poll(0.05)

    with ottla_process("groups", "watch", group, "--json", "--every", "0.1", "--bootstrap", any_broker) as watching:

        def stable(count: int) -> dict[str, Any]:
            while True:
                said: dict[str, Any] = json.loads(line_with(watching.stdout, '"stable"'))
                if said["members"] == count:
                    return said

        join("one")
        stable(1)
        join("two")
        (move,) = stable(2)["moves"]
        assert (move["before"], move["after"]) == ("one", "two")
    for each in members:
        each.close()


@pytest.mark.slow
def test_g23_of_apache_kafka_it_says_that_it_asks(apache_kafka: ApacheKafka, fresh: Fresh) -> None:
    group, said = fresh("nobodys"), io.StringIO()
    with contextlib.redirect_stderr(said):
        assert _ottla(apache_kafka.bootstrap, "watch", group, "--for", "0").endswith("  there is no such group yet\n")
    assert said.getvalue() == (
        "ottla: this broker writes no events of groups, or this user may not read them"
        "; asking the coordinator every 0.5 s instead\n"
    )
