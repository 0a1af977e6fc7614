"""The kernel's limit for one argument or variable of a program."""

from __future__ import annotations

import errno
import subprocess

import pytest

from tfdeploy.planning.checks import MAX_BYTES


def test_the_kernel_passes_as_many_bytes_as_planned_and_no_more():
    subprocess.run(["true", "x" * MAX_BYTES], env={"A": "x" * (MAX_BYTES - len("A="))}, check=True)
    for argument, variable in ((1, 0), (0, 1)):
        with pytest.raises(OSError) as refused:
            subprocess.run(["true", "x" * (MAX_BYTES + argument)],
                           env={"A": "x" * (MAX_BYTES - len("A=") + variable)})  # fmt: skip
        assert refused.value.errno == errno.E2BIG
