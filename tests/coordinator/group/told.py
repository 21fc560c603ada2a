"""What the history of groups says of the decisions that a rig carries out: each event as a reader finds it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ottla.base.steps import result_of
from ottla.coordinator.facts import GroupFacts
from ottla.coordinator.group.history import Event, History, TopicName


def written(event: Event, topic_name: TopicName) -> dict[str, Any]:
    """The event as JSON says it, written in one go."""
    found: dict[str, Any] = json.loads(result_of(event.write(topic_name)))
    return found


class Told:
    """Every event so far; `last(name)` is the newest of a name."""

    def __init__(self, topic_name: TopicName = lambda topic_id: None) -> None:
        self._history = History()
        self._topic_name = topic_name
        self.events: list[dict[str, Any]] = []

    def hear(self, facts: Iterable[GroupFacts], now_ms: int) -> None:
        """Facts have come true."""
        for told in facts:
            self.events += [written(event, self._topic_name) for event in self._history.take(told, now_ms, now_ms)]

    @property
    def names(self) -> list[str]:
        """What has happened, in order."""
        return [event["event"] for event in self.events]

    def last(self, name: str) -> dict[str, Any]:
        """The newest event of this name."""
        return [event for event in self.events if event["event"] == name][-1]
