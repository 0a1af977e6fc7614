"""Synchronous rounds: each worker hands in its gradients, their mean is applied, all go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from cluster import Role

v1 = tf.compat.v1

# Accumulators drop gradients of an older round. Here none can come: the tokens see to that.
NEVER_LATE = tf.int64.max


def meet(
    role: Role,
    optimizer: v1.train.Optimizer,
    gradients: list[tf.Tensor],
    weights: list[tf.Variable],
    batches: int,
) -> tf.Operation:
    """One worker's part of a round, in which each computed so many `batches`.

    No thread is needed beside the sessions, and so none can keep a program from ending: the chief
    itself waits for all gradients, applies them, and gives each of the others a token to go on.
    If it is lost in between, all wait for each other: somebody has to begin them again.
    """
    piles = [_pile(weight) for weight in weights]
    tokens = _tokens(role)
    pairs = zip(piles, gradients, strict=True)
    handed_in = tf.group(*[pile.apply_grad(g, NEVER_LATE) for pile, g in pairs])
    with tf.control_dependencies([handed_in]):
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
    """Beside the weight on its ps; by its name all workers find the same one."""
    with v1.device(weight.device):
        return v1.ConditionalAccumulator(
            tf.float32, weight.shape, shared_name=f"pile/{weight.op.name}"
        )


def _tokens(role: Role) -> tf.queue.QueueBase:
    with v1.device("/job:ps/task:0" if role.ps else role.device):
        return tf.queue.FIFOQueue(role.workers, tf.float32, shapes=[()], shared_name="tokens")
