"""Memory of large frames that is used again: the system takes longer to give new pages than a frame takes to fill them.

A frame is handed out as a view of its memory, and nobody says when the last view of it is gone. But Python does not
give another size to memory that is looked at; so it is asked for the size that it has.
"""

import mmap
from collections import deque
from contextlib import suppress
from typing import Final

#: Linux's; and how large a huge page is on most machines. To fill one takes a fifth of the time of as many small ones.
_MADV_HUGEPAGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
_HUGE_PAGE_BYTES: Final = 2_097_152
#: Smaller memory has small pages, and a size of so many bytes: one that is a little larger fits, too.
_STEP_BYTES: Final = 262_144
#: A frame does not get memory that is more times as large.
_MOST_TIMES: Final = 4
#: If so many that were given before all others do not do, the search ends: each look takes a microsecond or two.
_MOST_LOOKS: Final = 8


class SpareMemory:
    """Gives memory for frames, in any thread, and knows what it has given, up to `most_bytes`.

    A frame of more than half of that has memory of its own, which is not used again; and so has every frame where the
    system cannot give memory another size, as Linux can.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        #: What was given last comes last; before it, what a search for it has passed over. There is no lock, which
        #: a fork could leave held: a thread takes out what it looks at, and puts it back when it is in use.
        self._known: deque[mmap.mmap] = deque()

    @property
    def known_bytes(self) -> int:
        """How much it would find again: what is in use, and what it keeps for the next frames."""
        return sum(map(len, list(self._known)))  # no tuple: Python may let other threads in when it has begun one

    def take(self, size_bytes: int) -> memoryview:
        """Memory of that size, with whatever is in it. It is used again when nobody has a view of it any more.

        Raises MemoryError.
        """
        memory = self._free(size_bytes)
        if memory is None:
            try:
                memory = _new(size_bytes)
            except OSError as error:  # as of a bytearray: who asks for memory does not think of a file or a connection
                raise MemoryError(f"no {size_bytes} bytes of memory: {error}") from error
        is_known = len(memory) <= self._most_bytes // 2 and _is_free(memory)  # if not, this system never tells
        view = memoryview(memory)[:size_bytes]
        if is_known:
            self._known.append(memory)
        with suppress(IndexError):  # other threads have made room
            while self.known_bytes > self._most_bytes:
                self._known.popleft()  # if it is in use, it is there until its last view is gone
        return view

    def _free(self, size_bytes: int) -> mmap.mmap | None:
        """What fits and nobody uses. It is not known any more."""
        with suppress(IndexError):  # other threads have taken the rest
            for _ in range(min(len(self._known), _MOST_LOOKS)):
                memory = self._known.popleft()
                if size_bytes <= len(memory) <= size_bytes * _MOST_TIMES and _is_free(memory):
                    return memory
                self._known.append(memory)
        return None


def _new(size_bytes: int) -> mmap.mmap:
    """Memory that the system gives as it is written to. It aligns it for huge pages if it ends with one."""
    is_huge = size_bytes >= _HUGE_PAGE_BYTES and _MADV_HUGEPAGE is not None
    step_bytes = _HUGE_PAGE_BYTES if is_huge else _STEP_BYTES
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return mmap.mmap(-1, size_bytes, access=mmap.ACCESS_COPY)
    memory = mmap.mmap(-1, -(-size_bytes // step_bytes) * step_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if is_huge:
        with suppress(OSError):  # a kernel that was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _is_free(memory: mmap.mmap) -> bool:
    """Whether nobody has a view of it."""
    try:
        memory.resize(len(memory))
    except BufferError:
        return False
    except (AttributeError, OSError, SystemError, TypeError, ValueError):  # a system that cannot do it does not tell
        return False
    return True
