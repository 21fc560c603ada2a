"""A model of a Kafka cluster of three brokers, written from the protocol's rules over `ottla.wire`.

It shares no code with the broker of this project where the two could be wrong together: what is appended, what is a
duplicate, who leads, what is replicated, what a fetch returns are rules of its own. Groups and transactions are
coordinated by `ottla.coordinator`, whose shards move between brokers here as they do in Kafka.
"""
