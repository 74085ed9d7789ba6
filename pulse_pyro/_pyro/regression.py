"""A network trained by squared error: a mean and nothing else."""

from itertools import pairwise

import numpy as np
import torch

from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.errors import ConvergenceError
from pulse_pyro.progress import bar

WIDTH, BATCH, RATE = 128, 256, 1e-3  # as published


def train_mean(
    x: Float2, y: Float2, *, epochs: int, seed: int
) -> tuple[list[tuple[Float2, Float1]], Float1]:
    """Train a network p-128-128-q with ReLU on x (n, p), y (n, q).

    Adam, learning rate 1e-3, 256 rows a batch, squared error, single precision on one thread.
    Returns (weight (in, out), bias (out,)) of each layer and the loss of each epoch, (epochs,).
    """
    with sandbox(seed, "mean network"):
        inputs = torch.as_tensor(x, dtype=torch.float32)
        targets = torch.as_tensor(y, dtype=torch.float32)
        sizes = (x.shape[1], WIDTH, WIDTH, y.shape[1])
        linear = [torch.nn.Linear(a, b).float() for a, b in pairwise(sizes)]
        network = torch.nn.Sequential(
            linear[0], torch.nn.ReLU(), linear[1], torch.nn.ReLU(), linear[2]
        )
        adam = torch.optim.Adam(network.parameters(), lr=RATE, foreach=True)
        losses = np.empty(epochs)
        for epoch in bar(range(epochs), label="mean network"):
            total = torch.zeros(())
            for at in torch.randperm(len(inputs)).split(BATCH):
                loss = torch.nn.functional.mse_loss(network(inputs[at]), targets[at])
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.detach() * len(at)
            losses[epoch] = float(total) / len(inputs)
        layers = [
            (one.weight.detach().double().numpy().T.copy(), one.bias.detach().double().numpy())
            for one in linear
        ]
    if not np.isfinite(losses[-1]):
        raise ConvergenceError("mean network: training diverged; look for outliers in W.")
    return layers, losses
