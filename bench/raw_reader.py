"""A reader that asks by Fetch and looks at batches' headers only: next to nothing of what is measured is its own.

`python -m bench.raw_reader BOOTSTRAP TOPIC RECORDS` reads so many records of partition 0 as they come, from before they
are written. It says when it is connected, and in the end what it has seen (`Arrival`).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bench.beside import beside
from bench.wire import VERSIONS
from ottla.wire.apis import ApiKey
from ottla.wire.batch import iter_headers
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_FETCH_BYTES, _PARTITION_BYTES = 52_428_800, 10_485_760
_WAIT_S = 120.0


class Arrival(NamedTuple):
    """At `when_s` all records before offset `end` were here; by time.perf_counter, one clock for all processes."""

    when_s: float
    end: int


def read_raw(bootstrap: str, topic: str, records: int, ready: Callable[[], None] = lambda: None) -> list[Arrival]:
    """Read until so many records were here; `ready` is called when it is connected. ConnectionError."""
    host, port = bootstrap.rsplit(":", 1)
    offset, buffer, arrivals = 0, bytearray(2 * _FETCH_BYTES), list[Arrival]()
    with socket.create_connection((host, int(port))) as connection:
        ready()
        while offset < records:
            asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=(FetchTopic(topic=topic, partitions=(asked,)),),
            )
            connection.sendall(encode_request(ApiKey.FETCH, VERSIONS[ApiKey.FETCH], 1, "raw", request))
            _, answer = decode_response(ApiKey.FETCH, VERSIONS[ApiKey.FETCH], _frame(connection, buffer))
            when_s = time.perf_counter()
            for _, header in iter_headers(answer.responses[0].partitions[0].records):
                offset = header.last_offset + 1
            arrivals.append(Arrival(when_s, offset))
    return arrivals


def _frame(connection: socket.socket, buffer: bytearray) -> memoryview:
    view, size, here = memoryview(buffer), 4, 0
    while here < size:
        got = connection.recv_into(view[here:])
        if not got:
            raise ConnectionError("the broker has closed the raw reader's connection")
        here += got
        if here >= 4:
            size = 4 + struct.unpack_from(">i", buffer)[0]
    return view[4:size]


@contextmanager
def reading(bootstrap: str, topic: str, records: int, arrivals: list[Arrival]) -> Iterator[None]:
    """Have a process read while the body writes; afterwards `arrivals` has what it saw. TimeoutError."""
    late = f"the reader has not got all of {records} records"
    with beside("bench.raw_reader", bootstrap, topic, str(records), wait_s=_WAIT_S, late=late) as said:
        yield
    arrivals += [Arrival(*each) for each in said]


def waits_us(arrivals: Sequence[Arrival], due_s: Callable[[int], float], first: int = 0) -> list[float]:
    """Microseconds from when each record was due until it was here, of those from offset `first` on.

    Record n has offset n, and was due at due_s(n).
    """
    found, begin = list[float](), 0
    for when_s, end in arrivals:
        found += [(when_s - due_s(offset)) * 1e6 for offset in range(max(begin, first), end)]
        begin = end
    return found


if __name__ == "__main__":
    print(json.dumps(read_raw(sys.argv[1], sys.argv[2], int(sys.argv[3]), lambda: print(flush=True))))
