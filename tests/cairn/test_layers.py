"""The source keeps to its layers: who imports whom, who writes files, and what nobody does."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cairn

SOURCE = Path(cairn.__file__).parents[1]
MODULES = sorted(SOURCE.rglob("*.py"))
ORDER = {"io": 1, "objects": 2, "history": 3, "state": 4, "files": 4, "store": 5, "cli": 6}
VOCABULARY = {"errors", "ids", "canonical"}
TOP = {"__init__", "__main__"}
"""The modules that give the package its names and its command; they know everything."""


def imported(module: Path) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, wherever in it."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            if node.module != "cairn":
                yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(module: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield what a module calls, in words like `os.rename` or `.write_bytes`."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                yield called.id, node
            elif isinstance(called, ast.Attribute):
                owner = called.value.id if isinstance(called.value, ast.Name) else ""
                yield f"{owner}.{called.attr}", node


def name_of(module: Path) -> str:
    """Return a module's place in words for messages."""
    return str(module.relative_to(SOURCE))


def layer_of(module: Path) -> str:
    """Return the layer of a module of cairn: a folder, or its own name at the top."""
    parts = module.relative_to(SOURCE / "cairn").with_suffix("").parts
    return parts[0]


CAIRN = [module for module in MODULES if module.is_relative_to(SOURCE / "cairn")]


def test_each_layer_knows_only_those_below_it() -> None:
    """cli > store > state, files > history > objects > io; errors, ids and canonical are everybody's."""
    for module in CAIRN:
        layer = layer_of(module)
        if layer in TOP:
            continue
        for name in imported(module):
            package, _, rest = name.partition(".")
            if package != "cairn":
                continue
            other = rest.split(".")[0]
            if layer in VOCABULARY:
                allowed = other in VOCABULARY
            elif other in ORDER:
                allowed = other == layer or ORDER[other] < ORDER[layer] or (layer, other) == ("files", "state")
            else:
                # The command line talks to the package as its users do.
                allowed = other in VOCABULARY or (layer == "cli" and not other.startswith("_"))
            assert allowed, f"{name_of(module)} imports {name}"


def test_cairn_knows_nothing_of_the_trainer() -> None:
    """minitrain may import cairn, never the reverse."""
    for module in CAIRN:
        assert not [name for name in imported(module) if name.split(".")[0] == "minitrain"], name_of(module)


def test_no_framework_and_no_pickle_is_imported() -> None:
    """torch and jax are the caller's; pickle and its kin are nobody's, and numpy is never allowed to use it."""
    frameworks = {"torch", "jax", "tensorflow", "lightning", "transformers", "flax"}
    unsafe = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "copyreg"}
    for module in MODULES:
        names = {name.split(".")[0] for name in imported(module)}
        assert not names & unsafe, name_of(module)
        assert not (module in CAIRN and names & frameworks), name_of(module)
        for name, call in calls(module):
            assert name not in ("eval", "exec", "compile", "__import__"), f"{name_of(module)} calls {name}"
            keywords = {word.arg: word.value for word in call.keywords}
            value = keywords.get("allow_pickle", ast.Constant(False))
            assert isinstance(value, ast.Constant), f"{name_of(module)} computes allow_pickle"
            assert value.value is False, f"{name_of(module)} allows pickle"


WRITING = {
    "os.rename",
    "os.replace",
    "os.remove",
    "os.unlink",
    "os.mkdir",
    "os.makedirs",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.utime",
    "os.write",
    "os.pwrite",
    "os.fsync",
    ".write_bytes",
    ".write_text",
    ".symlink_to",
    ".hardlink_to",
    ".rmdir",
}


def test_only_the_lowest_layer_writes_files() -> None:
    """Every durable step goes through `cairn.io`; elsewhere nothing is opened for writing, renamed or removed."""
    for module in CAIRN:
        if layer_of(module) in ("io", "cli"):
            continue
        for name, call in calls(module):
            assert name not in WRITING, f"{name_of(module)} calls {name}"
            assert name.split(".")[0] not in ("shutil", "tempfile"), f"{name_of(module)} calls {name}"
            if name.rpartition(".")[2] == "open" and name != "self.open":
                texts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
                modes = [text for text in texts if isinstance(text, str) and set(text) <= set("rwxab+t")]
                assert not set("".join(modes)) & set("wxa+"), f"{name_of(module)} opens for writing"


def test_the_library_is_silent_and_reads_no_environment() -> None:
    """Printing, exiting, environment variables and the working directory are the command line's."""
    for module in CAIRN:
        if layer_of(module) in ("cli", "__main__"):
            continue
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                word = f"{node.value.id}.{node.attr}"
                forbidden = {"os.environ", "os.getenv", "os.getcwd", "os.chdir", "Path.cwd", "sys.exit", "sys.argv"}
                assert word not in forbidden, f"{name_of(module)} uses {word}"
                assert word not in ("sys.stdout", "sys.stderr", "sys.stdin"), f"{name_of(module)} uses {word}"
        for name, _ in calls(module):
            assert name not in ("print", "input", "exit", "quit", "warnings.warn"), f"{name_of(module)} calls {name}"


def test_modules_stay_small() -> None:
    """No module of the library grows far beyond 300 lines."""
    long = {name_of(module): count for module in MODULES if (count := len(module.read_text().splitlines())) > 330}
    assert not long


@pytest.mark.parametrize("work", ["list(store.log())", "store.commit('latest')", "store.runs()", "store.tags()"])
def test_history_is_read_without_heavy_imports(store: cairn.Store, work: str) -> None:
    """log, show and completion start fast: no numpy, no sqlite-utils, no rich."""
    store.run().commit({"model": [1, 2, 3]}, step=1)
    script = (
        f"import sys, cairn; store = cairn.open({str(store.path)!r}); {work}; "
        "print(sorted({'numpy', 'sqlite_utils', 'rich', 'ml_dtypes', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
