"""Rules about the source that no run of it would show."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted(SOURCE.rglob("*.py"))
CODE_IN_DATA = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yields the top names of all imports, those inside functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def ids(path: Path) -> str:
    """Names a module in the list of tests."""
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_no_module_stores_code_in_data(path: Path) -> None:
    """Nothing imports pickle or what is built on it, and no array is read or written with it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not CODE_IN_DATA & set(imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


@pytest.mark.parametrize("path", sorted((SOURCE / "cairn").rglob("*.py")), ids=ids)
def test_the_store_knows_nothing_of_the_trainer(path: Path) -> None:
    """The trainer may use the store, never the reverse."""
    assert "minitrain" not in set(imported(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("path", sorted((SOURCE / "minitrain").rglob("*.py")), ids=ids)
def test_the_trainer_writes_checkpoints_in_one_place(path: Path) -> None:
    """Renames, and files opened for writing over others, are found in `files.py` only."""
    text = path.read_text(encoding="utf-8")
    if path.name != "files.py":
        assert "os.rename" not in text.replace("`os.rename`", "")
        for call in ("os.replace", ".write_bytes(", ".write_text(", 'open("w', "save_file", "np.save"):
            assert call not in text
