"""A request that names thousands of topics, with no right to one of them or with all rights: each is decided, in turns.

Counted, as in `test_canary_list`: every refusal is a decision and a line of the audit log, some 200 calls.
"""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.clock import SystemClock
from ottla.broker.handlers import metadata
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import TopicRecord
from ottla.broker.runtime.slices import Slices
from ottla.broker.session import ANONYMOUS, Session
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.counted_turns import CountedBroker
from tests.broker.guarded import GUARDED

#: As in `test_canary_list`. One turn for all of them makes more than 200,000.
_CALLS = 20_000
_NAMES = tuple(f"t{number}" for number in range(2_000))


_ASKED: dict[ApiKey, tuple[Any, str]] = {
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest(tuple(CreatableTopic(name, 1, 1) for name in _NAMES)), "topics"),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest(tuple(map(DeleteTopicState, _NAMES))), "responses"),
    ApiKey.CREATE_PARTITIONS: (
        CreatePartitionsRequest(tuple(CreatePartitionsTopic(name, 2) for name in _NAMES)),
        "results",
    ),
    ApiKey.DELETE_RECORDS: (
        DeleteRecordsRequest(tuple(DeleteRecordsTopic(name, (DeleteRecordsPartition(0, 0),)) for name in _NAMES)),
        "topics",
    ),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest(tuple(TopicRequest(name, (0,)) for name in _NAMES)), "topics"),
    ApiKey.METADATA: (MetadataRequest(tuple(MetadataRequestTopic(name=name) for name in _NAMES)), "topics"),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[CountedBroker]:
    with CountedBroker(dict(GUARDED)) as it:
        yield it


@pytest.fixture(scope="module")
def telling_broker() -> Iterator[CountedBroker]:
    """Everybody may do everything, and the audit log has it."""
    with CountedBroker({**GUARDED, "super.users": ANONYMOUS, "audit.log.allowed": "true"}) as it:
        yield it


@pytest.mark.parametrize("key", [ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS])
def test_names_that_are_told_to_the_audit_log_take_turns(telling_broker: CountedBroker, key: ApiKey) -> None:
    request = _ASKED[key][0]
    if key == ApiKey.CREATE_TOPICS:
        request = request._replace(validate_only=True)

    async def run() -> None:
        async with telling_broker.client() as client:
            with telling_broker.counted() as turns:
                answer = await client.ask(key, request)
        assert len(getattr(answer, _ASKED[key][1])) == len(_NAMES)
        assert 0 < turns.most < _CALLS, f"{turns.most:,} calls in one turn of {turns.whose}"

    asyncio.run(run())


@pytest.mark.parametrize("key", _ASKED)
def test_names_that_are_refused_take_turns(broker: CountedBroker, key: ApiKey) -> None:
    request, told = _ASKED[key]

    async def run() -> None:
        async with broker.client() as client:
            with broker.counted() as turns:
                answer = await client.ask(key, request)
        refused = getattr(answer, told)
        assert len(refused) == len(_NAMES)
        errors = {getattr(each, "error_code", None) or each.partitions[0].error_code for each in refused}
        assert errors == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert 0 < turns.most < _CALLS, f"{turns.most:,} calls in one turn of {turns.whose}"

    asyncio.run(run())


class _Slices(Slices):
    """Between the slices of one request, another one is carried out."""

    async def run(self, steps: Iterator[object]) -> None:
        await super().run(steps)
        count = len(self.image.topics)
        self.image.apply(TopicRecord(f"late {count}", count.to_bytes(16)))

    def __init__(self, image: MetadataImage) -> None:
        super().__init__(SystemClock())
        self.image = image


async def test_a_topic_that_is_made_while_others_are_decided_is_hidden_too() -> None:
    context = RequestContext(ApiKey.METADATA, 13, 1, "c", Session("PLAINTEXT", "/127.0.0.1"))
    async with AsyncBroker(GUARDED) as broker:
        image = MetadataImage()
        for number in range(200):
            image.apply(TopicRecord(f"t{number}", number.to_bytes(16)))
        node = SimpleNamespace(
            access=broker.node.access, identity=broker.node.identity, image=image, slices=_Slices(image)
        )
        answer = await cast(Any, metadata.handle(cast(Any, node), MetadataRequest(None), context))
    assert "late 200" in image.topics
    assert answer.topics == ()
