"""Synchronous rounds: each worker pushes gradients, their mean is applied, all continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from cluster import Role

v1 = tf.compat.v1

# Accumulators drop gradients of an older round. The tokens ensure that none arrive.
NEVER_LATE = tf.int64.max


def meet(
    role: Role,
    optimizer: v1.train.Optimizer,
    gradients: list[tf.Tensor],
    weights: list[tf.Variable],
    batches: int,
) -> tf.Operation:
    """Return the operation for one worker's part of a round in which each computed `batches`.

    There is no thread besides the sessions that could keep a program from exiting: the chief
    itself waits for all gradients, applies them, and gives each other worker a token to continue.
    If the chief is lost in between, all wait for each other and must be restarted.
    """
    piles = [_pile(weight) for weight in weights]
    tokens = _tokens(role)
    pairs = zip(piles, gradients, strict=True)
    pushed = tf.group(*[pile.apply_grad(g, NEVER_LATE) for pile, g in pairs])
    with tf.control_dependencies([pushed]):
        if not role.is_chief:
            return tokens.dequeue().op
        means = [pile.take_grad(role.workers) for pile in piles]
    applied = optimizer.apply_gradients(zip(means, weights, strict=True))
    step = v1.train.get_or_create_global_step()
    with tf.control_dependencies([applied]):
        counted = step.assign_add(batches * role.workers)
    with tf.control_dependencies([counted]):
        return tokens.enqueue_many(tf.zeros([role.workers - 1]))


def _pile(weight: tf.Variable) -> v1.ConditionalAccumulator:
    """Return the accumulator of a weight, on the same ps, shared by all workers by its name."""
    with v1.device(weight.device):
        return v1.ConditionalAccumulator(
            tf.float32, weight.shape, shared_name=f"pile/{weight.op.name}"
        )


def _tokens(role: Role) -> tf.queue.QueueBase:
    with v1.device("/job:ps/task:0" if role.ps else role.device):
        return tf.queue.FIFOQueue(role.workers, tf.float32, shapes=[()], shared_name="tokens")
