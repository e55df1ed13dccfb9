"""What an attacker would plant: texts that run in a browser or in LaTeX, pickles that run when read; and secrets."""

import csv
import io
import json
import os
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

TEXTS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg onload=alert(4)>",
    '"><script>alert(5)</script>',
    "' onmouseover='alert(6)",
    "javascript:alert(7)",
    "<iframe src=javascript:alert(8)>",
    "<a href='javascript:alert(9)'>x</a>",
    "<body onload=alert(10)>",
    "</title><script>alert(11)</script>",
    "</style><script>alert(12)</script>",
    "<!--<script>alert(13)//-->",
    "{{7*7}}",
    "{% raw %}",
    "<details open ontoggle=alert(16)>",
    "<math><mi//xlink:href='data:x,<script>alert(17)</script>'>",
    "<img src=http://127.0.0.1:9/leak18.png>",
    "<link rel=stylesheet href=http://127.0.0.1:9/leak19.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/leak20'>",
    "[x](javascript:alert(21))",
    "![x](http://127.0.0.1:9/leak22.png)",
    "<object data='javascript:alert(23)'>",
    "<embed src=javascript:alert(24)>",
    "<form action=javascript:alert(25)><input type=submit autofocus onfocus=alert(25)>",
    "`${alert(26)}`",
    "&lt;script&gt;alert(27)&lt;/script&gt;",
    "<style>@import 'http://127.0.0.1:9/leak28.css';</style>",
    "\\input{/etc/passwd}",
    "\\write18{touch marker}",
    "$\\catcode`\\$=0$ %{}#_^~&",
    "=cmd|'/c calc'!A1",
    "]]><script>alert(33)</script>",
    "<video><source onerror=alert(34)>",
    "\u202e<b>right to left</b>",
)


class Marker:
    """Makes an empty file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (self.path, "w")


def payload(marker: Path, size: int = 0) -> bytes:
    """Return a pickle that makes the marker, padded to `size` bytes (what follows a pickle is not read)."""
    content = pickle.dumps({"target_encoder": Marker(marker)}, protocol=2)
    return content + b"\0" * (size - len(content))


def hostile_corpus(folder: Path) -> None:
    """Put hostile texts into a simulated download: descriptions, paraphrases, label ids, scenarios, one take's name.

    Groups of paraphrases stay what they are. The description of the world goes, so that it counts as a real download.
    """
    (folder / "world.json").unlink()
    path = folder / "annotations" / "paraphrases.csv"
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    ids = sorted({row["label_id"] for row in rows})
    new_id = {old: f"{old} {TEXTS[number % len(TEXTS)]}" for number, old in enumerate(ids)}
    new_text = {row["text"]: f"{row['text']} {TEXTS[number % len(TEXTS)]}" for number, row in enumerate(rows)}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label_id"])
        writer.writerows((new_text[row["text"]], new_id[row["label_id"]]) for row in rows)
    for part in folder.glob("annotations/atomic_descriptions_*.json"):
        document = json.loads(part.read_text())
        for annotation in (a for several in document["annotations"].values() for a in several):
            for one in annotation["descriptions"]:
                sentence = one["text"].removeprefix("C ").removesuffix(".")
                one["text"] = f"C {new_text.get(sentence, sentence)}."
        part.write_text(json.dumps(document))
    takes = json.loads((folder / "takes.json").read_text())
    for number, take in enumerate(takes):
        take["task_name"] = TEXTS[take["task_id"] % len(TEXTS)]
        if number == 0:
            take["take_name"] = TEXTS[2]
    (folder / "takes.json").write_text(json.dumps(takes))


SECRET = "c4nary9f3"
"""Stands in every secret below; nowhere else."""
VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "FSSPEC_S3_KEY", "FSSPEC_S3_SECRET"),
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "WANDB_API_KEY", "AZURE_STORAGE_KEY"),
    *("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_KEY"),
    *("PREFECT_SERVER_DATABASE_PASSWORD", "TRAJPILOT_LOGIN", "TRAJPILOT_DATABASE_PASSWORD"),
    "GOOGLE_APPLICATION_CREDENTIALS",
)
FILES_OF_HOME = (".aws/credentials", ".cache/huggingface/token", ".netrc", ".pgpass")


def home_with_secrets(home: Path) -> dict[str, str]:
    """Put a secret wherever a user of this pipeline has one; return the environment. Every value holds SECRET."""
    for name in FILES_OF_HOME:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"[default]\naws_access_key_id = {SECRET}\naws_secret_access_key = {SECRET}\n")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT") and k != "XDG_CACHE_HOME"}
    return {**kept, "HOME": str(home), **{name: f"user:{SECRET}-{name.lower()}" for name in VARIABLES}}


def hits(folder: Path, secret: str) -> list[str]:
    """Return the files below a folder in which a secret stands: as bytes, in a table's cells, in a database's rows."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if holds(path, secret)]


def holds(path: Path, secret: str) -> bool:
    """Say whether a secret stands in a file, compressed or not."""
    content = path.read_bytes()
    if secret.encode() in content or secret.encode().hex().encode() in content:
        return True
    if content[:4] == b"PAR1":
        return secret in str(pq.read_table(path).to_pylist()) + str(pq.read_schema(path).metadata)
    if content[:6] == b"SQLite":
        with sqlite3.connect(path) as database:
            return any(secret in line for line in database.iterdump())
    return False
