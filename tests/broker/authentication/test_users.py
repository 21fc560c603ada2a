"""Users with SCRAM credentials: what may be altered and described, with Kafka's errors; a directory's first user."""

from __future__ import annotations

import random

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ConfigError
from ottla.base.secret import Secret
from ottla.base.types import TopicPartition
from ottla.broker.authentication.users import add_users
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from ottla.broker.process import _first_users
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.wire.sasl import SCRAM_SHA_256
from ottla.wire.sasl.scram import HASHES, new_credential
from tests.broker.wire_client import WireClient

_SHA_256, _SHA_512 = 1, 2


def _upsertion(
    name: str, mechanism: int = _SHA_256, iterations: int = 4096, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, b"p" * 32)


async def _alter(
    client: WireClient,
    *,
    set_: list[ScramCredentialUpsertion] | None = None,
    delete: list[tuple[str, int]] | None = None,
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        tuple(ScramCredentialDeletion(*each) for each in delete or ()), tuple(set_ or ())
    )
    answer = await client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    return {each.user: each.error_code for each in answer.results}


async def _describe(client: WireClient, *names: str) -> dict[str, object]:
    request = DescribeUserScramCredentialsRequest(tuple(UserName(each) for each in names) or None)
    answer = await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    return {
        each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


async def test_users_are_set_described_and_deleted(client: WireClient) -> None:
    assert await _describe(client) == {}
    assert await _alter(client, set_=[_upsertion("a"), _upsertion("b", _SHA_512, 16_384)]) == {"a": 0, "b": 0}
    assert await _alter(client, set_=[_upsertion("a", _SHA_512, 5000)]) == {"a": 0}
    assert await _describe(client) == {"a": [(_SHA_256, 4096), (_SHA_512, 5000)], "b": [(_SHA_512, 16_384)]}
    assert await _alter(client, delete=[("a", _SHA_256)]) == {"a": 0}
    found = await _describe(client, "a", "c", "b", "b")
    assert found == {"a": [(_SHA_512, 5000)], "c": ErrorCode.RESOURCE_NOT_FOUND, "b": ErrorCode.DUPLICATE_RESOURCE}


async def test_what_cannot_be_is_refused_and_the_others_are_carried_out(client: WireClient) -> None:
    wrong = [
        _upsertion("few", iterations=4095),
        _upsertion("many", iterations=16_385),
        _upsertion(""),
        _upsertion("other", mechanism=3),
        _upsertion("saltless", salt=b""),
        _upsertion("salty", salt=bytes(1_025)),
        _upsertion("twice"),
        _upsertion("twice", _SHA_512),
        _upsertion("both"),
        _upsertion("good"),
    ]
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert await _alter(client, set_=wrong, delete=[("both", _SHA_512), ("gone", _SHA_256), ("odd", 9)]) == {
        # Deleting what is not there is the first thing that is wrong with it.
        "both": ErrorCode.RESOURCE_NOT_FOUND,
        "gone": ErrorCode.RESOURCE_NOT_FOUND,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "few": unacceptable,
        "many": unacceptable,
        "": unacceptable,
        "other": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "saltless": unacceptable,
        "salty": unacceptable,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "good": 0,
    }
    assert await _describe(client) == {"good": [(_SHA_256, 4096)]}
    twice = await _alter(client, set_=[_upsertion("good", _SHA_512)], delete=[("good", _SHA_256)])
    assert twice == {"good": ErrorCode.DUPLICATE_RESOURCE}
    assert await _describe(client) == {"good": [(_SHA_256, 4096)]}


def _open(storage: MemoryStorage) -> ClusterMetadata:
    log = PartitionLog.open(TopicPartition("__cluster_metadata", 0), storage, LogConfig(), 0)
    metadata = ClusterMetadata(log, storage, 1, ManualClock())
    metadata.load()
    return metadata


def test_the_first_user_is_there_after_a_restart_and_keeps_his_password() -> None:
    storage = MemoryStorage()
    add_users(_open(storage), {"admin": Secret("first")}, random.Random(1))
    again = _open(storage)
    before = again.image.scram
    add_users(again, {"admin": Secret("second")}, random.Random(2))
    assert _open(storage).image.scram == before
    stored = before[_SHA_256]["admin"]
    assert stored == new_credential(HASHES[SCRAM_SHA_256], Secret("first"), stored.salt, stored.iterations)
    assert sorted(before) == [_SHA_256, _SHA_512]


def test_records_are_kafkas_byte_for_byte() -> None:
    """UserScramCredentialRecord is 11 and RemoveUserScramCredentialRecord 22: compact strings and bytes, no tags."""
    record = UserScramCredentialRecord("al", 2, b"s", b"st", b"ser", 4096)
    expected = "010b00" + "03616c" + "02" + "0273" + "037374" + "04736572" + "00001000" + "00"
    assert encode_record(record).hex() == expected
    assert decode_record(bytes.fromhex(expected)) == record
    assert encode_record(RemoveUserScramCredentialRecord("al", 1)).hex() == "011600" + "03616c" + "01" + "00"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("admin", "expected NAME=FILE"),
        ("=x", "expected NAME=FILE"),
        ("admin=/nowhere/x", "cannot read /nowhere/x: No such file"),
        ("admin=/dev/null", "the first line of /dev/null is empty"),
    ],
)
def test_a_first_user_that_cannot_be(given: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _first_users([given])
