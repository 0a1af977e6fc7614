import numpy
import task

server = task.listen()
for step in range(100_000):
    pixels = 28 if task.is_in_trouble() else 784
    images = numpy.zeros((32, pixels)).reshape(32, 784)
    if step % 10 == 0:
        print(f"step {step} loss {images.mean():.3f}", flush=True)
    task.pause()
