"""Whoever sends what no good client sends is named in the log, with what was wrong and what to do; and fills no log."""

import logging
import struct
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import OttlaError
from ottla.base.limits import MAX_ERROR_TEXT, MAX_MEMBER_PROTOCOLS, MAX_NEW_PARTITIONS, MAX_REQUEST_ELEMENTS
from ottla.base.types import TopicPartition
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.quiet import QUIET_MS
from ottla.broker.runtime.assigning import Assigning
from ottla.broker.runtime.shard import ShardRunner, ShardRuntime
from ottla.coordinator.decision import ReportFault
from ottla.coordinator.group.shard import GroupShard
from ottla.log.results import Appended
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient, batch

_WHO = "refusing a request of /127.0.0.1 (client id 'test'): "


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def _topics(*names: str, partitions: int = 1, setting: str | None = None) -> CreateTopicsRequest:
    own = () if setting is None else (CreatableTopicConfig(setting, "1"),)
    return CreateTopicsRequest(tuple(CreatableTopic(name, partitions, 1, configs=own) for name in names), 10_000)


def _joining(group_id: str, protocols: int, session_timeout_ms: int = 10_000) -> JoinGroupRequest:
    named = tuple(JoinGroupRequestProtocol(f"{n}", b"") for n in range(protocols))
    return JoinGroupRequest(group_id, session_timeout_ms, 10_000, "", None, "consumer", named)


def _member(pattern: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 10_000, None, pattern, None, ())


_SETTING = AlterConfigsResource(2, "t", (AlterableConfig("retention.ms", 0, "long"),))
_QUOTA = EntryData((EntityData("planet", "mars"),), ())

_BAD: dict[str, tuple[ApiKey, Any, str]] = {
    "names": (
        ApiKey.CREATE_TOPICS,
        _topics("a b", "good", "c d"),
        "CreateTopics of 'a b' and 1 more: INVALID_TOPIC_EXCEPTION, Topic name is invalid: 'a b' contains one or more "
        "characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    "partitions": (ApiKey.CREATE_TOPICS, _topics("a", partitions=0), "CreateTopics of 'a': INVALID_PARTITIONS, Number"),
    "many": (ApiKey.CREATE_TOPICS, _topics("a", partitions=1 << 30), "CreateTopics of 'a': POLICY_VIOLATION, At most"),
    "a setting that is unknown": (
        ApiKey.CREATE_TOPICS,
        _topics("a", setting="nonsense"),
        "CreateTopics of 'a': INVALID_CONFIG, Unknown topic configuration nonsense",
    ),
    "a setting's value": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest((_SETTING,)),
        "IncrementalAlterConfigs of 't': INVALID_CONFIG, Invalid value 'long' for configuration retention.ms",
    ),
    "a name that is asked for": (
        ApiKey.METADATA,
        MetadataRequest((MetadataRequestTopic(name="a b"),)),
        "Metadata of 'a b': INVALID_TOPIC_EXCEPTION; the name of a topic has at most 249 letters",
    ),
    "a quota": (ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest((_QUOTA,)), "AlterClientQuotas: INVALID_REQUEST"),
    "a pattern for ids": (
        ApiKey.LIST_TRANSACTIONS,
        ListTransactionsRequest(transactional_id_pattern="("),
        "ListTransactions: INVALID_REGULAR_EXPRESSION; patterns are RE2's",
    ),
    "a pattern for topics": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        _member("("),
        "ConsumerGroupHeartbeat: INVALID_REGULAR_EXPRESSION, SubscribedTopicRegex `(` is not",
    ),
    "a session time-out": (
        ApiKey.JOIN_GROUP,
        _joining("g", 1, session_timeout_ms=1),
        "JoinGroup: INVALID_SESSION_TIMEOUT; session.timeout.ms of the client has to lie between",
    ),
    "a group without a name": (ApiKey.JOIN_GROUP, _joining("", 1), "JoinGroup: INVALID_GROUP_ID; group.id"),
    "protocols": (
        ApiKey.JOIN_GROUP,
        _joining("g", MAX_MEMBER_PROTOCOLS + 1),
        "a JoinGroup to group 'g': it has 101 protocols, at most 100 are allowed",
    ),
    "a transaction's time-out": (
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdRequest("id", 2**31 - 1),
        "InitProducerId: INVALID_TRANSACTION_TIMEOUT; transaction.timeout.ms",
    ),
    "a mechanism": (
        ApiKey.SASL_HANDSHAKE,
        SaslHandshakeRequest("PLAIN"),
        "SaslHandshake: ILLEGAL_SASL_STATE; this listener does not ask who a client is (security.protocol of the",
    ),
}


@pytest.mark.parametrize("name", _BAD)
async def test_whoever_sends_a_bad_request_is_named_although_it_is_answered(
    broker: AsyncBroker,
    client: WireClient,
    caplog: pytest.LogCaptureFixture,
    group_coordinator: None,
    transaction_coordinator: None,
    name: str,
) -> None:
    key, request, said = _BAD[name]
    await broker.node.topics.create("t", 1, {})
    await client.ask(key, request)
    (line,) = _lines(caplog)
    assert line.startswith(_WHO + said)


async def test_what_good_clients_hear_now_and_then_is_no_line(
    client: WireClient, caplog: pytest.LogCaptureFixture, group_coordinator: None
) -> None:
    for _ in range(2):  # the second time it is there already
        await client.ask(ApiKey.CREATE_TOPICS, _topics("t"))
    await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name="t"),)))
    await client.ask(ApiKey.JOIN_GROUP, _joining("g", 1))  # has to say its member id
    assert not _lines(caplog)


async def test_long_names_make_no_long_lines_and_many_requests_no_many_lines(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture, group_coordinator: None
) -> None:
    """2,000 joins with a group id of 30 KB wrote 60 MB, in a second."""
    async with WireClient(broker, "c" * 30_000) as client:
        for _ in range(3):
            await client.ask(ApiKey.JOIN_GROUP, _joining("g" * 30_000, MAX_MEMBER_PROTOCOLS + 1))
    (line,) = _lines(caplog)
    assert len(line) < 1_000
    assert "at most 100 are allowed" in line


async def test_a_client_id_that_is_long_does_not_hide_why_its_connection_is_closed(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    names = tuple(MetadataRequestTopic(name="n") for _ in range(MAX_REQUEST_ELEMENTS + 1))
    async with WireClient(broker, "c" * 30_000) as client:
        await client.send(ApiKey.METADATA, MetadataRequest(names))
        assert await client.is_closed()
    (line,) = _lines(caplog)
    assert len(line) < 1_000
    assert "30001 elements" in line


def test_faults_that_the_requests_of_many_groups_meet_are_one_line_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Each group has a first generation that the log does not take: 300 of them wrote 600 lines, in three seconds."""
    clock = ManualClock()
    assigning = Assigning(MetadataImage(), cast("Any", None), clock=clock)
    runner = cast("ShardRunner[GroupShard]", None)
    for number in range(3):
        assigning.start(runner, ReportFault(f"generation 1 of group g{number}", OttlaError("too large")))
    assigning.start(runner, ReportFault("assignor range failed", IndexError("one of ours")))
    clock.advance(QUIET_MS)
    assigning.start(runner, ReportFault("generation 1 of group\n" + "g" * 30_000, OttlaError("too large")))
    first, other, last = (each.getMessage() for each in caplog.records)
    assert (first, other) == ("generation 1 of group g0", "assignor range failed")
    assert last.endswith(" (2 more since the last such line)")
    assert last.isprintable()
    assert len(last) < MAX_ERROR_TEXT + 100


async def test_nobody_writes_a_line_of_the_log_by_a_name(client: WireClient, caplog: pytest.LogCaptureFixture) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _topics("a", setting="x\n2026-11-30 ERROR all is lost\x1b[31m"))
    (line,) = _lines(caplog)
    assert line.isprintable()
    assert len(line) < MAX_ERROR_TEXT


@pytest.mark.parametrize(
    ("api_key", "version", "said"),
    [
        (999, 0, "API key 999 is not known (client id 'old')"),
        (ApiKey.PRODUCE, 2, "Produce version 2 is not known, only 3..13 (client id 'old')"),
        (ApiKey.INIT_PRODUCER_ID, 6, "InitProducerId version 6 is not offered (client id 'old')"),
    ],
)
async def test_whoever_asks_for_a_version_that_is_not_there_is_named(
    client: WireClient, caplog: pytest.LogCaptureFixture, api_key: int, version: int, said: str
) -> None:
    frame = struct.pack(">hhih", api_key, version, 1, 3) + b"old" + bytes(20)
    await client.send_bytes(struct.pack(">i", len(frame)) + frame)
    assert await client.is_closed()
    assert _lines(caplog) == [f"closing the connection of /127.0.0.1: {said}"]


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"POST /topics HTTP/1.1\r\n\r\n"])
async def test_a_client_that_speaks_http_is_told_from_one_with_a_large_frame(
    client: WireClient, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    await client.send_bytes(said)
    assert await client.is_closed()
    (line,) = _lines(caplog)
    assert line == "closing the connection of /127.0.0.1: it speaks HTTP, and this is a port for Kafka's clients"


def _produces() -> Iterator[tuple[str, ProduceRequest, int, ErrorCode, str]]:
    def request(records: bytes | None, acks: int = -1) -> ProduceRequest:
        return ProduceRequest(None, acks, 10_000, (TopicProduceData(name="t", partition_data=(_data(records),)),))

    def _data(records: bytes | None) -> PartitionProduceData:
        return PartitionProduceData(0, records)

    good, zstd = batch(b"v"), batch(b"v", compression=Compression.ZSTD)
    nobodys = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    wrong = request(good, 7), 12, ErrorCode.INVALID_REQUIRED_ACKS
    yield "acks", *wrong, "a batch for t-0: INVALID_REQUIRED_ACKS, acks is 7; it has to be 0, 1 or -1 (all)"
    yield (
        "none",
        request(None),
        12,
        ErrorCode.INVALID_RECORD,
        "a batch for t-0: INVALID_RECORD, a produce request needs",
    )
    old = request(zstd), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    yield "zstd", *old, "a batch for t-0: UNSUPPORTED_COMPRESSION_TYPE, zstd in version 6 of Produce"
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    yield "nobody's", request(nobodys), 12, error, "a transactional batch in a produce without a transactional id"
    too_large = request(batch(bytes(1 << 20)))
    yield "large", too_large, 12, ErrorCode.MESSAGE_TOO_LARGE, "a batch for t-0: MESSAGE_TOO_LARGE, the batch takes"


@pytest.mark.parametrize(("name", "request_", "version", "error", "said"), list(_produces()))
async def test_whoever_produces_what_no_good_client_sends_is_named(
    broker: AsyncBroker,
    client: WireClient,
    caplog: pytest.LogCaptureFixture,
    name: str,
    request_: ProduceRequest,
    version: int,
    error: ErrorCode,
    said: str,
) -> None:
    await broker.node.topics.create("t", 1, {})
    answer = await client.ask(ApiKey.PRODUCE, request_, version)
    assert answer.responses[0].partition_responses[0].error_code == error
    (line,) = _lines(caplog)
    assert line.startswith(_WHO + said)
    assert name != "large" or line.endswith("; see max.message.bytes of the topic, and batch.size of the client")


async def test_who_waits_for_no_answer_is_named_with_the_reason(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    data = (TopicProduceData(name="nowhere", partition_data=(PartitionProduceData(7, batch(b"v")),)),)
    await client.send(ApiKey.PRODUCE, ProduceRequest(None, 0, 10_000, data), 12)
    assert await client.is_closed()
    why = "a produce with acks=0 was refused: partition 7 of 'nowhere': UNKNOWN_TOPIC_OR_PARTITION (client id 'test')"
    assert _lines(caplog) == [f"closing the connection of /127.0.0.1: {why}"]


async def test_what_an_error_says_itself_is_not_said_twice(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _topics("a b"))
    (line,) = _lines(caplog)
    assert line.endswith("characters other than ASCII alphanumerics, '.', '_' and '-'")


async def test_topics_that_are_too_many_to_be_made_are_told_with_who_named_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"num.partitions": str(MAX_NEW_PARTITIONS + 1)}
    async with AsyncBroker(settings) as broker, WireClient(broker, "test") as client:
        asked = MetadataRequest((MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")))
        for _ in range(2):
            answer = await client.ask(ApiKey.METADATA, asked)
            assert {each.error_code for each in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    what = "with this one and those behind it there would be more than 10,000 partitions at once"
    assert _lines(caplog) == [f"{_WHO}Metadata of 'a': not made: {what}; name less in a request"]


async def test_names_that_collide_with_topics_are_one_line_with_who_has_asked_for_them(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    """There had been a line for each, without the client."""
    await client.ask(ApiKey.CREATE_TOPICS, _topics("a.1", "a.2", "a.3"))
    asked = MetadataRequest(tuple(MetadataRequestTopic(name=f"a_{n}") for n in (1, 2, 3)))
    for _ in range(2):
        answer = await client.ask(ApiKey.METADATA, asked)
        assert [each.error_code for each in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert _lines(caplog) == [f"{_WHO}Metadata of 'a_1': not made: Topic 'a_1' collides with existing topic: a.1"]


async def test_a_commit_that_no_batch_can_hold_is_a_line_once_in_a_while(
    group_coordinator: None, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _topics("t", partitions=300))
    partitions = tuple(OffsetCommitRequestPartition(n, 5, committed_metadata="m" * 4_000) for n in range(300))
    asked = OffsetCommitRequest("g", topics=(OffsetCommitRequestTopic(name="t", partitions=partitions),))
    for _ in range(3):
        (topic,) = (await client.ask(ApiKey.OFFSET_COMMIT, asked, 8)).topics
        assert {each.error_code for each in topic.partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    of_coordinator = [line for line in _lines(caplog) if line.startswith("__consumer_offsets-")]
    assert len(of_coordinator) == 1
    assert "what is decided cannot be appended: MESSAGE_TOO_LARGE, the batch takes " in of_coordinator[0]


async def test_each_partition_that_takes_no_decision_has_a_line(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = broker.node.partitions
    runtime = ShardRuntime(partitions, broker.node.timers, broker.node.clock, broker.node.slices)
    refused = Appended(-1, -1, -1, -1, error=ErrorCode.MESSAGE_TOO_LARGE, message="too much")
    for number in (0, 1, 0, 1):
        runtime.tell_refused(TopicPartition("__consumer_offsets", number), refused)
    why = "what is decided cannot be appended: MESSAGE_TOO_LARGE, too much"
    assert _lines(caplog) == [f"__consumer_offsets-{number}: {why}" for number in (0, 1)]
