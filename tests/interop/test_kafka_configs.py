"""Broker's and topics' settings as both brokers tell and judge them: names, types, defaults, sources, good values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.wire_client import Address, WireClient
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop

TOPIC, BROKER, GROUP = 2, 4, 32
DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 3, 4, 5

#: Keys whose default is not Kafka's, or that Kafka must be told to start at all.
OTHER_DEFAULTS = {
    "broker.id",
    "node.id",
    "log.dir",
    "log.dirs",
    "listeners",
    "socket.listen.backlog.size",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
}

#: Of consumer groups; a broker for tests has smaller ones.
KAFKAS_LIMITS = {
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.consumer.assignment.interval.ms": "1000",
}

#: Apache Kafka is told its cluster id by `kafka-storage format`, keeps no history of groups, and shows the settings of
#: its authorizer only where they are given.
OURS_ALONE = {
    "allow.everyone.if.no.acl.found",
    "audit.log.allowed",
    "audit.log.path",
    "cluster.id",
    "group.events.enable",
    "group.events.retention.bytes",
    "group.events.retention.ms",
    "super.users",
}

#: Values that each topic key is asked with, by Kafka's number of its type; `-` is in none of Kafka's forms of a number.
WORDS = ("", "x", "true", "TRUE", " false ")
NUMBERS = ("-3", "-2", "-1", "0", "+1", " 5 ", "\u0665", "1_000", "5.0", "0x10", "17", "18", "22", "23", "1048576")
LARGE = ("2147483647", "2147483648", "9223372036854775807", "9223372036854775808")
DECIMALS = (".5", "1e-2", "1.0", "1.01", "-0.1", "\u0660.\u0665", "1_0.0")
LISTS = ("*", "0:1", "0:1,2:3", "*,0:1", "delete,delete", "compact , delete", "Delete", "gzip", "GZIP", "CreateTime")


@pytest.fixture
async def ours() -> AsyncIterator[AsyncBroker]:
    """A broker without any setting but where its files and its listener are."""
    async with AsyncBroker() as broker:
        yield broker


async def described(broker: Address, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    async with WireClient(broker) as client:
        if kind == TOPIC:
            topic = CreatableTopic(name, 1, 1, (), ())
            made = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((topic,), 60_000))
            assert made.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        request = DescribeConfigsRequest((DescribeConfigsResource(kind, name, None),), True)
        (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, request)).results
        while result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # Kafka's broker has not heard of it yet
            (result,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, request)).results
    assert result.error_code == 0
    return {each.name: each for each in result.configs}


async def test_a_topics_settings_are_told_alike(ours: AsyncBroker, apache_kafka: ApacheKafka) -> None:
    theirs = await described(apache_kafka, TOPIC, "told-alike")
    mine = await described(ours, TOPIC, "told-alike")
    # Kafka 4 sets this one for the whole cluster when it is formatted (KIP-966).
    assert theirs.pop("min.insync.replicas").config_source == DYNAMIC_DEFAULT_BROKER
    assert mine.pop("min.insync.replicas").config_source == DEFAULT
    assert mine == theirs


def defaults(entry: DescribeConfigsResourceResult) -> tuple[Any, ...]:
    """Type, secrecy and default of a setting, whatever it was set to; nothing here can be changed while running."""
    layers = [(each.name, each.value) for each in entry.synonyms if each.source == DEFAULT]
    return entry.config_type, entry.is_sensitive, layers


async def test_the_brokers_settings_are_told_alike(ours: AsyncBroker, apache_kafka: ApacheKafka) -> None:
    theirs = await described(apache_kafka, BROKER, "1")
    mine = await described(ours, BROKER, "1")
    assert set(mine) - set(theirs) == OURS_ALONE
    assert set(theirs) - set(mine) == set()
    differing = {name for name, entry in theirs.items() if defaults(entry) != defaults(mine[name])}
    assert differing - OTHER_DEFAULTS == set()
    for name, entry in theirs.items():
        if entry.config_source == mine[name].config_source == DEFAULT and name not in OTHER_DEFAULTS:
            assert (name, entry.value, entry.synonyms) == (name, mine[name].value, mine[name].synonyms)
    assert all(entry.read_only for entry in mine.values())


async def judged(broker: Address, asked: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The error of a topic with each of these settings, which is not made."""
    topics = tuple(
        CreatableTopic(f"judged-{number}", 1, 1, (), (CreatableTopicConfig(name, value),))
        for number, (name, value) in enumerate(asked)
    )
    async with WireClient(broker) as client:
        answer = await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, 30_000, True))
    errors = {each.name: each.error_code for each in answer.topics}
    return {pair: errors[f"judged-{number}"] for number, pair in enumerate(asked)}


async def test_values_of_topics_settings_are_judged_alike(ours: AsyncBroker, apache_kafka: ApacheKafka) -> None:
    names = [*await described(ours, TOPIC, "judged"), "internal.segment.bytes", "no.such.key"]
    values = (*WORDS, *NUMBERS, *LARGE, *DECIMALS, *LISTS)
    asked = [(name, value) for name in names for value in values]
    mine, theirs = await judged(ours, asked), await judged(apache_kafka, asked)
    assert not {pair: (mine[pair], theirs[pair]) for pair in asked if mine[pair] != theirs[pair]}


async def test_a_groups_settings_are_told_alike(ours: AsyncBroker, apache_kafka: ApacheKafka) -> None:
    """Also those of share and streams groups, which have no effect here."""
    theirs = await described(apache_kafka, GROUP, "told-alike")
    mine = await described(ours, GROUP, "told-alike")
    assert {name: defaults(entry) for name, entry in mine.items()} == {
        name: defaults(entry) for name, entry in theirs.items()
    }
    # those of consumer groups have other values in a broker for tests
    others = {name: entry for name, entry in theirs.items() if not name.startswith("consumer.")}
    assert {name: mine[name] for name in others} == others


async def judged_of_groups(broker: Address, asked: list[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """The error of a group with each of these settings, which is not changed."""
    found = []
    async with WireClient(broker) as client:
        for name, value in asked:
            resource = AlterConfigsResource(GROUP, "judged", (AlterableConfig(name, 0, value),))
            request = IncrementalAlterConfigsRequest((resource,), True)
            answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
            found.append((name, value, answer.responses[0].error_code))
    return found


async def test_values_of_groups_settings_are_judged_alike(apache_kafka: ApacheKafka) -> None:
    words = ("latest", "EARLIEST", "by_duration:PT1H", "by_duration:-PT1H", "by_duration:", "read_committed")
    limits = ("1", "4", "5", "9", "10", "11", "99", "100", "999", "1000", "2000", "4000", "4001")
    times = ("4999", "5000", "14999", "15000", "15001", "30000", "44999", "45000", "50000", "60000", "60001")
    names = [*await described(apache_kafka, GROUP, "judged"), "no.such.key"]
    asked = [(name, value) for name in names for value in (*WORDS, *NUMBERS, *LARGE, *words, *limits, *times)]
    async with AsyncBroker(KAFKAS_LIMITS) as ours:
        mine, theirs = await judged_of_groups(ours, asked), await judged_of_groups(apache_kafka, asked)
    assert [(here, there) for here, there in zip(mine, theirs, strict=True) if here != there] == []
