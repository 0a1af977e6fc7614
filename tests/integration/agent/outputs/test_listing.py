"""Which outputs of a task are listed, which are complete, and how they are held for transfer."""

from __future__ import annotations

import pytest
from support.host_outputs import errors, hold_outputs, start_task


@pytest.fixture
def work(root):
    """The directory of a chief that was started with the default `outputs`."""
    return start_task(root, "*")


# Complete


def test_hdf5_is_read_with_the_hosts_own_h5py(work):
    h5py = pytest.importorskip("h5py")
    with h5py.File(work / "good.weights.h5", "w") as file:
        file["a/b"] = [1.0] * 1000
    data = bytearray((work / "good.weights.h5").read_bytes())
    at = data.find(b"TREE")

    data[at : at + 4] = b"XXXX"
    (work / "bad.weights.h5").write_bytes(data)
    found = errors(hold_outputs())
    assert [*found] == ["bad.weights.h5"]
