"""Settings of the real broker in a world, as the seed draws them."""

import random


def of_the_broker(rng: random.Random, host: str, port: int) -> dict[str, tuple[str, ...] | str]:
    """Its own; few partitions, so that users meet."""
    return {
        "listeners": (f"PLAINTEXT://{host}:{port}",),
        "log.dirs": ("/disk",),
        "offsets.topic.num.partitions": rng.choice(("1", "3")),
        "transaction.state.log.num.partitions": rng.choice(("1", "3")),
        "log.roll.ms": rng.choice(("500", "5000", "600000000")),
        "group.initial.rebalance.delay.ms": rng.choice(("0", "300")),
        "group.min.session.timeout.ms": "500",
        "log.retention.hours": "-1",
        "num.recovery.threads.per.data.dir": "1",  # a simulated disk is not made for several threads
        # clocks are set by hours here, and no record is to be refused for it
        "log.message.timestamp.after.max.ms": str(2**62),
        "max.incremental.fetch.session.cache.slots": rng.choice(("0", "1", "1000")),
    }


def of_the_cleaner(rng: random.Random) -> dict[str, str]:
    """Often or seldom, in large pieces or small ones."""
    return {
        "log.cleaner.backoff.ms": rng.choice(("50", "500", "15000")),
        "log.cleaner.min.cleanable.ratio": rng.choice(("0", "0.5")),
        "log.cleaner.delete.retention.ms": rng.choice(("0", "1000", "86400000")),
        "log.cleaner.io.buffer.size": rng.choice(("1", "524288")),
    }


def of_a_short_topic(rng: random.Random) -> dict[str, str]:
    """Its records are deleted: by users, and in some worlds by retention."""
    return {
        "internal.segment.bytes": rng.choice(("500", "3000", "100000")),
        "retention.bytes": rng.choice(("-1", "-1", "2000", "20000")),
        "retention.ms": rng.choice(("-1", "-1", "-1", "20000")),
    }


def of_a_compacted_topic(rng: random.Random) -> dict[str, str]:
    """Its segments are closed soon, so that there is something to clean."""
    return {
        "cleanup.policy": "compact",
        "segment.ms": rng.choice(("300", "3000")),
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": rng.choice(("0", "1000", "86400000")),
    }
