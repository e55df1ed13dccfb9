"""The only list of corpora. A new one is a folder with its spec, its name in schemas/config.py, and a line here."""

from schemas.places import is_plugin
from trajpilot_core.corpora.egoexo4d.atomic import EGOEXO4D_ATOMIC
from trajpilot_core.corpora.egoexo4d.basketball import EGOEXO4D_BASKETBALL
from trajpilot_core.corpora.egoexo4d.keystep import EGOEXO4D_KEYSTEP
from trajpilot_core.corpora.egoper.reader import EGOPER
from trajpilot_core.corpora.epic_kitchens.reader import EPIC_KITCHENS
from trajpilot_core.corpora.goalstep.reader import GOALSTEP
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.plugins import CORPORA as GROUP
from trajpilot_core.plugins import load, refuse_clash

SPECS = (EGOEXO4D_ATOMIC, EGOEXO4D_KEYSTEP, EGOEXO4D_BASKETBALL, GOALSTEP, EGOPER, EPIC_KITCHENS)
CORPORA: dict[str, CorpusSpec] = {spec.name: spec for spec in SPECS}
"""IngestConfig.corpus -> its spec."""


def spec_of(corpus: str) -> CorpusSpec:
    """Return the spec of a built-in corpus or of a plugin.

    Raises:
        NotBuiltError: there is none of this name.
        InputError: a plugin cannot be used.
    """
    if is_plugin(corpus):
        spec = load(corpus, GROUP, CorpusSpec)
        refuse_clash(corpus, GROUP, spec.name, CORPORA)
        refuse_clash(corpus, GROUP, spec.ids, {known.ids for known in CORPORA.values()})
        return spec
    if corpus not in CORPORA:
        raise NotBuiltError(f"there is no reader of {corpus}; there are {', '.join(CORPORA)}")
    return CORPORA[corpus]


def corpus_of_layout(layout: str) -> CorpusSpec:
    """Return the corpus that a simulated world of a layout is read as. Raises NotBuiltError: no corpus has it."""
    of_layout = next((spec for spec in CORPORA.values() if spec.layout == layout), None)
    if of_layout is None:
        raise NotBuiltError(f"no corpus has the layout {layout}; there are {', '.join(layouts())}")
    return of_layout


def layouts() -> list[str]:
    """Return the layouts in which a simulated world can be written, in order of the corpora."""
    return [spec.layout for spec in CORPORA.values() if spec.layout]
