"""A small convolutional net for images of digits, used by train.py and eval.py."""

from __future__ import annotations

import tensorflow as tf

CLASSES = 10


def placeholders(side: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return placeholders for a batch: square images with values from 0 to 1, and their labels."""
    images = tf.compat.v1.placeholder(tf.float32, [None, side, side], name="images")
    labels = tf.compat.v1.placeholder(tf.int64, [None], name="labels")
    return images, labels


def logits(images: tf.Tensor) -> tf.Tensor:
    """Return the logits of two convolutions, each halving the image, and one dense layer."""
    maps = tf.expand_dims(images, -1)
    maps = _convolution("convolution_1", maps, 32)
    maps = _convolution("convolution_2", maps, 64)
    # The size is known when the graph is built, so the variables have fixed shapes.
    features = tf.reshape(maps, [-1, maps.shape[1:].num_elements()])
    return _dense("dense", features, CLASSES)


def loss(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
    )


def accuracy(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(outputs, 1), labels), tf.float32))


def _convolution(name: str, maps: tf.Tensor, filters: int) -> tf.Tensor:
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [3, 3, maps.shape[-1], filters])
        maps = tf.nn.relu(tf.nn.conv2d(maps, kernel, 1, "SAME") + _bias(filters))
        return tf.nn.max_pool2d(maps, 2, 2, "SAME")


def _dense(name: str, features: tf.Tensor, width: int) -> tf.Tensor:
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [features.shape[-1], width])
        return tf.matmul(features, kernel) + _bias(width)


def _bias(width: int) -> tf.Variable:
    zeros = tf.compat.v1.zeros_initializer()
    return tf.compat.v1.get_variable("bias", [width], initializer=zeros)
