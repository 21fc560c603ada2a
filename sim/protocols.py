"""How the members of a world's groups are members: which protocol each consumer speaks, and what goes with it.

It draws from a stream of its own, so that nothing else of a seed depends on it.
"""

import random
from collections.abc import Mapping
from typing import NamedTuple


class Protocols(NamedTuple):
    """What the members of one world speak."""

    #: The values of `group.protocol`; each consumer has one of them.
    spoken: tuple[str, ...] = ("classic",)
    #: Keys of the broker's configuration.
    broker: Mapping[str, tuple[str, ...] | str] = {}

    def change(self, config: dict[str, object], rng: random.Random) -> str:
        """Draw the protocol of a consumer, and fit its configuration to it. Returns the protocol."""
        protocol = rng.choice(self.spoken)
        if protocol == "consumer":
            for key in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
                del config[key]
            config["group.protocol"] = protocol
            assignor = rng.choice((None, None, "uniform", "range"))
            if assignor is not None:
                config["group.remote.assignor"] = assignor
        return protocol


def of_the_broker(rng: random.Random) -> Protocols:
    """Members of the consumer protocol (KIP-848), whose sessions the broker's keys set; or of both protocols, so that
    groups change theirs (`group.consumer.migration.policy` is bidirectional)."""
    session_ms = rng.choice((2_000, 6_000))
    broker: dict[str, tuple[str, ...] | str] = {
        "group.consumer.session.timeout.ms": str(session_ms),
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.heartbeat.interval.ms": str(session_ms // 4),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.assignment.interval.ms": rng.choice(("0", "1000")),
        "group.consumer.assignors": rng.choice((("uniform", "range"), ("range", "uniform"))),
    }
    return Protocols(rng.choice((("consumer",), ("consumer",), ("classic", "consumer"))), broker)
