import sys

import task

server = task.listen()
while not task.is_in_trouble():
    task.pause()
print("no license left for this month", file=sys.stderr)
sys.exit(3)
