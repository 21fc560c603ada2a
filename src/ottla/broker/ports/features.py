"""Features of the cluster (KIP-584): changes of their levels, one after the other, each as one batch of metadata."""

from typing import Protocol

from ottla.broker.runtime.decided import DecidedChanges


class HasFeatures(Protocol):
    """Needs to change levels of features."""

    @property
    def features(self) -> DecidedChanges: ...
