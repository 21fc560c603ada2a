"""Words of a client that come back in an error message: however long they are, the client hears the error."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.base.limits import MAX_ERROR_TEXT, MAX_STRING_BYTES
from ottla.base.words import cut
from ottla.testing import AsyncBroker
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.wire_client import WireClient

_LONG = "x" * (MAX_STRING_BYTES - 67)
_JOIN = ConsumerGroupHeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1_000, topic_partitions=())
_QUOTA = (OpData("request_percentage", 1.0, False),)

pytestmark = pytest.mark.usefixtures("group_coordinator")


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


@pytest.mark.parametrize(
    ("key", "request_", "told", "error"),
    [
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            _JOIN._replace(subscribed_topic_names=("t",), server_assignor=_LONG),
            None,
            ErrorCode.UNSUPPORTED_ASSIGNOR,
        ),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            _JOIN._replace(subscribed_topic_regex=f"({_LONG}"),
            None,
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ),
        (
            ApiKey.CREATE_TOPICS,
            CreateTopicsRequest((CreatableTopic(_LONG, 1, 1),), 1_000),
            "topics",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (
            ApiKey.CREATE_TOPICS,
            CreateTopicsRequest(
                (CreatableTopic("t", 1, 1, configs=(CreatableTopicConfig("retention.ms", _LONG),)),), 1_000
            ),
            "topics",
            ErrorCode.INVALID_CONFIG,
        ),
        (
            ApiKey.ALTER_CLIENT_QUOTAS,
            AlterClientQuotasRequest((EntryData((EntityData("user", _LONG), EntityData("user", _LONG)), _QUOTA),)),
            "entries",
            ErrorCode.INVALID_REQUEST,
        ),
        (
            ApiKey.DESCRIBE_PRODUCERS,
            DescribeProducersRequest((TopicRequest(_LONG, (0,)),)),
            "topics",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
    ],
)
async def test_an_error_that_names_very_long_words_is_told(
    client: WireClient, key: ApiKey, request_: tuple[Any, ...], told: str | None, error: ErrorCode
) -> None:
    """The message did not fit into the answer, and the connection was closed."""
    answer = await client.ask(key, request_)
    answer = answer if told is None else getattr(answer, told)[0]
    answer = answer.partitions[0] if key is ApiKey.DESCRIBE_PRODUCERS else answer
    assert answer.error_code == error
    assert MAX_ERROR_TEXT < len(answer.error_message) < MAX_ERROR_TEXT + 50


def test_a_message_of_usual_length_stays_as_it_is() -> None:
    assert cut("y" * MAX_ERROR_TEXT) == "y" * MAX_ERROR_TEXT
    assert cut("y" * 5_000) == "y" * MAX_ERROR_TEXT + "… (5,000 characters)"
