"""The text of docs/recipes.md, with fields for what was measured."""

PAGE = """# Training algorithms compared

This page compares the training algorithms of `examples/` by real runs with {few} and with {workers} workers. No number on this page says how fast your machines are.

- `make recipes` runs the recipes (an hour), and writes this page. The raw data is [figures/real.json](figures/real.json); every number and the picture are made from it.
- The task: 8 × 8 images of digits, a net with one hidden layer of 32 units (`--net=dense`), batches of 64, no momentum unless named.
- A training ends after {batches} batches of all workers together, so more workers do not mean more work. The loss is that of the **centre**, the weights on the ps, on 359 images that are not used for training. A guess among 10 digits has a loss of 2.303.
- Each learning rate was chosen for 2 workers, and is the same for {few} and {workers}: this shows what happens if you add workers and change nothing else.

| recipe | what differs |
|---|---|
{ideas}

## Real runs

![loss over batches of each recipe, with {few} and with {workers} workers](figures/real.svg)

`tfdeploy run` with a ps and {few} or {workers} workers, `--net=dense`, a window of 5, and {batches} batches of all workers together; {repeats} of each, the recipe with the lowest loss first. The chief evaluates the weights on the ps (`--measure_every`): the first time after its own first window, when other workers may not have started. In brackets: the lowest and the highest loss.

| recipe | rate | {few} workers | {workers} workers | a worker's share of the batches |
|---|--:|--:|--:|--:|
{real_rows}

**So that all workers compute at the same time**, each batch takes {real[compute_ms]:g} ms longer (`--compute_ms`, with a random jitter). The nets here take a millisecond, and a machine has few cores ({real[cores]} here): without it, workers take turns, hardly any gradient is old when it arrives, and what fails on {workers} machines may learn (here: {learn_in_turns}):

| {workers} workers | all at the same time | in turns on {real[cores]} cores | shares in turns |
|---|--:|--:|--:|
{turn_rows}

## Backup workers, for real

[sync_replicas](../examples/sync_replicas/) with 3 workers of which the last is slowed by {real[slow_ms]} ms a batch: `hosts.backup.toml`. Real runs, taken in turns; the columns count the batches that each worker computed. With `--backup=1` a step takes the first 2 gradients.

| `--backup` | steps | worker 0 | worker 1 | slowed worker | seconds |
|--:|--:|--:|--:|--:|--:|
{backup}

Without a backup every worker takes part in every step, and all are as slow as the slowest. With one, the slowed worker computes fewer batches, and the others do not wait. This costs work: the workers computed {backup_computed} batches, and the steps used {backup_used} of them. TensorFlow hands out a token for every worker, so a fast worker may use the slow one's and compute more than one batch for a step.

## How many ps for how many workers?

That depends on your net, script and network: `tfdeploy sweep` measures it on your hosts, see [Measuring](measuring.md). For your own runs, `tfdeploy report RUN RUN…` draws losses over time.
"""
