"""One trial: a small net learns digits with the parameters of its flags."""

from __future__ import annotations

import argparse
from pathlib import Path

import tensorflow as tf
from digits import data


def main() -> None:
    flags = parse_flags()
    train, test = data.load("train"), data.load("test")
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(flags.width, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        tf.keras.optimizers.Adam(flags.learning_rate),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    Path("checkpoints").mkdir(exist_ok=True)
    model.fit(
        train.images,
        train.labels,
        batch_size=flags.batch_size,
        epochs=flags.epochs,
        validation_data=(test.images, test.labels),
        verbose=2,
        callbacks=[
            tf.keras.callbacks.CSVLogger("log.csv"),
            tf.keras.callbacks.ModelCheckpoint("checkpoints/model.keras"),
        ],
    )


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
