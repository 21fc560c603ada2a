"""Quotas, from the client's side: a broker that answers with a throttle time wants silence for so long (KIP-219).

It answers at once and then reads nothing more of that connection. A client that goes on writing would only fill
buffers and count the broker's silence as a timeout.
"""


class Throttle:
    """How long one connection has to be silent."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def answered(self, message: tuple[object, ...], now_s: float) -> float:
        """Take note of an answer; by how many seconds it made the silence longer. The longest one asked for counts."""
        throttle_time_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_time_ms <= 0:
            return 0.0
        before_s = max(self._until_s, now_s)
        self._until_s = max(before_s, now_s + throttle_time_ms / 1000)
        return self._until_s - before_s

    def left_s(self, now_s: float) -> float:
        """Seconds of silence that are left; 0 when there are none."""
        return max(0.0, self._until_s - now_s)
