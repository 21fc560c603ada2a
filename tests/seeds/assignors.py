"""Server-side assignors (KIP-848) that a broker of the seeds loads by name."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assign.server import GroupSpec, Partitions


class Raises:
    """What a user may get wrong."""

    name = "raises"

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        """Fail."""
        raise RuntimeError("as users' code may")
