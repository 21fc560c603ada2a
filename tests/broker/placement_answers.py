"""Apache Kafka 4.3 on where partitions are and who leads them, on one node, and on which resources have settings.

`EVERY` are these questions with those of `answers.py`.
"""

from typing import Any, Final

from ottla.wire.apis import ApiKey
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.answers import ANSWERS, DELETE, Question, answered
from tests.broker.wire_client import WireClient

_WAIT_MS = 10_000
_PREFERRED, _UNCLEAN = 0, 1


async def _elect(client: WireClient, topics: Any, kind: int = _PREFERRED, version: int = 2) -> Any:
    asked = None if topics is None else tuple(TopicPartitions(*each) for each in topics)
    answer = await client.ask(ApiKey.ELECT_LEADERS, ElectLeadersRequest(kind, asked, _WAIT_MS), version)
    told = [
        (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
        for topic in answer.replica_election_results
    ]
    return answer.error_code, told


_NOT_NEEDED: Final = (
    0,
    [
        ("answers-a", [(0, 84), (9, 3), (-1, 3), (0, 84)]),
        ("none", [(0, 3)]),
        ("a/b", [(0, 3)]),
        ("answers-a", [(2, 84)]),
    ],
)


@answered([_NOT_NEEDED] * 4)
async def elections_that_nothing_needs(client: WireClient) -> list[Any]:
    topics = (("answers-a", (0, 9, -1, 0)), ("none", (0,)), ("a/b", (0,)), ("answers-a", (2,)))
    kinds = ((_PREFERRED, 0), (_PREFERRED, 1), (_PREFERRED, 2), (_UNCLEAN, 2))
    return [await _elect(client, topics, *each) for each in kinds]


@answered([(42, [("answers-a", [(0, 42), (9, 42)]), ("none", [(0, 42)])]), (42, []), (0, []), (0, [("none", [])])])
async def elections_of_a_kind_that_there_is_not_or_of_nothing(client: WireClient) -> list[Any]:
    topics = (("answers-a", (0, 9)), ("none", (0,)))
    return [
        await _elect(client, topics, 7),
        await _elect(client, None, 7),
        await _elect(client, ()),
        await _elect(client, (("none", ()),)),
    ]


@answered([(0, {("answers-a", 0), ("answers-b", 0)})] * 2)
async def elections_everywhere_tell_every_topic_and_no_partition(client: WireClient) -> list[Any]:
    found = []
    for kind in (_PREFERRED, _UNCLEAN):
        error, topics = await _elect(client, None, kind)
        found.append((error, {(name, len(told)) for name, told in topics if name.startswith("answers-")}))
    return found


async def _move(client: WireClient, topics: Any, version: int = 1, **options: Any) -> Any:
    asked = tuple(ReassignableTopic(name, tuple(ReassignablePartition(*each) for each in to)) for name, to in topics)
    request = AlterPartitionReassignmentsRequest(_WAIT_MS, topics=asked, **options)
    answer = await client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, version)
    told = [
        (each.name, [(part.partition_index, part.error_code) for part in each.partitions]) for each in answer.responses
    ]
    return answer.error_code, answer.allow_replication_factor_change, told


@answered([0, 39, 39, 39, 39, 39, 85] * 2)
async def reassignments_of_a_partition(client: WireClient) -> list[int]:
    found = []
    for version in (0, 1):
        for replicas in ((1,), (1, 1), (), (-1,), (2,), (1, 2), None):
            _, _, ((_, ((_, error),)),) = await _move(client, (("answers-a", ((0, replicas),)),), version)
            found.append(error)
    return found


@answered(
    [
        (
            0,
            True,
            [("answers-a", [(0, 0), (9, 3), (-1, 3), (9, 3), (0, 85)]), ("none", [(0, 3), (1, 3)]), ("a/b", [(0, 3)])],
        ),
        (0, False, [("answers-a", [(0, 0)]), ("answers-a", [])]),
        (0, True, []),
    ]
)
async def reassignments_of_many(client: WireClient) -> list[Any]:
    a = ("answers-a", ((0, (1,)), (9, (2,)), (-1, (1,)), (9, None), (0, None)))
    return [
        await _move(client, (a, ("none", ((0, (1,)), (1, None))), ("a/b", ((0, (1,)),)))),
        await _move(client, (("answers-a", ((0, (1,)),)), ("answers-a", ())), allow_replication_factor_change=False),
        await _move(client, ()),
    ]


@answered([(0, ())] * 4)
async def nothing_is_being_reassigned(client: WireClient) -> list[Any]:
    found = []
    for topics in (None, (), (("answers-a", (0, 9)), ("none", (0,))), (("a/b", ()),)):
        asked = None if topics is None else tuple(ListPartitionReassignmentsTopics(*each) for each in topics)
        request = ListPartitionReassignmentsRequest(_WAIT_MS, asked)
        answer = await client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
        found.append((answer.error_code, answer.topics))
    return found


async def _resources(client: WireClient, *kinds: int, version: int = 1) -> Any:
    asked = ListConfigResourcesRequest(kinds)
    answer = await client.ask(ApiKey.LIST_CONFIG_RESOURCES, asked, version)
    shown = {
        (each.resource_type, each.resource_name)
        for each in answer.config_resources
        if each.resource_type != 2 or each.resource_name.startswith("answers-")
    }
    return answer.error_code, shown


_TOPICS: Final = {(2, "answers-a"), (2, "answers-b")}
_NODE: Final = {(4, "1"), (8, "1")}


@answered([(0, _TOPICS), (0, _NODE), (0, set()), (35, set()), (35, set()), (35, set()), (0, set())])
async def resources_with_settings(client: WireClient) -> list[Any]:
    kinds = ((2,), (4, 4, 8), (16,), (2, 99), (0,), (-1,))
    return [*[await _resources(client, *each) for each in kinds], await _resources(client, version=0)]


@answered((0, True, True))
async def resources_of_every_kind(client: WireClient) -> Any:
    error, found = await _resources(client)
    return error, found >= _TOPICS | _NODE, {kind for kind, _ in found} <= {2, 4, 8, 16, 32}


@answered([0, 0, 0, 0, 42, 42, 42])
async def removing_settings_that_a_broker_has_not(client: WireClient) -> list[int]:
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    found = []
    for broker, names in (("1", rates), ("", rates), ("1", ("no.such.key",)), ("1", ()), ("9", rates), ("x", rates)):
        found.append(await _remove(client, broker, names))
    return [*found, await _remove(client, "1", rates[:1] * 2)]


async def _remove(client: WireClient, broker: str, names: tuple[str, ...]) -> int:
    removed = tuple(AlterableConfig(name, DELETE, None) for name in names)
    asked = IncrementalAlterConfigsRequest((AlterConfigsResource(4, broker, removed),))
    (answer,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked)).responses
    error: int = answer.error_code
    return error


EVERY: Final[dict[str, tuple[Question, Any]]] = ANSWERS
