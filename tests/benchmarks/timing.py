"""Time two sides against each other on a noisy machine."""

from time import perf_counter


def best_of(repeats, **sides):
    """Least seconds of each side over interleaved repeats, after one call to warm up."""
    for call in sides.values():
        call()
    least = dict.fromkeys(sides, float("inf"))
    for _ in range(repeats):
        for name, call in sides.items():
            start = perf_counter()
            call()
            least[name] = min(least[name], perf_counter() - start)
    return least
