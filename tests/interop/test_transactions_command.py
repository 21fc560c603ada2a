"""Finding and ending hanging transactions (SPEC T14) beside `kafka-transactions.sh`: the same, on both brokers."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.cli.main import main
from ottla.testing import Broker
from tests.client import repair_journeys
from tests.client.hanging import UNVERIFIED, Hanging, leave_hanging
from tests.client.journeys import fresh, make_topic, read_all
from tests.interop.apache import ApacheKafka, run_tool
from tests.interop.repair_talk import RepairTalk

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_TOOL = "TransactionsCommand"
_ASKED_ABOUT = 8_000_001


@pytest.fixture(scope="module")
def unverified_apache(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApacheKafka(tmp_path_factory.mktemp("unverified"), UNVERIFIED) as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def unverified_ottla() -> Iterator[str]:
    with Broker(UNVERIFIED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["ottla", "apache"])
def servers(request: pytest.FixtureRequest) -> str:
    """Brokers that believe a client whose transaction they do not know: each of the two."""
    return str(request.getfixturevalue(f"unverified_{request.param}"))


@pytest.mark.parametrize("journey", repair_journeys.ALL, ids=lambda journey: journey.__name__)
def test_our_calls_on_apache_kafka(journey: Callable[[str], None], unverified_apache: str) -> None:
    journey(unverified_apache)


def _ottla(servers: str, *arguments: str) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["transactions", *arguments, "--json", "--bootstrap", servers]) == 0
    return json.loads(out.getvalue())


def _tool_finds(servers: str, topic: str) -> list[list[int]]:
    """Partition, producer id and epoch, coordinator epoch, start offset, last timestamp."""
    said = run_tool(
        _TOOL, "--bootstrap-server", servers, "find-hanging", "--topic", topic, "--max-transaction-timeout", "1"
    ).stdout
    rows = [line.split() for line in said.splitlines()]
    return sorted([int(word) for word in row[1:7]] for row in rows if row[:1] == [topic])


def _ottla_finds(servers: str, topic: str) -> list[list[int]]:
    columns = ("partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset", "last_timestamp_ms")
    return [[row[name] for name in columns] for row in _ottla(servers, "find-hanging", topic)]


def test_t14_both_commands_find_the_same_and_end_the_same(servers: str) -> None:
    topic = make_topic(servers, 4)
    left = [leave_hanging(servers, TopicPartition(topic, number), b"h1", b"h2") for number in range(3)]
    again = leave_hanging(servers, TopicPartition(topic, 1), b"h3")
    found = _ottla_finds(servers, topic)
    assert found == _tool_finds(servers, topic)
    assert [row[1] for row in found] == [left[0][0], left[1][0], again[0], left[2][0]]

    where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    run_tool(_TOOL, "--bootstrap-server", servers, "abort", *where)
    (row,) = _ottla(servers, "abort", "--producer-id", str(again[0]), "--producer-epoch", "0", "--yes")
    assert (row["partition"], row["start_offset"], row["ended"]) == (1, 2, True)
    (row,) = _ottla(servers, "commit", "--partition", f"{topic}:2", "--start-offset", "0", "--yes")
    assert (row["producer_id"], row["ended"]) == (left[2][0], True)
    found = _ottla_finds(servers, topic)
    assert found == _tool_finds(servers, topic)
    assert [row[1] for row in found] == [left[1][0]]

    _ottla(servers, "abort", "--producer-id", str(left[1][0]), "--producer-epoch", "0", "--yes")
    assert _ottla_finds(servers, topic) == _tool_finds(servers, topic) == []
    assert {(each.partition, each.value) for each in read_all(servers, topic, 4)} == {(2, b"h1"), (2, b"h2")}


def test_t14_the_epoch_of_an_earlier_coordinator_is_kept(servers: str) -> None:
    """A producer that has a marker already gets the next one with a coordinator epoch that is not lower."""
    tp, transactional_id = TopicPartition(make_topic(servers), 0), f"{make_topic(servers)}-tx"
    with Producer({"bootstrap.servers": servers, "transactional.id": transactional_id}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(tp.topic, b"committed")
    with Admin({"bootstrap.servers": servers}) as admin:
        (known,) = admin.describe_producers([tp])[tp]
        assert known.coordinator_epoch >= 0
        left = leave_hanging(servers, tp, b"late", by=Hanging(known.producer_id, known.producer_epoch))
        (found,) = admin.find_hanging_transactions([tp])
        assert (found.coordinator_epoch, found.transactional_id) == (known.coordinator_epoch, transactional_id)
        admin.end_hanging_transaction(tp, *left)
    assert [each.value for each in read_all(servers, tp.topic)] == [b"committed"]


def _talk(servers: str, topic: str, transactional_id: str) -> list[str]:
    producer = Hanging(_ASKED_ABOUT, 3)
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(topic, 2)])
        admin.fence_producers([transactional_id])
    for number in (0, 1):
        leave_hanging(servers, TopicPartition(topic, number), b"h1", b"h2", by=producer)
    return RepairTalk(servers, topic, producer.producer_id, transactional_id).run()


def test_t14_both_brokers_answer_the_requests_of_a_repair_alike(unverified_ottla: str, unverified_apache: str) -> None:
    topic, transactional_id = fresh("repair"), fresh("repair-tx")
    ours, theirs = (_talk(servers, topic, transactional_id) for servers in (unverified_ottla, unverified_apache))
    assert ours == theirs
