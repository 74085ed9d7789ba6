"""What a filter's answer says of W, draw by draw, in the numbers Phi sees.

An answer is a mixture over cells of the state (values of a discrete one, or particles), or one
normal law. Given the cell the columns of W are independent; one of few values is gone through code
by code, so with v_c what Phi sees of code c,

    E[W] = sum over cells k of weight_k sum_c P(c | k) v_c,

and in the same way its covariance, distribution function and the chance of every value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from scipy import special

from pulse_pyro._pyro.predict import has_mean

LOG_2PI = 1.8378770664093453
COUNTS = 20_000  # largest count whose distribution function is summed up
REPEATS = 64  # draws behind a mean without a closed form

Values = tuple[tuple[float, ...], ...]  # a row for each value of a W column; () of any number


class Answer(NamedTuple):
    """The law of W at rows, draw by draw: a mixture over cells, or one normal law.

    log_weight : (draw, rows, cell). columns : distributions of each W, batch (draw, rows, cell).
    values : what Phi sees of each, see Program. mean, cov : (draw, rows, w_dim[, w_dim]) of a
    normal law, else None.
    """

    log_weight: torch.Tensor | None
    columns: list[Any]
    values: tuple[Values, ...]
    mean: torch.Tensor | None = None
    cov: torch.Tensor | None = None


# One column given the cell: batch (draw, rows, cell).


def code_chances(fn: Any, values: Values) -> torch.Tensor:
    """Return P(code), (..., codes), of a column of few values."""
    codes = torch.arange(float(len(values))).reshape(-1, *(1,) * len(fn.batch_shape))
    return torch.exp(fn.log_prob(codes)).movedim(0, -1)


def closed_site_mean(fn: Any, values: Values) -> torch.Tensor:
    """Return a column's mean in closed form, (..., width); no value decides what is done."""
    if values:
        return code_chances(fn, values) @ torch.tensor(values)
    return torch.as_tensor(fn.mean)[..., None]


def site_mean(fn: Any, values: Values) -> torch.Tensor:
    """Return a column's mean, (..., width); of one without a closed form by 64 draws."""
    unknown = torch.isnan(getattr(fn, "mean", torch.zeros(()))).any()  # an S is not seen
    if values or has_mean(fn) or unknown:
        return closed_site_mean(fn, values)
    return torch.stack([fn.sample() for _ in range(REPEATS)]).double().mean(0)[..., None]


def _covariance(fn: Any, values: Values) -> torch.Tensor:
    """Return a column's covariance, (..., width, width)."""
    if not values:
        return torch.as_tensor(fn.variance)[..., None, None]
    chance, numbers = code_chances(fn, values), torch.tensor(values)
    mean = chance @ numbers
    square = torch.einsum("...c,ci,cj->...ij", chance, numbers, numbers)
    return square - mean[..., :, None] * mean[..., None, :]


def _cdf(fn: Any, w: torch.Tensor) -> torch.Tensor:
    """Return P(W <= w) of a column that takes more than a few values, w (rows, 1)."""
    base = fn
    while type(base).__name__ == "ExpandedDistribution":
        base = base.base_dist
    known = torch.nan_to_num(w)
    if type(base).__name__ == "StudentT":
        away = (known - base.loc) / base.scale
        df, away = torch.broadcast_tensors(base.df, away)
        return torch.as_tensor(special.stdtr(df.numpy(), away.numpy()))
    if not fn.support.is_discrete:
        return torch.as_tensor(fn.cdf(known))
    if not (float(known.max()) <= COUNTS and hasattr(fn.support, "lower_bound")):
        raise NotImplementedError
    total = torch.zeros(())
    for level in torch.arange(float(fn.support.lower_bound), float(known.max()) + 1.0):
        total = total + torch.where(known >= level, torch.exp(fn.log_prob(level)), torch.zeros(()))
    return total


# All of W at rows: draws stand first, (draw, rows, ...).


def _weights(answer: Answer) -> torch.Tensor:
    assert answer.log_weight is not None
    return torch.exp(answer.log_weight)


def _mixed(weight: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Average value (draw, rows, cell, k), each axis long or 1, over the cells: (draw, rows, k)."""
    return (weight[..., None] * value).sum(-2)


def means(answer: Answer, mean_of: Callable[[Any, Values], torch.Tensor] = site_mean) -> Any:
    """Return E[W], (draw, rows, w_dim)."""
    if answer.mean is not None:
        return answer.mean
    weight = _weights(answer)
    columns = zip(answer.columns, answer.values, strict=True)
    return torch.cat([_mixed(weight, mean_of(fn, values)) for fn, values in columns], -1)


def covariances(answer: Answer) -> Any:
    """Return Cov(W), (draw, rows, w_dim, w_dim)."""
    if answer.cov is not None:
        return answer.cov
    weight = _weights(answer)
    columns = list(zip(answer.columns, answer.values, strict=True))
    each = [site_mean(fn, values) for fn, values in columns]
    mean = torch.cat([value.expand(*weight.shape, -1) for value in each], -1)
    away = mean - _mixed(weight, mean)[..., None, :]
    out = torch.einsum("...c,...ci,...cj->...ij", weight, away, away)
    start = 0
    for fn, values in columns:
        own = _covariance(fn, values)
        at = slice(start, start + own.shape[-1])
        out[..., at, at] += (weight[..., None, None] * own).sum(-3)
        start = at.stop
    return out


def cdfs(answer: Answer, w: torch.Tensor) -> Any:
    """Return P(W_j <= w_j), (draw, rows, w_dim), at w (rows, w_dim)."""
    if answer.mean is not None and answer.cov is not None:
        sd = torch.sqrt(torch.diagonal(answer.cov, dim1=-2, dim2=-1))
        return torch.special.ndtr((w - answer.mean) / sd)
    weight = _weights(answer)

    def few(chance: torch.Tensor, numbers: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        below = (numbers <= own[:, None]).double()
        return torch.einsum("drc,rcj->drj", chance, below).clamp(max=1.0)

    def many(fn: Any, own: torch.Tensor) -> torch.Tensor:
        return _mixed(weight, _cdf(fn, own)[..., None])

    return _by_column(answer, w, few, many)


def log_densities(answer: Answer, w: torch.Tensor) -> Any:
    """Return log p(W_j = w_j), (draw, rows, w_dim), at w (rows, w_dim)."""
    if answer.mean is not None and answer.cov is not None:
        variance = torch.diagonal(answer.cov, dim1=-2, dim2=-1)
        return -0.5 * ((w - answer.mean) ** 2 / variance + torch.log(variance) + LOG_2PI)
    log_weight = answer.log_weight

    def few(chance: torch.Tensor, numbers: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        same = (numbers == own[:, None]).double()
        return torch.log(torch.einsum("drc,rcj->drj", chance, same))

    def many(fn: Any, own: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(log_weight + fn.log_prob(own), -1, keepdim=True)

    return _by_column(answer, w, few, many)


def _by_column(
    answer: Answer,
    w: torch.Tensor,
    few: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    many: Callable[[Any, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Ask each column about its own w, (rows, width): (draw, rows, w_dim).

    few : of the chances of a column's codes (draw, rows, codes), what they stand for (codes,
    width), and w. many : of the distribution of a column of more values, and w.
    """
    weight, parts, start = _weights(answer), [], 0
    for fn, values in zip(answer.columns, answer.values, strict=True):
        stop = start + (len(values[0]) if values else 1)
        own, start = w[:, start:stop], stop
        if values:
            chance = _mixed(weight, code_chances(fn, values))
            parts.append(few(chance, torch.tensor(values), own))
        else:
            parts.append(many(fn, own))
    return torch.cat(parts, -1)


def joint_log_densities(answer: Answer, codes: torch.Tensor) -> Any:
    """Return log p(W), (draw, rows), of all columns together, codes (rows, columns)."""
    if answer.mean is not None and answer.cov is not None:
        off = (codes - answer.mean)[..., None]
        square = (off * torch.linalg.solve(answer.cov, off))[..., 0].sum(-1)
        return -0.5 * (square + torch.logdet(answer.cov) + codes.shape[-1] * LOG_2PI)
    assert answer.log_weight is not None
    log = answer.log_weight
    for j, (fn, values) in enumerate(zip(answer.columns, answer.values, strict=True)):
        code = codes[:, j, None]
        if values:  # -1 is none of them
            found = fn.log_prob(torch.nan_to_num(code).clamp(min=0.0))
            log = log + torch.where(code < 0.0, -torch.inf, torch.where(code.isnan(), code, found))
        else:
            log = log + fn.log_prob(code)
    return torch.logsumexp(log, -1)


def impossible(answer: Answer, codes: torch.Tensor) -> int | None:
    """Return the first column whose value, codes (columns,), no cell can have; None if all can."""
    for j, (fn, values) in enumerate(zip(answer.columns, answer.values, strict=True)):
        never = codes[j] < 0.0 if values else not fn.support.check(codes[j]).any()
        if not codes[j].isnan() and never:
            return j
    return None


def joint_chances(answer: Answer) -> Any:
    """Return P(cell, codes) of the columns of few values together, (draw, rows, cell, codes).

    The last column runs fastest.
    """
    total = _weights(answer)[..., None]
    for fn, values in zip(answer.columns, answer.values, strict=True):
        if values:
            chance = code_chances(fn, values)
            total = (total[..., None] * chance[..., None, :]).flatten(-2)
    return total


def chances(answer: Answer) -> Any:
    """Return P(codes) of the columns of few values together, (draw, rows, codes)."""
    return joint_chances(answer).sum(-2)


def means_by_codes(answer: Answer) -> Any:
    """Return P(codes), then P(codes) E[w | codes] of the other columns, (draw, rows, codes, 1+..).

    See :func:`chances`; the columns are independent given the cell.
    """
    total = joint_chances(answer)
    others = [fn for fn, values in zip(answer.columns, answer.values, strict=True) if not values]
    parts = [(total * site_mean(fn, ())).sum(-2) for fn in others]
    return torch.stack([total.sum(-2), *parts], -1)


def sampled(answer: Answer) -> Any:
    """Draw a cell for each draw and row, then W: (draw, rows, w_dim)."""
    if answer.mean is not None and answer.cov is not None:
        noise = torch.randn(*answer.mean.shape, 1)
        return answer.mean + (torch.linalg.cholesky(answer.cov) @ noise)[..., 0]
    weight = torch.nan_to_num(_weights(answer))
    cell = torch.multinomial(weight.reshape(-1, weight.shape[-1]), 1).reshape(*weight.shape[:2], 1)
    parts = []
    for fn, values in zip(answer.columns, answer.values, strict=True):
        if not values:
            every = fn.expand(weight.shape).sample().double()
            parts.append(torch.gather(every, -1, cell))
            continue
        chance = code_chances(fn, values).expand(*weight.shape, -1)
        at = cell[..., None].expand(*cell.shape, chance.shape[-1])
        below = torch.gather(chance, 2, at)[..., 0, :].cumsum(-1)
        code = (torch.rand(*below.shape[:2], 1) > below[..., :-1]).sum(-1)
        numbers = torch.tensor(values)[code]
        parts.append(torch.where(below[..., -1:].isnan(), torch.nan, numbers))
    return torch.cat(parts, -1)
