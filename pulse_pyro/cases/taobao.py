"""The paper's experiment on Taobao's ad clicks, from the original files to click-rate curves.

Half of an embedding of user and ad is seen online, the other half is imputed by a law that was
fitted on a fifth of the displays. It has been run on made-up files of the same schema and size
only: the original ones may not be passed on and were not at hand.
"""

from __future__ import annotations

import io
import json
import time as clock
from pathlib import Path

import numpy as np

from pulse_pyro.arrays import Float2, whole
from pulse_pyro.cases.taobao_run import TaobaoRun
from pulse_pyro.datasets.taobao import read_taobao
from pulse_pyro.environments.candidates import RANDOM, play_candidates
from pulse_pyro.errors import DataError, SettingError, nearest
from pulse_pyro.features import HasMean
from pulse_pyro.files import write_whole
from pulse_pyro.history import History
from pulse_pyro.laws.mean_network import fit_mean_network
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.progress import bar
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Identity

LAWS = ("mlp", "neural")
SIZE, SEEN = 32, 16  # dimensions of the embedding, and how many of them are seen online
ARMS, ALPHA, RIDGE = 20, 1.0, 1.0
ARCHIVE = 0.2  # share of the displays the law is fitted on
LEAST = 200  # displays


def run_taobao(
    raw: str | Path, *, out: str | Path, law: str = "mlp", seeds: int = 5,
    rounds: int | None = None, epochs: int = 500, seed: int = 0,
) -> TaobaoRun:  # fmt: skip
    """Run the whole pipeline on the files of ``raw``; write taobao.json and taobao.svg to ``out``.

    Parameters
    ----------
    raw : folder of raw_sample.csv, ad_feature.csv, user_profile.csv; see :func:`read_taobao` for
        what is kept.
    law : "mlp", the published network trained by squared error, or "neural", a
        ``neural_density`` with the same inputs, each display a unit of one row.
    seeds : runs; each has its own split, law and candidates. The embedding is shared.
    rounds : at most this many; by default online displays - 20, as published.
    epochs : of the autoencoder.

    Agents, all with constant alpha = 1 and ridge 1, on the same candidates: ``oful`` sees 16
    dimensions; ``oful_wide`` also 16 random ReLU features of them, to tell what more features
    alone are worth; ``pulse`` also the 16 imputed ones; ``oful_full`` all 32; ``random`` sees
    nothing. All have an intercept, since the dimensions are centred and clicks are not; those
    named ``_paper`` have none, as the paper lists its features.

    Not covered: the autoencoder is trained on all displays, online ones included, as published
    (features only, never clicks); clicks are counterfactual, see :func:`play_candidates`.
    """
    if law not in LAWS:
        raise SettingError(f"taobao: there is no law {law!r}{nearest(law, LAWS)}")
    whole(seeds, "taobao: seeds", 1)
    whole(epochs, "taobao: epochs", 1)
    if rounds is not None:
        whole(rounds, "taobao: rounds", 1)
    stream(seed)  # a bad seed is told before the work, and so is a folder that cannot be written
    Path(out).mkdir(parents=True, exist_ok=True)
    from pulse_pyro._pyro.autoencoder import embed

    start = clock.perf_counter()
    log = read_taobao(raw)
    if len(log.click) < LEAST:
        raise DataError(
            f"taobao: {len(log.click)} displays pass the filters, at least {LEAST} are needed to "
            "fit a law and play."
        )
    seconds = {"read": clock.perf_counter() - start, "autoencoder": 0.0, "law": 0.0, "play": 0.0}
    start = clock.perf_counter()
    code = embed(log.one_hot, size=SIZE, epochs=epochs, seed=seed)
    seconds["autoencoder"] = clock.perf_counter() - start
    reward = log.click.astype(np.float64)
    archive = round(ARCHIVE * len(reward))
    horizon = min(rounds or len(reward), len(reward) - archive - ARMS)
    clicks, imputed = [], np.empty(seeds)
    for run in bar(range(seeds), label="runs"):
        order = stream(seed, "split", run).permutation(len(reward))
        past, online = order[:archive], order[archive:]
        own = int(stream(seed, "run", run).integers(2**31))
        start = clock.perf_counter()
        fitted = _fit(law, code.values[past], own)
        s, w = code.values[online, :SEEN], code.values[online, SEEN:]
        agents = agent_features(fitted, s, w, seed=own)
        seconds["law"] += clock.perf_counter() - start
        left = ((agents["oful_full_paper"] - agents["pulse_paper"]) ** 2).sum()
        imputed[run] = 1.0 - left / ((w - w.mean(0)) ** 2).sum()
        start = clock.perf_counter()
        picks = play_candidates(
            agents, reward[online], rounds=horizon, seed=own, arms=ARMS, alpha=ALPHA,
            ridge=RIDGE,
        )  # fmt: skip
        seconds["play"] += clock.perf_counter() - start
        names = (*agents, RANDOM)
        clicks.append(np.stack([log.click[online[picks[name]]] for name in names]))
    found = TaobaoRun(
        names, np.stack(clicks, axis=1), log.counts, len(log.names), law, seed, epochs,
        code.unexplained, imputed, seconds,
    )  # fmt: skip
    write_whole(Path(out) / "taobao.json", json.dumps(found.to_json(), indent=1) + "\n")
    write_whole(Path(out) / "taobao.svg", _svg(found))
    return found


def _fit(law: str, rows: Float2, seed: int) -> HasMean:
    """Fit a law on rows (n, 32) of an archive that has both halves."""
    s, w = rows[:, :SEEN], rows[:, SEEN:]
    if law == "mlp":
        return fit_mean_network(s, w, seed=seed)
    names = tuple(f"z{i}" for i in range(SIZE))
    units = tuple(map(str, range(len(rows))))
    seen = np.ones((len(rows), 1), dtype=np.bool_)
    history = History(s[:, None], w[:, None], seen, units, names[:SEEN], names[SEEN:])
    return neural_density(Identity()).fit(history, seed=seed)


def agent_features(law: HasMean, s: Float2, w: Float2, *, seed: int) -> dict[str, Float2]:
    """Return what each agent sees of rows s (n, s_dim), w (n, w_dim): agent -> (n, d).

    Only ``oful_full`` and ``oful_full_paper`` are shown w. The last three lack an intercept.
    seed : of the random features of ``oful_wide``.
    """
    one = np.ones((len(s), 1))
    pulse, full = np.hstack([s, law.mean(s[:, None])[:, 0]]), np.hstack([s, w])
    return {
        "oful": np.hstack([one, s]),
        "oful_wide": np.hstack([one, s, _random_features(s, w.shape[1], seed)]),
        "pulse": np.hstack([one, pulse]),
        "oful_full": np.hstack([one, full]),
        "oful_paper": s,
        "pulse_paper": pulse,
        "oful_full_paper": full,
    }


def _random_features(s: Float2, count: int, seed: int) -> Float2:
    """Return random ReLU features (n, count) of s (n, s_dim), standardised."""
    rng = stream(seed, "random features")
    made = np.maximum(s @ rng.normal(0.0, 1.0, (s.shape[1], count)), 0.0)
    found: Float2 = (made - made.mean(0)) / np.maximum(made.std(0), 1e-12)
    return found


def _svg(found: TaobaoRun) -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "taobao"}):  # same run, same file
        found.plot().figure.savefig(buffer, format="svg", metadata={"Date": None})  # type: ignore[union-attr]
    return buffer.getvalue()
