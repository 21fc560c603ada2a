"""Which connections may come, and when: limits on their number and on how fast they come (KIP-402, KIP-612). Pure.

Numbers are limited for the broker, a listener and an address; who is one too many is not let in. The rates of the
broker and of a listener are kept by letting newcomers wait, one after the other, as behind Kafka's acceptor. An address
that comes too fast is sent away, after a while, so that it does not come again at once.
"""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.broker.quotas.rates import Rate, Windows

NO_LIMIT: Final = 2**31 - 1
#: In place of a rate of 0, with which nothing can be divided.
_ALMOST_NONE: Final = 1e-6
#: Rates of addresses that are kept before those that are as new are looked for.
_FEW_ADDRESSES: Final = 1_000


class ListenerLimits(NamedTuple):
    """A listener's own `max.connections` and `max.connection.creation.rate`."""

    max_connections: int = NO_LIMIT
    creation_rate: int = NO_LIMIT


class Limits(NamedTuple):
    """The settings of these names."""

    max_connections: int = NO_LIMIT
    max_connections_per_ip: int = NO_LIMIT
    per_ip_overrides: Mapping[str, int] = {}
    creation_rate: int = NO_LIMIT
    listeners: Mapping[str, ListenerLimits] = {}
    windows: Windows = Windows(11, 1000)
    #: Who would have to wait for longer is not let in.
    max_delay_ms: int = NO_LIMIT


class Admission(NamedTuple):
    """A newcomer is served after a delay; or, if there is a reason why it may not stay, closed after it."""

    delay_ms: int = 0
    refused: str = ""


class ConnectionLimits:
    """Counts connections. Each that was admitted has to be told as gone."""

    def __init__(self, limits: Limits, rate_of_address: Callable[[str], float | None] = lambda address: None) -> None:
        """`rate_of_address` is the quota `connection_creation_rate` of an address."""
        self._limits = limits
        self.rate_of_address = rate_of_address
        self._count = 0
        self._by_listener: dict[str, int] = {}
        self._by_address: dict[str, int] = {}
        self._rate = Rate(limits.windows)
        self._rates: dict[str, Rate] = {}
        self._of_addresses: dict[str, Rate] = {}
        self._sweep_at = _FEW_ADDRESSES
        #: Until when those before wait, by listener.
        self._busy_until_ms: dict[str, int] = {}
        self._last_ms = 0

    @property
    def is_full(self) -> bool:
        """Whether nobody else may come."""
        return self._count >= self._limits.max_connections

    def admit(self, listener: str, address: str, now_ms: int) -> Admission:
        """Somebody comes. Who is refused is not counted, and not to be told as gone."""
        limits = self._limits
        own = limits.listeners.get(listener, ListenerLimits())
        if self._count >= limits.max_connections:
            return Admission(0, "max.connections reached")
        if self._by_listener.get(listener, 0) >= own.max_connections:
            return Admission(0, f"max.connections of listener {listener} reached")
        if self._by_address.get(address, 0) >= limits.per_ip_overrides.get(address, limits.max_connections_per_ip):
            return Admission(0, "max.connections.per.ip reached")
        delay_ms = self._delay_ms(listener, own, now_ms)
        if delay_ms > limits.max_delay_ms:
            return Admission(0, "too many wait (max.connection.creation.rate)")
        away_ms = self._address_ms(address, now_ms)
        if away_ms:
            return Admission(away_ms, "connection_creation_rate of its address reached")
        self._count += 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        return Admission(delay_ms)

    def gone(self, listener: str, address: str) -> None:
        """One that was admitted is closed."""
        self._count -= 1
        self._by_listener[listener] -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]

    def _delay_ms(self, listener: str, own: ListenerLimits, now_ms: int) -> int:
        """How long it waits: for those before it, and then for the rates."""
        if self._limits.creation_rate == NO_LIMIT and own.creation_rate == NO_LIMIT:
            return 0
        at_ms = max(self._busy_until_ms.get(listener, 0), now_ms)
        if at_ms - now_ms > self._limits.max_delay_ms:
            return at_ms - now_ms
        self._last_ms = max(at_ms, self._last_ms)  # listeners wait each for themselves, but a rate runs forwards
        wait_ms = self._used_ms(self._rate, self._limits.creation_rate, self._last_ms)
        if own.creation_rate != NO_LIMIT:
            rate = self._rates.setdefault(listener, Rate(self._limits.windows))
            wait_ms = max(wait_ms, self._used_ms(rate, own.creation_rate, at_ms))
        self._busy_until_ms[listener] = at_ms + wait_ms
        return at_ms + wait_ms - now_ms

    def _address_ms(self, address: str, now_ms: int) -> int:
        quota = self.rate_of_address(address)
        if quota is None:
            return 0
        rate = self._of_addresses.get(address)
        if rate is None:
            self._sweep(now_ms)
            rate = self._of_addresses[address] = Rate(self._limits.windows)
        away_ms = self._used_ms(rate, quota, now_ms)
        if away_ms:
            rate.record(-1, now_ms)
        return away_ms

    def _used_ms(self, rate: Rate, quota: float, now_ms: int) -> int:
        """As in Kafka, at most one window."""
        rate.record(1, now_ms)
        return min(rate.throttle_ms(max(quota, _ALMOST_NONE), now_ms), self._limits.windows.size_ms)

    def _sweep(self, now_ms: int) -> None:
        if len(self._of_addresses) >= self._sweep_at:
            self._of_addresses = {key: rate for key, rate in self._of_addresses.items() if not rate.is_over(now_ms)}
            self._sweep_at = max(_FEW_ADDRESSES, 2 * len(self._of_addresses))


def plain_address(address: str) -> str:
    """An address as it is compared: without a zone, IPv6 in its short form."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
