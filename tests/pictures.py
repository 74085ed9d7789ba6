"""Pictures of README and guide, taken out of the committed notebooks: python -m tests.pictures."""

import base64
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FOLDER = NOTEBOOKS / "pictures"
# file -> notebook, and which of its pictures
PICTURES = {
    "regret.png": ("01_quickstart", 4),
    "gallery.png": ("03_posterior_diagnostics", 1),
    "too_sure.png": ("03_posterior_diagnostics", 14),
    "wrong_law.png": ("04_calibrating_dt", 5),
    "history.png": ("05_reproduce_the_paper", 2),
    "masks.png": ("05_reproduce_the_paper", 6),
    "real.png": ("06_real_data", 0),
}


def picture(name):
    """Bytes of a picture as its notebook holds it."""
    notebook, place = PICTURES[name]
    cells = nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    found = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    return base64.b64decode(found[place])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / name).write_bytes(picture(name))
