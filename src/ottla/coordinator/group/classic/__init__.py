"""Classic consumer groups: the leader's client divides the partitions (SPEC G1–G18).

state      a group, its members, the table of its states          records    a group as its record, and back
draft      one input's work on one group                          rebalance  from one generation to the next
join, sync, heartbeat, leave, describe                            one file per API
"""
