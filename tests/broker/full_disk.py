"""A disk that is full, by the system's limit on file sizes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_room(behind_bytes: int = 0) -> Iterator[None]:
    """No file of this process can be written behind that position."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (behind_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
