"""A program with clients that say all they can: logs at DEBUG, asyncio's too, and each error with all that hangs on it.

    python -m tests.hidden.talker < settings.json

Standard input has two lists of client configurations: `right` ones, which have all the time that they need, and
`wrong` ones. What clients and errors say goes to standard output, logs to standard error. The last line is how many of
the configurations worked.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ottla import Admin, Consumer, NewTopic, Producer

#: How long a call may take, in milliseconds.
_PATIENCE_MS = {"right": 60_000, "wrong": 3_000}
_Client = Callable[[Mapping[str, str], int], None]


def said_of(fault: BaseException | None) -> list[str]:
    """Everything that an error shows, and those behind it."""
    if fault is None:
        return []
    own = [repr(fault), str(fault), repr(fault.args), repr(getattr(fault, "__notes__", ())), repr(vars(fault))]
    return [*own, *traceback.format_exception(fault), *said_of(fault.__cause__), *said_of(fault.__context__)]


def _limits(patience_ms: int) -> dict[str, str]:
    return {"default.api.timeout.ms": str(patience_ms), "request.timeout.ms": str(patience_ms)}


def _admin(config: Mapping[str, str], patience_ms: int) -> None:
    with Admin({**config, **_limits(patience_ms)}) as admin:
        print(repr(admin), repr(vars(admin)))
        if "said" not in {each.name for each in admin.list_topics()}:
            admin.create_topics([NewTopic("said", 1)])


def _producer(config: Mapping[str, str], patience_ms: int) -> None:
    limits = {"max.block.ms": str(patience_ms), "request.timeout.ms": str(patience_ms)}
    with Producer({**config, **limits, "delivery.timeout.ms": str(patience_ms + 500)}) as producer:
        print(repr(producer), repr(vars(producer)))
        producer.send("said", b"x").result()


def _consumer(config: Mapping[str, str], patience_ms: int) -> None:
    with Consumer({**config, **_limits(patience_ms), "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        print(repr(consumer), repr(vars(consumer)))
        consumer.subscribe(["said"])
        consumer.poll(3.0)


def _does(call: _Client, config: Mapping[str, str], patience_ms: int) -> bool:
    try:
        call(config, patience_ms)
    except Exception as fault:  # noqa: BLE001 - what it says is looked at
        print("\n".join(said_of(fault)))
        return False
    return True


def main() -> None:
    """Run with each configuration."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    given: dict[str, list[dict[str, Any]]] = json.load(sys.stdin)
    worked = 0
    for kind, configs in given.items():
        for config in configs:
            # each of them, whatever the first does
            outcomes = [_does(call, config, _PATIENCE_MS[kind]) for call in (_admin, _producer, _consumer)]
            worked += all(outcomes)
    print(worked)


if __name__ == "__main__":
    main()
