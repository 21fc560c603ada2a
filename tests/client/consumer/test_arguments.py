"""What no request can hold is refused where it is given. It does not end the consumer."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla import AsyncConsumer, TopicPartition
from tests.client.conftest import Watchdog
from tests.client.scripted_broker import ScriptedBroker

_T0 = TopicPartition("t", 0)


_SUBSCRIBE = pytest.param(
    lambda c: c.subscribe(re.compile(b"t")), TypeError, False, id="subscribe to a pattern of bytes"
)


@pytest.mark.parametrize(
    ("call", "error", "by_hand"),
    [
        pytest.param(lambda c: c.seek(_T0, 2**63), ValueError, True, id="seek beyond 64 bits"),
        pytest.param(lambda c: c.seek(_T0, -1), ValueError, True, id="seek below 0"),
        pytest.param(lambda c: c.seek(_T0, 1.5), TypeError, True, id="seek to a fraction"),
        pytest.param(lambda c: c.assign([("t", 2**31)]), ValueError, True, id="assign beyond 32 bits"),
        pytest.param(lambda c: c.assign([("t", -1)]), ValueError, True, id="assign below 0"),
        pytest.param(lambda c: c.assign([("t", "0")]), TypeError, True, id="assign a str"),
        _SUBSCRIBE,
        pytest.param(lambda c: c.committed([("t", 2**31)]), ValueError, True, id="committed beyond 32 bits"),
        pytest.param(lambda c: c.offsets_for_times({_T0: 2**63}), ValueError, True, id="a time beyond 64 bits"),
        pytest.param(lambda c: c.offsets_for_times({_T0: 1.5}), TypeError, True, id="a time that is a fraction"),
        pytest.param(lambda c: c.end_offsets([("t", 2**31)]), ValueError, True, id="end_offsets beyond 32 bits"),
    ],
)
async def test_what_no_request_can_hold_is_refused_and_spoils_nothing(
    watchdog: Watchdog, call: Callable[[AsyncConsumer], Any], error: type[Exception], by_hand: bool
) -> None:
    async with watchdog(), ScriptedBroker({"t": 1}) as broker, broker.consumer({"group.id": "g"}) as consumer:
        broker.kafka.write(_T0, b"v")
        if by_hand:
            consumer.assign([_T0])
        with pytest.raises(error):
            await (call(consumer) or _nothing())
        consumer.assign([_T0])
        assert [record.value for record in await consumer.poll(60)] == [b"v"]


async def _nothing() -> None:
    pass
