"""A program with clients that say all they can: logs at DEBUG, asyncio's too, and each error with all that hangs on it.

    python -m tests.hidden.talker < settings.json

Standard input is a list of client configurations, right and wrong ones. What clients and errors say goes to standard
output, logs to standard error. The last line is how many of the configurations worked.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ottla import Admin, Consumer, NewTopic, Producer

_PATIENCE = {"default.api.timeout.ms": "3000", "request.timeout.ms": "3000"}


def said_of(fault: BaseException | None) -> list[str]:
    """Everything that an error shows, and those behind it."""
    if fault is None:
        return []
    own = [repr(fault), str(fault), repr(fault.args), repr(getattr(fault, "__notes__", ())), repr(vars(fault))]
    return [*own, *traceback.format_exception(fault), *said_of(fault.__cause__), *said_of(fault.__context__)]


def _admin(config: Mapping[str, str]) -> None:
    with Admin({**config, **_PATIENCE}) as admin:
        print(repr(admin), repr(vars(admin)))
        if "said" not in {each.name for each in admin.list_topics()}:
            admin.create_topics([NewTopic("said", 1)])


def _producer(config: Mapping[str, str]) -> None:
    patience = {"max.block.ms": "3000", "request.timeout.ms": "3000", "delivery.timeout.ms": "3500"}
    with Producer({**config, **patience}) as producer:
        print(repr(producer), repr(vars(producer)))
        producer.send("said", b"x").result()


def _consumer(config: Mapping[str, str]) -> None:
    with Consumer({**config, **_PATIENCE, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        print(repr(consumer), repr(vars(consumer)))
        consumer.subscribe(["said"])
        consumer.poll(3.0)


def _does(call: Callable[[Mapping[str, str]], None], config: Mapping[str, str]) -> bool:
    try:
        call(config)
    except Exception as fault:  # noqa: BLE001 - what it says is looked at
        print("\n".join(said_of(fault)))
        return False
    return True


def main() -> None:
    """Run with each configuration."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    given: list[dict[str, Any]] = json.load(sys.stdin)
    worked = 0
    for config in given:
        outcomes = [
            _does(call, config) for call in (_admin, _producer, _consumer)
        ]  # each of them, whatever the first does
        worked += all(outcomes)
    print(worked)


if __name__ == "__main__":
    main()
