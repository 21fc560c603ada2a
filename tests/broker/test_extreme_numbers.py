"""Every number of every request at its ends, one at a time, in a request that is otherwise in order: always an answer.

A number of a client may be added to the time, or to an offset. The sum may have no room in a record or in an answer.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.handlers.table import TABLE
from ottla.testing import AsyncBroker
from ottla.wire.apis import API, ApiKey
from ottla.wire.frames import encode_request
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema import Field, schema
from tests.broker.wire_client import WireClient, batch

_ENDS = {"int16": 2**15, "int32": 2**31, "int64": 2**63}
#: What a field holds while another one is at its end, by type.
_PLAIN: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "uint32": 0,
    "float64": 0.0,
    "uuid": bytes(16),
    "string": "t",
    "bytes": b"",
    "records": batch(b"v"),
}
_COMMIT = OffsetCommitRequest(
    "g", topics=(OffsetCommitRequestTopic(name="t", partitions=(OffsetCommitRequestPartition(0, 5),)),)
)
Path = tuple[str, ...]


def _numbers(cls: type[Any], version: int) -> Iterator[tuple[Path, int]]:
    """Where each number of a message is, and each of its ends."""
    for field in schema(cls).fields:
        if field.first <= version <= field.last:
            kind = field.type[0] if isinstance(field.type, list) else field.type
            if not isinstance(kind, str):
                yield from (((field.name, *path), value) for path, value in _numbers(kind, version))
            elif kind in _ENDS:
                yield (field.name,), -_ENDS[kind]
                yield (field.name,), _ENDS[kind] - 1


def _message(cls: type[Any], version: int, path: Path, value: int) -> Any:
    fields = (field for field in schema(cls).fields if field.first <= version <= field.last)
    return cls(**{field.name: _value(cls, field, version, path, value) for field in fields})


def _value(cls: type[Any], field: Field, version: int, path: Path, value: int) -> Any:
    inner = path[1:] if path[:1] == (field.name,) else ()
    kind = field.type[0] if isinstance(field.type, list) else field.type
    if not isinstance(kind, str):
        made = _message(kind, version, inner, value)
    elif path == (field.name,):
        made = value
    else:
        default = cls._field_defaults.get(field.name)
        made = default if isinstance(default, int) and default < 0 else _PLAIN[kind]
    return (made,) if isinstance(field.type, list) else made


def _frames(key: ApiKey) -> Iterator[bytes]:
    entry, cls = TABLE[key], API[key].request
    for version in range(entry.min_version, entry.max_version + 1):
        for path, value in _numbers(cls, version):
            yield encode_request(key, version, 1, "c", _message(cls, version, path, value))


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: key.name.lower())
async def test_no_number_of_a_client_breaks_a_handler(key: ApiKey, caplog: pytest.LogCaptureFixture) -> None:
    one = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    async with AsyncBroker(one) as broker:
        await broker.node.topics.create("t", 1, {})
        await _until_groups_are_there(broker)
        for frame in _frames(key):
            async with WireClient(broker) as client:
                await client.send_bytes(frame)
                await client.drained()  # who joins or fetches may well wait for longer
        async with WireClient(broker) as client:
            assert len(await client.ask_api_versions()) == len(TABLE)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def _until_groups_are_there(broker: AsyncBroker) -> None:
    async with WireClient(broker) as client:
        while (await client.ask(ApiKey.OFFSET_COMMIT, _COMMIT, 2)).topics[0].partitions[0].error_code:
            pass  # the first answers come before the topic of the groups is made and loaded
