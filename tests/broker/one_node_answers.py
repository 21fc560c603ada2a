"""Apache Kafka 4.3 on what a cluster of one node is: its quorum, its features, its one directory.

`EVERY` are these questions with those of `placement_answers.py` and `answers.py`.
"""

from typing import Any, Final

from ottla.wire.apis import ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker import placement_answers
from tests.broker.answers import Question, answered
from tests.broker.wire_client import WireClient

_METADATA: Final = "__cluster_metadata"
_UPGRADE, _SAFE, _UNSAFE = 1, 2, 3


async def _quorum(client: WireClient, version: int, *topics: tuple[str, tuple[int, ...]]) -> Any:
    asked = tuple(TopicData(name, tuple(map(PartitionData, numbers))) for name, numbers in topics)
    return await client.ask(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(asked), version)


@answered([(True, True, True, False, 0), (True, True, True, True, 0), (True, True, True, True, 1)])
async def the_quorum_of_one_node(client: WireClient) -> list[Any]:
    """The voter leads and has all that is committed; it has fetched and caught up just now."""
    found = []
    for version in (0, 1, 2):
        answer = await _quorum(client, version, (_METADATA, (0,)))
        ((_, (told,)),) = answer.topics
        (voter,) = told.current_voters
        assert (answer.error_code, told.partition_index, told.error_code, told.observers) == (0, 0, 0, ())
        assert voter.replica_directory_id == NULL_UUID
        found.append(
            (
                told.leader_id == voter.replica_id == 1,
                told.leader_epoch >= 0,
                0 < told.high_watermark <= voter.log_end_offset,
                voter.last_fetch_timestamp == voter.last_caught_up_timestamp > 0,
                sum(node.node_id == 1 and len(node.listeners) == 1 for node in answer.nodes),
            )
        )
    return found


@answered(
    [
        [],
        [(_METADATA, [])],
        [(_METADATA, [(1, 3)])],
        [("answers-a", [(0, 3)])],
        [(_METADATA, [(0, 3)]), ("answers-a", [(0, 3)])],
        [(_METADATA, [(0, 3), (0, 3)])],
        [(_METADATA, [(0, 3)])] * 2,
    ]
)
async def a_quorum_of_something_else(client: WireClient) -> list[Any]:
    mine = (_METADATA, (0,))
    found = []
    for topics in (
        (),
        ((_METADATA, ()),),
        ((_METADATA, (1,)),),
        (("answers-a", (0,)),),
        (mine, ("answers-a", (0,))),
        ((_METADATA, (0, 0)),),
        (mine, mine),
    ):
        answer = await _quorum(client, 2, *topics)
        assert (answer.error_code, answer.nodes) == (0, ())
        told = [(name, [(each.partition_index, each.error_code) for each in all_of]) for name, all_of in answer.topics]
        found.append(told)
    return found


async def _levels(client: WireClient) -> dict[str, int]:
    answer = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1.0"))
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def _update(client: WireClient, *wanted: tuple[str, int, int], version: int = 2, dry: bool = False) -> Any:
    asked = UpdateFeaturesRequest(10_000, tuple(FeatureUpdateKey(*each) for each in wanted), dry)
    answer = await client.ask(ApiKey.UPDATE_FEATURES, asked, version)
    return answer.error_code, [(each.feature, each.error_code) for each in answer.results]


@answered([(0, []), (0, []), (0, [("group.version", 0)]), (0, [("group.version", 0)]), (0, []), (0, []), (0, [])])
async def features_that_have_their_level(client: WireClient) -> list[Any]:
    before = await _levels(client)
    same = ("group.version", 1, _UPGRADE)
    version = before["metadata.version"]
    found = [
        await _update(client),
        await _update(client, same),
        await _update(client, same, version=1),
        await _update(client, same, version=0),
        await _update(client, ("group.version", 1, _SAFE), ("transaction.version", 2, _UNSAFE)),
        await _update(client, ("metadata.version", version, _UPGRADE)),
        await _update(client, ("metadata.version", 30, _UPGRADE), dry=True),
    ]
    assert await _levels(client) == before
    return found


@answered([(95, [])] * 16)
async def features_that_cannot_have_a_level(client: WireClient) -> list[Any]:
    before = await _levels(client)
    version = before["metadata.version"]
    wrong: list[tuple[tuple[str, int, int], ...]] = [
        (("metadata.version", 99, _UPGRADE),),
        (("metadata.version", version - 1, _UPGRADE),),
        (("metadata.version", version - 1, _SAFE),),
        (("metadata.version", version - 1, _UNSAFE),),
        (("metadata.version", 3, _SAFE),),
        (("metadata.version", -1, _UPGRADE),),
        (("group.version", 2, _UPGRADE),),
        (("group.version", -1, _UPGRADE),),
        (("group.version", 0, _UPGRADE),),
        (("group.version", 1, 0),),
        (("group.version", 1, 9),),
        (("no.such", 1, _UPGRADE),),
        (("no.such", 0, _SAFE),),
        (("", 1, _UPGRADE),),
        (("group.version", 1, _UPGRADE), ("no.such", 1, _UPGRADE)),
    ]
    found = [await _update(client, *each) for each in wrong]
    found.append(await _update(client, ("no.such", 1, _UPGRADE), version=1))
    assert await _levels(client) == before
    return found


async def _move(client: WireClient, *wanted: tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]) -> Any:
    """`HERE` in a path is the broker's own directory."""
    (own,) = (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(()))).results
    asked = tuple(
        AlterReplicaLogDir(path.replace("HERE", own.log_dir), tuple(AlterReplicaLogDirTopic(*each) for each in topics))
        for path, topics in wanted
    )
    answer = await client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest(asked))
    return {
        topic.topic_name: sorted((each.partition_index, each.error_code) for each in topic.partitions)
        for topic in answer.results
    }


@answered([{}, {"answers-a": [(0, 0)]}, *[{"answers-a": [(0, 57)]}] * 4, {"answers-a": [(0, 0), (1, 0)]}, {}])
async def replicas_to_a_directory(client: WireClient) -> list[Any]:
    a = ("answers-a", (0,))
    paths = ("HERE/", "data", "", "/nowhere")
    return [
        await _move(client),
        await _move(client, ("HERE", (a,))),
        *[await _move(client, (path, (a,))) for path in paths],
        await _move(client, ("HERE", (("answers-a", (0, 0)), ("answers-a", (1,))))),
        await _move(client, ("HERE", (("answers-a", ()),))),
    ]


@answered(
    [
        {"answers-a": [(9, 3)], "none": [(0, 3)], "a/b": [(0, 3)], "__cluster_metadata": [(0, 3)]},
        {"answers-a": [(-1, 57), (9, 57)]},
        {"answers-a": [(0, 57), (1, 57)]},
        {"answers-a": [(0, 0), (1, 57)]},
    ]
)
async def replicas_that_there_are_not_and_those_of_two_directories(client: WireClient) -> list[Any]:
    here, there = ("HERE", (("answers-a", (0,)),)), ("/nowhere", (("answers-a", (0, 1)),))
    strange = (("answers-a", (9,)), ("none", (0,)), ("a/b", (0,)), (_METADATA, (0,)))
    return [
        await _move(client, ("HERE", strange)),
        await _move(client, ("/nowhere", (("answers-a", (9, -1)),))),
        await _move(client, here, there),
        await _move(client, there, here),
    ]


EVERY: Final[dict[str, tuple[Question, Any]]] = placement_answers.EVERY
