"""Which member is near which partition (KIP-881)."""

from __future__ import annotations

from collections import Counter

from ottla.assign.sticky.board import Board


class Racks:
    """Members' racks, replicas' racks; `matter` is False if they cannot make one assignment better than another."""

    def __init__(self, board: Board) -> None:
        racks = [said.rack_id or None for said in board.subscriptions]
        members_in = Counter(rack for rack in racks if rack)
        everywhere = frozenset(rack for replicas in board.replica_racks for rack in replicas) if members_in else ()
        #: They do not if no member's rack has a replica, or if every partition is in every rack.
        self.matter = not members_in.keys().isdisjoint(everywhere) and any(
            frozenset(replicas) != everywhere for replicas in board.replica_racks
        )
        #: Each member's rack; None for all if racks do not matter.
        self.of_member: list[str | None] = racks if self.matter else [None] * len(racks)
        self.of_partition = [frozenset(replicas) for replicas in board.replica_racks] if self.matter else []
        #: For each partition how many members are near it.
        self.members_near = [sum(members_in[rack] for rack in replicas) for replicas in self.of_partition]

    def apart(self, member: int, partition: int) -> bool:
        """Whether the member has a rack, and the partition has no replica there."""
        rack = self.of_member[member]
        return rack is not None and rack not in self.of_partition[partition]
