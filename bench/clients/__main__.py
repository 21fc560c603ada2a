"""CPU of Python clients' own process by record, beside the same loop with an empty function.

    python -m bench.clients 127.0.0.1:9092 --rounds 5 --records 200000 --only ottla.send ottla.poll --codec lz4

Rates need a quiet machine; this does not. The clients run in turns, and the median of the rounds is printed:
nanoseconds of CPU of all threads of the process (`process_time`), of the user's thread alone (`thread_time`), and of
the clock. A transaction is a poll of 500 records, which are read, changed, sent, and committed with their offsets.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

from bench.clients import aiokafka, confluent, floor, ottla
from bench.clients.cost import Cost
from bench.clients.shape import Shape

LOOPS: dict[str, Callable[[str, Shape], Cost]] = {
    f"{each.__module__.rpartition('.')[2]}.{each.__name__}": each
    for each in (
        floor.send,
        ottla.send,
        ottla.send_with_callback,
        ottla.send_arrow,
        confluent.produce,
        floor.poll,
        ottla.poll,
        ottla.each,
        confluent.poll,
        ottla.columns,
        confluent.consume,
        ottla.transactions,
        ottla.transactions_of_columns,
        confluent.transactions,
        ottla.async_send,
        aiokafka.send,
        ottla.async_each,
        aiokafka.each,
    )
}


def main() -> None:
    """Print a line for each loop."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--only", nargs="+", default=list(LOOPS), choices=LOOPS)
    asked = parser.parse_args()
    shape = Shape(asked.records, asked.size, asked.partitions, asked.codec)
    found: dict[str, list[Cost]] = {name: [] for name in asked.only}
    for _ in range(asked.rounds):
        for name in asked.only:
            found[name].append(LOOPS[name](asked.bootstrap, shape))
    for name, costs in found.items():
        process, thread, wall = (statistics.median(values) for values in zip(*costs, strict=True))
        least = min(cost.process for cost in costs)
        cpu = f"process {process:7.0f} ns (least {least:7.0f}), user's thread {thread:7.0f} ns"
        print(f"{name:30} {cpu}, clock {wall:8.0f} ns", flush=True)


if __name__ == "__main__":
    main()
