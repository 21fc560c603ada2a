"""Requests that name many groups, ids, users or rules, for `bench.wide`; and what they need, made before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from bench.wire import Wire, settled
from ottla.wire.apis import ApiKey
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

#: The versions in which these are asked.
VERSIONS: Final = {
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
}
#: What the broker needs, so that there are rules to ask for.
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_TIMEOUT_MS: Final = 60_000
_AT_ONCE: Final = 32
_ANY: Final = 1
_TOPIC, _LITERAL, _READ, _ALLOW = 2, 3, 3, 3
_SHA_256: Final = 1
What = tuple[str, ApiKey, tuple[Any, ...]]


async def prepare(bootstrap: str, topic: str, names: Sequence[str]) -> None:
    """A group and a transactional id of each name."""

    async def share(mine: Sequence[str]) -> None:
        async with Wire(bootstrap) as wire:
            for name in mine:
                part = (OffsetCommitRequestPartition(0, 1),)
                commit = OffsetCommitRequest(name, topics=(OffsetCommitRequestTopic(name=topic, partitions=part),))
                await settled(
                    wire, ApiKey.OFFSET_COMMIT, commit, lambda answer: answer.topics[0].partitions[0].error_code
                )
                begin = InitProducerIdRequest(name, _TIMEOUT_MS)
                await settled(wire, ApiKey.INIT_PRODUCER_ID, begin, lambda answer: answer.error_code)

    async with Wire(bootstrap) as wire:
        for kind in (0, 1):
            find = FindCoordinatorRequest("", kind, (names[0],))
            await settled(wire, ApiKey.FIND_COORDINATOR, find, lambda answer: answer.coordinators[0].error_code)
    await asyncio.gather(*(share(names[n::_AT_ONCE]) for n in range(_AT_ONCE)))


def requests(names: Sequence[str]) -> Iterator[What]:
    """One after the other: what one writes the next may read."""
    every = tuple(names)
    for name, subscribed in (("joins", every), ("other names", every[1:])):
        joins = ConsumerGroupHeartbeatRequest(
            "subscribed", "m1", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=subscribed, topic_partitions=()
        )
        yield f"ConsumerGroupHeartbeat, {name}", ApiKey.CONSUMER_GROUP_HEARTBEAT, joins
    yield "FindCoordinator", ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", 0, every)
    yield (
        "Metadata, unknown names",
        ApiKey.METADATA,
        MetadataRequest(tuple(MetadataRequestTopic(name=n) for n in every), False),
    )
    yield "ListGroups", ApiKey.LIST_GROUPS, ListGroupsRequest()
    yield "ListGroups, by state", ApiKey.LIST_GROUPS, ListGroupsRequest(("Empty",), ("classic",))
    yield "DescribeGroups", ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(every, True)
    yield "ConsumerGroupDescribe", ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(every, True)
    of_each = tuple(OffsetFetchRequestGroup(name, topics=None) for name in every)
    yield "OffsetFetch, of each group", ApiKey.OFFSET_FETCH, OffsetFetchRequest(of_each)
    members = tuple(MemberIdentity(name, None, "because") for name in every)
    yield "LeaveGroup, unknown members", ApiKey.LEAVE_GROUP, LeaveGroupRequest(names[0], members=members)
    yield "DescribeTransactions", ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(every)
    yield "ListTransactions", ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest()
    yield "DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None)
    yield "DeleteGroups", ApiKey.DELETE_GROUPS, DeleteGroupsRequest(every)
    rules = tuple(AclCreation(_TOPIC, name, _LITERAL, f"User:{name}", "*", _READ, _ALLOW) for name in every)
    yield "CreateAcls", ApiKey.CREATE_ACLS, CreateAclsRequest(rules)
    yield "DescribeAcls", ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY)
    one_by_one = tuple(DeleteAclsFilter(_TOPIC, name, _LITERAL, None, None, _ANY, _ANY) for name in every[:100])
    yield "DeleteAcls, 100 filters", ApiKey.DELETE_ACLS, DeleteAclsRequest(one_by_one)
    all_of_them = DeleteAclsRequest((DeleteAclsFilter(_ANY, None, _ANY, None, None, _ANY, _ANY),))
    yield "DeleteAcls, all", ApiKey.DELETE_ACLS, all_of_them
    limits = tuple(
        EntryData((EntityData("user", name),), (OpData("producer_byte_rate", 1e9, False),)) for name in every
    )
    yield "AlterClientQuotas", ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(limits)
    yield "DescribeClientQuotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest()
    users = tuple(ScramCredentialUpsertion(name, _SHA_256, 4096, b"s" * 16, b"p" * 32) for name in every)
    yield "AlterUserScramCredentials", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest((), users)
    asked = DescribeUserScramCredentialsRequest(None)
    yield "DescribeUserScramCredentials", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, asked
    gone = AlterUserScramCredentialsRequest(tuple(ScramCredentialDeletion(name, _SHA_256) for name in every))
    yield "AlterUserScram…, deleted", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, gone
