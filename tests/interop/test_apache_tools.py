"""Apache Kafka's own verification tools against our broker: they were written to find what a broker does wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing import Broker
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
        message = consumer.poll(60.0)
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
        tool.communicate(timeout=120)
    states = [words for words in _groups(any_broker, "--describe", "--group", group, "--state") if words[:1] == [group]]
    assert states[0][-2:] == ["Empty", "0"]


def test_leaders_are_elected_already(any_broker: str, fresh: Fresh) -> None:
    topic, how = _create(any_broker, fresh("elected"), 1), ("--election-type", "preferred")
    elect = ("LeaderElectionCommand", "--bootstrap-server", any_broker, *how)
    assert f"already elected for partitions {topic}-0" in run_tool(*elect, "--topic", topic, "--partition", "0").stdout
    run_tool(*elect, "--all-topic-partitions")


def test_a_reassignment_to_where_it_is_ends_at_once(any_broker: str, fresh: Fresh, tmp_path: Path) -> None:
    """To this node, and there to its directory."""
    topic, plan = _create(any_broker, fresh("moved"), 1), tmp_path / "plan.json"
    where = ("--bootstrap-server", any_broker)
    sizes = json.loads(run_tool("LogDirsCommand", *where, "--describe", "--topic-list", topic).stdout.splitlines()[-1])
    own = sizes["brokers"][0]["logDirs"][0]["logDir"]
    moved = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [own]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))

    def reassign(*arguments: str) -> str:
        return run_tool("reassign.ReassignPartitionsCommand", *where, *arguments).stdout

    said = [reassign(f"--{how}", "--reassignment-json-file", str(plan)) for how in ("execute", "verify", "cancel")]
    for words, each in zip(("Successfully started", "is completed", "are active"), said, strict=True):
        assert words in each
    assert f"Successfully started moving log directory to {own} for replica {topic}-0 with broker 1" in said[0]
    assert "No partition reassignments found" in reassign("--list")


def test_performance_tools_write_and_read_with_and_without_transactions(any_broker: str, fresh: Fresh) -> None:
    topic, where = _create(any_broker, fresh("measured"), 1), ("--bootstrap-server", any_broker)
    load = ("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    assert run_tool("ProducerPerformance", *where, *load).stdout.startswith("2000 records sent")
    transactions = ("--transactional-id", fresh("measured"), "--transaction-duration-ms", "10")
    assert run_tool("ProducerPerformance", *where, *load, *transactions).stdout.startswith("2000 records sent")
    counts = ("--topic", topic, "--num-records", "4000", "--timeout", "30000")
    titles, figures = run_tool("ConsumerPerformance", *where, *counts).stdout.splitlines()[-2:]
    assert dict(zip(titles.split(", "), figures.split(", "), strict=True))["data.consumed.in.nMsg"] == "4000"
    trips = ("--topic", fresh("trips"), "--num-records", "100", "--producer-acks", "all", "--record-size", "100")
    assert "Avg latency: " in run_tool("EndToEndLatency", *where, *trips).stdout


def test_kafka_features_tells_the_levels_of_groups_and_transactions(any_broker: str) -> None:
    told = run_tool("FeatureCommand", "--bootstrap-server", any_broker, "describe").stdout.splitlines()
    levels = {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in map(str.split, told)}
    assert (levels["group.version"], levels["transaction.version"]) == ("1", "2")


def test_kafka_features_changes_nothing_that_is_or_that_cannot_be(any_broker: str) -> None:
    def told(*arguments: str) -> tuple[int, str]:
        done = run_tool("FeatureCommand", "--bootstrap-server", any_broker, *arguments, check=False)
        return done.returncode, done.stdout + done.stderr

    before = told("describe")
    assert told("upgrade", "--feature", "group.version=1") == (0, "group.version was upgraded to 1.\n")
    code, said = told("upgrade", "--feature", "group.version=2")
    assert (code, "Could not upgrade group.version to 2." in said) == (1, True)
    code, said = told("downgrade", "--metadata", "3.9-IV0")
    assert (code, "Could not downgrade metadata.version to 21." in said) == (1, True)
    levels = [[line.split("Epoch")[0] for line in each.splitlines()] for _, each in (before, told("describe"))]
    assert levels[0] == levels[1]


def test_kafka_metadata_quorum_tells_who_leads_and_how_far_the_log_is(any_broker: str) -> None:
    where = ("--bootstrap-server", any_broker)
    lines = run_tool("MetadataQuorumCommand", *where, "describe", "--status").stdout.splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert (status["LeaderId"], status["MaxFollowerLag"], status["CurrentObservers"]) == ("1", "0", "[]")
    assert int(status["HighWatermark"]) > 0
    assert '"id": 1' in status["CurrentVoters"]
    _, voter = run_tool("MetadataQuorumCommand", *where, "describe", "--replication").stdout.strip().splitlines()
    node_id, _, end, lag, *_, role = voter.split()
    assert (node_id, lag, role) == ("1", "0", "Leader")
    assert int(end) >= int(status["HighWatermark"])


def test_a_tool_of_what_is_not_here_says_so(our_broker: Broker) -> None:
    arguments = ("--describe", "--command-config", os.devnull)
    said = run_tool(
        "DelegationTokenCommand", "--bootstrap-server", our_broker.bootstrap_servers, *arguments, check=False
    )
    assert "The node does not support DESCRIBE_DELEGATION_TOKEN" in said.stdout + said.stderr


def test_tools_of_operators_do_what_they_do_there(any_broker: str, fresh: Fresh, tmp_path: Path) -> None:
    topic, where = _create(any_broker, fresh("kept"), 1), ("--bootstrap-server", any_broker)
    _produce(any_broker, topic, 10)
    assert run_tool("GetOffsetShell", *where, "--topic", topic).stdout.split() == [f"{topic}:0:10"]
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    deleted = run_tool("DeleteRecordsCommand", *where, "--offset-json-file", str(offsets)).stdout
    assert f"partition: {topic}-0\tlow_watermark: 4" in deleted
    assert run_tool("GetOffsetShell", *where, "--topic", topic, "--time", "-2").stdout.split() == [f"{topic}:0:4"]
    sizes = json.loads(run_tool("LogDirsCommand", *where, "--describe", "--topic-list", topic).stdout.splitlines()[-1])
    assert sizes["brokers"][0]["logDirs"][0]["partitions"][0]["partition"] == f"{topic}-0"
    settings = ("--entity-type", "topics", "--entity-name", topic)
    configs = "kafka.admin.ConfigCommand"
    run_tool(
        configs, *where, *settings, "--alter", "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]"
    )
    run_tool(configs, *where, *settings, "--alter", "--delete-config", "retention.ms")
    described = run_tool(configs, *where, *settings, "--describe").stdout
    assert "cleanup.policy=compact,delete" in described
    assert "retention.ms" not in described
    group = fresh("listed")
    of_groups = ("--entity-type", "groups")
    setting = ("--entity-name", group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    run_tool(configs, *where, *of_groups, *setting)
    assert f"Dynamic configs for group {group} are:" in run_tool(configs, *where, *of_groups, "--describe").stdout
    assert run_tool("ClientMetricsCommand", *where, "--list").stdout.strip() == ""
    consumer = Consumer({"bootstrap.servers": any_broker, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
    consumer.close()
    listed = [line.split() for line in run_tool("GroupsCommand", *where, "--list").stdout.splitlines()]
    assert [group, "Classic"] in listed
    assert run_tool("ClusterTool", "cluster-id", *where).stdout.startswith("Cluster ID: ")
    assert "Produce(0): 0 to 13" in run_tool("BrokerApiVersionsCommand", *where).stdout
