"""Count steps, from the last one that was saved."""

import argparse
import json
import os
import socket
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
steps = parser.parse_args().steps

config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
server = socket.create_server(("", int(config["cluster"]["worker"][index].rpartition(":")[2])))

saved = Path("step.txt")
first = int(saved.read_text()) + 1 if saved.exists() else 0
for step in range(first, steps):
    if step % 10 == 0:
        print(f"step {step} loss {1 / (1 + step):.3f}", flush=True)
    saved.write_text(str(step))
    time.sleep(0.1)
