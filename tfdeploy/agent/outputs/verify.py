"""Verify checkpoints: TensorFlow reads every tensor, in a process of its own.

tf.train.load_checkpoint accepts truncated data; only reading everything finds it
(inside/tfdeploy_verify.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from itertools import takewhile
from typing import Any, Dict, Generator, Iterator, List, Set, Tuple

from ...shared import filesystem, parallel, records
from ...shared.protocol.outputs import HashedFile, HeldUnit
from ...shared.protocol.record import to_json
from .. import paths
from ..machine import stored

READ = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import tfdeploy_verify;"
    " sys.exit(tfdeploy_verify.main(sys.argv[1:]))"
)


def verify_held(
    held_dir: str, memory: str, complete: List[HeldUnit], every: bool, bad: Dict[str, str]
) -> List[HeldUnit]:
    """Return the good ones of the `complete` checkpoints, which are held in `held_dir`, or only the
    first; add the others' errors to `bad`.

    They are hashed while TensorFlow reads them, unless a hash may make reading unnecessary.
    """
    hashed = parallel.begin(lambda: [_hash_files(held_dir, found) for found in complete])
    names = [found.path for found in complete]
    verified: Set[str] = set()
    stored = records.read_or_empty(dict, memory)  # the files of checkpoints, by name
    if stored.keys() & names:
        verified = {each.path for each in hashed() if stored.get(each.path) == to_json(each.files)}
    wanted = names if every else takewhile(lambda name: name not in verified, names)
    prefixes = [os.path.join(held_dir, name) for name in wanted if name not in verified]
    with closing(find_errors(prefixes)) as results:
        for prefix, error in results:
            name = os.path.basename(prefix)
            if error:
                bad[name] = error
                continue
            verified.add(name)
            if not every:
                break
    checkpoints = hashed()
    remember_verified(memory, [found for found in checkpoints if found.path in verified])
    for found in checkpoints:
        found.verified = found.path in verified
    good = [found for found in checkpoints if found.path not in bad]
    return good if every else sorted(good, key=lambda found: not found.verified)[:1]


def find_errors(prefixes: List[str]) -> Generator[Tuple[str, str], None, None]:
    """Yield each prefix with what is wrong with it, "" if all of it was read, one after the other.

    Skips what can't be verified: the host's Python has no TensorFlow, or too little memory is
    free. Closing the generator ends the process.
    """
    if not prefixes:
        return
    inside = os.path.join(paths.agent(), "inside")
    reader = subprocess.Popen(
        [task_python(prefixes[0]), "-c", READ, inside, *prefixes],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield from (result for result in _results(reader) if result[0] in prefixes)
    finally:
        # Its children too. The process group exists as long as nobody waits for the process.
        os.killpg(reader.pid, signal.SIGKILL)
        reader.communicate()


def task_python(path: str) -> str:
    """Return the Python that has what the task in whose folder `path` is imports: that of its
    environment, or the agent's own, also for a path outside of all tasks' folders."""
    for folder in filesystem.folders_above(path):
        launch = stored.launch_if_readable(folder)
        if launch:
            environment = paths.environment(launch.project, launch.process.environment)
            python = os.path.join(environment, "bin", "python")
            has_own = launch.process.environment and os.path.exists(python)
            return python if has_own else sys.executable
    return sys.executable


def remember_verified(memory: str, checkpoints: List[HeldUnit]) -> None:
    """Store in a file that these were verified: verifying again means to start TensorFlow."""
    if not checkpoints:
        return
    with suppress(OSError):  # a full disk: then they are verified again
        records.write(memory, {found.path: to_json(found.files) for found in checkpoints})


def _hash_files(held_dir: str, found: HeldUnit) -> HeldUnit:
    def hash_file(file: HashedFile) -> HashedFile:
        sha256 = filesystem.sha256(os.path.join(held_dir, file.path))
        return HashedFile(file.path, file.size, sha256)

    files = parallel.each(hash_file, found.files, filesystem.HASH_THREADS)
    return HeldUnit(found.path, files, found.step)


def _results(reader: "subprocess.Popen[bytes]") -> Iterator[Tuple[str, str]]:
    """Parse the process's JSON lines; skip others, which a library may print."""
    for line in reader.stdout or ():
        try:
            data: Any = json.loads(line.decode(errors="replace"))
        except ValueError:
            continue
        if isinstance(data, dict) and "prefix" in data:
            yield data["prefix"], data.get("error", "")
