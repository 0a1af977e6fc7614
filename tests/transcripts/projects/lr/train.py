"""Train with a learning rate that has a best value of 0.01."""

import csv
import math
import sys
from argparse import ArgumentParser

parser = ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
rate = parser.parse_args().lr
if rate > 0.5:
    sys.exit(f"the loss is NaN with lr={rate}")
with open("log.csv", "w") as file:
    rows = csv.writer(file)
    rows.writerow(["epoch", "val_accuracy"])
    for epoch in range(3):
        rows.writerow([epoch, 0.9 - 0.1 * abs(math.log10(rate) + 2) - 0.1 / (epoch + 1)])
with open("model.bin", "w") as file:
    file.write("the weights")
print("trained with lr", rate)
