"""A linear autoencoder with batch normalisation: many 0/1 columns in, a few numbers out."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.errors import ConvergenceError
from pulse_pyro.progress import bar

BATCH, RATE, DECAY = 10_000, 1e-5, 1e-6  # as published


@dataclass(frozen=True, eq=False)
class Embedding:
    """What an autoencoder learned.

    values : (n, size) codes of the rows it was trained on, by its running mean and variance.
    losses : (epochs,) mean squared error of the reconstruction, while training.
    unexplained : mean squared error after training as a share of what predicting each column's
        mean would leave: 0 is perfect, 1 and more is nothing learned.
    """

    values: Float2
    losses: Float1
    unexplained: float


def embed(rows: NDArray[np.uint8], *, size: int = 32, epochs: int = 500, seed: int) -> Embedding:
    """Train Linear(d, size) + BatchNorm, Linear(size, d) on rows (n, d) of 0 and 1; return codes.

    Adam, learning rate 1e-5, weight decay 1e-6, at most 10,000 rows a batch (batches of one epoch
    differ by at most one row, so that none is too small to normalise by), squared error, in single
    precision on one thread.

    Not covered: at this rate a weight moves by at most about 1e-5 a step, so with few steps the
    codes are close to a random projection; ``unexplained`` tells. The rows embedded are those
    trained on; labels are not seen.
    """
    with sandbox(seed, "autoencoder"):
        data = torch.from_numpy(np.ascontiguousarray(rows))
        d = data.shape[1]
        encoder = torch.nn.Sequential(torch.nn.Linear(d, size), torch.nn.BatchNorm1d(size)).float()
        decoder = torch.nn.Linear(size, d).float()
        weights = [*encoder.parameters(), *decoder.parameters()]
        adam = torch.optim.Adam(weights, lr=RATE, weight_decay=DECAY, foreach=True)
        losses = np.empty(epochs)
        for epoch in bar(range(epochs), label="autoencoder"):
            order = torch.randperm(len(data))
            batches = torch.tensor_split(order, -(-len(data) // BATCH))
            total = 0.0
            for at in batches:
                batch = data[at].float()
                loss = torch.nn.functional.mse_loss(decoder(encoder(batch)), batch)
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.item() * len(at)
            losses[epoch] = total / len(data)
        encoder.eval()
        with torch.no_grad():
            pieces = [encoder(piece.float()) for piece in data.split(BATCH)]
            left = sum(
                float(((decoder(code) - piece.float()) ** 2).sum())
                for code, piece in zip(pieces, data.split(BATCH), strict=True)
            )
        values = torch.cat(pieces).double().numpy()
    if not np.isfinite(values).all():
        raise ConvergenceError("autoencoder: training diverged; a code is not finite.")
    mean = rows.mean(0)
    return Embedding(values, losses, left / (len(rows) * float((mean * (1.0 - mean)).sum())))
