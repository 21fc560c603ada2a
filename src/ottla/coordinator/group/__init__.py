"""Groups: `GroupShard` is one partition of `__consumer_offsets` (SPEC G and O).

shard      the inputs of the whole partition, and its log         kinds      what the shard asks of each kind of group
classic/   groups whose leader divides the partitions             consumer/  groups whose coordinator does (KIP-848)
migration  how a group becomes one of another kind                ../offsets the committed offsets
config, context, errors   what all kinds share
"""
