"""Four assignors as examples of one's own (SPEC A7). They work, and are short enough to be copied and changed.

`RandomAssignor` needs nothing but `assign`. `BroadcastAssignor` gives a partition to several members.
`WeightedAssignor` tells the leader something in its user data. `RackAssignor` uses racks, remembers what members own,
and supports the cooperative protocol. docs/assignors.md goes through them.
"""

from ottla.assign.examples.broadcast import BroadcastAssignor
from ottla.assign.examples.rack import RackAssignor
from ottla.assign.examples.random import RandomAssignor
from ottla.assign.examples.weighted import WeightedAssignor

__all__ = ["BroadcastAssignor", "RackAssignor", "RandomAssignor", "WeightedAssignor"]
