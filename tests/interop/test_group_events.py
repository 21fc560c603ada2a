"""G23: the history of groups, as a consumer that we did not write reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

pytestmark = pytest.mark.interop

_WAIT_S = 60.0
_POLLS = 240


def _read_until(reader: Consumer, group: str, event: str) -> list[dict[str, Any]]:
    """The group's events up to the first of this name.

    Only the polls that bring nothing are counted: the broker is everybody's, and the groups of the tests
    before this one may have written any number of events.
    """
    found: list[dict[str, Any]] = []
    empty = 0
    while empty < _POLLS:
        message = reader.poll(0.5)
        if message is None or message.error():
            empty += 1
            continue
        if message.key() != group.encode():
            continue
        found.append(json.loads(message.value()))
        assert found[-1]["time_ms"] == message.timestamp()[1]
        if found[-1]["event"] == event:
            return found
    raise AssertionError(f"no {event} of {group} among {found}")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g23_librdkafka_reads_the_history_of_its_own_group(
    our_broker: Broker, fresh: Callable[[str], str], protocol: str
) -> None:
    topic, group = fresh("watched"), fresh("watched-group")
    servers = {"bootstrap.servers": our_broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(_WAIT_S)
    member = Consumer({**servers, "group.id": group, "group.protocol": protocol, "client.id": "one"})
    member.subscribe([topic])
    for _ in range(_POLLS):
        member.poll(0.25)
        if len(member.assignment()) == 2:
            break
    member.close()
    reader = Consumer({**servers, "group.id": fresh("history-reader"), "enable.auto.commit": False})
    reader.assign([TopicPartition("__ottla_group_events", 0, 0)])
    events = _read_until(reader, group, "group-emptied")
    reader.close()
    joined, completed = events[0], next(each for each in events if each["event"] == "rebalance-completed")
    assert (joined["event"], joined["kind"], joined["client_id"]) == ("member-joined", protocol, "one")
    assert [(each["partition"], each["from"], each["to"]) for each in completed["moved"]] == [
        (0, None, joined["member_id"]),
        (1, None, joined["member_id"]),
    ]
    assert "member-left" in [each["event"] for each in events]
