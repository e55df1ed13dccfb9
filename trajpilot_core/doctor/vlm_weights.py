"""What vision-language models that a run names must be, and what asking them costs, before anything is asked.

Nothing is loaded; imports no torch.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from schemas.config import PipelineConfig, RunOptions
from schemas.vlm import VlmConfig, tuned_name
from trajpilot_core.doctor.checks import HealthFinding, HealthVerdict, gpu_memory
from trajpilot_core.engine.capacity import free_memory
from trajpilot_core.engine.key import resolve_inputs
from trajpilot_core.engine.needs import size_text
from trajpilot_core.engine.planning.stated import manifests_of
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.sizes import CorpusSizes, sizes_of
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.stages import stages_of, vlm, vlm_tuning
from trajpilot_core.store.files import open_folder
from trajpilot_core.vlm.cost.asked import OF_A_LABEL, AskedKind, assumed_kinds, counted_kinds
from trajpilot_core.vlm.cost.statement import PAPERS_SHAPE, bytes_text, hours, hours_text, model_memory, questions_text
from trajpilot_core.vlm.cost.tokens import TokenCount
from trajpilot_core.vlm.cost.tuning import tuning_memory, tuning_text
from trajpilot_core.vlm.local.adapters import adapter_faults
from trajpilot_core.vlm.local.folder import READING, SEEING, TUNABLE, ModelFolder, adapter_folder, model_folder
from trajpilot_core.vlm.local.rules import image_rules
from trajpilot_core.vlm.local.shape import PAPERS, ModelShape, missing_tensors, model_shape

ROOMS = tuple(f"{what} of {name}" for what in ("memory", "GPU memory") for name in ("vlm.model", "vlm.filler"))
"""Findings that `--ignore-needs` lets pass."""


def check_vlm(config: PipelineConfig, run: RunOptions) -> list[HealthFinding]:
    """Look at the models that rows of a run ask, and state what that costs; nothing where no model is asked.

    Args:
        config: of the run.
        run: whose root tells how many windows there are; before it does, the paper's sizes count.
    """
    if not config.vlm.rows or config.vlm.backend == "stub":
        return []
    cfg = vlm.completed(config)
    inputs, sizes = known_of(config, run)
    found = [*check_recogniser(cfg), *findings(cfg, run.device, inputs, sizes)]
    return [
        replace(one, verdict="note") if run.ignore_needs and one.what in ROOMS and one.verdict == "bad" else one
        for one in found
    ]


def check_recogniser(cfg: VlmConfig) -> list[HealthFinding]:
    """Note before anything is asked that a row will be called untuned: another name is another question."""
    is_named = cfg.tuning.is_asked or tuned_name(cfg.adapter) or (cfg.backend == "transformers" and cfg.adapter)
    if is_named or "qwen_sft_llm" not in cfg.rows:
        return []
    expected, todo = "a name, @ and 16 or more digits of the sha256 of the tuned weights", "serve and name them so"
    found = f"{cfg.adapter or 'none'}: the row will be called UNTUNED"
    return [HealthFinding("vlm.adapter", expected, found, "note", todo)]


def check_tuning(config: PipelineConfig, run: RunOptions) -> list[HealthFinding]:
    """Look at the model whose recogniser a run tunes, and state what that takes; nothing where none is tuned.

    Args:
        config: of the run.
        run: whose root tells how many segments there are; before it does, the paper's sizes count.
    """
    if not config.vlm.tuning.is_asked:
        return []
    cfg, (_, sizes) = vlm_tuning.completed(config), known_of(config, run)
    what, expected = "weights of vlm_tuning", f"a folder with {' or '.join(TUNABLE)}"
    try:
        folder = model_folder("vlm.model", cfg.model, TUNABLE)
        shape = model_shape(folder, "vlm.model")
    except InputError as error:
        return [HealthFinding(what, expected, str(error), "bad", "tune a model of that kind, whole")]
    share = sizes.windows.get("train", 0) / max(1, sizes.all_windows)
    (kind,) = [one for one in assumed_kinds(sizes, cfg.replace(rows=("qwen_sft_llm",))) if one.question == "segment"]
    memory = tuning_memory(shape, kind.longest, cfg.tuning, recomputes=device_of(run.device) != "cpu")
    needed = f">= {size_text(memory.bytes)}, an estimate: {memory.text()}"
    rooms = _rooms("vlm_tuning", memory.bytes, memory.weights, needed, run.device, stops=not run.ignore_needs)
    said = tuning_text(shape, round(sizes.segments * share), kind.longest, cfg)
    size = f"{folder.kind}, {size_text(shape.weight_bytes)}"
    found = [HealthFinding(what, expected, size, "ok"), *rooms]
    return [*found, HealthFinding("hours of vlm_tuning", "an estimate", said, "note")]


def device_of(device: str) -> str:
    """Return the device that is used; one that is not there, which its own check reports, counts as the CPU."""
    try:
        return resolve_device(device)
    except InputError:
        return "cpu"


def known_of(config: PipelineConfig, run: RunOptions) -> tuple[Inputs | None, CorpusSizes]:
    """Return what the stage `vlm` reads, None before all of it is there; and the sizes of what lies below the root."""
    folder, stages = open_folder(run.root, run.protocols), stages_of(config)
    held = [made for made in manifests_of(folder, stages).values() if made is not None]
    entries = {name: (made.stage, entry) for made in held for name, entry in made.entries.items()}
    sizes = sizes_of(folder, entries, config)
    try:
        return resolve_inputs(folder, stages[vlm.NAME].under(config), stages), sizes
    except StoreError:
        return None, sizes


def findings(cfg: VlmConfig, device: str, inputs: Inputs | None, sizes: CorpusSizes | None) -> list[HealthFinding]:
    """Return what is said of the models and the questions of the stage `vlm`.

    Args:
        cfg: of the stage.
        device: auto, cpu, cuda or cuda:<number>.
        inputs: of the stage; None: they are not there yet.
        sizes: count where there are no inputs; may be None where there are.
    """
    found, shapes = check_models(cfg)
    if any(one.verdict == "bad" for one in found):
        return found
    if inputs is not None:
        kinds, basis = counted_kinds(inputs, cfg), ""
    else:
        assert sizes is not None
        kinds = assumed_kinds(sizes, cfg)
        basis = ", at the paper's sizes" if sizes.assumed else ", at the sizes below this root"
    how = TokenCount(cfg.model, cfg).how if inputs is not None else f"{OF_A_LABEL} tokens a label assumed"
    said = HealthFinding("questions of vlm", "stated before they are asked", questions_text(kinds, how) + basis, "ok")
    found.append(said)
    if cfg.backend != "transformers":
        found.append(HealthFinding("bytes of vlm", "stated before they are sent", bytes_text(kinds, cfg), "ok"))
    for name, shape in shapes.items():
        own = [one for one in kinds if one.fills is (name == "vlm.filler")]
        found += check_questions(name, shape, own, cfg, device, is_known=inputs is not None)
    return found


def check_models(cfg: VlmConfig) -> tuple[list[HealthFinding], dict[str, ModelShape | None]]:
    """Look at the folders of the models; return what was found, and setting -> shape, None where no folder says it."""
    named = {"vlm.model": (cfg.model, SEEING)}
    if "qwen_sft_llm" in cfg.rows:
        named["vlm.filler"] = (cfg.filler, READING)
    found: list[HealthFinding] = []
    shapes: dict[str, ModelShape | None] = {}
    if cfg.backend != "transformers":
        for name, (place, _) in named.items():
            expected = "a name that the answering program knows"
            found.append(HealthFinding(f"weights of {name}", expected, f"{place}: only that program finds out", "note"))
        return found, dict.fromkeys(named)
    for name, (place, kinds) in named.items():
        expected = f"a folder with {' or '.join(kinds)}, its tokenizer and safetensors"
        try:
            folder = model_folder(name, place, kinds)
            shapes[name] = shape = model_shape(folder, name)
            lacking = missing_tensors(folder, shape.layers)
            if folder.sees:
                image_rules(folder.path)
        except InputError as error:
            found.append(HealthFinding(f"weights of {name}", expected, str(error), "bad", "put the whole files there"))
            continue
        size = f"{folder.kind}, {size_text(shape.weight_bytes)} in {len(folder.weights)} files"
        fault = f"; {len(lacking)} tensors are missing, {lacking[0]} for one" if lacking else ""
        verdict: HealthVerdict = "bad" if lacking else "ok"
        todo = "copy the repository's files again" if lacking else ""
        found.append(HealthFinding(f"weights of {name}", expected, size + fault, verdict, todo))
        if name == "vlm.model" and not lacking:
            found += check_adapter(cfg, folder)
    return found, shapes


def check_adapter(cfg: VlmConfig, model: ModelFolder) -> list[HealthFinding]:
    """Look at the tuned weights of the recogniser: are they whole, those that were tuned, and this model's?"""
    what, expected = "weights of vlm.adapter", "files of peft that fit vlm.model, and peft"
    try:
        folder = adapter_folder(cfg)
    except InputError as error:
        return [HealthFinding(what, expected, str(error), "bad", "name the folder that `trajpilot vlm tune` left")]
    if folder is None:
        return []
    faults = adapter_faults(folder, model)
    if importlib.util.find_spec("peft") is None:
        faults.append("peft is not installed (`pip install -e .[vlm]`)")
    if faults:
        todo = "name the adapter of this model, whole, and install the extra vlm"
        return [HealthFinding(what, expected, "; ".join(faults), "bad", todo)]
    return [HealthFinding(what, expected, str(Path(folder)), "ok")]


def check_questions(
    name: str, shape: ModelShape | None, kinds: Sequence[AskedKind], cfg: VlmConfig, device: str, *, is_known: bool
) -> list[HealthFinding]:
    """Compare the longest prompt and the memory that it takes with what the model reads and the device has.

    Args:
        name: the setting that names the model.
        shape: of the model; None: no folder says, so that nothing can stop a run.
        kinds: its questions.
        cfg: of the stage.
        device: auto, cpu, cuda or cuda:<number>.
        is_known: the questions are those of this root; else what is too much is noted.
    """
    size, own = shape or PAPERS[name == "vlm.model"], shape is not None
    aside = "" if own else f"; {PAPERS_SHAPE}"
    stops = own and is_known
    longest = max((one.longest + one.most_new for one in kinds), default=0)
    fits = longest <= size.longest
    found = [
        HealthFinding(
            f"longest prompt of {name}",
            f"<= {size.longest:,} tokens with its answer{aside}",
            f"{longest:,}",
            "ok" if fits else "bad" if stops else "note",
            "" if fits else "name a model that reads more, or ask in a run with fewer labels",
        )
    ]
    memory, time = model_memory(size, kinds), hours(size, kinds, cfg)
    expected = f">= {size_text(memory.bytes)}, an estimate: {memory.text()}{aside}"
    if own:
        found += _rooms(name, memory.bytes, memory.weights, expected, device, stops=stops)
    else:
        found.append(HealthFinding(f"memory of {name}", expected, "on the machine that answers", "note"))
    return [*found, HealthFinding(f"hours of {name}", "an estimate", hours_text(time, cfg) + aside, "note")]


def _rooms(name: str, needed: int, weights: int, expected: str, device: str, *, stops: bool) -> list[HealthFinding]:
    """Compare the memory of the device, and of the host through which weights pass, with what a model needs."""
    try:
        used = resolve_device(device)
    except InputError:
        return []  # the device's own check says so
    rooms = [("memory", needed if used == "cpu" else weights, free_memory())]
    rooms += [("GPU memory", needed, gpu_memory(used))] if used != "cpu" else []
    found = []
    for what, least, free in rooms:
        fits = free is None or least <= free
        has = "this system does not say" if free is None else size_text(free)
        wanted = expected if least == needed else f">= {size_text(weights)}, through which weights are read"
        todo = "use a machine with more, a smaller model, fewer vlm.n_frames, or another vlm.backend"
        verdict: HealthVerdict = "bad" if stops else "note"
        if fits:
            verdict = "note" if free is None else "ok"
        found.append(HealthFinding(f"{what} of {name}", wanted, has, verdict, "" if fits else todo))
    return found
