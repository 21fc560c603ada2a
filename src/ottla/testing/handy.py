"""What a test wants of a broker besides clients: topics, what was written, a group that has come to rest."""

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.base.types import TopicPartition
from ottla.client.admin.admin import AsyncAdmin
from ottla.client.admin.types import GroupDescription, NewTopic
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.errors import KafkaError
from ottla.testing.arguments import seconds, whole
from ottla.testing.faults.rules import OWN_CLIENT_ID
from ottla.wire.errors import ErrorCode

#: How long one poll, or the time between two looks at a group, may be, in seconds.
_LOOK_S: Final = 0.05
_STABLE: Final = "Stable"


def _config(bootstrap: str) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "client.id": OWN_CLIENT_ID}


async def create_topics(
    bootstrap: str, names: tuple[str, ...], partitions: int, config: Mapping[str, str] | None
) -> None:
    """Make topics. TopicAlreadyExistsError, and what else `AsyncAdmin.create_topics` raises."""
    whole("partitions", partitions, 1)
    async with AsyncAdmin(_config(bootstrap)) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1, dict(config or {})) for name in names])


async def records(bootstrap: str, topic: str, *, read_committed: bool, timeout_s: float) -> list[ConsumerRecord]:
    """Everything that a topic holds now, by partition and offset.

    UnknownTopicOrPartitionError for a topic that is not there, TimeoutError when it was not read to its end in time.
    """
    seconds("timeout_s", timeout_s)
    isolation = "read_committed" if read_committed else "read_uncommitted"
    found: list[ConsumerRecord] = []
    try:
        async with (
            asyncio.timeout(timeout_s),  # around the connections, too: nobody may be there
            AsyncAdmin(_config(bootstrap)) as admin,
            AsyncConsumer({**_config(bootstrap), "isolation.level": isolation}) as consumer,
        ):
            ends = await _read(admin, consumer, topic, found)
    except TimeoutError:
        raise TimeoutError(f"topic {topic} was not read to its end within {timeout_s:g} s") from None
    there = [each for each in found if each.offset < ends[TopicPartition(topic, each.partition)]]
    return sorted(there, key=lambda each: (each.partition, each.offset))


async def _read(
    admin: AsyncAdmin, consumer: AsyncConsumer, topic: str, found: list[ConsumerRecord]
) -> dict[TopicPartition, int]:
    """Read all partitions into `found`; where they end, or ended when the reading began."""
    described = (await admin.describe_topics([topic]))[topic]
    partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
    consumer.assign(partitions)
    consumer.seek_to_beginning(partitions)
    ends = await consumer.end_offsets(partitions)
    for tp in partitions:
        while await consumer.position(tp) < ends[tp]:
            found += await consumer.poll(_LOOK_S)
    return ends


async def stable_group(bootstrap: str, group_id: str, members: int | None, timeout_s: float) -> GroupDescription:
    """The group as soon as it is stable, with so many members; see `Broker.wait_for_group`."""
    if members is not None:
        whole("members, or None for any number,", members, 0)
    seconds("timeout_s", timeout_s)
    seen = "it is not there"
    try:
        async with asyncio.timeout(timeout_s), AsyncAdmin(_config(bootstrap)) as admin:
            while True:
                try:
                    group = (await admin.describe_groups([group_id]))[group_id]
                except KafkaError as error:
                    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                        raise
                else:
                    seen = f"it is {group.state}, with {len(group.members)} members"
                    if group.state == _STABLE and members in (None, len(group.members)):
                        return group
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        wanted = "members" if members is None else f"{members} members"
        raise TimeoutError(f"group {group_id} is not stable with {wanted} after {timeout_s:g} s: {seen}") from None
