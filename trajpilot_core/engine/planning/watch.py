"""Whether the data root has changed since that was last reported: reported once, and only when it has come to rest."""

from collections.abc import Mapping

from schemas.base import Record, fingerprint
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.engine.provenance import spelled
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import read_sealed, seal, unless_damaged

NOTE = "watch.json"


class Watched(Record):
    """What the last look saw, and what was looked into last: digests of `listing`."""

    seen: str
    told: str | None


def noticed(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> tuple[str, ...]:
    """Look once; return what is stale and why, when this look saw the same files as the last one and they are news.

    Two equal looks mean that no download is under way. Only other files are news: neither a run at work, which leaves
    fewer stages stale from look to look, nor a take that no run can fix starts another run.

    Raises:
        InputError: the data root is not there.
        StoreError: the root cannot be read or written.
    """
    folder = open_folder(run.root, run.protocols)
    last = unless_damaged(read_sealed, folder, Watched, NOTE) or Watched(seen="", told=None)
    seen = fingerprint([*listing(run)])
    is_news = last.seen == seen != last.told
    rows = [row for row in plan(stages, config, run) if row.state in ("stale", "missing")] if is_news else []
    folder.replace(NOTE, seal(Watched(seen=seen, told=seen if is_news else last.told)))
    return tuple(f"{row.stage}: {row.why}" for row in rows)


def listing(run: RunOptions) -> list[str]:
    """Return one line per file of the data root: path, size, and time or version. Nothing is read.

    Raises:
        InputError: the data root is not there.
        StoreError: it is no address that may be opened.
    """
    corpus = open_corpus(run.data_root)
    files = corpus.fs.find(corpus.root, detail=True)
    return [
        f"{spelled(path)} {info.get('size')} {info.get('mtime') or info.get('ETag')}"
        for path, info in sorted(files.items())
    ]
