# SPDX-License-Identifier: Apache-2.0
"""Workers of a search: this process, several processes of this machine, or a cluster.

Tasks are calls of module-level functions with picklable arguments. Results come in the order of the
tasks, so that the result of a search does not depend on the workers.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Protocol, TypeVar

from umakit.errors import InputError

T = TypeVar("T")

MOST_WORKERS = 1024


class Workers(Protocol):
    """Interface of workers, which call functions, possibly several at a time."""

    def map(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Yield the results of calls with these arguments, in order."""
        ...


class ThisProcess:
    """Runs tasks sequentially in this process, each when its result is requested.

    A task during which Ctrl-C was pressed has no result, whatever it returned or raised: a library
    may turn the interrupt into another exception.
    """

    def map(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        """Yield the results of calls with these arguments, in order.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed during a call.
        """
        for task in tasks:
            with _interrupts_end():
                result = function(*task)
            yield result


@contextmanager
def _interrupts_end() -> Iterator[None]:
    """Raise `KeyboardInterrupt` after a block during which Ctrl-C was pressed.

    This holds also if the block caught the interrupt or converted it to another exception.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before):  # ignored, as by nohup
        yield
        return
    pressed: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if not pressed:
            raise
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


class _Executor:
    def __init__(self, submit: Callable[..., Any], cancel: Callable[[list[Any]], object]) -> None:
        self._submit = submit
        self._cancel = cancel

    def map(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        futures = [self._submit(function, *task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool:
            raise InputError(
                "a worker process was ended from outside, perhaps for want of memory",
                fix="use fewer --workers",
            ) from None
        finally:
            self._cancel(futures)


def local_workers(count: int) -> AbstractContextManager[Workers]:
    """Return workers for a number of processes of this machine; 1 is this process.

    Programs that ask for more have to start under `if __name__ == "__main__":`, because each
    process imports them again.
    """
    if not 1 <= count <= MOST_WORKERS:
        raise InputError(f"{count} workers are not 1 to {MOST_WORKERS}")
    return _this_process() if count == 1 else _processes(count)


@contextmanager
def _this_process() -> Iterator[Workers]:
    yield ThisProcess()


@contextmanager
def _processes(count: int) -> Iterator[Workers]:
    # Not forked: TVM has threads.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(count, mp_context=context, initializer=_ignore_interrupts)
    try:
        yield _Executor(executor.submit, _cancel_all)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _cancel_all(futures: list[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker process, which its parent process terminates."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def cluster_workers(address: str) -> Iterator[Workers]:
    """Yield the workers of a dask cluster, on which umakit and the backend are installed.

    Args:
        address: address of the scheduler, for example `tcp://host:8786`.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "a cluster needs dask.distributed", fix="pip install 'umakit[cluster]'"
        ) from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"no dask scheduler answers: {reason}", where=address) from None
    try:
        yield _Executor(lambda f, *task: client.submit(f, *task, pure=False), client.cancel)
    finally:
        client.close()


def workers_of(count: int, scheduler: str | None) -> AbstractContextManager[Workers]:
    """Return the workers of a dask scheduler; without one, processes of this machine."""
    return local_workers(count) if scheduler is None else cluster_workers(scheduler)
