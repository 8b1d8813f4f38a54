"""What stops ddpify stops it once, so that the clearing up is not stopped as well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from ddpify.verify.processes import interruptible

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOPPING)
def test_only_the_first_signal_interrupts(number: signal.Signals) -> None:
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        for again in STOPPING:
            signal.raise_signal(again)


def test_afterwards_signals_do_what_they_did() -> None:
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) is not signal.default_int_handler

    assert {signal.getsignal(number) for number in STOPPING} == {signal.default_int_handler}


def test_what_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with interruptible():
        signal.raise_signal(signal.SIGHUP)

    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_off_the_main_thread_signals_are_left_alone() -> None:
    seen = []

    def body() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()

    assert seen == [signal.default_int_handler]
