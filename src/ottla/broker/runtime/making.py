"""New partitions of topics: all of a topic or none, and nobody finds them before the metadata says that they are there.

They are made in slices, and what waits for the device runs in a thread, once for all topics.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ottla.base.errors import StorageError, kept
from ottla.base.types import TopicPartition
from ottla.broker.runtime.partition import Partition
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices


class Making:
    """`make_all`; then `put_in_place`, or `undo` when the metadata could not be written."""

    def __init__(
        self,
        partitions: Partitions,
        name: str,
        topic_id: bytes,
        numbers: Iterable[int],
        overrides: Mapping[str, str],
    ) -> None:
        self._partitions = partitions
        self.name = name
        self.tps = [TopicPartition(name, number) for number in numbers]
        self._topic_id = topic_id
        self._overrides = overrides
        self._made: list[Partition] = []
        #: Whose folders are there already, and empty.
        self._found: list[TopicPartition] = []
        #: Whether there may be something to undo. Before that, what lies there is somebody else's.
        self.has_begun = False

    def put_in_place(self) -> None:
        """The metadata says that they are there: from now on they are found."""
        self._partitions.add(self._made)

    def undo(self) -> None:
        """Take back what was made; may run in another thread, while nobody makes partitions of the same name."""
        if self.has_begun:
            self._made = []
            self._partitions.remove(self.tps)

    def make_free(self) -> Iterator[None]:
        """Make sure that nothing lies where they will be, a partition in each step."""
        for tp in self.tps:
            if self._partitions.make_free(tp):
                self._found.append(tp)
            yield

    def sync_found(self) -> Iterator[None]:
        """Bring to the device that those folders are empty; may run in another thread."""
        for tp in self._found:
            self._partitions.sync_folder(tp)
            yield

    def open(self) -> Iterator[None]:
        """Make their directories, a partition in each step."""
        self.has_begun = True
        config = self._partitions.log_config(self._overrides)
        for tp in self.tps:
            self._made.append(self._partitions.open_new(tp, self._topic_id, config))
            yield


async def make_all(makings: Sequence[Making], partitions: Partitions, slices: Slices) -> dict[str, StorageError]:
    """Make the partitions of several topics while others are served: the checkpoint and the sync of names once for all.

    Returns the faults by topic; of these topics there is nothing.
    """
    faults: dict[str, StorageError] = {}
    try:
        await slices.run(_each(makings, Making.make_free, faults))
        if _sound(makings, faults):  # else the thread, which may be at work for long, has nothing to do
            await _open_all(makings, partitions, slices, faults)
    except StorageError as fault:
        faults = dict.fromkeys((each.name for each in makings), kept(fault)) | faults
    except BaseException:  # the broker stops
        for each in makings:
            each.undo()
        raise
    for each in makings:
        if each.name in faults and each.has_begun:
            await partitions.in_thread(each.undo)
    return faults


async def _open_all(
    makings: Sequence[Making], partitions: Partitions, slices: Slices, faults: dict[str, StorageError]
) -> None:
    await partitions.in_thread(partial(deque, _each(_sound(makings, faults), Making.sync_found, faults), 0))
    tps = [tp for each in _sound(makings, faults) for tp in each.tps]
    await partitions.forget_checkpointed(tps, slices)
    await slices.run(_each(_sound(makings, faults), Making.open, faults))
    await partitions.in_thread(partitions.sync_names)


def _each(
    makings: Sequence[Making], work: Callable[[Making], Iterator[None]], faults: dict[str, StorageError]
) -> Iterator[None]:
    """A step of all topics' work in each step; a topic that fails is left, and the others go on."""
    for each in makings:
        try:
            yield from work(each)
        except StorageError as fault:
            faults[each.name] = kept(fault)


def _sound(makings: Sequence[Making], faults: Mapping[str, StorageError]) -> list[Making]:
    return [each for each in makings if each.name not in faults]
