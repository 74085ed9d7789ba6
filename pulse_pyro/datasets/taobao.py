"""Taobao Ad Display/Click: three CSV files, streamed, filtered and one-hot encoded.

The data set (Alibaba Tianchi, "Ad Display/Click Data on Taobao.com", CC BY-NC-SA 4.0) is not part
of this package and has to be fetched by hand:
    raw_sample.csv    user, time_stamp, adgroup_id, pid, nonclk, clk       26,557,961 displays
    ad_feature.csv    adgroup_id, cate_id, campaign_id, customer, brand, price    846,811 ads
    user_profile.csv  userid, cms_segid, ..., new_user_class_level              1,061,768 users
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pulse_pyro.arrays import Float1, whole
from pulse_pyro.datasets.tables import Kind, keys, read_pieces, read_whole
from pulse_pyro.errors import DataError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LOG, ADS, USERS = "raw_sample.csv", "ad_feature.csv", "user_profile.csv"
LOG_COLUMNS: dict[str, Kind] = {"user": "whole", "adgroup_id": "whole", "clk": "whole"}
AD_COLUMNS: dict[str, Kind] = {
    "adgroup_id": "whole", "cate_id": "whole", "brand": "number", "price": "number",
}  # fmt: skip
USER_COLUMNS: dict[str, Kind] = {
    "userid": "whole", "cms_segid": "whole", "cms_group_id": "number",
    "final_gender_code": "number", "age_level": "number", "pvalue_level": "number",
    "shopping_level": "number", "occupation": "number", "new_user_class_level": "number",
}  # fmt: skip
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
            raise DataError(f"{home / LOG}: clk must be 0 or 1, but {bad} came.")
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
