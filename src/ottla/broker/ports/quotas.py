"""Quotas in force: what each client has used of them, and how long it has to be silent for that (KIP-13, KIP-219).

A request of a broker that has any quotas gets a `Charge`; without quotas there is none, and nothing is counted. Whoever
has used too much gets his answer at once, which says for how long nothing of his connection will be served.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Protocol

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.base.limits import MAX_QUOTA_SHARERS
from ottla.broker.answers import Answer, Later, Throttled
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.records import MetadataRecord
from ottla.broker.quotas.rates import Rate, TokenBucket, Windows
from ottla.broker.quotas.table import QuotaKey, QuotaTable, Sharers
from ottla.broker.runtime.decided import DecidedChanges
from ottla.broker.session import Session

#: Used quotas that are kept before those that are as new are looked for.
_FEW_USED: Final = 1_000
_NS_TO_PERCENT: Final = 100 / 1_000_000_000
_NO_LIMIT: Final = 2**31 - 1
#: A longer client id is remembered by a digest: 32 digits, so that it is neither a shorter id nor the name below.
_LONG_ID: Final = 31
_OTHERS: Final = "all client ids beyond the limit of their number"


class Quotas:
    """All quotas, and what was used of them. `is_on` says whether there are any of users or client ids."""

    def __init__(
        self,
        table: QuotaTable,
        config: BrokerConfig,
        clock: Clock,
        changes: DecidedChanges,
        nanos: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`nanos` is the clock for `request_percentage`, in nanoseconds from any beginning."""
        self.is_on = table.is_on
        self._table = table
        self._clock = clock
        self._changes = changes
        self.nanos = nanos
        self.windows = Windows(config.int("quota.window.num"), config.int("quota.window.size.seconds") * 1000)
        number, size_s = config.int("controller.quota.window.num"), config.int("controller.quota.window.size.seconds")
        self._controller_windows = Windows(number, size_s * 1000)
        self._rates: dict[tuple[QuotaKey, Sharers], Rate] = {}
        #: With the quota that counted when it was used last.
        self._buckets: dict[Sharers, tuple[TokenBucket, float]] = {}
        self._sweep_at = _FEW_USED
        self._swept_ms = 0
        table.changed = self._changed

    def change(self, records: Callable[[], Iterable[MetadataRecord | None]]) -> "asyncio.Future[StorageError | None]":
        """Change quotas, as `DecidedChanges.change`."""
        return self._changes.change(records)

    def charge(self, session: Session, client_id: str) -> "Charge | None":
        """What a request that begins now is charged to; None before it is known who asks."""
        return Charge(self, session.principal.partition(":")[2], client_id) if session.is_known else None

    def used(self, key: QuotaKey, user: str, client_id: str, amount: float, at_most_ms: int = _NO_LIMIT) -> int:
        """Use so much of a quota. How long the client has to be silent, in milliseconds."""
        found = self._table.limit(key, user, client_id)
        if found is None:
            return 0
        sharers, quota = found
        now_ms = self.now_ms()
        rate = self._rate(key, user, sharers)
        rate.record(amount, now_ms)
        return min(rate.throttle_ms(quota, now_ms), at_most_ms)

    def take_back(self, key: QuotaKey, user: str, client_id: str, amount: float) -> None:
        """What was used just now was not used after all."""
        found = self._table.limit(key, user, client_id)
        if found is not None:
            self._rate(key, user, found[0]).record(-amount, self.now_ms())

    def most_at_once(self, key: QuotaKey, user: str, client_id: str) -> int:
        """More than this can never be used in one go without a pause."""
        found = self._table.limit(key, user, client_id)
        if found is None:
            return _NO_LIMIT
        return int(min(found[1] * (self.windows.number - 1) * self.windows.size_ms / 1000, _NO_LIMIT))

    def changed_topics(self, user: str, client_id: str, partitions: int, *, strict: bool) -> tuple[bool, int]:
        """Partitions are to be made or deleted. Whether that may be, and how long the client has to be silent.

        A strict request may when no others have taken more than there was; one of an older version always (KIP-599).
        """
        found = self._table.limit(QuotaKey.CONTROLLER, user, client_id)
        if found is None:
            return True, 0
        sharers, quota = found
        now_ms = self.now_ms()
        kept = _kept(sharers)
        if kept not in self._buckets and self._is_full(QuotaKey.CONTROLLER, user, sharers):
            kept = kept._replace(client_id=_OTHERS)
        bucket = self._buckets[kept][0] if kept in self._buckets else TokenBucket(self._controller_windows)
        self._buckets[kept] = bucket, quota
        throttle_ms = bucket.throttle_ms(quota, now_ms)
        if strict and throttle_ms:
            return False, throttle_ms
        bucket.take(partitions, quota, now_ms)
        return True, 0 if strict else bucket.throttle_ms(quota, now_ms)

    def now_ms(self) -> int:
        """By the clock that never steps."""
        return self._clock.monotonic_ms()

    @property
    def count(self) -> int:
        """Of how many sharers it is remembered what they have used."""
        return len(self._rates) + len(self._buckets)

    def _rate(self, key: QuotaKey, user: str, sharers: Sharers) -> Rate:
        kept = _kept(sharers)
        rate = self._rates.get((key, kept))
        if rate is None:
            if self._is_full(key, user, sharers):
                kept = kept._replace(client_id=_OTHERS)
            rate = self._rates.setdefault((key, kept), Rate(self.windows))
        return rate

    def _is_full(self, key: QuotaKey, user: str, sharers: Sharers) -> bool:
        """Whether these have to share with others what a default quota allows."""
        self._sweep()
        is_one_of_many = sharers.client_id != "" and self.count >= MAX_QUOTA_SHARERS
        return is_one_of_many and self._table.is_by_default(key, user, sharers.client_id)

    def _sweep(self) -> None:
        """Forget what is as new: clients may give themselves ever new ids."""
        now_ms = self.now_ms()
        if self.count < self._sweep_at or now_ms - self._swept_ms < self.windows.size_ms:
            return
        self._swept_ms = now_ms
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_over(now_ms)}
        self._buckets = {
            each: (bucket, quota)
            for each, (bucket, quota) in self._buckets.items()
            if not bucket.is_full(quota, now_ms)
        }
        self._sweep_at = min(max(_FEW_USED, 2 * self.count), MAX_QUOTA_SHARERS)

    def _changed(self) -> None:
        self.is_on = self._table.is_on


def _kept(sharers: Sharers) -> Sharers:
    """The sharers, as they are remembered: a client id may have 32,767 bytes."""
    client_id = sharers.client_id
    if len(client_id) <= _LONG_ID:
        return sharers
    return Sharers(sharers.user, blake2b(client_id.encode(), digest_size=16).hexdigest())


class Charge:
    """What one request uses of its client's quotas, and how long its connection is not to be served afterwards."""

    __slots__ = ("_busy_ns", "_client_id", "_quotas", "_since_ns", "_throttle_ms", "_until_ms", "_user")

    def __init__(self, quotas: Quotas, user: str, client_id: str) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._busy_ns = 0
        self._since_ns: int | None = quotas.nanos()
        self._throttle_ms = 0
        #: Until when a change of topics has the client be silent: it may have taken long since.
        self._until_ms: int | None = None

    @property
    def throttle_ms(self) -> int:
        """For how long from now the client has to be silent; 0 if it may go on."""
        if self._until_ms is None:
            return self._throttle_ms
        return max(self._throttle_ms, self._until_ms - self._quotas.now_ms())

    def produced(self, size_bytes: int, *, is_answered: bool) -> int:
        """A produce request of this size is done; the throttle time for its answer. Without one its time is free."""
        self._silent(self._quotas.used(QuotaKey.PRODUCE, self._user, self._client_id, size_bytes))
        return self.requested() if is_answered else self.throttle_ms

    @property
    def most_fetch_bytes(self) -> int:
        """A larger answer would always have to wait."""
        return self._quotas.most_at_once(QuotaKey.FETCH, self._user, self._client_id)

    def fetched(self, size_bytes: int) -> int:
        """An answer of this size is ready. If it is throttled, it must not be sent, and nothing was used of it."""
        self.requested()
        self._silent(self._quotas.used(QuotaKey.FETCH, self._user, self._client_id, size_bytes))
        throttle_ms = self.throttle_ms
        if throttle_ms:
            self._quotas.take_back(QuotaKey.FETCH, self._user, self._client_id, size_bytes)
        return throttle_ms

    def changes(self, partitions: int, *, strict: bool, is_told: bool = True) -> bool:
        """Whether partitions may be made or deleted. Without `is_told` the connection need not be silent for it."""
        may, throttle_ms = self._quotas.changed_topics(self._user, self._client_id, partitions, strict=strict)
        if is_told and throttle_ms:
            self._until_ms = self._quotas.now_ms() + throttle_ms
        return may

    def requested(self) -> int:
        """The request is done; the throttle time for its answer, at most one window for the time that it took."""
        self._pause()
        self._since_ns = self._quotas.nanos()
        percent, self._busy_ns = self._busy_ns * _NS_TO_PERCENT, 0
        most_ms = self._quotas.windows.size_ms
        self._silent(self._quotas.used(QuotaKey.REQUEST, self._user, self._client_id, percent, most_ms))
        return self.throttle_ms

    def charged(self, message: tuple[Any, ...]) -> tuple[Any, ...]:
        """An answer with its throttle time."""
        throttle_ms = self.requested()
        if throttle_ms and hasattr(message, "throttle_time_ms"):
            return message._replace(throttle_time_ms=throttle_ms)  # type: ignore[attr-defined,no-any-return]
        return message

    def carried(self, answer: Answer) -> Answer:
        """The answer, and after it the silence. The time in which a request waits is not charged."""
        if isinstance(answer, Later):
            self._pause()
            return Later(answer.future, partial(self._go_on, answer.encode), outlives=answer.outlives)
        return Throttled(answer, self.throttle_ms) if self.throttle_ms else answer

    def timed(self, steps: Iterator[Any]) -> Iterator[Any]:
        """The steps of work in slices, each of them charged. When they are given up, they are ended."""
        try:
            while True:
                self._since_ns = self._quotas.nanos()
                try:
                    step = next(steps)
                except StopIteration:
                    return
                finally:
                    self._pause()  # what the step has not charged itself (`requested`)
                yield step
        finally:
            if isinstance(steps, Generator):
                steps.close()

    def _go_on(self, encode: Callable[[Any], Answer], result: Any) -> Answer:
        self._since_ns = self._quotas.nanos()
        return self.carried(encode(result))

    def _pause(self) -> None:
        if self._since_ns is not None:
            self._busy_ns += self._quotas.nanos() - self._since_ns
            self._since_ns = None

    def _silent(self, throttle_ms: int) -> None:
        self._throttle_ms = max(self._throttle_ms, throttle_ms)


class Charged(Protocol):
    """A request, and what it is charged to."""

    @property
    def charge(self) -> Charge | None: ...


def counted(request: Charged, steps: Iterator[Any]) -> Iterator[Any]:
    """Steps of a request that is carried out in slices: their time counts where there are quotas."""
    return steps if request.charge is None else request.charge.timed(steps)


class HasQuotas(Protocol):
    """Needs to change quotas."""

    @property
    def quotas(self) -> Quotas: ...
