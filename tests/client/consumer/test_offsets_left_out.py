"""An answer that says nothing of a partition does not say that the partition has no offset."""

from contextlib import suppress
from typing import Any

import pytest

from ottla import OffsetAndMetadata, TopicPartition
from ottla.base.errors import OttlaError
from ottla.wire.apis import ApiKey
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker, changed

_T0 = TopicPartition("t", 0)


def no_topics(answer: Any) -> Any:
    return answer._replace(topics=())


def no_groups(answer: Any) -> Any:
    return answer._replace(groups=())


def no_topics_of_the_group(answer: Any) -> Any:
    return answer._replace(groups=tuple(group._replace(topics=()) for group in answer.groups))


async def test_an_end_that_was_left_out_is_asked_for_again_or_told(watchdog: Watchdog) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer() as consumer:
        broker.kafka.write(_T0, b"v")
        broker.script(ApiKey.LIST_OFFSETS, changed(no_topics))
        with suppress(OttlaError):  # told is as good
            assert await consumer.end_offsets([_T0]) == {_T0: 1}


@pytest.mark.parametrize("wrong", [no_groups, no_topics_of_the_group])
async def test_a_committed_offset_that_was_left_out_is_asked_for_again_or_told(watchdog: Watchdog, wrong: Any) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer({"group.id": "g"}) as consumer:
        broker.kafka.write(_T0, b"1", b"2")
        await consumer.commit({_T0: OffsetAndMetadata(1)})
        broker.script(ApiKey.OFFSET_FETCH, changed(wrong))
        consumer.assign([_T0])
        with suppress(OttlaError):
            assert [record.value for record in await consumer.poll(60)] == [b"2"]
