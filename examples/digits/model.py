"""Two small nets for images of digits: one with convolutions, and a faster one without."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

CLASSES = 10
# The units of each layer below the last one, by its name.
NETS = {
    "convolutions": {"convolution_1": 32, "convolution_2": 64},
    "dense": {"hidden": 32},
}


def placeholders(side: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return placeholders for a batch: square images with values from 0 to 1, and their labels."""
    images = tf.compat.v1.placeholder(tf.float32, [None, side, side], name="images")
    labels = tf.compat.v1.placeholder(tf.int64, [None], name="labels")
    return images, labels


def logits(images: tf.Tensor) -> tf.Tensor:
    """Return the logits of the convolutional net, with weights that it creates."""
    return outputs(images, weights(int(images.shape[1])))


def weights(side: int, net: str = "convolutions") -> list[tf.Variable]:
    """Create the weights of a net for square images: a kernel and a bias for each layer."""
    created, features = [], [side, side, 1]
    for name, width in NETS[net].items():
        if net == "convolutions":
            created += _layer(name, [3, 3, features[-1], width])
            # Each pool halves the image.
            features = [(features[0] + 1) // 2, (features[1] + 1) // 2, width]
        else:
            created += _layer(name, [math.prod(features), width])
            features = [width]
    return created + _layer("dense", [math.prod(features), CLASSES])


def outputs(images: tf.Tensor, weights: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the logits that these weights give: a worker's own, or those that all share."""
    *below, last = zip(weights[::2], weights[1::2], strict=True)
    maps = tf.expand_dims(images, -1)
    for number, (kernel, bias) in enumerate(below, start=1):
        if len(kernel.shape) == 4:
            with tf.name_scope(f"convolution_{number}/"):  # "/": the scope of its weights
                maps = tf.nn.relu(tf.nn.conv2d(maps, kernel, 1, "SAME") + bias)
                maps = tf.nn.max_pool2d(maps, 2, 2, "SAME")
        else:
            maps = tf.nn.relu(_dense(maps, kernel, bias))
    return _dense(maps, *last)


def loss(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
    )


def accuracy(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(outputs, 1), labels), tf.float32))


def _layer(name: str, shape: list[int]) -> list[tf.Variable]:
    with tf.compat.v1.variable_scope(name):
        zeros = tf.compat.v1.zeros_initializer()
        kernel = tf.compat.v1.get_variable("kernel", shape)
        return [kernel, tf.compat.v1.get_variable("bias", shape[-1:], initializer=zeros)]


def _dense(maps: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.matmul(tf.reshape(maps, [-1, kernel.shape[0]]), kernel) + bias
