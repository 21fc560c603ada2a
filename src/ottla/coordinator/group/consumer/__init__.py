"""Consumer groups: the coordinator divides the partitions, and moves them one by one (KIP-848; SPEC G19, G21).

states     a group's states and a member's, as tables         member, group   what the log says of them
heartbeat, leave, describe   one file per request             subscriptions   what the group reads, after one change
regexes    regular expressions that members subscribe to      target          the assignment that shall be in the end
reconcile  one member's next step towards it                  records         everything as Kafka's records, and back
topics     the port to the metadata; hashes of topics         room            settings, and one input's work
pace       when the next heartbeat is due                     groups          the inputs of all groups of a shard
"""
