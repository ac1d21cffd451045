"""Reads a whole store without cairn, as `store/FORMAT.md` describes it.

That takes 30 lines, and 6 more for files and folders; imports and the names of types are not counted.
"""

import collections
import json
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace as Node
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

NAMES = {f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "FIUC" for size in (1, 2, 4, 8)}
NAMES |= {"BOOL": "?", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu"}
NAMES |= {f"F8_E{rest.upper()}": f"float8_e{rest}" for rest in ("5m2", "4m3fnuz", "5m2fnuz")}


def read(store: Path) -> list[tuple[Any, Any]]:
    """Read every commit whose content is still there: its document, and its state without what was dropped."""
    blobs = {key: data.tobytes() for pack in store.glob("packs/*/*") for key, data in load_file(pack).items()}
    lines = [json.loads(line) for log in store.glob("*/*/*.json*") for line in log.read_bytes().splitlines()]
    return [(c, state(blobs, c)) for line in lines if (c := line.get("commit")) and c["manifest"][0] in blobs]


def state(blobs: dict[str, bytes], commit: Any) -> dict[str, Any]:
    """Read the state of a commit. `at` is a component and the steps to a value in it."""
    root, arrays = json.loads(blobs[commit["manifest"][0]]), dict[Any, Any]()

    def items(x: Any) -> Any:
        return x if type(x) is list else [item for part in items(x["$list"]) for item in json.loads(blobs[part[0]])]

    def array(x: Any, raw: bytes) -> Any:
        dtype = np.dtype(getattr(ml_dtypes, NAMES.get(x["dtype"], x["dtype"]), NAMES.get(x["dtype"], x["dtype"])))
        return np.frombuffer(raw, dtype).reshape(x.get("shape", ())).astype(dtype.newbyteorder(x.get("order", "<")))

    def value(x: Any, at: Any) -> Any:
        if type(x) is dict:
            kind = next(iter(x), "")
            return kinds[kind](x[kind], at) if kind[:1] == "$" else {k: value(v, (*at, k)) for k, v in x.items()}
        return [value(v, (*at, n)) for n, v in enumerate(x)] if type(x) is list else x

    def mapping(x: Any, at: Any) -> Any:
        pairs = [(value(k, at), value(v, (*at, n))) for n, (k, v) in enumerate(items(x["pairs"]))]
        return getattr(collections, x["type"], dict)(pairs)

    def file(x: Any, at: Any) -> Any:
        rest = BytesIO(kinds["$bytes"](x["rest"]))
        parts = [blobs[part[0]] if type(part) is list else rest.read(part) for part in items(x["slices"])]
        return Node(mode=x["mode"], data=b"".join(parts))

    same = {(tie["at"][0], *tie["at"][1]): (tie["of"][0], *tie["of"][1]) for tie in items(root["ties"])}
    kinds: dict[str, Any] = {"$map": mapping, "$tie": lambda x, at: arrays[same.get((at[0], *x), (at[0], *x))]}
    kinds |= {"$tensor": lambda x, at: arrays.setdefault(same.get(at, at), array(x, kinds["$bytes"](x["blobs"])))}
    kinds |= {"$scalar": lambda x, at: array(x, bytes.fromhex(x["data"]))[()]}
    kinds |= {"$float": lambda x, at=0: np.frombuffer(bytes.fromhex(x), ">f8").item() if x[1:3] == "ff" else float(x)}
    kinds |= {"$int": lambda x, at: int(x, 16), "$complex": lambda x, at: complex(*map(kinds["$float"], x))}
    kinds |= {"$bytes": lambda x, at=0: b64decode(x) if type(x) is str else b"".join(blobs[key] for key, _ in x)}
    kinds |= {"$str": lambda x, at: kinds["$bytes"](x).decode("utf-8", "surrogatepass")}
    kinds |= {"$tuple": lambda x, at: tuple(value(x, at)), "$list": lambda x, at: value(items({"$list": x}), at)}
    kinds |= {"$dict": lambda x, at: value({k: v for p in items(x) for k, v in json.loads(blobs[p[0]]).items()}, at)}
    kinds |= {"$file": file, "$dir": lambda x, at: Node(mode=x["mode"], entries=value(x["entries"], at))}
    kinds |= {"$link": lambda x, at: Node(target=x if type(x) is str else bytes.fromhex(x["bytes"]))}
    return {n: value(json.loads(blobs[key]), (n,)) for n, (key, _) in root["components"].items() if key in blobs}
