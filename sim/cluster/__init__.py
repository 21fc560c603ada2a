"""A model of a Kafka cluster of three brokers, written from the protocol's rules over `ottla.wire`.

It has its own rules for what is appended, what is a duplicate, who leads, what is replicated, and what a fetch returns.
It shares no code with this project's broker there, because a mistake in shared code would not be seen. Groups and
transactions are coordinated by `ottla.coordinator`; here its shards move between brokers, as they do in Kafka.
"""
