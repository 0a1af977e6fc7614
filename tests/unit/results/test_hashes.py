"""The hashes of what was collected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.builders import make_run

from tfdeploy.results import hashes
from tfdeploy.shared.protocol.outputs import HashedFile


def test_hashes_that_several_hosts_store_at_the_same_time_are_all_kept(tmp_path):
    run = make_run(tmp_path)
    run.folder.mkdir(parents=True)
    folder = run.open() / "outputs"
    names = [f"{number}.csv" for number in range(40)]

    def store(name):
        hashes.store(run, folder, [HashedFile(name, 1, f"hash of {name}")])
        folder.write(name, [b"x"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store, names))
    stored = hashes.Hashes(run, folder)
    assert [stored.of(name) for name in names] == [f"hash of {name}" for name in names]
