"""The client's part of quotas: a broker that answers with a throttle time wants no requests for so long (KIP-219).

The broker answers at once, and then reads nothing from this connection for the throttle time. A client that went on
writing would only fill buffers, and would take the broker's silence for a timeout.
"""


class Throttle:
    """How long one connection must send nothing."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def answered(self, message: tuple[object, ...], now_s: float) -> float:
        """Read the throttle time of an answer. Returns by how many seconds it has made the silence longer.

        When several answers ask for silence, the one that ends last counts.
        """
        throttle_time_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_time_ms <= 0:
            return 0.0
        before_s = max(self._until_s, now_s)
        self._until_s = max(before_s, now_s + throttle_time_ms / 1000)
        return self._until_s - before_s

    def left_s(self, now_s: float) -> float:
        """How many seconds of silence are left; 0 if none."""
        return max(0.0, self._until_s - now_s)
