"""Work beside the event loop: what may take long, a user's assignor say, holds up no heartbeat and no fetch."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Beside(Executor):
    """One piece of work at a time, each in a thread of its own. The end of the process waits for none of them."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do it after what was given before. It is left out if nobody waits for it any more when its turn comes."""
        done: Future[T] = Future()

        def run() -> None:
            with self._turn:
                if not done.set_running_or_notify_cancel():
                    return
                try:
                    made = fn(*args, **kwargs)
                except BaseException as fault:  # noqa: BLE001 - whoever waits gets it
                    done.set_exception(fault)
                else:
                    done.set_result(made)

        threading.Thread(target=run, name="ottla-beside", daemon=True).start()
        return done
