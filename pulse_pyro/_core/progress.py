"""Progress bars: on stderr, only in a terminal, only after two seconds."""

from collections.abc import Iterable
from typing import Any


def bar(items: Iterable[Any] | None = None, *, label: str, total: int | None = None) -> Any:
    """Return a tqdm bar over ``items``, or one to be moved by ``update()``."""
    from tqdm import tqdm

    # disable=None: silent when stderr is not a terminal, so logs and pipes stay clean
    return tqdm(items, desc=label, total=total, delay=2, mininterval=0.3, leave=False, disable=None)


def tell(progress: Any, text: str) -> None:
    """Show a text such as "loss 1.2" behind a bar; it is drawn with the bar's next move."""
    progress.set_postfix_str(text, refresh=False)
