"""Classic consumer groups: `GroupShard` is one partition of `__consumer_offsets` (SPEC G and O).

state      a group, its members, the table of its states          records    a group as its record, and back
draft      one input's work on one group                          rebalance  from one generation to the next
join, sync, heartbeat, leave, describe                            one file per API
shard      the inputs of the whole partition, and its log         ../offsets the committed offsets
"""
