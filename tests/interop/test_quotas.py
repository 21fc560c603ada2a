"""The same quotas and the same requests for Apache Kafka and for us: equal errors, equal throttle times (KIP-13).

A throttle time is exact where nobody has used the quota before: the first request of a client id tells which quota
counts for it. Each entity has another rate, so that another choice is another time.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain, combinations
from typing import Final, NamedTuple, TypeAlias

import pytest

from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages import alter_client_quotas as alter
from ottla.wire.messages import describe_client_quotas as describe
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.records_io import until_led
from tests.broker.wire_client import Address, WireClient, batch
from tests.interop.apache import ApacheKafka

pytestmark = pytest.mark.interop

_Entity: TypeAlias = tuple[tuple[str, str | None], ...]
_Quotas: TypeAlias = dict[_Entity, dict[str, float | None]]
_USER = ("user", "ANONYMOUS")
_ALL_USERS, _ALL_CLIENTS = ("user", None), ("client-id", None)


class _Where(NamedTuple):
    host: str
    port: int


@pytest.fixture(scope="module")
def theirs(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Where]:
    """An Apache Kafka of this module's own: defaults count for everybody."""
    with ApacheKafka(tmp_path_factory.mktemp("quotas")) as node:
        host, _, port = node.bootstrap.rpartition(":")
        yield _Where(host, int(port))


@pytest.fixture
async def both(theirs: _Where) -> AsyncIterator[list[Address]]:
    """Apache Kafka and ours, without any quotas."""
    async with AsyncBroker() as ours:
        for each in (theirs, ours):
            async with WireClient(each, "cleaner") as client:
                await _alter(client, {of: dict.fromkeys(values) for of, values in (await _described(client)).items()})
        yield [theirs, ours]


def _entry(of: _Entity, values: dict[str, float | None]) -> alter.EntryData:
    ops = tuple(alter.OpData(key, value or 0.0, value is None) for key, value in values.items())
    return alter.EntryData(tuple(alter.EntityData(*part) for part in of), ops)


async def _alter(client: WireClient, wanted: _Quotas, version: int = 1) -> dict[_Entity, int]:
    if not wanted:
        return {}
    request = alter.AlterClientQuotasRequest(tuple(_entry(of, values) for of, values in wanted.items()))
    answer = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, version)
    return {_sorted(tuple(part) for part in each.entity): each.error_code for each in answer.entries}


async def _described(
    client: WireClient, components: Iterable[describe.ComponentData] = (), *, strict: bool = False
) -> dict[_Entity, dict[str, float]]:
    request = describe.DescribeClientQuotasRequest(tuple(components), strict)
    answer = await client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    if answer.error_code:
        return {(("error", str(answer.error_code)),): {}}
    return {_sorted(tuple(part) for part in each.entity): dict(each.values) for each in answer.entries}


def _sorted(parts: Iterable[tuple[str, str | None]]) -> _Entity:
    return tuple(sorted(parts, key=str))


async def _set(where: Address, wanted: _Quotas, marker: str) -> None:
    """Set quotas, and wait until they count: Apache Kafka's broker hears of them after the answer, in their order."""
    async with WireClient(where, "setter") as client:
        assert set((await _alter(client, wanted)).values()) <= {0}
        await _alter(client, {(("client-id", marker),): {"producer_byte_rate": 1.0}})
    throttle_ms = 0
    while not throttle_ms:
        async with WireClient(where, marker) as client:
            throttle_ms = await _produce(client, 100)
    async with WireClient(where, "setter") as client:
        await _alter(client, {(("client-id", marker),): {"producer_byte_rate": None}})


async def _produce(client: WireClient, size_bytes: int) -> int:
    data = TopicProduceData(name="t", partition_data=(PartitionProduceData(0, batch(b"x" * size_bytes)),))
    answer = await client.ask(ApiKey.PRODUCE, ProduceRequest(None, -1, 10_000, (data,)), 11)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


async def _make_topic(where: Address) -> bytes:
    async with WireClient(where, "maker") as client:
        await client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest((CreatableTopic("t", 1, 1),), 10_000))
        await until_led(client, "t")
        answer = await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name="t"),)), 12)
    return bytes(answer.topics[0].topic_id)


_COMMON: tuple[_Entity, ...] = (
    (_ALL_CLIENTS, _USER),
    (_USER,),
    (_ALL_CLIENTS, _ALL_USERS),
    (_ALL_USERS,),
    (_ALL_CLIENTS,),
)


def _own(client_id: str) -> tuple[_Entity, ...]:
    me = ("client-id", client_id)
    return ((me, _USER), (me, _ALL_USERS), (me,))


def _subsets(entities: tuple[_Entity, ...]) -> Iterator[tuple[_Entity, ...]]:
    return chain.from_iterable(combinations(entities, size) for size in range(len(entities) + 1))


@pytest.mark.slow
async def test_the_same_quota_counts_with_the_same_throttle_time(both: list[Address]) -> None:
    for where in both:
        await _make_topic(where)
    compared = 0
    for number, common in enumerate(_subsets(_COMMON)):
        ids = [f"c-{number}-{place}" for place in range(8)]
        wanted: _Quotas = {of: {"producer_byte_rate": None} for of in _COMMON}
        wanted |= {of: {"producer_byte_rate": 1000.0 + 100 * _COMMON.index(of)} for of in common}
        for client_id, own in zip(ids, _subsets(_own(ids[0])), strict=True):
            for of in own:
                mine = _own(client_id)[_own(ids[0]).index(of)]
                wanted[mine] = {"producer_byte_rate": 2000.0 + 100 * _own(ids[0]).index(of)}
        answers = []
        for where in both:
            await _set(where, wanted, f"marker-{number}")
            answers.append([await _first(where, client_id) for client_id in ids])
        for client_id, apache, ours in zip(ids, *answers, strict=True):
            # Of a quota that all of a user's clients share, others have used something by now.
            is_shared = apache not in {_expected(each["producer_byte_rate"], client_id) for each in wanted.values()} | {
                0
            }
            assert (apache > 0, ours > 0) == (True, True) if is_shared else apache == ours, (
                common,
                client_id,
                apache,
                ours,
            )
            compared += not is_shared
    assert compared > 150


async def _first(where: Address, client_id: str) -> int:
    async with WireClient(where, client_id) as client:
        return await _produce(client, 100_000)


def _expected(quota: float | None, client_id: str) -> int:
    """What the first request of this client waits for by this quota; -1 where there is none."""
    if quota is None:
        return -1
    data = TopicProduceData(name="t", partition_data=(PartitionProduceData(0, batch(b"x" * 100_000)),))
    size_bytes = len(encode_request(ApiKey.PRODUCE, 11, 1, client_id, ProduceRequest(None, -1, 10_000, (data,)))) - 4
    return math.floor((size_bytes / 10 - quota) / quota * 10_000 + 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
async def test_a_fetch_has_the_same_size_and_the_same_throttle_time(both: list[Address], version: int) -> None:
    answers = []
    for where in both:
        topic_id = await _make_topic(where)
        async with WireClient(where, "filler") as client:
            for _ in range(20):
                await _produce(client, 3_000)
        ids = [f"f-{version}-{number}" for number in range(6)]
        quotas: _Quotas = {
            (("client-id", each),): {"consumer_byte_rate": 700.0 + 350 * at} for at, each in enumerate(ids)
        }
        await _set(where, quotas, f"marker-f{version}")
        told = []
        for client_id in ids:
            async with WireClient(where, client_id) as client:
                asked = FetchPartition(0, fetch_offset=0, partition_max_bytes=10**6)
                topic = FetchTopic(topic="t", topic_id=topic_id, partitions=(asked,))
                request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10**7, topics=(topic,))
                answer = await client.ask(ApiKey.FETCH, request, version)
            told.append((answer.throttle_time_ms, getattr(answer, "session_id", 0), len(answer.responses)))
        answers.append(told)
    assert answers[0] == answers[1]
    assert all(each[0] > 0 for each in answers[0])


@pytest.mark.slow
async def test_changes_of_topics_are_refused_or_let_through_alike(both: list[Address]) -> None:
    answers = []
    for where in both:
        await _make_topic(where)
        ids = ["m-strict", "m-old"]
        await _set(where, {(("client-id", each),): {"controller_mutation_rate": 0.01} for each in ids}, "marker-m")
        errors = []
        grown = CreatePartitionsRequest((CreatePartitionsTopic("t", 2, None),), 10_000)
        for client_id, (making, growing, deleting) in zip(ids, ((7, 3, 6), (5, 2, 4)), strict=True):
            made = CreateTopicsRequest(tuple(CreatableTopic(f"{client_id}-{at}", 2, 1) for at in range(3)), 10_000)
            for key, request, version in (
                (ApiKey.CREATE_TOPICS, made, making),
                (ApiKey.CREATE_PARTITIONS, grown, growing),
                (ApiKey.DELETE_TOPICS, _deletion(f"{client_id}-0", deleting), deleting),
            ):
                async with WireClient(where, client_id) as client:  # the one before is silent now
                    answer = await client.ask(key, request, version)
                results = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
                codes = sorted(each.error_code for each in results)
                errors.append((key.name, version, codes, answer.throttle_time_ms > 0))
        answers.append(errors)
    assert answers[0] == answers[1]


def _deletion(name: str, version: int) -> DeleteTopicsRequest:
    if version >= 6:
        return DeleteTopicsRequest((DeleteTopicState(name),), timeout_ms=10_000)
    return DeleteTopicsRequest(topic_names=(name,), timeout_ms=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_alterations_and_filters_have_the_same_answers(both: list[Address], seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        wanted = {_some_entity(rng): _some_values(rng) for _ in range(rng.randint(1, 3))}
        components, strict = _some_filter(rng), rng.random() < 0.5
        answers = []
        for where in both:
            async with WireClient(where, "asker") as client:
                altered = await _alter(client, dict(wanted), rng.choice((0, 1)) if where is both[0] else 1)
                await _settled(client, {of: values for of, values in wanted.items() if altered[of] == 0})
                answers.append((altered, await _described(client), await _described(client, components, strict=strict)))
        assert answers[0] == answers[1], (wanted, components, strict)


async def _settled(client: WireClient, wanted: _Quotas) -> None:
    """Apache Kafka's broker hears of a change after the answer."""
    while True:
        there = await _described(client)
        if all(there.get(of, {}).get(key) == value for of, values in wanted.items() for key, value in values.items()):
            return


_KINDS: Final[tuple[tuple[str, ...], ...]] = (
    ("user",),
    ("client-id",),
    ("user", "client-id"),
    ("ip",),
    ("ip", "user"),
    (),
    ("tribe",),
)
_NAMES: Final[dict[str, tuple[str | None, ...]]] = {
    "user": ("alice", "bob", None, ""),
    "client-id": ("a", "b", None),
    "ip": ("10.0.0.1", "10.0.0.2"),  # the default would count for this test itself
    "tribe": ("x",),
}


def _some_entity(rng: random.Random) -> _Entity:
    return _sorted((kind, rng.choice(_NAMES[kind])) for kind in rng.choice(_KINDS))


def _some_values(rng: random.Random) -> dict[str, float | None]:
    keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
    keys += ["connection_creation_rate", "speed"]
    values = [None, 1.0, 50.0, 1024.0, 0.5, 0.0, -1.0, 1e12, 3e9]
    return {key: rng.choice(values) for key in rng.sample(keys, rng.randint(1, 2))}


def _some_filter(rng: random.Random) -> list[describe.ComponentData]:
    found = []
    for kind in rng.sample(["user", "client-id", "ip", "tribe", ""], rng.choice([0, 1, 1, 2])):
        how = rng.choice([0, 1, 2, 2, 3])
        name = rng.choice(["alice", "a", "10.0.0.1"]) if rng.random() < (0.9 if how == 0 else 0.1) else None
        found.append(describe.ComponentData(kind, how, name))
    return found
