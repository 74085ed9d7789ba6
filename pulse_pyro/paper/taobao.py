"""CSV files read piece by piece, by the names of their columns, every bad input named."""

from __future__ import annotations

import platform
import time as clock
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pulse_pyro._core.arrays import Float1, Float2, Int, whole
from pulse_pyro._core.as_json import records, to_json
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro._core.files import write_whole
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity
from pulse_pyro.envs.candidates import RANDOM, play_candidates
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.report.page import write_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame, Index, Series

Kind = Literal["whole", "number"]  # int64, never blank; or float64, NaN where blank
DTYPES: dict[Kind, type[np.int64] | type[np.float64]] = {"whole": np.int64, "number": np.float64}
WORDS: dict[Kind, str] = {"whole": "whole numbers", "number": "numbers or blanks"}


def read_pieces(file: Path, columns: Mapping[str, Kind], rows: int) -> Iterator[DataFrame]:
    """Yield tables of at most ``rows`` rows with these columns, in this order.

    columns : name -> kind. Names are matched without blanks around them, in any order; other
    columns are not read. Memory is that of one piece; a bar on stderr counts bytes.
    """
    import pandas as pd

    found = _find(file, columns)
    types = {found[name]: DTYPES[kind] for name, kind in columns.items()}
    start = 0
    with file.open("rb") as handle, bar(label=file.name, total=file.stat().st_size) as shown:
        try:
            pieces = pd.read_csv(  # index_col: a comma at the end of lines shifts no column
                handle, usecols=list(types), dtype=types, chunksize=rows, index_col=False
            )
            for piece in pieces:
                shown.update(handle.tell() - shown.n)
                start += len(piece)
                yield piece.rename(columns={there: name for name, there in found.items()})[
                    list(columns)
                ]
        except (ValueError, OverflowError) as cause:  # a parser's own errors are ValueErrors
            wanted = ", ".join(f"{name} ({WORDS[kind]})" for name, kind in columns.items())
            raise DataError(
                f"{file}: not a CSV of {wanted} in the {rows:,} rows after row {start:,}: {cause}."
            ) from cause
    if start == 0:
        raise DataError(f"{file} has a header but no rows.")


def read_whole(file: Path, columns: Mapping[str, Kind], rows: int) -> DataFrame:
    """Read these columns of a whole file, piece by piece; see :func:`read_pieces`."""
    import pandas as pd

    return pd.concat(read_pieces(file, columns, rows), ignore_index=True)


def keys(column: Series[Any], file: Path) -> Index[Any]:
    """Return a column whose values name one row each, as an index; refuse a value that does not."""
    import pandas as pd

    index: Index[Any] = pd.Index(column)
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise DataError(
            f"{file}: {column.name} {twice} stands in {int((index == twice).sum())} rows; each "
            "must stand in one: keep the row that is right."
        )
    return index


def _find(file: Path, columns: Mapping[str, Kind]) -> dict[str, str]:
    """Return the file's spelling of each name."""
    import pandas as pd

    try:
        header = pd.read_csv(file, nrows=0)
    except FileNotFoundError as cause:
        raise DataError(f"{file} does not exist{_beside(file)}") from cause
    except ValueError as cause:
        raise DataError(f"{file} has no header to read: {cause}.") from cause
    spelt = {str(name).strip(): str(name) for name in header.columns}
    for name in columns:
        if name not in spelt:
            raise DataError(f"{file}: there is no column {name!r}{nearest(name, spelt)}")
    return {name: spelt[name] for name in columns}


def _beside(file: Path) -> str:
    if not file.parent.is_dir():
        return f", and neither does the folder {file.parent}."
    return nearest(file.name, sorted(path.name for path in file.parent.glob("*.csv")))


# Taobao Ad Display/Click: three CSV files, streamed, filtered and one-hot encoded.
#
# The data set (Alibaba Tianchi, "Ad Display/Click Data on Taobao.com", CC BY-NC-SA 4.0) is not part
# of this package and has to be fetched by hand:
#     raw_sample.csv    user, time_stamp, adgroup_id, pid, nonclk, clk       26,557,961 displays
#     ad_feature.csv    adgroup_id, cate_id, campaign_id, customer, brand, price    846,811 ads
#     user_profile.csv  userid, cms_segid, ..., new_user_class_level              1,061,768 users


LOG, ADS, USERS = "raw_sample.csv", "ad_feature.csv", "user_profile.csv"
LOG_COLUMNS: dict[str, Kind] = {"user": "whole", "adgroup_id": "whole", "clk": "whole"}
AD_COLUMNS: dict[str, Kind] = {
    "adgroup_id": "whole",
    "cate_id": "whole",
    "brand": "number",
    "price": "number",
}
USER_COLUMNS: dict[str, Kind] = {
    "userid": "whole",
    "cms_segid": "whole",
    "cms_group_id": "number",
    "final_gender_code": "number",
    "age_level": "number",
    "pvalue_level": "number",
    "shopping_level": "number",
    "occupation": "number",
    "new_user_class_level": "number",
}
FATES = ("kept", "other segment", "no profile", "other category", "other brand", "no ad")
KEPT, SEGMENT, NO_PROFILE, CATEGORY, BRAND, NO_AD = range(6)
SEGMENTS, TOP = 10, 25  # segments of users; categories, and brands, of ads
PIECE = 1_000_000  # rows in flight


@dataclass(frozen=True, eq=False)
class AdLog:
    """Displays of ads that passed the filters, in the order of the log.

    Attributes
    ----------
    codes : (n, column) int16, which level of a column a display has; -1 where it is blank.
    levels : column -> its levels in increasing order; only levels that occur.
    click : (n,) uint8, 1 where the ad was clicked.
    counts : what became of every row of the log; its values add up to the rows read.
    """

    codes: NDArray[np.int16]
    levels: Mapping[str, Float1]
    click: NDArray[np.uint8]
    counts: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the one-hot columns, e.g. "age_level=3"."""
        return tuple(f"{n}={level:.12g}" for n, levels in self.levels.items() for level in levels)

    @property
    def one_hot(self) -> NDArray[np.uint8]:
        """The displays as 0 and 1, (n, len(names)); a blank sets no column."""
        sizes = np.array([len(levels) for levels in self.levels.values()])
        first = np.cumsum(sizes) - sizes
        out = np.zeros((len(self.codes), int(sizes.sum())), dtype=np.uint8)
        row, column = np.nonzero(self.codes >= 0)
        out[row, first[column] + self.codes[row, column]] = 1
        return out

    @property
    def table(self) -> DataFrame:
        """Rows of the log by what became of them, and their share."""
        import pandas as pd

        rows = pd.Series(dict(self.counts), name="rows")
        return pd.DataFrame({"rows": rows, "share": rows / rows.sum()})

    def __repr__(self) -> str:
        dropped = ", ".join(f"{n:,} {fate}" for fate, n in self.counts.items() if fate != "kept")
        return (
            f"AdLog: {len(self.click):,} displays of {sum(self.counts.values()):,}, "
            f"{len(self.names)} one-hot features, click rate {self.click.mean():.4f}\n"
            f"  left out: {dropped}"
        )


def read_taobao(
    folder: str | Path, *, segments: int = SEGMENTS, top: int = TOP, piece: int = PIECE
) -> AdLog:
    """Read the three files of ``folder`` and keep the displays of frequent users and ads.

    Parameters
    ----------
    segments : keep users of this many most frequent cms_segid. Frequent is counted over the users
        of user_profile.csv, not over displays.
    top : keep ads of this many most frequent cate_id, counted over the ads of ad_feature.csv, and
        of those the ads of this many most frequent brands, counted over the ads that are left. An
        ad without a brand (NULL or blank) is left out. Ties go to the smaller number.
    piece : rows of a file in flight; the result does not depend on it.

    Returns
    -------
    Displays as level codes (n, 11): eight columns of the user (cms_segid to
    new_user_class_level), then cate_id, brand and ceil(log10(price)). campaign_id, customer, pid
    and the time are not used. Displays of users without a profile, or of ads without features,
    are dropped and counted.

    Not covered: the published preprocessing says "most frequent" without saying among what, and
    "83 features" without naming them; another reading keeps other rows. Users, ads and times
    repeat, so rows are not independent.
    """
    import pandas as pd

    home = Path(folder)
    whole(segments, "read_taobao: segments", 1)
    whole(top, "read_taobao: top", 1)
    whole(piece, "read_taobao: piece", 1)
    for name in (LOG, ADS, USERS):  # before minutes of reading
        if not (home / name).is_file():
            raise DataError(
                f"taobao: {home / name} does not exist; the folder must hold the original "
                f"{LOG}, {ADS} and {USERS}."
            )
    users = read_whole(home / USERS, USER_COLUMNS, piece)
    ads = read_whole(home / ADS, AD_COLUMNS, piece)
    user_ids, ad_ids = keys(users["userid"], home / USERS), keys(ads["adgroup_id"], home / ADS)
    # position -1, of an id that is not there, is the last entry
    user_fate = np.append(_user_fates(users, segments), np.uint8(NO_PROFILE))
    ad_fate = np.append(_ad_fates(ads, top), np.uint8(NO_AD))
    counts = np.zeros(len(FATES), dtype=np.int64)
    kept: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]] = []
    for rows in read_pieces(home / LOG, LOG_COLUMNS, piece):
        click = rows["clk"].to_numpy()
        if not np.isin(click, (0, 1)).all():
            bad = click[~np.isin(click, (0, 1))][0]
            raise DataError(f"{home / LOG}: clk must be 0 or 1, but got {bad}.")
        user = user_ids.get_indexer(pd.Index(rows["user"])).astype(np.int32)
        ad = ad_ids.get_indexer(pd.Index(rows["adgroup_id"])).astype(np.int32)
        fate = np.where(user_fate[user] != KEPT, user_fate[user], ad_fate[ad])
        counts += np.bincount(fate, minlength=len(FATES))
        keep = fate == KEPT
        kept.append((user[keep], ad[keep], click[keep].astype(np.uint8)))
    user, ad, click = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    found = dict(zip(FATES, counts.tolist(), strict=True))
    _check_clicks(click, found, home)
    # of the kept displays only: the tables are small, the log is not
    parts = [users.drop(columns="userid").iloc[user].reset_index(drop=True)]
    parts.append(_ad_levels(ads, home / ADS).iloc[ad].reset_index(drop=True))
    codes, levels = _encode([column for part in parts for _, column in part.items()])
    return AdLog(codes, levels, click, found)


def _user_fates(users: DataFrame, segments: int) -> NDArray[np.uint8]:
    frequent = users["cms_segid"].isin(_most_frequent(users["cms_segid"], segments))
    return np.where(frequent, KEPT, SEGMENT).astype(np.uint8)


def _ad_fates(ads: DataFrame, top: int) -> NDArray[np.uint8]:
    in_category = ads["cate_id"].isin(_most_frequent(ads["cate_id"], top))
    in_brand = ads["brand"].isin(_most_frequent(ads["brand"][in_category], top))
    return np.select([~in_category, ~in_brand], [CATEGORY, BRAND], KEPT).astype(np.uint8)


def _most_frequent(values: Series[Any], count: int) -> list[float]:
    """Return the most frequent values; blanks do not count, ties go to the smaller value."""
    level, times = np.unique(values.dropna().to_numpy(), return_counts=True)
    chosen: list[float] = level[np.argsort(-times, kind="stable")[:count]].tolist()
    return chosen


def _ad_levels(ads: DataFrame, file: Path) -> DataFrame:
    """Return category, brand and the power of ten at or above the price."""
    price = ads["price"]
    if (price <= 0).any() or np.isinf(price).any():
        at = int(np.flatnonzero((price <= 0) | np.isinf(price))[0])
        raise DataError(
            f"{file}: a price must be a finite number > 0 or blank, but that of adgroup_id "
            f"{ads['adgroup_id'].iloc[at]} is {price.iloc[at]}."
        )
    return ads[["cate_id", "brand"]].assign(log10_price=np.ceil(np.log10(price)))


def _encode(columns: list[Series[Any]]) -> tuple[NDArray[np.int16], dict[str, Float1]]:
    """Return codes (n, column), -1 for a blank, and the levels of each column."""
    import pandas as pd

    codes = np.empty((len(columns[0]), len(columns)), dtype=np.int16)
    levels = {}
    for j, column in enumerate(columns):
        code, level = pd.factorize(column.to_numpy(dtype=np.float64), sort=True)
        codes[:, j], levels[str(column.name)] = code, level
    return codes, levels


def _check_clicks(click: NDArray[np.uint8], counts: Mapping[str, int], home: Path) -> None:
    if len(click) == 0:
        raise DataError(
            f"taobao: of {sum(counts.values()):,} rows of {home / LOG} none passes the filters "
            f"({', '.join(f'{n:,} {fate}' for fate, n in counts.items())}); are the three files of "
            "one release?"
        )
    if click.min() == click.max():
        said = "none" if click.max() == 0 else "every one"
        raise DataError(
            f"taobao: of the {len(click):,} displays that pass the filters {said} was clicked, so "
            f"nothing can be learned from {home / LOG}; look at its column clk."
        )


# The published imputer: a network's guess of E[W | S_t], without a distribution.


ROWS = 8192  # rows in flight


@dataclass(frozen=True, eq=False)
class MeanNetwork:
    """E[W | S_t] as a network of the current S alone.

    layers : (weight (in, out), bias (out,)) of each. losses : (epochs,) squared error in training.

    A mean for each row is all that features affine in w ask for. It is no law: squared error says
    nothing about the spread of W, so it cannot be diagnosed or calibrated; use ``neural_density``
    for that.
    """

    layers: tuple[tuple[Float2, Float1], ...]
    losses: Float1

    def __call__(self, s: Float2) -> Float2:
        """Return the network at rows s (n, s_dim): (n, w_dim)."""
        rows = np.asarray(s, dtype=np.float64)
        parts = [self._run(rows[i : i + ROWS]) for i in range(0, len(rows), ROWS)]
        return np.concatenate(parts)

    def _run(self, hidden: Float2) -> Float2:
        for i, (weight, bias) in enumerate(self.layers):
            hidden = hidden @ weight + bias
            if i < len(self.layers) - 1:
                np.maximum(hidden, 0.0, out=hidden)
        return hidden


def fit_mean_network(s: Float2, w: Float2, *, epochs: int = 100, seed: int) -> MeanNetwork:
    """Train the published network, two hidden layers of 128, on rows s (n, s_dim), w (n, w_dim).

    Nothing is held out and nothing stops it early, as published: with few rows it overfits.
    """
    from pulse_pyro._pyro.networks import train_mean

    whole(epochs, "fit_mean_network: epochs", 1)
    s, w = np.asarray(s, dtype=np.float64), np.asarray(w, dtype=np.float64)
    if s.ndim != 2 or w.ndim != 2 or len(s) != len(w) or len(s) == 0:
        raise DataError(
            f"fit_mean_network: s and w must be tables of as many rows, but got {s.shape} and "
            f"{w.shape}."
        )
    if not (np.isfinite(s).all() and np.isfinite(w).all()):
        raise DataError("fit_mean_network: s and w must be finite; drop rows that are not.")
    layers, losses = train_mean(s, w, epochs=epochs, seed=seed)
    return MeanNetwork(tuple(layers), losses)


# What the Taobao case found: click rates of each agent over rounds and runs.


POINTS = 200  # of a curve that is drawn or written
BASELINE, PAPER = "oful", "_paper"
PACKAGES = ("numpy", "numba", "pandas", "torch", "pulse-pyro")


@dataclass(frozen=True, eq=False)
class TaobaoRun:
    """Clicks of each agent on the same candidates.

    Attributes
    ----------
    names : agents, in order.
    clicks : (agent, run, round) uint8, 1 where the picked display was clicked.
    counts : rows of the log by what became of them.
    width : one-hot features the file gave (83 in the paper).
    law, seed, epochs : as asked for.
    unexplained : share of the one-hot variance that the autoencoder does not give back.
    imputed : (run,) share of the variance of the 16 unseen dimensions, on online rows, that the
        law explains.
    seconds : step -> seconds.

    Standard errors are over runs, which share the file and the embedding: they say how far the
    split, the law and the candidates move a figure, not how it would move on another file.
    """

    names: tuple[str, ...]
    clicks: NDArray[np.uint8]
    counts: Mapping[str, int]
    width: int
    law: str
    seed: int
    epochs: int
    unexplained: float
    imputed: Float1
    seconds: Mapping[str, float]

    def of(self, name: str) -> NDArray[np.uint8]:
        """Clicks (run, round) of one agent."""
        if name not in self.names:
            raise SettingError(f"TaobaoRun.of: no agent {name!r}{nearest(name, self.names)}")
        found: NDArray[np.uint8] = self.clicks[self.names.index(name)]
        return found

    @property
    def table(self) -> DataFrame:
        """One line an agent: click rate over all rounds, and its paired gain over ``oful``."""
        import pandas as pd

        rate = self.clicks.mean(-1)
        gain = rate - self.of(BASELINE).mean(-1)
        return pd.DataFrame(
            {
                "ctr": rate.mean(1),
                "se": _se(rate),
                "gain_over_oful": gain.mean(1),
                "gain_se": _se(gain),
                "runs": rate.shape[1],
                "rounds": self.clicks.shape[-1],
            },
            index=pd.Index(self.names, name="agent"),
        )

    def curve(self, name: str) -> tuple[Int, Float2]:
        """Return some rounds (point,), and the click rate up to each, (run, point)."""
        rounds = self.clicks.shape[-1]
        first = max(rounds // 100, 1)  # a rate over a few rounds says nothing and hides the rest
        at = np.unique(np.linspace(first, rounds, POINTS).round().astype(np.int64))
        return at, np.cumsum(self.of(name), axis=1, dtype=np.int64)[:, at - 1] / at

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the cumulative click rate over rounds, with a band of one standard error.

        An agent named ``_paper`` has the colour of its namesake, and dots.
        """
        from pulse_pyro.report.plots import COLOURS, axis, tidy

        ax = axis(ax)
        runs = self.clicks.shape[1]
        plain = [name for name in self.names if not name.endswith(PAPER)]
        for name in self.names:
            at, rate = self.curve(name)
            i = plain.index(name.removesuffix(PAPER))
            mean, colour = rate.mean(0), COLOURS[i % len(COLOURS)]
            style = ":" if name.endswith(PAPER) else "-"
            ax.plot(at, mean, color=colour, linestyle=style, label=name)
            if runs > 1:
                se = _se(rate.T)
                ax.fill_between(at, mean - se, mean + se, color=colour, alpha=0.2, linewidth=0)
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        title = f"Law {self.law}: mean of {runs} run{'s' * (runs > 1)}, band = 1 standard error"
        return tidy(ax, "round", "cumulative click rate", title)

    def to_json(self) -> dict[str, Any]:
        """Plain values: table, curves, counts, settings, versions."""
        curves = {name: self.curve(name) for name in self.names}
        several = self.clicks.shape[1] > 1
        return {
            "name": "taobao",
            "law": self.law,
            "seed": self.seed,
            "epochs": self.epochs,
            "counts": dict(self.counts),
            "features": self.width,
            "unexplained": self.unexplained,
            "imputed": self.imputed.tolist(),
            "rows": records(self.table),
            "curves": {
                name: {
                    "round": at.tolist(),
                    "ctr": rate.mean(0).round(6).tolist(),
                    "se": _se(rate.T).round(6).tolist() if several else None,
                }
                for name, (at, rate) in curves.items()
            },
            "seconds": dict(self.seconds),
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in PACKAGES},
            },
        }

    def __repr__(self) -> str:
        table = self.table[["ctr", "se", "gain_over_oful", "gain_se"]].rename_axis(None)
        runs, rounds = self.clicks.shape[1:]
        return (
            f"TaobaoRun: highest click rate: {table['ctr'].idxmax()}\n"
            f"  {self.counts['kept']:,} displays of {sum(self.counts.values()):,}, "
            f"{self.width} one-hot features, {runs} run{'s' * (runs > 1)} of {rounds:,} rounds\n"
            f"  autoencoder leaves {self.unexplained:.0%} of the variance unexplained; law "
            f"{self.law} explains {self.imputed.mean():.0%} of the unseen part\n"
            + table.to_string(float_format="{:.5f}".format)
        )

    def _repr_html_(self) -> str:
        return self.table.to_html(float_format="{:.5f}".format)


def _se(values: Float2) -> Float1:
    """Return the standard error of each row's mean over its columns, the runs."""
    runs = values.shape[1]
    return values.std(1, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(len(values), np.nan)


# The paper's experiment on Taobao's ad clicks, from the original files to click-rate curves.
#
# Half of an embedding of user and ad is seen online, the other half is imputed by a law that was
# fitted on a fifth of the displays. It has been run on made-up files of the same schema and size
# only: the original ones may not be passed on and were not at hand.


LAWS = ("mlp", "neural")
SIZE, SEEN = 32, 16  # dimensions of the embedding, and how many of them are seen online
ARMS, ALPHA, RIDGE = 20, 1.0, 1.0
ARCHIVE = 0.2  # share of the displays the law is fitted on
LEAST = 200  # displays


def run_taobao(
    raw: str | Path,
    *,
    out: str | Path,
    law: str = "mlp",
    seeds: int = 5,
    rounds: int | None = None,
    epochs: int = 500,
    seed: int = 0,
) -> TaobaoRun:
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
    from pulse_pyro._pyro.networks import embed

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
        run_seed = int(stream(seed, "run", run).integers(2**31))
        start = clock.perf_counter()
        fitted = _fit(law, code.values[past], run_seed)
        s, w = code.values[online, :SEEN], code.values[online, SEEN:]
        agents = agent_features(fitted, s, w, seed=run_seed)
        seconds["law"] += clock.perf_counter() - start
        missed = ((agents["oful_full_paper"] - agents["pulse_paper"]) ** 2).sum()
        imputed[run] = 1.0 - missed / ((w - w.mean(0)) ** 2).sum()
        start = clock.perf_counter()
        picks = play_candidates(
            agents,
            reward[online],
            rounds=horizon,
            seed=run_seed,
            arms=ARMS,
            alpha=ALPHA,
            ridge=RIDGE,
        )
        seconds["play"] += clock.perf_counter() - start
        names = (*agents, RANDOM)
        clicks.append(np.stack([log.click[online[picks[name]]] for name in names]))
    result = TaobaoRun(
        names=names,
        clicks=np.stack(clicks, axis=1),
        counts=log.counts,
        width=len(log.names),
        law=law,
        seed=seed,
        epochs=epochs,
        unexplained=code.unexplained,
        imputed=imputed,
        seconds=seconds,
    )
    write_whole(Path(out) / "taobao.json", to_json(result.to_json()) + "\n")
    write_svg(Path(out) / "taobao.svg", result.plot(), "Taobao: click rate of each agent")
    return result


def _fit(law: str, rows: Float2, seed: int) -> Callable[[Float2], Float2]:
    """Fit a law on rows (n, 32) of an archive that has both halves."""
    s, w = rows[:, :SEEN], rows[:, SEEN:]
    if law == "mlp":
        return fit_mean_network(s, w, seed=seed)
    names = tuple(f"z{i}" for i in range(SIZE))
    units = tuple(map(str, range(len(rows))))
    history = History.from_arrays(
        s[:, None], w[:, None], units=units, s_names=names[:SEEN], w_names=names[SEEN:]
    )
    fitted = neural_density(Identity()).fit(history, seed=seed)
    return lambda found: fitted(found[:, None]).mean()


def agent_features(
    law: Callable[[Float2], Float2], s: Float2, w: Float2, *, seed: int
) -> dict[str, Float2]:
    """Return what each agent sees of rows s (n, s_dim), w (n, w_dim): agent -> (n, d).

    law : E[W] at rows, (n, s_dim) -> (n, w_dim). Only ``oful_full`` and ``oful_full_paper`` are
    shown w. The last three lack an intercept.
    seed : of the random features of ``oful_wide``.
    """
    one = np.ones((len(s), 1))
    pulse, full = np.hstack([s, law(s)]), np.hstack([s, w])
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
