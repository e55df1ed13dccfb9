"""Reports once that the data root has changed, as soon as it no longer changes."""

from collections.abc import Mapping

from schemas.base import Record, fingerprint
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.key import spelled
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import read_sealed, seal, unless_damaged

NOTE = "watch.json"


class Watched(Record):
    """Digests of `listing`: at the last check, and at the last report."""

    seen: str
    told: str | None


def noticed(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> tuple[str, ...]:
    """Check once; return what is stale and why, if files equal those of the last check, not of the last report.

    Two equal checks mean that no download is running. Only changed files count: neither a running pipeline, which has
    fewer stages stale from check to check, nor a take that no run can fix triggers another run.

    Raises:
        InputError: the data root does not exist.
        StoreError: the root cannot be read or written.
    """
    folder = open_folder(run.root)
    last = unless_damaged(read_sealed, folder, Watched, NOTE) or Watched(seen="", told=None)
    seen = fingerprint([*listing(run)])
    is_news = last.seen == seen != last.told
    rows = [row for row in plan(stages, config, run) if row.state in ("stale", "missing")] if is_news else []
    folder.replace(NOTE, seal(Watched(seen=seen, told=seen if is_news else last.told)))
    return tuple(f"{row.stage}: {row.why}" for row in rows)


def listing(run: RunOptions) -> list[str]:
    """Return one line per file of the data root: path, size, and time or version. No file is read.

    Raises:
        InputError: the data root does not exist.
        StoreError: its address may not be opened.
    """
    corpus = open_corpus(run.data_root)
    files = corpus.fs.find(corpus.root, detail=True)
    return [
        f"{spelled(path)} {info.get('size')} {info.get('mtime') or info.get('ETag')}"
        for path, info in sorted(files.items())
    ]
