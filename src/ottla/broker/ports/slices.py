"""Long work of a request, in slices while others are served."""

from typing import Protocol

from ottla.broker.runtime.slices import Slices


class HasSlices(Protocol):
    """Needs to do long work."""

    @property
    def slices(self) -> Slices: ...
