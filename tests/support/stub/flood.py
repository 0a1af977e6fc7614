"""Write numbered lines when the file `begin` exists, and some more when `go` exists."""

import os
import sys
import time

count, rate = int(sys.argv[1]), int(sys.argv[2])
print("waits", flush=True)
while not os.path.exists("begin"):
    time.sleep(0.05)
start_s = time.monotonic()
for number in range(count):
    print(f"line {number:06} of a log that grows fast, as those of many trainings do")
    if number % 100 == 99:
        sys.stdout.flush()
        time.sleep(max(0.0, start_s + number / rate - time.monotonic()))
print("early: all lines are written", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
print("late: the file exists", flush=True)
print(f"pid {os.getpid()} is that of one task", flush=True)
print("CreateSession still waiting for response from worker: /job:worker/replica:0/task:9")
print("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", flush=True)
time.sleep(3600)
