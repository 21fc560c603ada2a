"""New partitions of one topic: all of them or none, and nobody finds them before the metadata says that they are there.

Many are made in slices, and what waits for the device runs in a thread; a few are made at once.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.partitions import Partition, Partitions
from ottla.broker.runtime.slices import Slices


class Making:
    """`at_once` or `in_slices`; then `put_in_place`, or `undo` when the metadata could not be written."""

    def __init__(
        self,
        partitions: Partitions,
        name: str,
        topic_id: bytes,
        numbers: Iterable[int],
        overrides: Mapping[str, str],
    ) -> None:
        self._partitions = partitions
        self._tps = [TopicPartition(name, number) for number in numbers]
        self._topic_id = topic_id
        self._overrides = overrides
        self._made: list[Partition] = []
        #: Whether there may be something to undo. Before that, what lies there is somebody else's.
        self._begun = False

    def at_once(self) -> None:
        """Make them here and now; StorageError when one cannot be, and then there is none."""
        deque(self._make_free(), 0)
        try:
            self._partitions.forget_checkpointed(self._tps)()
            deque(self._open(), 0)
            self._partitions.sync_names()
        except StorageError:
            self.undo()
            raise

    async def in_slices(self, slices: Slices) -> None:
        """The same, while others are served."""
        in_thread = self._partitions.in_thread
        await slices.run(self._make_free())
        try:
            await in_thread(self._partitions.forget_checkpointed(self._tps))
            await slices.run(self._open())
            await in_thread(self._partitions.sync_names)
        except StorageError:
            await in_thread(self.undo)
            raise
        except BaseException:  # the broker stops
            self.undo()
            raise

    def put_in_place(self) -> None:
        """The metadata says that they are there: from now on they are found."""
        self._partitions.add(self._made)

    def undo(self) -> None:
        """Take back what was made; may run in another thread, while nobody makes partitions of the same name."""
        if self._begun:
            self._made = []
            self._partitions.remove(self._tps)

    def _make_free(self) -> Iterator[None]:
        for tp in self._tps:
            self._partitions.make_free(tp)
            yield

    def _open(self) -> Iterator[None]:
        self._begun = True
        config = self._partitions.log_config(self._overrides)
        for tp in self._tps:
            self._made.append(self._partitions.open_new(tp, self._topic_id, config))
            yield
