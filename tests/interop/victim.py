"""A member of a group that a test kills: `python victim.py BOOTSTRAP TOPIC GROUP PROTOCOL [INSTANCE]`.

It prints `assigned` and its partitions whenever it gets some, polls, and commits nothing.
"""

import sys

from ottla import Consumer, UnreleasedInstanceIdError


def main() -> None:
    """Poll until somebody ends this process."""
    bootstrap, topic, group, protocol, instance = (*sys.argv[1:], "")[:5]
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        config |= {"heartbeat.interval.ms": 300, "session.timeout.ms": 6_000}
    if instance:
        config["group.instance.id"] = instance
    with Consumer(config) as consumer:
        consumer.subscribe([topic], on_assigned=lambda tps: tps and print("assigned", *tps, flush=True))
        while True:
            try:
                consumer.poll(0.2)
            except UnreleasedInstanceIdError:
                print("unreleased", flush=True)


if __name__ == "__main__":
    main()
