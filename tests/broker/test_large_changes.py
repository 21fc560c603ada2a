"""Topics of many partitions, and old files: others are served meanwhile, and nobody sees half a change."""

import asyncio
import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.base.limits import MAX_CHANGES
from ottla.base.types import TopicPartition
from ottla.broker.connections import Connections
from ottla.broker.metadata.image import TOPIC_RESOURCE, TopicImage
from ottla.broker.runtime.slices import TURN_MS
from ottla.broker.runtime.upkeep import Upkeep
from ottla.log.checkpoint import RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.log.results import Origin
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import AlterableConfig as OldConfig
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.alter_configs import AlterConfigsResource as OldResource
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.records import Record, encode_batch
from tests.broker.ticking import TickingClock, some_turns_until, steps, turns
from tests.broker.wire_client import WireClient

_PARTITIONS = 200


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker({"log.retention.minutes": "1"}, clock=TickingClock()) as running:
        yield running


def _create(*names: str, partitions: int = _PARTITIONS) -> CreateTopicsRequest:
    return CreateTopicsRequest(tuple(CreatableTopic(name, partitions, 1) for name in names), 60_000)


def _directories(broker: AsyncBroker) -> list[str]:
    """The partitions' directories. Those that are marked as deleted are left out: a thread removes them later."""
    names = [path.name for path in broker.data_dir.iterdir()]
    return [name for name in names if name.startswith("t-") and not name.endswith("-delete")]


def _metadata_batches(broker: AsyncBroker) -> int:
    return len(list(iter_headers((broker.data_dir / "__cluster_metadata-0" / f"{0:020}.log").read_bytes())))


async def test_many_partitions_are_made_a_few_in_a_turn(broker: AsyncBroker, client: WireClient) -> None:
    answer = asyncio.create_task(client.ask(ApiKey.CREATE_TOPICS, _create("t")))
    seen = await turns(answer, lambda: len(_directories(broker)))
    assert (await answer).topics[0].error_code == ErrorCode.NONE
    assert seen[-1] == _PARTITIONS
    assert max(steps(seen)) <= TURN_MS


async def test_partitions_that_are_added_are_made_a_few_in_a_turn(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _create("t", partitions=1))
    request = CreatePartitionsRequest((CreatePartitionsTopic("t", _PARTITIONS, None),), 60_000)
    answer = asyncio.create_task(client.ask(ApiKey.CREATE_PARTITIONS, request))
    seen = await turns(answer, lambda: len(_directories(broker)))
    assert (await answer).results[0].error_code == ErrorCode.NONE
    assert seen[-1] == len(broker.node.image.topics["t"].partitions) == _PARTITIONS
    assert max(steps(seen)) <= TURN_MS


async def test_nobody_sees_a_topic_that_is_half_made(broker: AsyncBroker, client: WireClient) -> None:
    def seen_in_part() -> int:
        found = sum(broker.node.partitions.find("t", number) is not None for number in range(_PARTITIONS))
        told = len(broker.node.image.topics["t"].partitions) if "t" in broker.node.image.topics else 0
        return int(found != told or found not in (0, _PARTITIONS))

    answer = asyncio.create_task(client.ask(ApiKey.CREATE_TOPICS, _create("t")))
    assert set(await turns(answer, seen_in_part)) == {0}


async def test_many_topics_are_seen_one_after_the_other_and_each_is_whole(
    broker: AsyncBroker, client: WireClient
) -> None:
    names = [f"t-{number}" for number in range(20)]
    image, halves = broker.node.image, set[str]()

    def seen() -> int:
        for name in names:
            found = [broker.node.partitions.find(name, number) is not None for number in range(3)]
            told = len(image.topics[name].partitions) if name in image.topics else 0
            halves.update(() if found == [told == 3] * 3 else [name])
        return len(image.topics)

    answer = asyncio.create_task(client.ask(ApiKey.CREATE_TOPICS, _create(*names, partitions=3)))
    assert max(steps(await turns(answer, seen))) <= TURN_MS
    assert len(image.topics) == len(names)
    assert not halves
    configs = [topic.configs for topic in (await answer).topics]
    assert configs[0] and configs == configs[:1] * len(names)
    gone = asyncio.create_task(
        client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(tuple(map(DeleteTopicState, names))))
    )
    assert max(steps(await turns(gone, lambda: len(image.topics)))) <= TURN_MS
    assert not image.topics


async def test_a_request_s_topics_are_one_batch_of_metadata(broker: AsyncBroker, client: WireClient) -> None:
    before = _metadata_batches(broker)
    made = await client.ask(ApiKey.CREATE_TOPICS, _create("a", "b", "c", partitions=2))
    assert [topic.error_code for topic in made.topics] == [0, 0, 0]
    assert _metadata_batches(broker) == before + 1
    await client.ask(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsRequest(tuple(CreatePartitionsTopic(name, 3, None) for name in "abc"), 60_000),
    )
    assert _metadata_batches(broker) == before + 2
    gone = await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(tuple(map(DeleteTopicState, "abc"))))
    assert [topic.error_code for topic in gone.responses] == [0, 0, 0]
    assert _metadata_batches(broker) == before + 3
    assert broker.node.image.topics == {}


async def test_a_request_s_settings_are_one_batch_of_metadata(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _create("a", "b", "c", partitions=1))
    before = _metadata_batches(broker)
    changes = (AlterableConfig("retention.ms", 0, "5000"),)
    asked = tuple(AlterConfigsResource(TOPIC_RESOURCE, name, changes) for name in ("a", "b", "missing", "c", "c"))
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(asked))
    errors = [ErrorCode(each.error_code).name for each in answer.responses]
    assert errors == ["NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST", "INVALID_REQUEST"]
    assert _metadata_batches(broker) == before + 1
    assert [broker.node.image.topic_configs(name).get("retention.ms") for name in "abc"] == ["5000", "5000", None]
    older = tuple(OldResource(TOPIC_RESOURCE, name, (OldConfig("retention.ms", "7000"),)) for name in "abb")
    answer = await client.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest(older))
    assert [ErrorCode(each.error_code).name for each in answer.responses] == [
        "NONE",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
    ]
    assert _metadata_batches(broker) == before + 2
    assert [broker.node.image.topic_configs(name).get("retention.ms") for name in "ab"] == ["7000", "5000"]


async def test_very_many_settings_of_one_resource_are_refused_before_they_are_looked_at(
    broker: AsyncBroker, client: WireClient
) -> None:
    """As many as Apache Kafka takes in one request; 29,000 kept the loop for 33 ms."""
    await client.ask(ApiKey.CREATE_TOPICS, _create("a", partitions=1))
    many = [f"{number}" for number in range(MAX_CHANGES + 1)]
    asked = IncrementalAlterConfigsRequest(
        (AlterConfigsResource(TOPIC_RESOURCE, "a", tuple(AlterableConfig(name, 0, "1") for name in many)),)
    )
    older = AlterConfigsRequest((OldResource(TOPIC_RESOURCE, "a", tuple(OldConfig(name, "1") for name in many)),))
    for key, request in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, asked), (ApiKey.ALTER_CONFIGS, older)):
        (refused,) = (await client.ask(key, request)).responses
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "At most 10000 settings" in refused.error_message


async def test_a_key_that_is_named_twice_changes_nothing_in_either_way_to_set_it(
    broker: AsyncBroker, client: WireClient
) -> None:
    """As in Apache Kafka's `ConfigAdminManager.preprocess`."""
    await client.ask(ApiKey.CREATE_TOPICS, _create("a", partitions=1))
    twice = tuple(AlterableConfig("retention.ms", 0, value) for value in ("5000", "7000"))
    asked = IncrementalAlterConfigsRequest((AlterConfigsResource(TOPIC_RESOURCE, "a", twice),))
    older = tuple(OldConfig("retention.ms", value) for value in ("5000", "7000"))
    for key, request in (
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, asked),
        (ApiKey.ALTER_CONFIGS, AlterConfigsRequest((OldResource(TOPIC_RESOURCE, "a", older),))),
    ):
        (refused,) = (await client.ask(key, request)).responses
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        )
    assert broker.node.image.topic_configs("a") == {}


async def test_topics_that_one_request_is_the_first_to_name_are_one_batch_of_metadata(
    broker: AsyncBroker, client: WireClient
) -> None:
    names = [f"n{at}" for at in range(200)]
    before = _metadata_batches(broker)
    request = MetadataRequest(tuple(MetadataRequestTopic(name=name) for name in [*names, "bad name", names[0]]), True)
    answer = asyncio.create_task(client.ask(ApiKey.METADATA, request))
    seen = await turns(answer, lambda: sum(path.name.startswith("n") for path in broker.data_dir.iterdir()))
    told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in (await answer).topics}
    assert told == dict.fromkeys(names, (0, 1)) | {"bad name": (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)}
    assert max(steps(seen)) <= TURN_MS
    assert _metadata_batches(broker) == before + 1


class _Calls:
    """How often files are synced, and how often of it in the loop's own thread."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.in_the_loop = 0
        self._loops = threading.get_ident()
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, partial(self._call, name, getattr(os, name)))

    def _call(self, name: str, real: Callable[[int], None], descriptor: int) -> None:
        self.counts[name] += 1
        self.in_the_loop += threading.get_ident() == self._loops
        real(descriptor)

    def taken(self) -> dict[str, int]:
        """Their numbers since this was asked last."""
        told = dict(self.counts)
        self.counts.clear()
        return told


async def test_syncs_and_checkpoints_are_by_request_and_not_by_topic(
    broker: AsyncBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _create("first", partitions=1))
    calls = _Calls(monkeypatch)
    seen = []
    for count in (10, 100):
        names = [f"of-{count}-{at}" for at in range(count)]
        gone = DeleteTopicsRequest(tuple(map(DeleteTopicState, names)))
        await client.ask(ApiKey.CREATE_TOPICS, _create(*names, partitions=1))
        broker.node.partitions.checkpoint_plan()()  # it has their names from now on
        calls.taken()
        assert {each.error_code for each in (await client.ask(ApiKey.DELETE_TOPICS, gone)).responses} == {0}
        made = await client.ask(ApiKey.CREATE_TOPICS, _create(*names, partitions=1))
        assert {topic.error_code for topic in made.topics} == {0}
        seen.append(calls.taken())
    assert seen[0] == seen[1]


async def test_the_loop_waits_for_no_device(
    broker: AsyncBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _Calls(monkeypatch)
    assert {each.error_code for each in (await client.ask(ApiKey.CREATE_TOPICS, _create("a", "b"))).topics} == {0}
    grown = CreatePartitionsRequest((CreatePartitionsTopic("a", _PARTITIONS + 1, None),), 60_000)
    assert not (await client.ask(ApiKey.CREATE_PARTITIONS, grown)).results[0].error_code
    asked = AlterConfigsResource(TOPIC_RESOURCE, "a", (AlterableConfig("retention.ms", 0, "5000"),))
    altered = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest((asked,)))
    assert not altered.responses[0].error_code
    await client.ask(ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name="auto"),)))
    assert not (await client.ask(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(None, 60_000))).error_code
    for kind in (0, 1):
        found = await client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", kind, ("g",)))
        assert not found.coordinators[0].error_code
    gone = DeleteTopicsRequest(tuple(map(DeleteTopicState, ("a", "b", "auto"))))
    assert {each.error_code for each in (await client.ask(ApiKey.DELETE_TOPICS, gone)).responses} == {0}
    assert calls.taken()["fdatasync"] >= 8  # one for each change
    assert calls.in_the_loop == 0


async def test_a_long_answer_is_encoded_while_others_are_served(broker: AsyncBroker, client: WireClient) -> None:
    names = [f"t{number:03}" for number in range(200)]
    await client.ask(ApiKey.CREATE_TOPICS, _create(*names, partitions=1))
    short = await turns(asyncio.create_task(client.ask(ApiKey.METADATA, MetadataRequest(()))), lambda: 0)
    answer = asyncio.create_task(client.ask(ApiKey.METADATA, MetadataRequest(None)))
    long = await turns(answer, lambda: 0)
    assert [topic.name for topic in (await answer).topics] == names
    assert len(long) - len(short) >= len(names) / TURN_MS


async def test_many_topics_are_checked_a_few_in_a_turn(broker: AsyncBroker, client: WireClient) -> None:
    request = _create(*(f"t{number}" for number in range(_PARTITIONS)), partitions=1)._replace(validate_only=True)
    answer = asyncio.create_task(client.ask(ApiKey.CREATE_TOPICS, request))
    seen = await turns(answer, lambda: 0)
    assert {topic.error_code for topic in (await answer).topics} == {ErrorCode.NONE}
    assert len(seen) > _PARTITIONS / TURN_MS


async def test_coordinators_hear_once_of_all_topics_that_a_request_deletes(
    broker: AsyncBroker, client: WireClient
) -> None:
    told: list[Sequence[TopicImage]] = []
    await client.ask(ApiKey.CREATE_TOPICS, _create("a", "b", "c", partitions=1))
    broker.node.topics.tell(made=lambda topic: None, deleted=told.append)
    await client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(tuple(map(DeleteTopicState, "abc"))))
    assert [[topic.name for topic in topics] for topics in told] == [["a", "b", "c"]]


async def test_a_fault_of_the_disk_leaves_none_of_a_topic_s_partitions(broker: AsyncBroker, client: WireClient) -> None:
    (broker.data_dir / f"t-{_PARTITIONS - 5}").write_text("no directory")
    made = await client.ask(ApiKey.CREATE_TOPICS, _create("t", "u"))
    assert [topic.error_code for topic in made.topics] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert _directories(broker) == [f"t-{_PARTITIONS - 5}"]
    assert list(broker.node.image.topics) == ["u"]


async def test_a_topic_is_made_although_its_client_has_gone(broker: AsyncBroker) -> None:
    async with WireClient(broker) as leaving:
        await leaving.send(ApiKey.CREATE_TOPICS, _create("t"))
        await some_turns_until(lambda: bool(_directories(broker)))
    async with WireClient(broker) as client:  # asked after it, answered after it
        again = await client.ask(ApiKey.CREATE_TOPICS, _create("t"))
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(broker.node.image.topics["t"].partitions) == len(_directories(broker)) == _PARTITIONS


async def test_a_name_that_is_being_made_is_not_made_by_those_who_name_it(
    broker: AsyncBroker, client: WireClient
) -> None:
    async with WireClient(broker) as other:
        version = await other.send(ApiKey.CREATE_TOPICS, _create("t"))
        await some_turns_until(lambda: bool(_directories(broker)))
        asked = MetadataRequest((MetadataRequestTopic(name="t"),), allow_auto_topic_creation=True)
        found = (await client.ask(ApiKey.METADATA, asked)).topics[0]  # it waits for its turn
        made = await other.answer(ApiKey.CREATE_TOPICS, version)
    assert made.topics[0].error_code == ErrorCode.NONE
    assert (found.error_code, found.topic_id) == (ErrorCode.NONE, made.topics[0].topic_id)


async def test_a_broker_that_stops_leaves_nothing_of_a_topic_that_is_half_made(tmp_path: Path) -> None:
    broker = AsyncBroker(data_dir=tmp_path, clock=TickingClock())
    await broker.start()
    async with WireClient(broker) as client:
        await client.send(ApiKey.CREATE_TOPICS, _create("t"))
        await some_turns_until(lambda: bool(_directories(broker)))
        assert "t" not in broker.node.image.topics
        await broker.stop()
    assert _directories(broker) == []


async def test_a_topic_of_many_partitions_is_deleted_and_made_again(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _create("t"))
    _append(broker, "t")
    async with WireClient(broker) as other:
        deleting = asyncio.create_task(client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("t"),))))
        await asyncio.sleep(0)
        made = await other.ask(ApiKey.CREATE_TOPICS, _create("t"))
        if made.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS:  # it came first
            await deleting
            made = await other.ask(ApiKey.CREATE_TOPICS, _create("t"))
        assert (await deleting).responses[0].error_code == ErrorCode.NONE
    assert made.topics[0].error_code == ErrorCode.NONE
    assert len(_directories(broker)) == _PARTITIONS
    partition = broker.node.partitions.find("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 0


# ---- retention


def _append(broker: AsyncBroker, topic: str, partition: int = 0) -> None:
    batch = encode_batch([Record(0, 1, None, b"of 1970", ())])
    appended = broker.node.partitions.append(TopicPartition(topic, partition), batch, origin=Origin.COORDINATOR)
    assert appended.error is ErrorCode.NONE


def _upkeep(broker: AsyncBroker) -> Upkeep:
    def nobody_asks(frame: object, session: object, /) -> None:
        raise AssertionError("nothing is sent here")

    node = broker.node
    connections = Connections(node.clock, max_connections=1, max_idle_ms=-1)
    return Upkeep(node.config, node.clock, node.timers, node.slices, node.partitions, connections)


class _Unlinks:
    """Which thread deletes which log file of a topic `t`; it can be kept waiting."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.threads: dict[str, int] = {}
        self.go_on = threading.Event()
        self.go_on.set()
        self._unlink = os.unlink
        patch.setattr(os, "unlink", self)

    def __call__(self, path: Any, *arguments: Any, **options: Any) -> None:
        if "t-" in str(path) and str(path).endswith(".log"):
            self.threads[str(path)] = threading.get_ident()
            assert self.go_on.wait(60), "nobody lets it go on"
        self._unlink(path, *arguments, **options)


@pytest.fixture
def unlinks(broker: AsyncBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Unlinks]:
    found = _Unlinks(monkeypatch)
    yield found
    found.go_on.set()


async def test_who_needs_a_topic_that_is_just_being_deleted_asks_again(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with WireClient(broker) as one, WireClient(broker) as other:
        wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=("g",))
        while (await one.ask(ApiKey.FIND_COORDINATOR, wanted)).coordinators[0].error_code != ErrorCode.NONE:
            pass
        caplog.clear()
        gone = DeleteTopicsRequest((DeleteTopicState("__consumer_offsets"),))
        deleting = asyncio.create_task(other.ask(ApiKey.DELETE_TOPICS, gone))
        codes: list[int] = []
        while not codes or not deleting.done():
            codes.append((await one.ask(ApiKey.FIND_COORDINATOR, wanted)).coordinators[0].error_code)
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_retention_deletes_files_in_another_thread(broker: AsyncBroker, unlinks: _Unlinks) -> None:
    await broker.node.topics.create("t", 2, {})
    _append(broker, "t", 0)
    _append(broker, "t", 1)
    await _upkeep(broker).apply_retention()
    assert len(unlinks.threads) == 2
    assert threading.get_ident() not in unlinks.threads.values()
    names = sorted(path.name for path in (broker.data_dir / "t-1").glob("*.log*"))
    assert names == ["00000000000000000001.log"]


async def test_retention_looks_at_a_few_partitions_in_a_turn(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _create("t"))
    for number in range(_PARTITIONS):
        _append(broker, "t", number)

    def retired() -> int:
        return sum(each.log.log_start_offset for each in broker.node.partitions.all())

    seen = await turns(asyncio.create_task(_upkeep(broker).apply_retention()), retired)
    assert seen[-1] == _PARTITIONS
    assert max(steps(seen)) <= TURN_MS


async def test_a_checkpoint_looks_at_a_few_partitions_in_a_turn(broker: AsyncBroker, client: WireClient) -> None:
    await client.ask(ApiKey.CREATE_TOPICS, _create("t"))
    partitions = broker.node.partitions
    coming = partitions._checkpoints._coming
    writing = asyncio.create_task(partitions.write_checkpoint(broker.node.slices))
    seen = await turns(writing, lambda: max(map(len, coming.values()), default=0))
    assert max(seen) >= _PARTITIONS
    assert max(steps(seen[: seen.index(max(seen)) + 1])) <= TURN_MS
    written = decode_offsets((broker.data_dir / RECOVERY_POINT_CHECKPOINT).read_bytes())
    assert {tp for tp in written if tp.topic == "t"} == {TopicPartition("t", number) for number in range(_PARTITIONS)}


async def test_who_goes_through_the_partitions_does_not_hold_those_that_are_deleted(broker: AsyncBroker) -> None:
    """Thousands of them would be freed in one turn, when he has come to his end."""
    node = broker.node
    await node.topics.create("t", 3, {})
    walk = (each for each in node.partitions.all() if each.tp.topic == "t")
    assert next(walk).tp == ("t", 0)
    held = [weakref.ref(each.log) for each in node.partitions.all() if each.tp.topic == "t"]
    await node.topics.delete_all([node.image.topics["t"]])
    assert [each() for each in held[1:]] == [None, None]
    await node.topics.create("u", 1, {})
    assert list(walk) == []


async def test_retention_touches_no_file_of_a_new_topic_of_the_same_name(
    broker: AsyncBroker, client: WireClient, unlinks: _Unlinks
) -> None:
    await broker.node.topics.create("t", 1, {})
    _append(broker, "t")
    unlinks.go_on.clear()
    cleaning = asyncio.create_task(_upkeep(broker).apply_retention())
    await some_turns_until(lambda: bool(unlinks.threads))
    deleting = asyncio.create_task(client.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest((DeleteTopicState("t"),))))
    await some_turns_until(lambda: "t" not in broker.node.image.topics)
    await broker.node.topics.auto_create_all(["t"])
    assert "t" not in broker.node.image.topics, "its directory is not renamed yet"
    unlinks.go_on.set()
    await deleting
    await cleaning
    await broker.node.topics.auto_create_all(["t"])
    assert (broker.data_dir / "t-0" / f"{0:020}.log").exists()
