"""How a world makes its clients: they get its clock and its randomness, by arguments that every user can give."""

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from ottla.client.admin.admin import AsyncAdmin
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.producer.calls import CallTicket
from ottla.client.errors import ClientError, InternalError, KafkaError
from ottla.client.producer.producer import AsyncProducer
from ottla.wire.apis import ApiKey
from sim.loop import SimLoop

Client = TypeVar("Client", bound=AsyncProducer | AsyncConsumer)
OnCrash = Callable[[InternalError], object]


def make_producer(config: Mapping[str, object], loop: SimLoop, rng: random.Random, on_crash: OnCrash) -> AsyncProducer:
    """A producer of this world."""
    return watched(AsyncProducer(config, clock=loop, rng=rng), on_crash)


def make_consumer(
    config: Mapping[str, object],
    loop: SimLoop,
    rng: random.Random,
    on_reset: Callable[[OffsetReset], object],
    on_crash: OnCrash,
) -> AsyncConsumer:
    """A consumer of this world."""
    return watched(AsyncConsumer(config, on_reset=on_reset, clock=loop, rng=rng), on_crash)


def make_admin(config: Mapping[str, object], rng: random.Random, on_crash: OnCrash) -> AsyncAdmin:
    """An admin client of this world."""
    admin = AsyncAdmin(config, rng=rng)
    admin._cluster.supervisor.on_crash(on_crash)
    return admin


def watched(client: Client, on_crash: OnCrash) -> Client:
    """`client`, which calls `on_crash` if it stops because of a fault of its own. Its user may take the error for
    another one."""
    for supervisor in (client._supervisor, client._cluster.supervisor):
        supervisor.on_crash(on_crash)
    return client


def watch_strays(producer: AsyncProducer, api: ApiKey, on_stray: Callable[[], object]) -> None:
    """Call `on_stray` when a request of the producer's calls gets no answer: it is repeated, and may arrive twice."""
    calls = producer._core._calls
    failed = calls.failed

    def seen(ticket: CallTicket, error: ClientError, now_s: float) -> None:
        if ticket.call.api is api and not isinstance(error, KafkaError):
            on_stray()
        failed(ticket, error, now_s)

    calls.failed = seen  # type: ignore[method-assign]


def forget(client: AsyncProducer | AsyncConsumer) -> None:
    """Its simulated process was killed. The object must not warn that it was not closed when it is collected."""
    client._closed = True
