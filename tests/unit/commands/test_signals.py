"""No signal that ends a command ends its cleanup."""

from __future__ import annotations

import signal

import pytest

from tfdeploy.commands.signals import delay_signals


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def number(request):
    """A signal that ends this process as it ends a command."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_does_not_end_the_cleanup(number):
    with delay_signals():
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_cleanup_that_no_signal_has_caused_is_interrupted_afterwards(number):
    cleaned = []
    with pytest.raises(KeyboardInterrupt), delay_signals(raise_after=True):
        signal.raise_signal(number)
        cleaned.append(number)
    assert cleaned == [number]
