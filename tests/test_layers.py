"""A module imports only from its own row of the design or rows above it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "pulse_pyro"
ROWS = (
    ("errors", "seeds", "arrays", "progress", "files", "sealed", "verdicts", "parallel"),
    ("history", "frames", "summary", "features", "slopes"),
    ("_pyro",),
    ("laws",),
    ("bundle", "tree", "tree_rows"),
    ("bands",),
    ("diagnostics", "serial", "radius", "calibration", "ranks", "gallery"),
    ("study",),
    ("planning",),
    ("policies",),
    ("environments",),
    ("simulation",),
    ("offpolicy",),
    ("datasets",),
    ("experiments",),
    ("cases",),
    ("plots", "replay_plots", "figures", "diagnostic_plots", "report"),
    ("stages",),
    ("demo", "reproduction", "real_data", "commands", "completion", "cli", "cli_data"),
)
ROW_OF = {name: i for i, row in enumerate(ROWS) for name in row}
HEAVY = {"torch", "pyro"}
MODULES = [p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"]
# .plot() and .to_arviz() reach forward, if called
PLOTS = {
    "pulse_pyro.plots", "pulse_pyro.diagnostic_plots", "pulse_pyro.replay_plots", "pulse_pyro.tree",
}  # fmt: skip


def imports(path):
    """(module, inside a function or TYPE_CHECKING block) for every import of a file."""
    tree = ast.parse(path.read_text())
    late = set()
    for node in ast.walk(tree):
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if guarded or isinstance(node, ast.FunctionDef):
            late |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in late
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in late


def part(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upwards(path):
    for module, late in imports(path):
        if not module.startswith("pulse_pyro.") or (late and module in PLOTS):
            continue
        other = module.split(".")[1]
        typing_only = late and part(path) in ("plots", "replay_plots", "figures")
        assert ROW_OF[other] <= ROW_OF[part(path)] or typing_only, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_pyro_rows_import_torch_and_elsewhere_only_when_called(path):
    for module, late in imports(path):
        if module.split(".")[0] in HEAVY:
            assert part(path) == "_pyro" or (part(path) == "laws" and late)


def test_every_module_has_a_row():
    assert {part(path) for path in MODULES} == set(ROW_OF)


def test_modules_stay_small():
    lengths = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert lengths[-1] <= 300
    assert lengths[len(lengths) // 2] <= 180
