"""ACLs through the admin client."""

import pytest

from ottla import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    AclResourceType,
    AsyncAdmin,
    AuthorizationError,
    KafkaError,
)
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.client.admin.acls import _known
from ottla.testing.in_loop import AsyncBroker

_READ = AclBinding(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
_DENIED = AclBinding(
    AclResourceType.GROUP,
    "words-",
    "User:*",
    AclOperation.ALL,
    AclPermissionType.DENY,
    AclPatternType.PREFIXED,
    "10.0.0.7",
)
_OF_ADMIN = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


async def test_acls_are_made_seen_and_deleted() -> None:
    async with AsyncBroker(_OF_ADMIN) as broker, AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        await admin.create_acls([_READ, _DENIED])
        await admin.create_acls([_READ])  # it is there already
        assert await admin.describe_acls() == [_READ, _DENIED]
        about = AclBindingFilter(AclResourceType.GROUP, "words-7", pattern_type=AclPatternType.MATCH)
        assert await admin.describe_acls(about) == [_DENIED]
        assert await admin.describe_acls(AclBindingFilter(principal="User:zoe")) == []
        of_alice = AclBindingFilter(principal="User:alice")
        assert await admin.delete_acls([of_alice, of_alice]) == [_READ], "each once"
        assert await admin.describe_acls() == [_DENIED]


async def test_acls_are_there_after_a_restart() -> None:
    async with AsyncBroker(_OF_ADMIN) as broker:
        async with AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            await admin.create_acls([_READ, _DENIED])
            await admin.delete_acls([AclBindingFilter(principal="User:alice")])
        await broker.stop()
        await broker.start()
        async with AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            assert await admin.describe_acls() == [_DENIED]


async def test_a_broker_without_an_authorizer_says_so() -> None:
    async with AsyncBroker() as broker, AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        for call in (
            admin.create_acls([_READ]),
            admin.describe_acls(),
            admin.delete_acls([AclBindingFilter()]),
        ):
            with pytest.raises(KafkaError, match="No Authorizer is configured") as refused:
                await call
            assert refused.value.code.name == "SECURITY_DISABLED"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (_READ._replace(resource_name=""), "Invalid empty resource name"),
        (_READ._replace(resource_type=AclResourceType.CLUSTER), "only valid name for the CLUSTER resource is kafka-"),
        (_READ._replace(resource_type=AclResourceType.ANY), "Invalid resourceType 1"),
        (_READ._replace(pattern_type=AclPatternType.MATCH), "Invalid patternType 2"),
        (_READ._replace(operation=AclOperation.ANY), "Invalid operation 1"),
        (_READ._replace(permission_type=AclPermissionType.UNKNOWN), "Invalid permissionType 0"),
        (_READ._replace(principal="alice"), "Invalid principal 'alice': write it as User:name"),
        (_READ._replace(host=""), "Invalid empty host"),
    ],
)
async def test_what_can_be_no_acl_is_refused_with_the_reason(wrong: AclBinding, said: str) -> None:
    async with AsyncBroker(_OF_ADMIN) as broker, AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        with pytest.raises(KafkaError, match=said) as refused:
            await admin.create_acls([wrong, _DENIED])
        assert refused.value.code.name == "INVALID_REQUEST"
        assert await admin.describe_acls() == [_DENIED], "each ACL of a request is for itself"


async def test_a_filter_with_unknown_in_it_is_refused() -> None:
    async with AsyncBroker(_OF_ADMIN) as broker, AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        for wrong in (
            AclBindingFilter(AclResourceType.UNKNOWN),
            AclBindingFilter(operation=AclOperation.UNKNOWN),
        ):
            with pytest.raises(KafkaError, match="Unknown"):
                await admin.delete_acls([wrong])
            with pytest.raises(KafkaError, match="UNKNOWN"):
                await admin.describe_acls(wrong)


async def test_who_may_not_change_acls_is_told_so() -> None:
    settings = {**_OF_ADMIN, "super.users": "User:admin"}
    async with AsyncBroker(settings) as broker, AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        for call in (
            admin.create_acls([_READ]),
            admin.describe_acls(),
            admin.delete_acls([AclBindingFilter()]),
        ):
            with pytest.raises(AuthorizationError, match="on the cluster") as refused:
                await call
            assert refused.value.code.name == "CLUSTER_AUTHORIZATION_FAILED"


def test_an_acl_reads_like_a_sentence() -> None:
    assert str(_READ) == "User:alice may READ topic orders"
    assert str(_DENIED) == "User:* may not ALL group words-* from 10.0.0.7"


def test_what_a_newer_broker_names_is_unknown_here() -> None:
    assert _known(AclOperation, 3) is AclOperation.READ
    assert _known(AclOperation, 99) is AclOperation.UNKNOWN
