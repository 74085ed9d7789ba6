"""CSV files read piece by piece, by the names of their columns, every bad input named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pulse_pyro.errors import DataError, nearest
from pulse_pyro.progress import bar

if TYPE_CHECKING:
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
