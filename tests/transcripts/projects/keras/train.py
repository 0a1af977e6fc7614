"""Learn y = x0 - 2 x1 + 3 x2 with Keras, in one process."""

import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(1024, 3))
y = x @ [1.0, -2.0, 3.0]

model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
for epoch in range(3):
    history = model.fit(x, y, initial_epoch=epoch, epochs=epoch + 1, verbose=0)
    print(f"epoch {epoch} loss {history.history['loss'][0]:.4f}", flush=True)
model.save("model.keras")
