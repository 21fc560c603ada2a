"""What has happened to open transactions between two looks at them. Pure: it is given what is open, and the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.transactions.repair import state_of

if TYPE_CHECKING:
    from ottla import TopicPartition
    from ottla.client.admin.open_transactions import OpenTransaction


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that has happened to a transaction in one partition.

    `event` is "open", "hanging", "ended", or "state": its coordinator is in another state.
    """

    event: str
    transaction: OpenTransaction
    #: How long it is open, or was when it was seen last; None if nobody knows since when.
    age_ms: int | None

    def __str__(self) -> str:
        each = self.transaction
        whose = each.transactional_id or "no known transactional id"
        age = "" if self.age_ms is None else f", {self.age_ms / 1000:.1f} s"
        said = f"{each.partition} at offset {each.start_offset}: "
        match self.event:
            case "open":
                what = f"open{age}"
            case "hanging":
                what = f"HANGS{age}: no coordinator will end it"
            case "state":
                what = f"{each.state}{age}"
            case _:
                what = f"ended{age.replace(',', ' after', 1)}"
        return f"{said}{whose} (producer {each.producer_id}, epoch {each.producer_epoch}) {what}"


class Changes:
    """Compares each look with the one before. What is not open for `longer_than_ms` yet is not told."""

    def __init__(self, longer_than_ms: int) -> None:
        self._longer_than_ms = longer_than_ms
        self._told: dict[tuple[TopicPartition, int, int], Change] = {}

    def seen(self, opened: Iterable[OpenTransaction], now_ms: int) -> list[Change]:
        """What has changed."""
        now = {(each.partition, each.start_offset, each.producer_id): each for each in opened}
        changes = [Change("ended", gone.transaction, gone.age_ms) for at, gone in self._told.items() if at not in now]
        self._told = {at: told for at, told in self._told.items() if at in now}
        for at, each in now.items():
            age_ms = None if each.since_ms is None else max(0, now_ms - each.since_ms)
            told = self._told.get(at)
            event = self._event(each, age_ms, None if told is None else told.transaction)
            if event is not None or told is not None:
                self._told[at] = Change(event or "open", each, age_ms)
            if event is not None:
                changes.append(self._told[at])
        return changes

    def _event(self, each: OpenTransaction, age_ms: int | None, before: OpenTransaction | None) -> str | None:
        if each.is_hanging:
            return "hanging" if before is None or not before.is_hanging else None
        if before is None:
            return "open" if age_ms is None or age_ms >= self._longer_than_ms else None
        return "state" if state_of(before) != each.state else None
