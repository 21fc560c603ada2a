"""Python clients beside each other, by record, in every shape: by the clock, and the CPU of the client's process.

A figure is one client in one shape: `ottla / 1 KB, 4 partitions, lz4`. Its loops run one by one in a process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

from bench.clients import aiokafka, confluent, floor, ottla
from bench.clients.cost import Cost
from bench.clients.shape import Shape
from bench.figure import CPU, RATE, Measure, Unit, Values

NOTE = (
    "Each record's value and offset is looked at, or each delivery is told. `columns` is `poll_arrow`, whose rows are "
    "counted, beside `consume` of 5,000; `send as columns` is `send_arrow` beside `produce`. A transaction has 500 "
    "records: read, changed, sent, and committed with their offsets. CPU is of the client's process. *Nothing* is the "
    "same loop with an empty function. Aims, beside confluent-kafka: send 1.0, poll 2, columns 5, send as columns 5, "
    "transactions 3; beside aiokafka 4."
)
#: A loop of a client, by the name of its figure.
_Loops = dict[str, Callable[[str, Shape], Cost]]
CLIENTS: dict[str, _Loops] = {
    "ottla": {
        "send": ottla.send_with_callback,
        "poll": ottla.poll,
        "columns": ottla.columns,
        "send as columns": ottla.send_arrow,
        "asyncio: send": ottla.async_send,
        "asyncio: poll": ottla.async_each,
        "transactions": ottla.transactions,
    },
    "confluent-kafka": {
        "send": confluent.produce,
        "poll": confluent.poll,
        "columns": confluent.consume,
        "send as columns": confluent.produce,
        "transactions": confluent.transactions,
    },
    "aiokafka": {"asyncio: send": aiokafka.send, "asyncio: poll": aiokafka.each},
    "nothing": {"send": floor.send, "poll": floor.poll},
}
SHAPES = [
    Shape({100: 500_000, 1_000: 150_000}[size], size, partitions, codec)
    for size, partitions, codec in product((100, 1_000), (1, 4), ("none", "lz4", "zstd"))
]
#: A loop that is slow is measured with a part of the records.
_SHARES = {"asyncio: send": 0.2, "asyncio: poll": 0.2, "transactions": 0.2}


def _taken(loops: _Loops, shape: Shape, bootstrap: str, scale: float) -> Values:
    found: Values = {}
    for name, loop in loops.items():
        records = max(1_000, int(shape.records * _SHARES.get(name, 1.0) * scale))
        cost = loop(bootstrap, shape._replace(records=records))
        found[f"{name}, {shape}"] = 1e9 / cost.wall
        found[f"{name}, {shape}: CPU"] = cost.process / 1_000
    return found


def figure(client: str, shape: Shape) -> str:
    """The name of one."""
    return f"{client} / {shape}"


FIGURES: dict[str, Measure] = {
    figure(client, shape): partial(_taken, loops, shape) for client, loops in CLIENTS.items() for shape in SHAPES
}


def unit_of(name: str) -> Unit:
    """The unit of a value of this module."""
    return CPU if name.endswith("CPU") else RATE
