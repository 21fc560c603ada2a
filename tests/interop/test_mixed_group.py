"""G11, G14, A8: one group of clients that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla import TopicPartition
from ottla.testing import History
from tests.interop.members import (
    PARTITIONS,
    AioKafka,
    Group,
    Java,
    KafkaPython,
    Kind,
    Librdkafka,
    Ours,
    all_there,
    create,
    produce,
    read_while_they_leave,
)
from tests.recording.final import assert_good, note_logs, note_positions

pytestmark = pytest.mark.interop

#: Which clients have a strategy. Members leave in this order, so each kind leads once.
_HAVE: dict[str, tuple[Kind, ...]] = {
    "range": (Ours, Java, Librdkafka),
    "roundrobin": (Java, Librdkafka, Ours),
    "sticky": (Ours, Java, Ours),
    "cooperative-sticky": (Librdkafka, Ours, Java),
}


async def test_g11_four_kinds_of_client_share_one_group(any_broker: str, fresh: Callable[[str], str]) -> None:
    topic, group, history = fresh("mixed"), fresh("mixed-group"), History()
    create(any_broker, topic)
    kinds = (Librdkafka, KafkaPython, AioKafka, Ours)
    async with Group([kind(any_broker, topic, group, history) for kind in kinds]) as members:
        await read_while_they_leave(members, any_broker, topic, history)
    note_logs(history, any_broker, {topic: PARTITIONS})
    note_positions(history, any_broker, group)
    history.drained(group, [TopicPartition(topic, number) for number in range(PARTITIONS)], read_committed=False)
    assert_good(history)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", _HAVE)
async def test_a8_java_librdkafka_and_ours_share_a_group_under_every_common_strategy(
    any_broker: str, fresh: Callable[[str], str], strategy: str, apache_jars: str
) -> None:
    topic, group, history = fresh("mixed"), fresh("mixed-group"), History()
    create(any_broker, topic)
    kinds = _HAVE[strategy]
    async with Group([kind(any_broker, topic, group, history, strategy) for kind in kinds]) as members:
        await read_while_they_leave(members, any_broker, topic, history)


@pytest.mark.slow
async def test_g14_a_group_becomes_cooperative_by_two_rolling_restarts(
    any_broker: str, fresh: Callable[[str], str], apache_jars: str
) -> None:
    topic, group, history = fresh("rolling"), fresh("rolling-group"), History()
    create(any_broker, topic)
    kinds: tuple[Kind, ...] = (Ours, Java, Ours)
    async with Group([kind(any_broker, topic, group, history, "range") for kind in kinds]) as members:
        turn = 0
        for strategy in ("cooperative-sticky,range", "cooperative-sticky"):
            for kind in kinds:
                await members.wait_for(members.settled)
                turn += 1
                produce(any_broker, topic, 3, history, turn)
                await members.wait_for(lambda: all_there(members.seen, turn * 3))  # noqa: B023
                await members.leave()
                members.join(kind(any_broker, topic, group, history, strategy))
        await members.wait_for(members.settled)
        while members.size:
            await members.leave()
    assert set(members.seen.values()) == {1}
