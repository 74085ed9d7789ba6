"""Hilbert-space basis of a Gaussian process: sines on a box, weights independent a priori.

On the box of half-width L around c, input d has the functions

    phi_j(x) = L^(-1/2) sin(omega_j (x - c + L)),   omega_j = pi j / (2 L),   j = 1, ..., m,

and a squared-exponential process of amplitude a and length scale l is close to sum_j b_j phi_j
with b_j ~ N(0, a^2 sqrt(2 pi) l exp(-l^2 omega_j^2 / 2)). Up to three inputs share one process
(products of the functions of each); more get one process each, and the law is additive in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int

JOINT = 3  # most inputs that share one process
SIZE = {1: 40, 2: 16, 3: 8}  # functions an input, by number of inputs
SIZE_ADDITIVE = 24
REACH = {1: 2.5, 2: 2.0, 3: 1.5}  # half-width of the box over that of the data
BLOCK = 4096
WALL = 3.2  # half-width of the box a length scale asks for
ROOT_2PI = float(np.sqrt(2.0 * np.pi))


@dataclass(frozen=True)
class Hilbert:
    """The basis for p inputs.

    low, high : (p,) bounds of the data. size : functions an input. reach : (p,) half-width of the
    box over that of the data.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    size: int
    reach: tuple[float, ...]

    @classmethod
    def around(cls, x: Float2, size: int | None) -> Hilbert:
        """Choose the box from rows x (n, p)."""
        p = x.shape[1]
        low, high = x.min(0), x.max(0)
        flat = high - low < 1e-9  # a constant input: any box will do
        return cls(
            tuple(map(float, np.where(flat, low - 1.0, low))),
            tuple(map(float, np.where(flat, high + 1.0, high))),
            size or SIZE.get(p, SIZE_ADDITIVE),
            (REACH.get(p, REACH[1]),) * p,
        )

    def widened(self, length: Float1) -> Hilbert:
        """Return a box that suits length scales (p,), if its functions can follow.

        With room for a fit that turns out half as long again, or a third shorter.
        """
        most = self.size * length / 1.75 / 1.3
        half = np.maximum(self.half, np.minimum(self._room(1.5 * length), most))
        return replace(self, reach=tuple(map(float, half / self._data)))

    @property
    def _data(self) -> Float1:
        """(p,) half-width of the data."""
        out: Float1 = (np.array(self.high) - np.array(self.low)) / 2.0
        return out

    def _room(self, length: Float1) -> Float1:
        """(p,) half-width of the box that length scales ask for; none sees beyond the data."""
        out: Float1 = WALL * np.minimum(length, self._data)
        return out

    @property
    def p(self) -> int:
        """Inputs."""
        return len(self.low)

    @property
    def joint(self) -> bool:
        """Whether the inputs share one process."""
        return self.p <= JOINT

    @property
    def processes(self) -> int:
        """Amplitudes: one for a joint process, one an input otherwise."""
        return 1 if self.joint else self.p

    @property
    def columns(self) -> int:
        """Functions in all, M."""
        return int(self.size**self.p) if self.joint else self.size * self.p

    @cached_property
    def centre(self) -> Float1:
        """(p,) middle of the box."""
        out: Float1 = (np.array(self.low) + np.array(self.high)) / 2.0
        return out

    @cached_property
    def half(self) -> Float1:
        """(p,) half-width L of the box."""
        out: Float1 = np.array(self.reach) * self._data
        return out

    @cached_property
    def edge(self) -> Float1:
        """(p,) distance from the centre up to which the functions are followed."""
        out: Float1 = (self.half + self._data) / 2.0
        return out

    @cached_property
    def frequency(self) -> Float2:
        """(M, p) omega of every function; 0 for inputs it does not involve."""
        one = np.pi * np.arange(1, self.size + 1)[:, None] / (2.0 * self.half)  # (size, p)
        if self.joint:
            at = np.stack(np.meshgrid(*[np.arange(self.size)] * self.p, indexing="ij"), -1)
            return np.take_along_axis(one, at.reshape(-1, self.p), axis=0)
        out = np.zeros((self.p, self.size, self.p))
        index = np.arange(self.p)
        out[index, :, index] = one.T
        return out.reshape(-1, self.p)

    @cached_property
    def process(self) -> Int:
        """(M,) the process each function belongs to."""
        if self.joint:
            return np.zeros(self.columns, dtype=np.int64)
        return np.repeat(np.arange(self.p), self.size)

    def __call__(self, x: Float) -> Float:
        """Return phi (..., M) at x (..., p).

        Beyond the data the process goes on, up to halfway to the wall of the box; further out the
        value there is kept: the sines turn back to 0 at the wall, which is the basis, not the
        process.
        """
        inside = np.clip(x - self.centre, -self.edge, self.edge) + self.half  # (..., p)
        angle = inside[..., None] * (np.pi / (2.0 * self.half))[:, None]
        table = np.sin(angle * np.arange(1, self.size + 1)) / np.sqrt(self.half)[:, None]
        if not self.joint:
            return table.reshape(*x.shape[:-1], self.columns)
        out = table[..., 0, :]
        for d in range(1, self.p):
            out = (out[..., :, None] * table[..., d, None, :]).reshape(
                *x.shape[:-1], self.size ** (d + 1)
            )
        return out

    def design(self, x: Float) -> Float:
        """Return the columns a law regresses on, (..., p + M): x itself, then phi."""
        return np.concatenate([x, self(x)], axis=-1)

    def gram(self, x: Float2, w: Float2) -> Float2:
        """Gram matrix of (1, x, phi, w) over rows, a block at a time."""
        dim = 1 + self.p + self.columns + w.shape[1]
        out = np.zeros((dim, dim))
        for start in range(0, len(x), BLOCK):
            rows = slice(start, start + BLOCK)
            part = x[rows]
            z = np.concatenate([np.ones((len(part), 1)), self.design(part), w[rows]], axis=1)
            out += z.T @ z
        return out

    def spread(self, amplitude: Any, length: Any, ops: Any) -> Any:
        """Prior sd of the weights, (..., M), for amplitude (..., processes), length (..., p).

        ``ops`` is numpy or torch: the one formula serves the model and the weights alike.
        """
        frequency, process = self.frequency, self.process
        if ops is not np:
            frequency, process = ops.as_tensor(frequency), ops.as_tensor(process)
        decay = -0.25 * (length[..., None, :] ** 2 * frequency**2).sum(-1)
        if self.joint:
            scale = (length * ROOT_2PI).prod(-1)[..., None]
        else:
            scale = length[..., process] * ROOT_2PI
        return amplitude[..., process] * ops.sqrt(scale) * ops.exp(decay)

    def strain(self, length: Float1) -> Float1:
        """(p,) how far the basis is from what length scales (p,) ask for; at most 1 is enough.

        Functions needed, 1.75 L / l, over those there are; and box needed, 3.2 l, l at most the
        half-width of the data, over L (Riutort-Mayol and others, 2023).
        """
        functions = 1.75 * self.half / length / self.size
        out: Float1 = np.maximum(functions, self._room(length) / self.half)
        return out

    def expected(self, mean: Float2, cov: Float3) -> Float2:
        """Return E[(x, phi(x))], (n, p + M), for x ~ N(mean (n, p), cov (n, p, p)), exactly.

        A product of sines is a sum of exp(i t'x) over signs, and E exp(i t'x) is closed form. The
        functions are taken to go on beyond the edge.
        """
        centre = mean - self.centre + self.half
        order = np.arange(1, self.size + 1)
        if not self.joint:
            rate = order * (np.pi / (2.0 * self.half))[:, None]  # (p, size)
            var = np.diagonal(cov, axis1=1, axis2=2)[..., None] * rate**2
            table = np.sin(centre[..., None] * rate) * np.exp(-0.5 * var)
            phi = (table / np.sqrt(self.half)[:, None]).reshape(len(mean), -1)
            return np.concatenate([mean, phi], axis=1)
        total = np.zeros((len(mean), self.columns), dtype=np.complex128)
        for signs in product((1.0, -1.0), repeat=self.p):
            rate = self.frequency * np.array(signs)  # (M, p)
            var = np.einsum("mi,nij,mj->nm", rate, cov, rate)
            total += np.prod(signs) * np.exp(1j * centre @ rate.T - 0.5 * var)
        phi = (total / (2j) ** self.p).real / np.sqrt(self.half).prod()
        return np.concatenate([mean, phi], axis=1)
