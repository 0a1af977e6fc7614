"""The daemon's log stays small, and nothing else that the daemon writes is limited."""

from __future__ import annotations

import os
import subprocess
import sys

from tfdeploy.transport.daemon.server import MAX_LOG_BYTES

WRITE = """
import os, sys
from pathlib import Path
from tfdeploy.transport.daemon import server
socket, module = map(Path, sys.argv[1:])
os.umask(0o022)
server._detach(socket)
for _ in range(100):
    print("x" * 999, file=sys.stderr)
module.write_bytes(bytes(100_000))
"""


def test_the_log_is_limited_and_a_module_that_python_compiles_is_not(tmp_path):
    module = tmp_path / "transport.pyc"
    command = [sys.executable, "-c", WRITE, tmp_path / "daemon.sock", module]
    assert subprocess.run(command, cwd=tmp_path).returncode == 0
    log = (tmp_path / "keeper.log").read_text()
    assert log == ("x" * 999 + "\n") * 65 + "x" * (MAX_LOG_BYTES - 65_000)
    assert (module.stat().st_size, module.stat().st_mode & 0o777) == (100_000, 0o644)
    assert os.stat(tmp_path / "keeper.log").st_mode & 0o077 == 0
