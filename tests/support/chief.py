"""The chief of a run, for tests of what it writes."""

from __future__ import annotations

import os

from support.builders import make_launch
from tfdeploy.agent import paths
from tfdeploy.shared import records

TASK = ("p", "r", "worker:0")


def start_task(root, checkpoint_dir):
    task = root / "p" / "runs" / "r" / "worker-0"
    (task / "work").mkdir(parents=True)
    records.write(
        paths.launch(os.fspath(task)), records.to_json(make_launch(checkpoint_dir=checkpoint_dir))
    )
    saves = task / "work" / checkpoint_dir
    saves.mkdir(parents=True)
    return saves


def save(folder, step, shards=1, keep=()):
    """Write a checkpoint as TensorFlow does: data, index, meta, then the state file."""
    name = f"model.ckpt-{step}"
    for shard in range(shards):
        (folder / f"{name}.data-{shard:05}-of-{shards:05}").write_text(f"data {step} {shard}")
    (folder / f"{name}.index").write_text(f"index {step}")
    (folder / f"{name}.meta").write_text(f"meta {step}")
    names = [*(f"model.ckpt-{old}" for old in keep), name]
    lines = [f'model_checkpoint_path: "{name}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    (folder / "state.new").write_text("\n".join(lines) + "\n")
    (folder / "state.new").replace(folder / "checkpoint")


def seen_by_programs(folder):
    """Return what a program that lists a folder sees: names, inodes, and the times that a hard link
    changes, too."""
    entries = {folder, *folder.rglob("*")}
    return {
        (path.name, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        for path, info in ((path, path.lstat()) for path in entries)
    }
