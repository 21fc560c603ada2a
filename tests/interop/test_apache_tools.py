"""Apache Kafka's own verification tools against our broker: they were written to find what a broker does wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.apache import run_tool, start_tool

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

Fresh = Callable[[str], str]
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def _events(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _create(bootstrap: str, name: str, partitions: int) -> str:
    run_tool(
        "TopicCommand", "--bootstrap-server", bootstrap, "--create", "--topic", name, "--partitions", str(partitions)
    )
    return name


def _produce(bootstrap: str, topic: str, records: int) -> list[dict[str, object]]:
    limits = ("--max-messages", str(records), "--acks", "-1")
    done = run_tool("VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", topic, *limits)
    return _events(done.stdout)


def _groups(bootstrap: str, *arguments: str) -> list[list[str]]:
    """Words of each line that the group command prints."""
    return [line.split() for line in run_tool(_GROUPS, "--bootstrap-server", bootstrap, *arguments).stdout.splitlines()]


def test_topic_command_describes_what_it_made(any_broker: str, fresh: Fresh) -> None:
    topic = _create(any_broker, fresh("described"), 3)
    described = run_tool("TopicCommand", "--bootstrap-server", any_broker, "--describe", "--topic", topic).stdout
    assert "PartitionCount: 3" in described
    assert described.count("Leader: ") == 3


def test_verifiable_producer_has_every_record_acknowledged(any_broker: str, fresh: Fresh) -> None:
    topic = _create(any_broker, fresh("verified"), 2)
    events = _produce(any_broker, topic, 1000)
    assert sum(event["name"] == "producer_send_success" for event in events) == 1000
    (summary,) = (event for event in events if event["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (1000, 1000)


@pytest.mark.parametrize("assignor", ["RangeAssignor", "RoundRobinAssignor", "CooperativeStickyAssignor"])
def test_verifiable_consumer_reads_and_commits_as_a_group(any_broker: str, fresh: Fresh, assignor: str) -> None:
    topic, group = _create(any_broker, fresh("verified"), 3), fresh("verifier")
    _produce(any_broker, topic, 600)
    strategy = ("--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}")
    where = ("--bootstrap-server", any_broker, "--topic", topic, "--group-id", group)
    done = run_tool("VerifiableConsumer", *where, "--max-messages", "600", "--reset-policy", "earliest", *strategy)
    events = _events(done.stdout)
    read = [event["count"] for event in events if event["name"] == "records_consumed"]
    assert sum(count for count in read if isinstance(count, int)) == 600
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)
    rows = [words for words in _groups(any_broker, "--describe", "--group", group) if words[:2] == [group, topic]]
    # The producer may have put everything into one partition; where nothing was read nothing is committed.
    assert sum(int(words[3]) for words in rows if words[3] != "-") == 600
    assert all(words[3] == words[4] for words in rows if words[3] != "-"), "the group lags behind"


def test_g18_consumer_group_command_lists_resets_and_deletes(any_broker: str, fresh: Fresh) -> None:
    topic, group = _create(any_broker, fresh("reset"), 1), fresh("reset-group")
    _produce(any_broker, topic, 10)
    consumer = Consumer({"bootstrap.servers": any_broker, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
    consumer.close()
    assert [group] in _groups(any_broker, "--list")
    states = [words for words in _groups(any_broker, "--describe", "--group", group, "--state") if words[:1] == [group]]
    assert states[0][-2:] == ["Empty", "0"]
    target = ("--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "4", "--execute")
    assert any(words[:4] == [group, topic, "0", "4"] for words in _groups(any_broker, *target))
    _groups(any_broker, "--delete-offsets", "--group", group, "--topic", topic)
    _groups(any_broker, "--delete", "--group", group)
    assert [group] not in _groups(any_broker, "--list")


def test_t11_transactional_message_copier_copies_each_record_once(any_broker: str, fresh: Fresh) -> None:
    source, target = _create(any_broker, fresh("copy-from"), 1), _create(any_broker, fresh("copy-to"), 2)
    _produce(any_broker, source, 500)
    where = ("--broker-list", any_broker, "--input-topic", source, "--input-partition", "0", "--output-topic", target)
    ids = ("--transactional-id", fresh("copier"), "--consumer-group", fresh("copiers"))
    how = ("--max-messages", "500", "--transaction-size", "50", "--enable-random-aborts")
    done = run_tool("TransactionalMessageCopier", *where, *ids, *how)
    assert _events(done.stdout)[-1]["consumed"] == 500
    assert sorted(_committed_values(any_broker, target, 2)) == sorted(b"%d" % n for n in range(500))


def _committed_values(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", **settings})
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(20.0)
        assert message is not None, "the broker sent nothing"
        if message.error():
            ended.add(message.partition())
        else:
            values.append(message.value())
    consumer.close()
    return values


def test_t14_transactions_command_finds_and_describes(any_broker: str, fresh: Fresh) -> None:
    source, target, tid = _create(any_broker, fresh("from"), 1), _create(any_broker, fresh("to"), 1), fresh("listed")
    _produce(any_broker, source, 20)
    where = ("--broker-list", any_broker, "--input-topic", source, "--input-partition", "0", "--output-topic", target)
    ids = ("--transactional-id", tid, "--consumer-group", fresh("listers"))
    run_tool("TransactionalMessageCopier", *where, *ids, "--max-messages", "20", "--transaction-size", "20")
    listed = run_tool("TransactionsCommand", "--bootstrap-server", any_broker, "list").stdout
    (row,) = (line.split() for line in listed.splitlines() if line.startswith(tid))
    assert row[-1] == "CompleteCommit"
    describe = ("describe", "--transactional-id", tid)
    described = run_tool("TransactionsCommand", "--bootstrap-server", any_broker, *describe).stdout
    assert "CompleteCommit" in described


def test_g10_a_consumer_that_is_told_to_end_leaves_its_group(any_broker: str, fresh: Fresh) -> None:
    topic, group = _create(any_broker, fresh("leave"), 1), fresh("leavers")
    _produce(any_broker, topic, 5)
    where = ("--bootstrap-server", any_broker, "--topic", topic, "--group-id", group, "--reset-policy", "earliest")
    tool = start_tool("VerifiableConsumer", *where)
    assert tool.stdout is not None
    try:
        for line in tool.stdout:
            if '"records_consumed"' in line:
                break
        assert any(words[:2] == [group, topic] for words in _groups(any_broker, "--describe", "--group", group))
    finally:
        tool.terminate()
        tool.communicate(timeout=30)
    states = [words for words in _groups(any_broker, "--describe", "--group", group, "--state") if words[:1] == [group]]
    assert states[0][-2:] == ["Empty", "0"]


def test_leaders_are_elected_already(any_broker: str, fresh: Fresh) -> None:
    topic, how = _create(any_broker, fresh("elected"), 1), ("--election-type", "preferred")
    elect = ("LeaderElectionCommand", "--bootstrap-server", any_broker, *how)
    assert f"already elected for partitions {topic}-0" in run_tool(*elect, "--topic", topic, "--partition", "0").stdout
    run_tool(*elect, "--all-topic-partitions")


def test_a_reassignment_to_where_it_is_ends_at_once(any_broker: str, fresh: Fresh, tmp_path: Path) -> None:
    topic, plan = _create(any_broker, fresh("moved"), 1), tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))

    def reassign(*arguments: str) -> str:
        return run_tool("reassign.ReassignPartitionsCommand", "--bootstrap-server", any_broker, *arguments).stdout

    said = [reassign(f"--{how}", "--reassignment-json-file", str(plan)) for how in ("execute", "verify", "cancel")]
    for words, each in zip(("Successfully started", "is completed", "are active"), said, strict=True):
        assert words in each
    assert "No partition reassignments found" in reassign("--list")
