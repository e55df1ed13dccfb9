"""Settings of the planners of other papers: sizes, losses and training, each with its original's value.

Sources: "SCHEMA" is github.com/WenliangGuo/SCHEMA at 15e64be, "ViterbiPlanNet" github.com/Gigi-G/ViterbiPlanNet at
47a698b, "PDPP" github.com/MCG-NJU/PDPP at e9fd98a. Where a value differs between the original's data sets, it is that
of CrossTask.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record


class PlannerTraining(Record):
    """AdamW without warm-up and without a clip, its learning rate lowered in steps."""

    lr: float = Field(gt=0)
    """Learning rate of the first epoch."""
    batch: int = Field(256, ge=1)
    """Windows per optimiser step."""
    epochs: int = Field(ge=1)
    """Epochs of the original; its optimiser steps bound those of a search."""
    step_epochs: int | None = Field(40, ge=1)
    """The learning rate is multiplied by `gamma` after every so many epochs; None: it has a rule of its own."""
    gamma: float = Field(0.65, gt=0, le=1)
    """Factor of the learning rate at each step."""
    weight_decay: float = Field(0.01, ge=0)
    """On every parameter. Default: that of torch's AdamW, which SCHEMA and ViterbiPlanNet leave as it is."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW. Default: torch's."""


class EndpointPlannerConfig(Record):
    """Shared by SCHEMA and ViterbiPlanNet: the state encoder with its contrast, the task head, a post-norm layer."""

    width: int = Field(128, ge=2, multiple_of=2)
    """Width of states, sentences and tokens."""
    heads: int = Field(ge=1)
    """Heads of every attention."""
    layers: int = Field(ge=1)
    """Transformer layers."""
    mlp_ratio: int = Field(2, ge=1)
    """Width of hidden layers over `width`."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout everywhere except in the state encoder."""
    input_dropout: float = Field(0.4, ge=0, lt=1)
    """Dropout on features and descriptions in the state encoder."""
    temperature: float = Field(0.07, gt=0)
    """Initial value of the contrast of states and descriptions; it is learned, without a clamp."""
    state_weight: float = Field(1.0, ge=0)
    """Weight of the contrast's loss; that of the actions is 1."""
    task_weight: float = Field(1.0, ge=0)
    """Weight of the task's loss."""


class SchemaConfig(EndpointPlannerConfig):
    """SCHEMA: states between the actions are decoded first, then the actions. Source: SCHEMA, tools/parser.py,
    main.py, and the settings in checkpoints/*/T3_log_eval.txt."""

    heads: int = Field(32, ge=1)
    """Source: SCHEMA."""
    layers: int = Field(2, ge=1)
    """Layers of each of the two decoders. Source: SCHEMA."""
    has_task_input: bool = True
    """The state decoder reads the task head's output; off on NIV. Source: SCHEMA."""
    middle_weight: float = Field(0.1, ge=0)
    """Weight of the regression of the states in between to their descriptions. Source: SCHEMA, main.py."""
    train: PlannerTraining = PlannerTraining(lr=4e-3, epochs=500)
    """COIN 5e-3, NIV 3e-3. Source: SCHEMA's published scripts."""


class ViterbiPlanNetConfig(EndpointPlannerConfig):
    """ViterbiPlanNet: emissions of all steps at once, through a differentiable Viterbi layer. Source: ViterbiPlanNet,
    models/modules.py and README."""

    heads: int = Field(1, ge=1)
    """Source: ViterbiPlanNet."""
    layers: int = Field(1, ge=1)
    """Source: ViterbiPlanNet."""
    floor: float = Field(1e-10, gt=0)
    """Smallest transition before rows are normalised, smallest emission of a second pass. Source: ViterbiPlanNet."""
    train: PlannerTraining = PlannerTraining(lr=9e-4, epochs=500)
    """Source: ViterbiPlanNet, README."""


class PdppConfig(Record):
    """PDPP: a diffusion over the actions of a plan. Source: PDPP, utils/args.py, main_distributed.py, inference.py."""

    width: int = Field(256, ge=32, multiple_of=32)
    """Channels of the first level, and of the time's embedding. Source: PDPP, main_distributed.py."""
    multiples: tuple[int, ...] = Field((1, 2, 4), min_length=1)
    """Channels of each level over `width`. Source: PDPP, main_distributed.py."""
    times: int = Field(200, ge=1)
    """Times of the diffusion; 50 on NIV. Source: PDPP."""
    sampling_steps: int | None = Field(10, ge=1)
    """Steps of DDIM; None: DDPM at all times. Source: PDPP, inference.py. A second row samples with DDPM:
    `PlannersConfig.has_ddpm_row`, which is there because trainings depend on everything here."""
    end_weight: float = Field(10.0, ge=0)
    """Weight of the first and last action in the loss; that of the others is 1. Source: PDPP, model/helpers.py."""
    summed_windows: int = Field(32, ge=1)
    """The loss is a sum over this many windows, whatever the batch. Source: PDPP, 256 windows on 8 GPUs."""
    average_decay: float = Field(0.995, ge=0, lt=1)
    """Share of the old weights in a step of the moving average. Source: PDPP."""
    average_every: int = Field(10, ge=1)
    """Optimiser steps between two steps of the moving average. Source: PDPP."""
    average_start: int = Field(400, ge=0)
    """Before this optimiser step the moving average copies. Source: PDPP."""
    epoch_steps: int = Field(200, ge=1)
    """Optimiser steps that the original calls an epoch; 50 on NIV. Source: PDPP."""
    train: PlannerTraining = PlannerTraining(lr=5e-4, epochs=120, step_epochs=None, weight_decay=0.0)
    """Linear warm-up over a sixth of all steps, then halved every quarter of them. COIN 1e-5 and 800 epochs, NIV 3e-4
    and 130, CrossTask with the base features 8e-4 and 60. Source: PDPP, README."""


PlannerName = Literal["schema", "pdpp", "viterbi_plan_net"]
PLANNERS: tuple[PlannerName, ...] = ("schema", "pdpp", "viterbi_plan_net")
"""All of them, in the order of the tables."""


class PlannersConfig(Record):
    """The paper's planners of closed vocabularies, trained on our features and windows: one model per method, horizon,
    seed and learning rate. Source: docs/decisions/planners.md."""

    methods: tuple[PlannerName, ...] = ()
    """Planners to train; without any their rows are absent."""
    vocabulary: Literal["labels", "classes"] = "labels"
    """Vocabulary of actions; the rows are absent if the evaluation has another vocabulary."""
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    """Seeds, one model of each per seed."""
    rates: tuple[float, ...] = Field((1.0, 1 / 3, 3.0), min_length=1)
    """Factors of the original's learning rate to try; dev decides, ties go to the first."""
    most_steps: int | None = Field(None, ge=1)
    """Most optimiser steps of one training; None: the original's epochs."""
    patience: int | None = Field(None, ge=1)
    """Stop when dev has not improved for this many epochs; None: never, as the originals."""
    transition_floor: float = Field(1e-10, gt=0)
    """Smallest transition probability, before rows are normalised. Source: ViterbiPlanNet."""
    has_ddpm_row: bool = True
    """Add a row of PDPP with the same weights, sampled with DDPM at all times: `pdpp.times` network passes instead of
    `pdpp.sampling_steps`. No training depends on it. Source: PDPP, utils/eval.py, which selects its checkpoints so."""
    samplings: int = Field(5, ge=1)
    """Number of samplings of the test plans by PDPP, for the spread of its accuracy; the first one is used for its row.
    No training depends on it. Source: docs/decisions/planners.md."""
    schema_net: SchemaConfig = SchemaConfig()
    """SCHEMA."""
    pdpp: PdppConfig = PdppConfig()
    """PDPP."""
    viterbi_plan_net: ViterbiPlanNetConfig = ViterbiPlanNetConfig()
    """ViterbiPlanNet."""

    @property
    def answers_ddpm(self) -> bool:
        """Return whether PDPP has its second row: trained, requested, and the first row does not use DDPM."""
        return self.has_ddpm_row and "pdpp" in self.methods and self.pdpp.sampling_steps is not None
