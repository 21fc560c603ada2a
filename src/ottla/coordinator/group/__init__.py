"""Groups: `GroupShard` is one partition of `__consumer_offsets` (SPEC G and O).

shard      the inputs of the whole partition, and its log         classic/   groups whose leader divides the partitions
config, context, errors   what all kinds of groups share          ../offsets the committed offsets
"""
