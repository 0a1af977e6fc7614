"""The text of docs/recipes.md, with fields for what was measured."""

PAGE = """# Training algorithms compared

This page shows how the training algorithms of `examples/` differ: first by real runs with {real_workers} workers, then by a **simulation** of up to 16. In the simulation one process computes what the workers and the ps compute, with the recipes' own update equations, each worker at its own pace. No number on this page says how fast your machines are.

- `make figures` simulates (about ten minutes of CPU time), `make recipes` runs the recipes for real (an hour), and both write this page. The raw data is [figures/simulation.json](figures/simulation.json) and [figures/real.json](figures/real.json); every number and picture here is made from it.
- The task: 8 × 8 images of digits, a net with one hidden layer of 32 units (`--net=dense`), batches of {batch}, no momentum unless named. A test compares the simulation's equations with what the recipes compute in TensorFlow.
- A training ends after {batches} batches of all workers together, so more workers do not mean more work. The loss is that of the **centre**, the weights on the ps, on 359 images that are not used for training. A guess among 10 digits has a loss of 2.303.
- A batch takes 1 unit of time, times a random jitter (log-normal, σ = {jitter:g}); an exchange takes {exchange:g}. An exchange is never interrupted: the simulation leaves out that Hogwild's updates may overwrite parts of each other.
- A line is the median of {seeds} seeds, a band their whole range. {runs} trainings were simulated.
- Each learning rate is the best one of {rates} with {trial_workers} workers and a window of {window}, in trials with other seeds. The same rate is used for all numbers of workers: this shows what happens if you add workers and change nothing else.

| recipe | what differs | rate |
|---|---|--:|
{algorithms}

## Real runs

![real runs of the recipes above the simulation](figures/real.svg)

`tfdeploy run` with a ps and {real_workers} workers, `--net=dense`, a window of {window}, {batches} batches of all workers together and the rates above; {repeats} of each, the one with the lowest loss first. The chief evaluates the weights on the ps (`--measure_every`): the first time after its own first window, when other workers may not have begun. In the picture, with {workers} workers: lines are real runs, dashed with a band is the simulation. In brackets: the lowest and the highest loss.

| recipe | rate | {few} workers: real | simulated | {workers} workers: real | simulated | a worker's share of the batches |
|---|--:|--:|--:|--:|--:|--:|
{real_rows}

**So that all workers compute at the same time**, each batch takes {real[compute_ms]:g} ms longer (`--compute_ms`, with the simulation's jitter). The nets here take a millisecond, and a machine has few cores ({real[cores]} here): without it, workers take turns, hardly any gradient is old when it arrives, and what fails on {workers} machines may learn (here: {learn_in_turns}):

| {workers} workers | real, all at the same time | real, in turns on {real[cores]} cores | shares in turns |
|---|--:|--:|--:|
{turn_rows}

**Does the simulation hold?** The real median is in the simulated range for {said[within]} of {said[compared]}. It agrees on who fails (a loss of more than {fails:g}) for {said[agreed]} of {said[compared]}{said[disagreed]}. The largest ratio of two medians where both learn is {said[ratio]}, of {said[furthest]}.

## Backup workers, for real

[sync_replicas](../examples/sync_replicas/) with 3 workers of which the last is slowed by {real[slow_ms]} ms a batch: `hosts.backup.toml`. Real runs, taken in turns; the columns count the batches that each worker computed. With `--backup=1` a step takes the first 2 gradients.

| `--backup` | steps | worker 0 | worker 1 | slowed worker | seconds |
|--:|--:|--:|--:|--:|--:|
{backup}

Without a backup every worker takes part in every step, and all are as slow as the slowest. With one, the slowed worker computes fewer batches, and the others do not wait. This costs work: the workers computed {said[backup_computed]} batches, and the steps used {said[backup_used]} of them. TensorFlow hands out a token for every worker, so a fast worker may use the slow one's and compute more than one batch for a step.

## More workers, nothing else changed

![test loss of the centre against the number of workers, for windows of 1, 5 and 20 batches (simulated)](figures/scaling.svg)

Simulated; {seeds} seeds a point. Dotted: one worker with SGD. Median loss with a window of {window}, and in the last column with {workers} workers and a window of 20:

| recipe | 1 worker | 2 | 4 | 8 | 16 | window 20 |
|---|--:|--:|--:|--:|--:|--:|
{scaling}

Hogwild and the SSGD forms have no window: they exchange after each batch. In the simulation, with {seeds} seeds a point and at these rates:

- With 2 workers and a window of 5 hardly anything differs. With 8 the sums of DOWNPOUR's SGD form push the centre away ({said[downpour_sgd_8_5]}), Adagrad on the ps softens that ({said[downpour_8_5]}), and ADAG ({said[adag_8_5]}), DynSGD ({said[dynsgd_8_5]}) and both elastic ones ({said[aeasgd_8_5]}, {said[aeamsgd_8_5]}) learn.
- ADAG divides by the window, not by the number of workers. With 16 workers it fails with a window of 5 ({said[adag_16_5]}), but not with a window of 20 ({said[adag_16_20]}). With a window of 1 its mean is a sum, and at this rate 2 workers are too many ({said[adag_2_1]}).
- SAGN never fails at this rate, but is slow: a round counts as one update, and 16 workers with a window of 20 make {said[sagn_updates]} updates of the same {batches} batches ({said[sagn_16_20]}).

## One training on three axes

![test loss of the centre against updates, batches and time (simulated)](figures/curves.svg)

Simulated: {workers} workers, a window of {window}, {seeds} seeds. The same trainings against the number of updates, the examples and the time: an algorithm may be good in one and poor in another.

| recipe | last loss, median (range) | test accuracy | updates of the centre | simulated time |
|---|--:|--:|--:|--:|
{curves}

## One slow worker

![time to a loss, and the slowed worker's share of the batches (simulated)](figures/slow.svg)

Simulated: {workers} workers, a window of {window}, {seeds} seeds; the last worker takes {slowest:g} times as long for a batch. A time is given only if all seeds reached a loss of {target}.

| recipe | time to {target}, equal workers | one slow worker | ratio | its share of the batches | last loss, median (range) |
|---|--:|--:|--:|--:|--:|
{slow}

The asynchronous recipes that reach the loss lose little time: the slow worker only does less. Those without a time ({never}) do not reach it with equal workers either. The synchronous ones wait for the slow worker in each round, except with a backup worker: then a round ends without the slowest gradient.

## Another learning rate

![last test loss against the learning rate (simulated)](figures/rates.svg)

Simulated: {workers} workers, a window of {window}, {seeds} seeds for each rate. The figures above show what happens if nothing is changed; these show what a new search for the rate finds.

| recipe | best rate | loss there, median (range) | rates at which all seeds stay below {target} |
|---|--:|--:|--:|
{rate_rows}

## How many ps for how many workers?

That depends on your net, script and network: `tfdeploy sweep` measures it on your hosts, see [Measuring](measuring.md). For your own runs, `tfdeploy report RUN RUN…` draws losses over time.
"""
