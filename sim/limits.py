"""How long a world may take."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: A world takes less than a second of a processor. One that takes so many never ends.
LONGEST_S = 180.0


class NeverEndsError(KeyboardInterrupt):
    """Raised inside a world that takes too long. Of this family, because asyncio lets no other one through."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise NeverEndsError in what takes more of the processor than a world may."""

    def interrupt(number: int, frame: object) -> None:
        raise NeverEndsError

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
