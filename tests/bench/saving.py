"""Measure checkpoints with parameter servers: python -m bench.saving [--mb 256,1024] [--way …].

Each cluster is 2 ps, a chief and a worker, processes on this machine. Ways: `pieces` is tfdeploy,
`whole` is tfdeploy with pieces larger than the model, `shared` is TensorFlow alone on a shared
folder. Prints one row per save and restore; peaks of memory are of this phase alone (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from support.ports import free_addresses

TASK = Path(__file__).with_name("saving_task.py")
INSIDE = Path(__file__).parents[2] / "tfdeploy" / "inside"
JOBS = {"v1": {"ps": 2, "worker": 2}, "tf2": {"ps": 2, "worker": 1, "chief": 1}}
CHIEF = {"v1": "worker-0", "tf2": "chief-0"}
DEVICE = {"v1": "/job:worker/task:0/device:CPU:0", "tf2": "/job:chief/task:0/device:CPU:0"}


class Cluster:
    def __init__(self, api, sizes_mb, way, folder, options, piece_mb):
        jobs = {job: free_addresses(count) for job, count in JOBS[api].items()}
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env.update(
            CUDA_VISIBLE_DEVICES="-1",
            TF_CPP_MIN_LOG_LEVEL="2",
            GRPC_FAIL_FAST="use_caller",
            BENCH_VARIABLES_MB=",".join(map(str, sizes_mb)),
            BENCH_FOLDER=str(folder / "checkpoints"),
            BENCH_OPTIONS=options,
        )
        if way != "shared":
            env.update(PYTHONPATH=str(INSIDE), TFDEPLOY_CHECKPOINT_DEVICE=DEVICE[api])
        if way == "whole":
            piece_mb = 1 << 20
        if way != "shared" and piece_mb:
            env["BENCH_PIECE_MB"] = str(piece_mb)
        self.chief = CHIEF[api]
        self.logs = folder
        self.tasks = {}
        for job, addresses in jobs.items():
            for index in range(len(addresses)):
                task = {"cluster": jobs, "task": {"type": job, "index": index}}
                self.tasks[f"{job}-{index}"] = subprocess.Popen(
                    [sys.executable, str(TASK), api],
                    env={**env, "TF_CONFIG": json.dumps(task)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=(folder / f"{job}-{index}.log").open("w"),
                    text=True,
                )

    def phases(self):
        """Yield the name, the chief's result and the peaks of each phase."""
        while name := self._line(self.chief, "ready"):
            before = {task: peak(process.pid, reset=True) for task, process in self.tasks.items()}
            self._ask(self.chief)
            result = json.loads(self._line(self.chief, "result"))
            if "worker-1" in self.tasks:
                self._ask("worker-1")
                result["held"] = float(self._line("worker-1", "held"))
            after = {task: peak(process.pid) for task, process in self.tasks.items()}
            yield name, result, before, after

    def _ask(self, task):
        self.tasks[task].stdin.write("\n")
        self.tasks[task].stdin.flush()

    def _line(self, task, word):
        for line in self.tasks[task].stdout:
            if line.startswith(word + " "):
                return line[len(word) + 1 :].strip()
        if self.tasks[task].wait() != 0:
            print(f"{task} failed:", (self.logs / f"{task}.log").read_text()[-1500:], flush=True)
        return ""

    def stop(self):
        for process in self.tasks.values():
            process.kill()
        for process in self.tasks.values():
            process.wait()


def peak(pid, reset=False):
    """Return MB: the resident memory now if its peak is reset, else the peak since then."""
    if reset:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["VmRSS" if reset else "VmHWM"].split()[0]) // 1024


def measure(api, mb, way, options, variable_mb, piece_mb, base):
    sizes = [min(mb, variable_mb)] * max(1, mb // variable_mb)
    folder = Path(tempfile.mkdtemp(prefix="saving-", dir=base))
    (folder / "checkpoints").mkdir()
    cluster = Cluster(api, sizes, way, folder, options, piece_mb)
    rows = []
    try:
        for name, result, before, after in cluster.phases():
            grown = {task: after[task] - before[task] for task in after}
            ps = statistics.mean(value for task, value in grown.items() if task.startswith("ps"))
            shards = len(list((folder / "checkpoints").glob("*.data-*")))
            rows.append(
                f"| {api} | {mb} | {way} | {name} | {result['seconds']:.2f} | {result['held']:.2f}"
                f" | {grown[cluster.chief]} | {after[cluster.chief]} | {ps:.0f} | {shards} |"
            )
            print(rows[-1], flush=True)
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", default="v1,tf2")
    parser.add_argument("--mb", default="256,1024", help="sizes of models")
    parser.add_argument("--way", default="shared,whole,pieces")
    parser.add_argument("--variable-mb", type=int, default=64, help="size of each variable")
    parser.add_argument("--piece-mb", type=int, default=0)
    parser.add_argument("--options", default="{}", help="of tf.train.CheckpointOptions, as JSON")
    parser.add_argument("--folder", help="where the checkpoints are written")
    given = parser.parse_args()
    print(
        "| API | MB | way | phase | s | a step is held, s | chief grows by, MB | chief's peak, MB"
        " | a ps grows by, MB | shards |"
    )
    for mb in given.mb.split(","):
        for api in given.api.split(","):
            for way in given.way.split(","):
                measure(
                    api,
                    int(mb),
                    way,
                    given.options,
                    given.variable_mb,
                    given.piece_mb,
                    given.folder,
                )


if __name__ == "__main__":
    main()
