"""How consumers shared partitions before there was a group coordinator, beside the coordinator on the same script.

Until Kafka 0.8 each consumer read the members of its group from ZooKeeper, computed by itself what is its own, and
claimed that with ephemeral nodes. This package models it from what was published of it, in virtual time:

- `tree`, `watches`, `ensemble`: a small ZooKeeper, pure; `service` puts it into the event loop of `sim.loop`.
- `paths`, `consumer`: the old consumers' paths and their algorithm.
- `members`: members of a classic group before the real coordinator (`ottla.coordinator.group`).
- `script`, `ledger`, `comparison`: one script of joins, leaves, crashes and pauses for both; what is measured.

`ottla history rebalance` prints the comparison; docs/history.md explains it.
"""

from sim.zookeeper_era.comparison import Comparison, Figures, compare
from sim.zookeeper_era.ledger import Settled
from sim.zookeeper_era.script import Numbers, ScriptError

__all__ = ["Comparison", "Figures", "Numbers", "ScriptError", "Settled", "compare"]
