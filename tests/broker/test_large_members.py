"""What members of groups say of themselves may be megabytes each: bounded, and copied for nobody in one turn."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ottla.base.limits import (
    MAX_ALL_METADATA_BYTES,
    MAX_FIELD_BYTES,
    MAX_GROUP_METADATA_BYTES,
    MAX_MEMBER_METADATA_BYTES,
)
from ottla.broker.answers import Later
from ottla.broker.handlers.dispatch import Dispatcher
from ottla.broker.handlers.encoding import _BYTES_AT_ONCE
from ottla.broker.session import Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_request
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.ticking import some_turns_until
from tests.broker.wire_client import WireClient

#: The record of a generation fits into the log.
_LARGE = {"message.max.bytes": 4 * _BYTES_AT_ONCE}

pytestmark = pytest.mark.usefixtures("group_coordinator")


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(_LARGE) as running:
        yield running


def _asked(
    size_bytes: int, member_id: str = "", group_id: str = "g", instance_id: str | None = None
) -> JoinGroupRequest:
    protocols = (JoinGroupRequestProtocol("range", bytes(size_bytes)),)
    return JoinGroupRequest(group_id, 10_000, 10_000, member_id, instance_id, "consumer", protocols)


async def _joined(client: WireClient, size_bytes: int, group_id: str = "g") -> Any:
    named = await client.ask(ApiKey.JOIN_GROUP, _asked(1, group_id=group_id))
    return await client.ask(ApiKey.JOIN_GROUP, _asked(size_bytes, named.member_id, group_id))


def _sync(joined: Any, size_bytes: int) -> SyncGroupRequest:
    given = (SyncGroupRequestAssignment(joined.member_id, bytes(size_bytes)),)
    return SyncGroupRequest("g", joined.generation_id, joined.member_id, None, "consumer", "range", given)


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS])
async def test_an_answer_of_many_bytes_is_encoded_in_slices_and_counted(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture, key: ApiKey
) -> None:
    """It has one element. It was encoded at once, whatever it took, and sent if it was too large."""
    answers = broker.node.answers
    if key is ApiKey.JOIN_GROUP:
        named = await client.ask(ApiKey.JOIN_GROUP, _asked(1))
        asked: Any = _asked(_BYTES_AT_ONCE, named.member_id)
    else:
        asked = _sync(await _joined(client, 10), _BYTES_AT_ONCE)
    if key is ApiKey.DESCRIBE_GROUPS:
        await client.ask(ApiKey.SYNC_GROUP, asked)
        asked = DescribeGroupsRequest(("g",))
    answers.limit_bytes = _BYTES_AT_ONCE
    await client.send(key, asked)
    assert await client.is_closed()
    name = key.name.title().replace("_", "")
    assert f"its answer to {name} is larger than {_BYTES_AT_ONCE} bytes" in caplog.text
    assert answers.held_bytes == 0


async def test_an_answer_of_many_bytes_is_whole(client: WireClient) -> None:
    joined = await _joined(client, 2 * _BYTES_AT_ONCE)
    assert [len(each.metadata) for each in joined.members] == [2 * _BYTES_AT_ONCE]
    assert (await client.ask(ApiKey.SYNC_GROUP, _sync(joined, _BYTES_AT_ONCE))).assignment == bytes(_BYTES_AT_ONCE)
    (group,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(("g",)))).groups
    (told,) = group.members
    assert (len(told.member_metadata), len(told.member_assignment)) == (2 * _BYTES_AT_ONCE, _BYTES_AT_ONCE)


async def test_a_field_above_all_bounds_closes_the_connection_and_says_whose_it_was(
    broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """One of 95 MB was copied first, in one turn."""
    async with WireClient(broker) as client:
        await client.send(ApiKey.JOIN_GROUP, _asked(MAX_FIELD_BYTES + 1))
        assert await client.is_closed()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "ottla.broker.connections"]
    assert f"metadata: {MAX_FIELD_BYTES + 1} bytes, at most {MAX_FIELD_BYTES} are accepted" in line
    assert line.endswith("(client id 'test')")


async def test_a_small_answer_does_not_wait_for_a_slice(broker: AsyncBroker) -> None:
    frame = encode_request(ApiKey.JOIN_GROUP, 9, 1, "c", _asked(1))[4:]
    assert not isinstance(Dispatcher(broker.node)(frame, Session("PLAINTEXT", "/127.0.0.1")), Later)


async def test_what_all_members_say_of_themselves_is_bounded_and_the_line_says_who_was_refused(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Twelve members of 7.9 MB made an answer of 95 MB, thirty one of 237 MB."""
    size_bytes = MAX_MEMBER_METADATA_BYTES - 100
    fit = MAX_GROUP_METADATA_BYTES // size_bytes
    async with AsyncExitStack() as stack:
        for number in range(fit):
            other = await stack.enter_async_context(WireClient(broker))
            named = await other.ask(ApiKey.JOIN_GROUP, _asked(1))
            await other.send(ApiKey.JOIN_GROUP, _asked(size_bytes, named.member_id))
            await some_turns_until(lambda number=number: _members(broker) == number + 1)  # type: ignore[misc]
        told = await _joined(client, size_bytes)
    assert told.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "refusing a request of /127.0.0.1 (client id 'test'): a JoinGroup to group 'g'" in caplog.text


async def test_nobody_is_told_of_a_refusal_where_a_static_member_takes_its_own_place_again(
    client: WireClient, broker: AsyncBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """What it had said before it restarted counted as well."""
    size_bytes = MAX_MEMBER_METADATA_BYTES - 100
    async with AsyncExitStack() as stack:
        for number in range(MAX_GROUP_METADATA_BYTES // size_bytes):
            other = await stack.enter_async_context(WireClient(broker))
            await other.send(ApiKey.JOIN_GROUP, _asked(size_bytes, instance_id=f"i{number}"))
            await some_turns_until(lambda number=number: _members(broker) == number + 1)  # type: ignore[misc]
        runner = broker.node.groups.find("g")
        assert not isinstance(runner, ErrorCode)
        assert not runner.shard.is_too_much(_asked(size_bytes, instance_id="i0"))
        assert runner.shard.is_too_much(_asked(size_bytes, instance_id="another"))
        told = await client.ask(ApiKey.JOIN_GROUP, _asked(size_bytes, instance_id="i0"))
    assert told.error_code == ErrorCode.NONE
    assert "a JoinGroup to group" not in caplog.text


def _members(broker: AsyncBroker) -> int:
    runner = broker.node.groups.find("g")
    assert not isinstance(runner, ErrorCode)
    group = runner.shard.group("g")
    return 0 if group is None else len(group.members)


async def test_what_the_members_of_all_groups_say_of_themselves_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """It stays while their sessions last, half an hour if they like: 60 groups of one client took 480 MB."""
    size_bytes = MAX_MEMBER_METADATA_BYTES - 100
    fit = MAX_ALL_METADATA_BYTES // (size_bytes + len("range"))
    async with AsyncBroker({"group.initial.rebalance.delay.ms": 0}) as broker, WireClient(broker) as client:
        assert await broker.node.groups.ready() is None
        joined = [await _joined(client, size_bytes, f"g{number}") for number in range(fit)]
        assert {each.error_code for each in joined} == {ErrorCode.NONE}
        assert (await _joined(client, size_bytes, "h")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "(client id 'test'): a JoinGroup to group 'h': the protocols of the members of all groups" in caplog.text
        again = _asked(size_bytes, joined[0].member_id, "g0")
        assert (await client.ask(ApiKey.JOIN_GROUP, again)).error_code == ErrorCode.NONE, "it says no more than before"
        assert (await _joined(client, 100, "small")).error_code == ErrorCode.NONE
        leaving = LeaveGroupRequest("g0", members=(MemberIdentity(joined[0].member_id),))
        assert (await client.ask(ApiKey.LEAVE_GROUP, leaving)).error_code == ErrorCode.NONE
        assert (await _joined(client, size_bytes, "h")).error_code == ErrorCode.NONE
