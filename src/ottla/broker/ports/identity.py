"""Who this broker is, and where clients find it."""

import random
from typing import Protocol

from ottla.broker.listeners import Endpoint
from ottla.broker.metadata.properties import MetaProperties


class Identity:
    """The broker's ids and its addresses."""

    def __init__(self, properties: MetaProperties, rack: str | None) -> None:
        self.node_id = properties.node_id
        self.cluster_id = properties.cluster_id
        self.directory_id = properties.directory_id
        self.rack = rack
        #: The address that clients of each listener are told; known once the listener is bound.
        self.told: dict[str, Endpoint] = {}


class HasIdentity(Protocol):
    """Needs to know who this broker is."""

    @property
    def identity(self) -> Identity: ...


class HasRandom(Protocol):
    """Needs chance, to make ids that are given once."""

    @property
    def rng(self) -> random.Random: ...
