"""The group APIs over the wire: every version, topics by name and by id, and what a handler adds to the coordinator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.base.limits import MAX_MEMBER_METADATA_BYTES, MAX_MEMBER_PROTOCOLS
from ottla.testing import AsyncBroker
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.usefixtures("group_coordinator")

_PROTOCOLS = (JoinGroupRequestProtocol("range", b"subscription"),)


@pytest.fixture
async def topic_id(broker: AsyncBroker) -> AsyncIterator[bytes]:
    """A topic `t` of two partitions."""
    yield (await broker.node.topics.create("t", 2, {})).topic_id


def _versions(key: ApiKey) -> range:
    return range(API[key].min_version, API[key].max_version + 1)


async def _join(client: WireClient, version: int = 9, **options: Any) -> Any:
    request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", _PROTOCOLS)._replace(**options)
    answer = await client.ask(ApiKey.JOIN_GROUP, request, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await client.ask(ApiKey.JOIN_GROUP, request._replace(member_id=answer.member_id), version)
    return answer


async def _stable(client: WireClient) -> Any:
    """A group of one member, in its first generation; the member's join answer."""
    joined = await _join(client)
    request = SyncGroupRequest(
        "g", joined.generation_id, joined.member_id, None, "consumer", "range", (_assignment(joined.member_id),)
    )
    assert (await client.ask(ApiKey.SYNC_GROUP, request)).assignment == b"all of it"
    return joined


def _assignment(member_id: str) -> SyncGroupRequestAssignment:
    return SyncGroupRequestAssignment(member_id, b"all of it")


def _commit(
    joined: Any = None, *, topic_id: bytes = bytes(16), name: str = "t", offset: int = 7
) -> oc.OffsetCommitRequest:
    partitions = tuple(oc.OffsetCommitRequestPartition(number, offset, -1, "note") for number in (0, 5))
    topics = (oc.OffsetCommitRequestTopic(topic_id, name, partitions),)
    if joined is None:
        return oc.OffsetCommitRequest("g", topics=topics)
    return oc.OffsetCommitRequest("g", joined.generation_id, joined.member_id, topics=topics)


@pytest.mark.parametrize("version", _versions(ApiKey.FIND_COORDINATOR))
async def test_g1_every_version_finds_the_coordinator(client: WireClient, broker: AsyncBroker, version: int) -> None:
    for kind in (0, 1) if version > 0 else (0,):
        request = (
            fc.FindCoordinatorRequest("g", kind) if version < 4 else fc.FindCoordinatorRequest("", kind, ("g", "h"))
        )
        answer = await client.ask(ApiKey.FIND_COORDINATOR, request, version)
        found = (answer,) if version < 4 else answer.coordinators
        assert {(each.error_code, each.node_id, each.port) for each in found} == {(0, 1, broker.port)}


async def test_g2_the_offsets_topic_is_made_on_first_use() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client, WireClient(broker) as other:
        assert "__consumer_offsets" not in broker.node.image.topics
        asked = fc.FindCoordinatorRequest("", 0, ("g",))
        answers = await asyncio.gather(*(each.ask(ApiKey.FIND_COORDINATOR, asked) for each in (client, other)))
        assert [each.coordinators[0].error_code for each in answers] == [0, 0]
        image = broker.node.image
        count = broker.node.config.int("offsets.topic.num.partitions")
        assert len(image.topics["__consumer_offsets"].partitions) == count
        assert image.topic_configs("__consumer_offsets")["cleanup.policy"] == "compact"


async def test_g2_who_asks_for_no_coordinator_first_has_its_topic_made_but_waits_for_nothing() -> None:
    async with AsyncBroker() as broker, WireClient(broker) as client:
        beat = HeartbeatRequest("g", 1, "m")
        assert (await client.ask(ApiKey.HEARTBEAT, beat)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await broker.node.groups.ready() is None
        assert (await client.ask(ApiKey.HEARTBEAT, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_g1_an_unknown_kind_of_coordinator_is_refused(client: WireClient) -> None:
    answer = await client.ask(ApiKey.FIND_COORDINATOR, fc.FindCoordinatorRequest("", 9, ("g",)))
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", _versions(ApiKey.JOIN_GROUP))
async def test_g3_every_version_joins(client: WireClient, version: int) -> None:
    joined = await _join(client, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [each.member_id for each in joined.members] == [joined.member_id]


@pytest.mark.parametrize("version", _versions(ApiKey.JOIN_GROUP))
async def test_g3_every_version_can_be_refused(client: WireClient, version: int) -> None:
    refused = await _join(client, version, session_timeout_ms=1)
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_g7_a_member_syncs_heartbeats_and_leaves(client: WireClient) -> None:
    joined = await _stable(client)
    heartbeat = HeartbeatRequest("g", joined.generation_id, joined.member_id)
    assert (await client.ask(ApiKey.HEARTBEAT, heartbeat)).error_code == 0
    wrong = heartbeat._replace(generation_id=9)
    assert (await client.ask(ApiKey.HEARTBEAT, wrong)).error_code == ErrorCode.ILLEGAL_GENERATION
    leave = LeaveGroupRequest("g", (MemberIdentity(joined.member_id),))
    assert (await client.ask(ApiKey.LEAVE_GROUP, leave)).members[0].error_code == 0
    assert (await client.ask(ApiKey.HEARTBEAT, heartbeat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_sync_of_version_5_must_name_its_protocol(client: WireClient) -> None:
    answer = await client.ask(ApiKey.SYNC_GROUP, SyncGroupRequest("g", 1, "m"))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_COMMIT))
async def test_o1_every_version_commits_what_exists(client: WireClient, topic_id: bytes, version: int) -> None:
    request = _commit(topic_id=topic_id, name="") if version >= 10 else _commit()
    answer = await client.ask(ApiKey.OFFSET_COMMIT, request, version)
    errors = [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]
    assert errors == [(0, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.usefixtures("topic_id")
async def test_o1_unknown_topics_are_refused_by_name_and_by_id(client: WireClient) -> None:
    by_name = await client.ask(ApiKey.OFFSET_COMMIT, _commit(name="none"), 9)
    assert by_name.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = await client.ask(ApiKey.OFFSET_COMMIT, _commit(topic_id=b"?" * 16, name=""), 10)
    assert by_id.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.usefixtures("topic_id")
async def test_g12_an_old_generation_commits_nothing(client: WireClient) -> None:
    joined = await _stable(client)
    old = _commit(joined)._replace(generation_id_or_member_epoch=0)
    answer = await client.ask(ApiKey.OFFSET_COMMIT, old, 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
    fetched = await _fetch(client, 9)
    assert fetched.groups[0].topics == ()


async def _fetch(client: WireClient, version: int, topic_id: bytes = bytes(16), *, everything: bool = True) -> Any:
    if version < 8:
        topics = None if everything and version >= 2 else (of.OffsetFetchRequestTopic("t", (0, 1)),)
        return await client.ask(ApiKey.OFFSET_FETCH, of.OffsetFetchRequest((), "g", topics), version)
    wanted = (of.OffsetFetchRequestTopics(topic_id, "" if version >= 10 else "t", (0, 1)),)
    group = of.OffsetFetchRequestGroup("g", None, -1, None if everything else wanted)
    return await client.ask(ApiKey.OFFSET_FETCH, of.OffsetFetchRequest((group,)), version)


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_FETCH))
async def test_o3_every_version_fetches(client: WireClient, topic_id: bytes, version: int, everything: bool) -> None:
    await client.ask(ApiKey.OFFSET_COMMIT, _commit(), 9)
    answer = await _fetch(client, version, topic_id, everything=everything)
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    told = {each.partition_index: (each.committed_offset, each.metadata) for each in topic.partitions}
    assert told[0] == (7, "note")
    assert told.get(1, (-1, "")) == (-1, "")
    if version >= 10:
        assert topic.topic_id == topic_id


async def test_o3_an_unknown_topic_id_is_told(client: WireClient) -> None:
    answer = await _fetch(client, 10, b"?" * 16, everything=False)
    assert [each.error_code for each in answer.groups[0].topics[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


@pytest.mark.usefixtures("topic_id")
async def test_g18_groups_are_listed_described_and_deleted(client: WireClient) -> None:
    joined = await _stable(client)
    await client.ask(ApiKey.OFFSET_COMMIT, _commit(joined), 9)
    (listed,) = (await client.ask(ApiKey.LIST_GROUPS, ListGroupsRequest())).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("g", "consumer", "Stable")
    described, missing = (await client.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(("g", "none")))).groups
    assert [(each.client_id, each.client_host) for each in described.members] == [("test", "/127.0.0.1")]
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    async def delete(*names: str) -> list[int]:
        answer = await client.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(names))
        return sorted(each.error_code for each in answer.results)

    assert await delete("g", "") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    await client.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest("g", (MemberIdentity(joined.member_id),)))
    assert await delete("g") == [0]
    assert await delete("g") == [ErrorCode.GROUP_ID_NOT_FOUND]


@pytest.mark.usefixtures("topic_id")
@pytest.mark.parametrize("version", [2, 3, 4])
async def test_o2_a_retention_without_end_is_taken_from_the_wire(client: WireClient, version: int) -> None:
    """The greatest number once closed the connection with a traceback."""
    request = _commit()._replace(retention_time_ms=2**63 - 1)
    assert (await client.ask(ApiKey.OFFSET_COMMIT, request, version)).topics[0].partitions[0].error_code == 0
    assert (await _fetch(client, 8)).groups[0].topics[0].partitions[0].committed_offset == 7


@pytest.mark.usefixtures("topic_id")
async def test_g18_offsets_are_deleted_by_hand_and_with_their_topic(client: WireClient, broker: AsyncBroker) -> None:
    commit = _commit()
    await client.ask(ApiKey.OFFSET_COMMIT, commit, 9)
    topics = (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),)
    answer = await client.ask(ApiKey.OFFSET_DELETE, OffsetDeleteRequest("g", topics))
    assert answer.topics[0].partitions[0].error_code == 0
    assert (await _fetch(client, 9)).groups[0].topics == ()
    unknown = (
        OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(2), OffsetDeleteRequestPartition(1))),
        OffsetDeleteRequestTopic("none", (OffsetDeleteRequestPartition(0),)),
    )
    answer = await client.ask(ApiKey.OFFSET_DELETE, OffsetDeleteRequest("g", unknown))
    told = [(each.name, [tuple(part) for part in each.partitions]) for each in answer.topics]
    assert told == [("t", [(2, 3), (1, 0)]), ("none", [(0, 3)])]
    await client.ask(ApiKey.OFFSET_COMMIT, commit, 9)
    await broker.node.topics.delete_all([broker.node.image.topics["t"]])
    assert (await _fetch(client, 9)).groups[0].topics == ()


@pytest.mark.parametrize("version", [3, 9])
async def test_g3_a_member_that_says_too_much_of_itself_is_refused(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """Its protocols are kept with it, for minutes after its connection has gone: four with 40 MB each took 190 MB."""
    half = bytes(MAX_MEMBER_METADATA_BYTES // 2)
    protocols = tuple(JoinGroupRequestProtocol(name, half) for name in ("range", "sticky"))
    request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    assert (await client.ask(ApiKey.JOIN_GROUP, request, version)).error_code == ErrorCode.INVALID_REQUEST
    who = "refusing a request of /127.0.0.1 (client id 'test'): a JoinGroup to group 'g': "
    assert f"{who}its protocols have 8388619" in caplog.text
    assert not [
        group for runner in broker.node.groups.active() for part in runner.shard.list_groups() for group in part
    ]
    assert (await _join(client, version, protocols=protocols[:1])).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 9])
async def test_a_member_with_very_many_protocols_is_refused(
    client: WireClient, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """Each join looks at them all, and at those of the others: with 20,000 it kept the loop for 35 ms."""
    protocols = tuple(JoinGroupRequestProtocol(f"{n}", b"") for n in range(MAX_MEMBER_PROTOCOLS + 1))
    request = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    assert (await client.ask(ApiKey.JOIN_GROUP, request, version)).error_code == ErrorCode.INVALID_REQUEST
    who = "refusing a request of /127.0.0.1 (client id 'test'): a JoinGroup to group 'g': "
    assert f"{who}it has 101 protocols" in caplog.text
    assert (await _join(client, version, protocols=protocols[1:])).error_code == ErrorCode.NONE
