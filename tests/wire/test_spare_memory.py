"""Memory of frames that is used again, and only when nobody looks at it."""

import gc
import mmap
import struct
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from ottla.base.limits import REUSED_FRAME_BYTES
from ottla.wire.codec import Buffer
from ottla.wire.frames import FrameBuffer
from ottla.wire.spare_memory import SpareMemory, _is_free

_MB = 1_048_576


def _received(buffer: FrameBuffer, frame: bytes) -> Buffer:
    """The frame, as the buffer hands it out when it has come through a socket."""
    left = memoryview(struct.pack(">i", len(frame)) + frame)
    while True:
        room = buffer.get_buffer()
        taken = min(len(room), len(left))
        room[:taken] = left[:taken]
        del room
        frames = buffer.commit(taken)
        left = left[taken:]
        if frames:
            return frames[0]


def test_what_nobody_looks_at_is_used_again() -> None:
    spare = SpareMemory(16 * _MB)
    first = spare.take(_MB)
    first[:4] = b"once"
    whose = first.obj
    del first
    second = spare.take(_MB - 100)
    assert second.obj is whose
    assert (len(second), bytes(second[:4])) == (_MB - 100, b"once")
    assert spare.known_bytes == _MB


def test_what_somebody_looks_at_is_not() -> None:
    spare = SpareMemory(16 * _MB)
    frame = spare.take(_MB)
    frame[:4] = b"mine"
    part = frame.toreadonly()[2:4]
    del frame
    other = spare.take(_MB)
    assert other.obj is not part.obj
    other[:4] = b"else"
    assert bytes(part) == b"ne"
    whose = part.obj
    del part
    assert spare.take(_MB).obj is whose


def test_no_more_is_kept_than_was_said() -> None:
    spare = SpareMemory(4 * _MB)
    taken = [spare.take(_MB) for _ in range(20)]
    assert spare.known_bytes == 4 * _MB
    assert len({id(each.obj) for each in taken}) == 20
    spare.take(3 * _MB)
    assert spare.known_bytes == 4 * _MB, "more than half of it is not kept"


def test_of_what_is_in_use_only_some_are_looked_at() -> None:
    spare = SpareMemory(64 * _MB)
    taken = [spare.take(_MB) for _ in range(20)]
    before = list(spare._known)
    taken.append(spare.take(_MB))
    assert list(spare._known) == [*before[8:], *before[:8], taken[-1].obj], "eight, which come last the next time"


def test_a_small_frame_does_not_take_what_large_ones_need() -> None:
    spare = SpareMemory(64 * _MB)
    large = spare.take(8 * _MB).obj
    assert spare.take(_MB).obj is not large
    assert spare.take(2 * _MB).obj is large


def test_frames_of_a_buffer_have_the_same_memory_one_after_the_other_and_their_own_bytes() -> None:
    buffer = FrameBuffer(2**30, spare=SpareMemory(16 * _MB))
    frames = [bytes([number]) * (REUSED_FRAME_BYTES + 1_000 * number) for number in range(1, 30)]
    memories = set()
    for frame in frames:
        received = _received(buffer, frame)
        assert isinstance(received, memoryview)
        assert received == frame
        memories.add(id(received.obj))
        del received
    assert len(memories) <= 3
    held = [_received(buffer, frame) for frame in frames]
    assert held == frames, "what is held is not written over"


class _WithoutSystemCall(mmap.mmap):
    """Before Python 3.15, on a system that cannot give it another size."""

    def resize(self, newsize: int, /) -> None:
        raise SystemError("no mremap()")


class _WithoutMethod(mmap.mmap):
    """From Python 3.15 on."""

    @property
    def resize(self) -> None:  # type: ignore[override]
        raise AttributeError("resize")


@pytest.mark.parametrize("system", [_WithoutSystemCall, _WithoutMethod])
def test_where_the_system_does_not_tell_memory_is_not_free(system: type[mmap.mmap]) -> None:
    assert not _is_free(system(-1, _MB))


def test_where_the_system_does_not_tell_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Windows, which has clients."""
    monkeypatch.delattr(mmap, "MAP_ANONYMOUS")
    buffer = FrameBuffer(2**30, spare=(spare := SpareMemory(16 * _MB)))
    frames = [bytes([number]) * _MB for number in range(3)]
    assert [bytes(_received(buffer, frame)) for frame in frames] == frames
    assert spare.known_bytes == 0


def test_threads_never_share_memory() -> None:
    """Each has some at the same time as all others, again and again, and what is given back is taken by any of them."""
    spare, together = SpareMemory(16 * _MB), Barrier(4, timeout=60)

    def work(number: int) -> bool:
        mark, is_mine = bytes([number]) * 64, True
        for _ in range(50):
            views = [spare.take(_MB) for _ in range(3)]
            for view in views:
                view[:64] = mark
            together.wait()  # everybody has written
            is_mine = is_mine and all(view[:64] == mark for view in views)
            together.wait()  # everybody has looked
            del view, views
        return is_mine

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 5)))


def test_another_thread_takes_memory_while_what_is_known_is_measured() -> None:
    spare = SpareMemory(64 * _MB)
    views = [spare.take(_MB) for _ in range(30)]
    taken: list[memoryview] = []

    def another_thread(phase: str, _: object) -> None:
        if phase == "stop":
            taken.append(spare.take(_MB))

    gc.callbacks.append(another_thread)
    before = gc.get_threshold()
    try:
        gc.set_threshold(1)  # while Python collects garbage, other threads get their turns
        views += [spare.take(_MB) for _ in range(10)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(another_thread)
    assert taken and len({id(view.obj) for view in (*views, *taken)}) == len(views) + len(taken)


def test_memory_that_the_system_does_not_have_is_what_python_calls_so() -> None:
    with pytest.raises(MemoryError, match=str(2**60)):
        SpareMemory(64 * _MB).take(2**60)
