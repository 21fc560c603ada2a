"""Which connections to brokers are open or being opened, and which requests wait for one."""

from ottla.client.core.intents import Ask, Broker, Channel, Connect


class Connections:
    """A request waits until its broker is connected. The methods return the intents that follow."""

    def __init__(self) -> None:
        self._open: set[Broker] = set()
        self._waiting: dict[Broker, list[Ask]] = {}

    def is_open(self, broker: Broker) -> bool:
        """Whether requests to `broker` can be sent."""
        return broker in self._open

    def connect(self, broker: Broker) -> list[object]:
        """Open a connection, unless it is being opened already."""
        if broker in self._waiting:
            return []
        self._waiting[broker] = []
        return [Connect(*broker)]

    def ask(self, broker: Broker, ask: Ask) -> list[object]:
        """Send `ask`, now or when it is connected."""
        if broker in self._open:
            return [ask]
        wanted = self.connect(broker)
        self._waiting[broker].append(ask)
        return wanted

    def connected(self, node_id: int, channel: Channel) -> list[Ask]:
        """The connection is open. Returns the requests that can be sent now."""
        broker = Broker(node_id, channel)
        self._open.add(broker)
        return self._waiting.pop(broker, [])

    def unreachable(self, node_id: int, channel: Channel) -> list[Ask]:
        """The connection could not be opened. Returns the requests that have failed with it."""
        return self._waiting.pop(Broker(node_id, channel), [])

    def closed(self, node_id: int, channel: Channel) -> None:
        """The connection is not open any more."""
        self._open.discard(Broker(node_id, channel))
