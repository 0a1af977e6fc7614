"""Make the picture of twelve trials: one is killed, and a host is switched off for a while.

`python -m make_pictures.trials` makes only this picture.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from make_pictures.drawing import still
from make_pictures.files import TRIALS
from make_pictures.site import HOSTS, trials_site


def main() -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (
        tempfile.TemporaryDirectory(prefix="tfdeploy-") as scratch,
        trials_site(Path(scratch)) as (folder, sshds),
        subprocess.Popen(["tfdeploy", "trials", "--start"], cwd=folder) as command,
    ):
        kept, lost = HOSTS[:2]
        while not (trials := processes(f"{scratch}/{kept}/", "--learning_rate=")):
            time.sleep(1)
        os.kill(trials[0], signal.SIGKILL)
        while not any(state == "SUCCEEDED" for state in states(folder)):
            time.sleep(5)
        sshds[lost].stop()
        for pid in processes(f"{scratch}/{lost}/"):
            os.kill(pid, signal.SIGKILL)
        command.wait()
        sshds[lost].start()
        still(folder, TRIALS, "tfdeploy trials")


def processes(directory: str, word: str = "") -> list[int]:
    """Return the processes of a host, which run in its directory or name it, with a word in their
    command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if word in command and directory in f"{command} {(entry / 'cwd').readlink()}":
                found.append(int(entry.name))
    return sorted(found)


def states(folder: Path) -> list[str]:
    command = ["tfdeploy", "trials", "--json"]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    return [trial["state"] for trial in json.loads(done.stdout)["trials"]]


if __name__ == "__main__":
    main()
