"""Train without TensorFlow, for faults of machines, processes and networks: make steps, save and
restore checkpoints, and answer health checks. The log is that of train_async.py."""

import argparse
import base64
import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts", type=lambda text: text.split(","))
parser.add_argument("--worker_hosts", type=lambda text: text.split(","))
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--save_steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.1, help="seconds of sleep in each step")
parser.add_argument("--grow_mb", type=int, default=0, help="MB that the chief keeps of each step")
flags = parser.parse_args()

if flags.job_name:
    job, index = flags.job_name, flags.task_index
    cluster = {"ps": flags.ps_hosts, "worker": flags.worker_hosts}
else:
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    cluster = config["cluster"]
CHIEF = (job, index) == ("chief" if "chief" in cluster else "worker", 0)
CHECKPOINTS = Path("checkpoints")
KEPT = 5
# A checkpoint of one number, as TensorFlow writes it: hosts read it before it is used.
WHOLE = {
    "data-00000-of-00001": base64.b64decode("AACAPw=="),
    "index": base64.b64decode(
        "AAAGCAEaAggBAAYLd2VpZ2h0CAESACgENYGl2isAAAAAAQAAAADziCUrAAAAAAEAAAAAwPKhsAABAngAJQAAAAAB"
        "AAAAAFe+Kc4qCDcOAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAV/uAiyR1R9s="
    ),
}


class Status(grpc.GenericRpcHandler):
    """Answers GetStatus with the task's name, as TensorFlow's server does."""

    def service(self, details):
        if details.method != "/tensorflow.WorkerService/GetStatus":
            return None
        answer = f"/job:{job}/replica:0/task:{index}/device:CPU:0".encode()
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


def serve():
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([Status()])
    server.add_insecure_port("[::]:" + cluster[job][index].rpartition(":")[2])
    server.start()
    return server


def saved_steps():
    """Return the steps of the checkpoints that the state file names, the newest last."""
    state = CHECKPOINTS / "checkpoint"
    text = state.read_text() if state.exists() else ""
    return [int(step) for step in re.findall(r'^all_model.*-(\d+)"', text, re.M)]


def restore():
    """Read the newest checkpoint, if there is one; return the step to continue from."""
    step = next(reversed(saved_steps()), 0)
    if step:
        for end, content in WHOLE.items():
            assert (CHECKPOINTS / f"model.ckpt-{step}.{end}").read_bytes() == content
        print("restored step", step, flush=True)
    return step


def save(step):
    """Write data and index, then the state file, and delete the oldest, as TensorFlow does."""
    CHECKPOINTS.mkdir(exist_ok=True)
    for end, content in WHOLE.items():
        (CHECKPOINTS / f"model.ckpt-{step}.{end}").write_bytes(content)
    every = [*saved_steps(), step]
    lines = [f'model_checkpoint_path: "{CHECKPOINTS.absolute()}/model.ckpt-{step}"']
    for kept in every[-KEPT:]:
        path = f"{CHECKPOINTS.absolute()}/model.ckpt-{kept}"
        lines.append(f'all_model_checkpoint_paths: "{path}"')
    new = CHECKPOINTS / "checkpoint.new"
    new.write_text("\n".join(lines) + "\n")
    new.replace(CHECKPOINTS / "checkpoint")
    for old in every[:-KEPT]:
        for file in CHECKPOINTS.glob(f"model.ckpt-{old}.*"):
            file.unlink()


def train():
    printed_at, kept = 0.0, []
    for step in range((restore() if CHIEF else 0) + 1, flags.steps + 1):
        if time.monotonic() > printed_at + 0.3:
            printed_at = time.monotonic()
            print(f"step {step} loss {1 / step:.4f}", flush=True)
        if CHIEF:
            kept.append(b"x" * (flags.grow_mb << 20))
        if CHIEF and step % flags.save_steps == 0:
            save(step)
        time.sleep(flags.pace)
    print(f"step {step} is the last", flush=True)


server = serve()
while job == "ps":
    signal.pause()
train()
server.stop(0)
