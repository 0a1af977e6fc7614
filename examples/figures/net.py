"""The net of the simulation in NumPy: that of digits/model.py with --net=dense.

All weights are one vector, so that an update equation is one line.
"""

from __future__ import annotations

import numpy as np

SIZES = (64, 32, 10)  # pixels, hidden units, digits
SHAPES = ((64, 32), (32,), (32, 10), (10,))
ENDS = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
SIZE = int(ENDS[-1])


def initial(draw: np.random.Generator) -> np.ndarray:
    """Return Glorot's uniform weights and zero biases, as get_variable makes them."""
    weights = np.zeros(SIZE, np.float32)
    for part in layers(weights)[::2]:
        limit = np.sqrt(6 / sum(part.shape))
        part[:] = draw.uniform(-limit, limit, part.shape)
    return weights


def layers(weights: np.ndarray) -> list[np.ndarray]:
    """Return views of the vector: kernel, bias, kernel, bias."""
    parts = np.split(weights, ENDS[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean cross-entropy of a batch."""
    _, _, last, _ = layers(weights)
    hidden, error = _forward(weights, images)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ last.T) * (hidden > 0)
    result = np.empty_like(weights)
    parts = layers(result)
    parts[0][:], parts[1][:] = images.T @ back, back.sum(0)
    parts[2][:], parts[3][:] = hidden.T @ error, error.sum(0)
    return result


def measure(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy."""
    _, shares = _forward(weights.astype(np.float64), images)
    right = shares[np.arange(len(labels)), labels]
    loss = -np.log(np.maximum(right, 1e-30)).mean()
    return float(loss), float((shares.argmax(1) == labels).mean())


def _forward(weights: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden layer and the softmax of the last one."""
    kernel, bias, last, last_bias = layers(weights)
    hidden = np.maximum(images @ kernel + bias, 0)
    outputs = hidden @ last + last_bias
    powers = np.exp(outputs - outputs.max(1, keepdims=True))
    return hidden, powers / powers.sum(1, keepdims=True)
