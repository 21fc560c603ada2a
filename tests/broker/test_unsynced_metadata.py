"""What the metadata log says holds when it is on the device, and not before: others build on it (`flush.messages=1`).

The simulator's find (broker-power 830000553): the device refused the sync of a new `__consumer_offsets`; commits were
acknowledged in it, and synced. A loss of power took the topic, and with it all of them.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import StorageError
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.slices import Slices
from ottla.log.memory import MemoryStorage
from tests.broker.metadata_changes import opened_metadata


def _after_power_loss(storage: MemoryStorage) -> ClusterMetadata:
    return opened_metadata(storage.after_power_loss(lambda name, synced, size: synced))


class _Refusals:
    """A device that refuses to sync so many times, and what is known of topics at each pause."""

    def __init__(self, storage: MemoryStorage, metadata: ClusterMetadata, times: int) -> None:
        self.known: list[list[str]] = []
        self.pauses_s: list[float] = []
        self._storage, self._metadata, self._times = storage, metadata, times
        storage.refuses = lambda action, name: action == "sync"

    async def pause(self, seconds: float) -> None:
        """Time that passes at once."""
        self.known.append(list(self._metadata.image.topics))
        self.pauses_s.append(seconds)
        if len(self.known) == self._times:
            self._storage.refuses = None
        await asyncio.sleep(0)


async def test_a_topic_that_the_device_refuses_is_there_when_the_device_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    refusals = _Refusals(storage, metadata, 3)
    changes = Changes(metadata, Slices(ManualClock()), refusals.pause)
    with caplog.at_level(logging.ERROR):
        records = metadata.topic_records("t", b"i" * 16, 1, {}, directory_id=b"d" * 16)
        later = metadata.topic_records("u", b"j" * 16, 1, {}, directory_id=b"d" * 16)
        await asyncio.gather(changes.write(changes.change(records)), changes.write(changes.change(later)))
    assert refusals.known == [[], [], []]
    assert all(refusals.pauses_s)
    assert len(caplog.records) == 1, "one line, however often it is tried"
    assert "the disk refuses to sync" in caplog.text
    assert list(metadata.image.topics) == list(_after_power_loss(storage).image.topics) == ["t", "u"]


async def test_a_broker_that_stops_meanwhile_knows_what_it_has_appended() -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    waiting = asyncio.Event()

    async def pause(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    storage.refuses = lambda action, name: action == "sync"
    changes = Changes(metadata, Slices(ManualClock()), pause)
    change = changes.change(metadata.topic_records("t", b"i" * 16, 1, {}, directory_id=b"d" * 16))
    writing = asyncio.create_task(changes.write(change))
    await waiting.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert change.is_appended
    assert list(metadata.image.topics) == ["t"]


def test_a_start_waits_for_the_device_before_it_believes_what_a_killed_process_has_written() -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    storage.refuses = lambda action, name: action == "sync"
    change = metadata.change(metadata.topic_records("t", b"i" * 16, 1, {}, directory_id=b"d" * 16))
    metadata.write_now(change)  # it is in the log, and the process is killed
    killed = storage.after_kill()
    killed.refuses = lambda action, name: action == "sync"
    with pytest.raises(StorageError, match="the disk refuses to sync"):
        opened_metadata(killed)
    killed.refuses = None
    assert list(opened_metadata(killed).image.topics) == list(_after_power_loss(killed).image.topics) == ["t"]


async def test_a_change_of_the_metadata_needs_no_room_but_its_own() -> None:
    """Else nobody could delete a topic from a full disk."""
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    storage.refuses = lambda action, name: action in ("open", "write") and not name.endswith(".log")
    changes = Changes(metadata, Slices(ManualClock()))
    await changes.write(changes.change(metadata.topic_records("t", b"i" * 16, 1, {}, directory_id=b"d" * 16)))
    assert list(_after_power_loss(storage).image.topics) == ["t"]
