"""The report's documents, copied from the store to where people look for them."""

from schemas.artifacts import ArtifactRef
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_document

FOLDER = "reports"


def place_documents(report: ArtifactRef, root: str) -> str:
    """Copy every document of the report to `<root>/reports`, verified on the way; return the address of the HTML page.

    Raises:
        StoreError: the report stage has no output, or it is damaged.
    """
    folder = open_folder(root)
    manifest = current_manifest(folder, report.stage)
    if manifest is None:
        raise StoreError(f"no report under {folder.url}; run the stage report first")
    documents = [name for name, entry in manifest.entries.items() if entry.kind == "document"]
    for name in documents:
        folder.replace(f"{FOLDER}/{name}", read_entry_document(folder, manifest, name))
    page = next(name for name in documents if name.endswith(".html"))
    return f"{folder.url}/{FOLDER}/{page}"
