"""The pictures in docs/pictures/, and what each of them shows, for people who can't see it."""

SESSION = (
    "session.svg",
    "A terminal: tfdeploy push sends the release to three hosts, start waits until a ps and two "
    "workers are READY, status shows their steps and losses, and collect fetches the newest "
    "checkpoint.",
)
WATCH = (
    "watch.svg",
    "tfdeploy watch: the step, the steps/s, the loss with a small line; a row for each of three "
    "tasks with its host, state, CPU and memory; below them the log of the chief.",
)
PLAN = (
    "plan.svg",
    "tfdeploy plan: which task runs on which host, the port on which it listens, the chief, and "
    "the cluster.",
)
STATUS = (
    "status.svg",
    "tfdeploy status: each task with its host, port, state, restarts, health, step and loss.",
)
REPORT = (
    "report.png",
    "The page of a report: the result, the tasks on three hosts, a timeline with a "
    "restart of worker:1, and its changes of states.",
)
HOSTS = (
    "hosts.svg",
    "tfdeploy hosts: four hosts with free GPUs, runs in the queue, load, memory and disk, and "
    "which GPUs alice, carol and dave use since when, for which run or program.",
)
QUEUE = (
    "queue.svg",
    "tfdeploy queue: three runs of erin, bob and dave with their priority and how long they have "
    "waited, and what each of them waits for on its hosts.",
)
TRIALS = (
    "trials.svg",
    "tfdeploy trials: each of twelve trials with its accuracy, the step at which it was reached, "
    "its time, state, parameters, host and attempts.",
)
ALL = (SESSION, WATCH, PLAN, STATUS, REPORT, HOSTS, QUEUE, TRIALS)
