"""`make bench`: every figure of every peer, alternately, then the ratios; writes bench/RESULTS.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from compileall import compile_dir
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import ottla
from bench import (
    assignor_figures,
    broker_figures,
    client_figures,
    client_memory,
    group_figures,
    heavy_figures,
    load_figures,
    log_figures,
    partition_figures,
    spark_figures,
    spark_shapes,
    start_figures,
    tls_figures,
    transaction_figures,
)
from bench.broker_cpu import cpu_s
from bench.canary import canary
from bench.figure import MEGABYTES, Values
from bench.peers import Peer, both, memory_mb, own_pair, recovery, restarted, stopped_and_started
from bench.results import Comparison, show, write
from bench.wire import RefusedError
from bench.worker import FigureFailedError, measure
from tests.interop.apache import PeerFailedError

_RESULTS = Path(__file__).with_name("RESULTS.md")
_PARTS = (
    "partitions",
    "broker",
    "load",
    "groups",
    "transactions",
    "log",
    "others",
    "tls",
    "clients",
    "memory",
    "spark",
    "shapes",
    "assignors",
    "start",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=_PARTS, action="append", help="a part; may be repeated")
    parser.add_argument("--rounds", type=int, default=2, help="how often each figure is taken of each peer")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: shorter and less certain")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    given = parser.parse_args(arguments)
    compile_dir(str(Path(ottla.__file__).parent), quiet=1)  # as pip does when it installs; a checkout may have none
    parts = given.only or list(_PARTS)
    comparisons: list[Comparison] = []
    for comparison in _measured(parts, given.rounds, given.scale):
        show(comparison)
        comparisons.append(comparison)
        write(given.output, comparisons, given.rounds, given.scale)  # a run that is stopped leaves what it has
        print(f"written to {given.output}", flush=True)


def _measured(parts: Sequence[str], rounds: int, scale: float) -> Iterator[Comparison]:
    """The parts that were asked for, each as soon as it is measured: the whole takes hours."""
    # Without a journal ext4 looks at each inode that was deleted in the last minutes before it makes a file
    # (fs/ext4/ialloc.c, recently_deleted): the part that makes very many comes first, and they stay until the end.
    with TemporaryDirectory(prefix="ottla-bench-") as directory:
        if "partitions" in parts:
            yield _partitions(Path(directory), scale)
        if not set(parts) <= _ON_BROKERS_OF_THEIR_OWN.keys() | {"partitions"}:
            yield from _on_brokers(parts, rounds, scale)
        for part, take in _ON_BROKERS_OF_THEIR_OWN.items():
            if part in parts:
                yield take(rounds, scale)


def _on_brokers(parts: Sequence[str], rounds: int, scale: float) -> Iterator[Comparison]:
    """The parts that share two brokers."""
    with own_pair() as peers:
        if "broker" in parts:
            yield from brokers(peers, rounds, scale)
        if "load" in parts:
            yield load(peers, rounds, scale)
        if "groups" in parts:
            yield groups(peers, rounds, scale)
        if "transactions" in parts:
            yield transactions(peers, rounds, scale)
        if "clients" in parts:
            yield from clients(peers, rounds, scale)
        if "memory" in parts:
            yield from memory(peers, scale)
        if "spark" in parts:
            yield spark(peers, rounds, scale)
        if "shapes" in parts:
            yield shapes(peers, rounds, scale)


def _take(
    comparison: Comparison,
    peer: str,
    module: str,
    figure: str,
    bootstrap: str,
    scale: float,
    broker_pid: int | None = None,
) -> bool:
    """Whether the figure could be taken; else the comparison has the fault."""
    print(f"  {module} {figure}: {peer}", flush=True)
    try:
        values = measure(module, figure, bootstrap, scale, broker_pid)
        comparison.add(peer, values)
        print("".join(f"    {name}: {value:,.4g}\n" for name, value in values.items()), end="", flush=True)
    except FigureFailedError as fault:
        print(fault.said, flush=True)
        _failed(comparison, f"{peer}: {fault}")
        return False
    return True


def _warm(peers: Mapping[str, Peer], scale: float) -> None:
    """A JVM gets faster for a while: that is not what is to be compared."""
    for peer in peers.values():
        measure("broker_figures", "rates", peer.bootstrap, scale / 4)


def brokers(peers: dict[str, Peer], rounds: int, scale: float) -> list[Comparison]:
    """Both brokers with librdkafka, then their memory, then kill -9."""
    names = tuple(peers)
    rates = Comparison("Broker, seen by librdkafka", names, broker_figures.unit_of, broker_figures.NOTE)
    _warm(peers, scale)
    for _ in range(rounds):
        for figure in broker_figures.FIGURES:
            for name, peer in peers.items():
                _take(rates, name, "broker_figures", figure, peer.bootstrap, scale, peer.pid)
    kept = Comparison("Broker memory after these runs", names, lambda _name: MEGABYTES, "Aim: 8.")
    waits = (
        "Apache Kafka waits until its own session of before has ended (`broker.session.timeout.ms`, 9 s unless set; "
        "with 1 s it answers after some 6 s)."
    )
    again = Comparison("Broker after kill -9, with the data of these runs", names, broker_figures.unit_of, waits)
    for name, peer in peers.items():
        kept.add(name, {"resident memory": memory_mb(peer.pid)})
        again.add(name, recovery(peer))
    return [rates, kept, again]


def load(peers: dict[str, Peer], rounds: int, scale: float) -> Comparison:
    """What load costs both brokers, counted in their processes."""
    comparison = Comparison("Load", tuple(peers), load_figures.unit_of, load_figures.NOTE)
    for peer in peers.values():
        measure("broker_figures", "rates", peer.bootstrap, scale / 4)
    for turn in range(rounds):
        for figure in load_figures.FIGURES:
            for name, peer in list(peers.items())[:: -1 if turn % 2 else 1]:
                _take(comparison, name, "load_figures", figure, peer.bootstrap, scale, peer.pid)
    return comparison


def groups(peers: dict[str, Peer], rounds: int, scale: float) -> Comparison:
    """Groups on both brokers; their memory for ten thousand, and a restart with all of them."""
    comparison = Comparison("Groups", tuple(peers), group_figures.unit_of, group_figures.NOTE)
    for peer in peers.values():
        measure("group_figures", "classic", peer.bootstrap, scale / 10)
    for _ in range(rounds):
        for figure in ("eight", "classic", "consumer"):
            for name, peer in peers.items():
                _take(comparison, name, "group_figures", figure, peer.bootstrap, scale, peer.pid)
    for name, peer in peers.items():
        before = memory_mb(peer.pid)
        _take(comparison, name, "group_figures", "many", peer.bootstrap, scale, peer.pid)
        after = memory_mb(peer.pid)
        comparison.add(name, {"resident memory before these groups": before, "resident memory with them": after})
        there = partial(group_figures.all_there, peer.bootstrap, scale)
        _restart(comparison, name, peer, "kill -9 until all of them are described", there)
    return comparison


def _restart(comparison: Comparison, name: str, peer: Peer, figure: str, answered: Callable[[], None]) -> None:
    with _perhaps(comparison, f"{name}: {figure}"):
        comparison.add(name, {figure: restarted(peer, answered), f"{figure}: CPU": cpu_s(peer.pid)})


@contextmanager
def _perhaps(comparison: Comparison, what: str) -> Iterator[None]:
    """A figure that cannot be taken, because the peer fails, is a fault of the comparison, and the others are taken."""
    try:
        yield
    except (PeerFailedError, RefusedError, EOFError, OSError, ValueError) as fault:
        _failed(comparison, f"{what}: {str(fault)[:100]}")


def _begin_again(comparison: Comparison, name: str, peer: Peer) -> None:
    """A figure has failed: what comes next finds a broker that answers, whatever has become of this one."""
    with _perhaps(comparison, f"{name}: a start"):
        restarted(peer, lambda: None)


def _failed(comparison: Comparison, fault: str) -> None:
    comparison.faults.append(fault)
    print(f"    not measured: {fault}", flush=True)


def transactions(peers: dict[str, Peer], rounds: int, scale: float) -> Comparison:
    """Transactions of 1, 10 and 100 producers, the broker's CPU for each, and a restart with many transactional ids."""
    comparison = Comparison("Transactions", tuple(peers), transaction_figures.unit_of, transaction_figures.NOTE)
    for peer in peers.values():
        measure("transaction_figures", "producers_10", peer.bootstrap, scale / 4)
    for turn in range(rounds):
        for figure, producers in transaction_figures.PRODUCERS.items():
            for name, peer in list(peers.items())[:: -1 if turn % 2 else 1]:
                before = cpu_s(peer.pid)
                if _take(comparison, name, "transaction_figures", figure, peer.bootstrap, scale):
                    used = (cpu_s(peer.pid) - before) / transaction_figures.all_commits(producers, scale)
                    title = transaction_figures.producers_name(producers)
                    comparison.add(name, {f"{title}: CPU of the broker, a transaction": used * 1e6})
    for name, peer in peers.items():
        if _take(comparison, name, "transaction_figures", "ids", peer.bootstrap, scale, peer.pid):
            there = partial(transaction_figures.ids_are_there, peer.bootstrap, scale)
            _restart(comparison, name, peer, "kill -9 until all transactional ids are described", there)
    return comparison


def _log(rounds: int, scale: float) -> Comparison:
    """The cleaner, on brokers of their own."""
    comparison = Comparison("Log", ("ottla", "Apache Kafka"), log_figures.unit_of, log_figures.NOTE)
    with own_pair(log_figures.SETTINGS) as peers:
        _warm(peers, scale)
        for _ in range(rounds):
            for name, peer in peers.items():
                _take(comparison, name, "log_figures", "cleaning", peer.bootstrap, scale, peer.pid)
    return comparison


def _partitions(directory: Path, scale: float) -> Comparison:
    """Very many partitions, and very many topics, each on brokers of their own, whose files stay."""
    note = partition_figures.NOTE
    comparison = Comparison("Many partitions and topics", ("ottla", "Apache Kafka"), partition_figures.unit_of, note)
    for figure in partition_figures.MANY:
        with both(directory / figure) as peers:
            _warm(peers, scale)
            for name, peer in peers.items():
                _with_many(comparison, figure, name, peer, scale)
    return comparison


def _with_many(comparison: Comparison, figure: str, name: str, peer: Peer, scale: float) -> None:
    title, before = partition_figures.MANY[figure].scaled(scale).title, memory_mb(peer.pid)
    if not _take(comparison, name, "partition_figures", figure, peer.bootstrap, scale, peer.pid):
        return
    comparison.add(name, {f"{title}: memory before": before, f"{title}: memory with them": memory_mb(peer.pid)})
    there = partial(partition_figures.are_there, figure, peer.bootstrap, scale)
    _restart(comparison, name, peer, f"{title}: start after kill -9", there)
    with _perhaps(comparison, f"{name}: {title}: a clean start"):
        stop, start = stopped_and_started(peer, there)
        cpu, kept = cpu_s(peer.pid), memory_mb(peer.pid)
        comparison.add(name, {f"{title}: clean stop": stop, f"{title}: clean start": start})
        comparison.add(name, {f"{title}: clean start: CPU": cpu, f"{title}: memory after a clean start": kept})


def _others(rounds: int, scale: float) -> Comparison:
    """What a small producer and consumer wait while somebody asks for something heavy, on brokers of their own."""
    comparison = Comparison("The others", ("ottla", "Apache Kafka"), heavy_figures.unit_of, heavy_figures.NOTE)
    with own_pair(heavy_figures.SETTINGS) as peers:
        _warm(peers, scale)
        for turn in range(rounds):
            for figure in heavy_figures.FIGURES:
                if turn and figure == heavy_figures.ONCE:
                    continue
                for name, peer in peers.items():
                    if not _take(comparison, name, "heavy_figures", figure, peer.bootstrap, scale):
                        _begin_again(comparison, name, peer)
        for name, peer in peers.items():
            with _perhaps(comparison, f"{name}: coordinators load"):
                restarted(peer, partial(_coordinators_load, comparison, name, peer, scale))
    return comparison


def _coordinators_load(comparison: Comparison, name: str, peer: Peer, scale: float) -> None:
    found: Values = {}
    with canary(peer.bootstrap, "coordinators load", found):
        transaction_figures.ids_are_there(peer.bootstrap, scale)
    comparison.add(name, found)


def _tls(rounds: int, scale: float) -> Comparison:
    """Rates with TLS and without, and handshakes, on brokers of their own."""
    comparison = Comparison("TLS", ("ottla", "Apache Kafka"), tls_figures.unit_of, tls_figures.NOTE)
    with tls_figures.secure_pair() as peers:
        for peer, addresses in peers.values():
            measure("tls_figures", "rates", str(addresses), scale / 4, peer.pid)
        for turn in range(rounds):
            for figure in tls_figures.FIGURES:
                for name, (peer, addresses) in list(peers.items())[:: -1 if turn % 2 else 1]:
                    _take(comparison, name, "tls_figures", figure, str(addresses), scale, peer.pid)
    return comparison


def clients(peers: dict[str, Peer], rounds: int, scale: float) -> list[Comparison]:
    """Python clients on either broker."""
    comparisons = []
    for broker, peer in list(peers.items())[::-1]:  # the neutral ground first
        title = f"Python clients on {broker}"
        comparison = Comparison(title, tuple(client_figures.CLIENTS), client_figures.unit_of, client_figures.NOTE)
        for turn in range(rounds):
            for shape in client_figures.SHAPES:
                for client in list(client_figures.CLIENTS)[:: -1 if turn % 2 else 1]:
                    name = client_figures.figure(client, shape)
                    _take(comparison, client, "client_figures", name, peer.bootstrap, scale)
        comparisons.append(comparison)
        broker_figures.delete_topics(peer.bootstrap)
    return comparisons


def memory(peers: dict[str, Peer], scale: float) -> Iterator[Comparison]:
    """What the clients keep while 1 GB waits on either broker."""
    for broker, peer in list(peers.items())[::-1]:
        title = f"Client memory while 1 GB waits on {broker}"
        comparison = Comparison(title, client_memory.CLIENTS, client_memory.unit_of, client_memory.NOTE)
        with client_memory.filled(peer.bootstrap, scale) as where:
            for settings in client_memory.SETTINGS:
                for client in client_memory.CLIENTS:
                    _take(comparison, client, "client_memory", client_memory.figure(client, settings), where, scale)
        yield comparison


def assignors(rounds: int, scale: float) -> Comparison:
    """The sticky assignor, ours and Java's."""
    comparison = Comparison(
        "Sticky assignor", tuple(assignor_figures.FIGURES), assignor_figures.unit_of, assignor_figures.NOTE
    )
    for _ in range(rounds):
        for figure in assignor_figures.FIGURES:
            _take(comparison, figure, "assignor_figures", figure, "", scale)
    return comparison


def start(rounds: int, scale: float) -> Comparison:
    """What a person waits for."""
    comparison = Comparison("Start", tuple(start_figures.FIGURES), start_figures.unit_of, start_figures.NOTE)
    for _ in range(rounds):
        for figure in start_figures.FIGURES:
            _take(comparison, figure, "start_figures", figure, "", scale)
    return comparison


def spark(peers: dict[str, Peer], rounds: int, scale: float) -> Comparison:
    """Spark's source and sink on Apache Kafka: ours, and Spark's own connector."""
    comparison = Comparison("Spark", spark_figures.PEERS, spark_figures.unit_of, spark_figures.NOTE)
    broker = peers["Apache Kafka"]
    for _ in range(rounds):
        for figure in spark_figures.FIGURES:
            if not _take(comparison, figure, "spark_figures", figure, broker.bootstrap, scale):
                _begin_again(comparison, "Apache Kafka", broker)
    return comparison


def shapes(peers: dict[str, Peer], rounds: int, scale: float) -> Comparison:
    """The same for jobs of other shapes."""
    comparison = Comparison("Spark, other shapes of jobs", spark_shapes.PEERS, spark_shapes.unit_of, spark_shapes.NOTE)
    broker = peers["Apache Kafka"]
    for _ in range(rounds):
        for (_, peer), figure in spark_shapes.NAMES.items():
            if not _take(comparison, peer, "spark_shapes", figure, broker.bootstrap, scale):
                _begin_again(comparison, "Apache Kafka", broker)
    return comparison


#: Parts that begin with brokers of their own, or need none.
_ON_BROKERS_OF_THEIR_OWN: Final[Mapping[str, Callable[[int, float], Comparison]]] = {
    "log": _log,
    "others": _others,
    "tls": _tls,
    "assignors": assignors,
    "start": start,
}

if __name__ == "__main__":
    main()
