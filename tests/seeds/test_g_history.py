"""The history of a group, G23: on the broker as a topic, and in our client as events of the consumer itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ottla import AsyncConsumer, TopicPartition
from tests.seeds.live import PATIENCE_S, live_group


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_g23_a_group_has_a_history_that_any_consumer_can_read(protocol: str) -> None:
    """C1 takes over t-1 of C0's two partitions, and leaves: the topic tells it, and so do the consumers' own events."""
    async with live_group(t=2) as group:
        for name, has in (("C0", {"C0": "tp0 tp1"}), ("C1", {"C0": "tp0", "C1": "tp1"})):
            group.join(name, ("t",), **{"group.protocol": protocol})
            await group.until(lambda has=has: sorted(group.has.values()) == sorted(has.values()))  # type: ignore[misc]
        told = group.members["C1"].events()
        assert [type(event).__name__ for event in told][-2:] == ["PartitionsAssigned", "Rebalanced"]
        await group.leave("C1")
        history: list[dict[str, Any]] = []
        async with AsyncConsumer({**group.servers, "group.id": "reader", "auto.offset.reset": "earliest"}) as reader:
            reader.assign([TopicPartition("__ottla_group_events", 0)])
            async with asyncio.timeout(PATIENCE_S):
                while not any(event["event"] == "member-left" for event in history):
                    history += [json.loads(record.value) for record in await reader.poll(0.05) if record.key == b"g"]
    joined = {event["client_id"]: event["member_id"] for event in history if event["event"] == "member-joined"}
    assert list(joined) == ["C0", "C1"]
    first, second = (event for event in history if event["event"] == "rebalance-completed")
    assert [(move["partition"], move["from"], move["to"]) for move in first["moved"]] == [
        (0, None, joined["C0"]),
        (1, None, joined["C0"]),
    ]
    assert second["moved"] == [{"topic": "t", "partition": 1, "from": joined["C0"], "to": joined["C1"]}]
    assert f"{joined['C1']} joined" in second["reason"]
    longest = second["waited"][0]
    assert longest["member_id"] == joined["C1"]
    assert 0 <= longest["ms"] <= second["first_join_to_stable_ms"] <= second["duration_ms"]
    (left,) = (event for event in history if event["event"] == "member-left")
    assert (left["member_id"], left["why"]) == (joined["C1"], "left")
    assert left["reason"] == {"classic": "the consumer was closed", "consumer": ""}[protocol]  # KIP-848 sends none
    assert all(isinstance(event["time_ms"], int) for event in history)
