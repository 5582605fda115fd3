"""One YAML file = one run: frozen, validated settings; an unknown key is an error that names it."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from trinity_jax.errors import UserError

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=100_000)]
_SECRET = "maybe_a_secret"  # what came is not repeated in the message
Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Group(BaseModel):
    """A group of settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class EncoderSettings(Group):
    """The small language model that reads the conversation."""

    source: str = Field(
        default="embedded", description="`embedded` (SmolLM2-135M from a wheel), a folder, a .gguf file or a hub id"
    )
    revision: str | None = Field(default=None, description="hub revision to pin")
    layers: Positive | None = Field(default=None, description="cut the encoder after this many blocks; null keeps all")
    read_position: int = Field(
        default=-2, le=-1, description="which token's state is h; the paper's is the penultimate"
    )
    input_format: Literal["chat", "plain"] = "chat"
    dtype: Literal["float32", "bfloat16"] = "float32"
    buckets: tuple[Positive, ...] = Field(
        default=(128, 256, 512, 1024), min_length=1, description="padded lengths; one compilation each"
    )
    page: Positive | None = Field(
        default=None,
        description="transcripts that begin alike share their beginning in pages of this many tokens; null: no sharing",
    )
    micro_batch: Positive | None = Field(
        default=None, description="rows per device step; null: on a CPU 1, or 8 pages; elsewhere 32"
    )
    cache_mb: Positive = Field(default=512, description="memory for transcripts already encoded")

    @model_validator(mode="after")
    def _buckets_ascend(self) -> "EncoderSettings":
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets must ascend, got {list(self.buckets)}")
        if self.page and any(size % self.page for size in self.buckets):
            raise ValueError(f"buckets must be multiples of page: {self.page}, got {list(self.buckets)}")
        return self


class SvfSettings(Group):
    """Which matrices get singular-value scales (trinity.md section 4)."""

    preset: Literal["none", "layer", "released", "custom"] = "none"
    layer: int = Field(default=-2, description="block of the `layer` and `released` presets, counted as in Python")
    matrices: tuple[str, ...] = Field(
        default=(), description="for `custom`: names such as `layers.26.q`, `embed`, `lm_head`"
    )
    tied: Literal["last_write", "sequential"] = "last_write"
    scale: float = Field(default=1.0, gt=0, description="a coordinate of 1 means a relative change of this size")

    @model_validator(mode="after")
    def _custom_has_names(self) -> "SvfSettings":
        if (self.preset == "custom") != bool(self.matrices):
            raise ValueError("svf.matrices goes with svf.preset: custom, and only with it")
        return self


class HeadSettings(Group):
    """The map from h to L model logits and 3 role logits (trinity.md section 5)."""

    kind: Literal["linear", "block_diagonal", "low_rank", "sparse"] = "linear"
    blocks: Positive = Field(default=2, description="for block_diagonal: how many blocks")
    rank: Positive = Field(default=20, description="for low_rank: how many numbers stand between h and the logits")


class ReadoutSettings(Group):
    """Coordinates in which the head is evolved (raw is the paper's)."""

    kind: Literal["raw", "centred", "whitened"] = "whitened"
    k: Positive = Field(default=8, description="for whitened: how many principal directions")
    bias: bool = Field(default=True, description="evolve a constant per output too (never with raw)")
    source: Literal["questions", "episodes", "script"] = Field(
        default="questions",
        description="states of the training questions, or those met in one episode each (costs calls): with uniform "
        "choices, or by a script of roles (Worker or Thinker, Verifier, Worker after a rejection) with random models",
    )


class PolicySettings(Group):
    """How logits become a choice."""

    train: Literal["sample", "argmax"] = "sample"
    evaluate: Literal["sample", "argmax"] = "sample"


class EpisodeSettings(Group):
    """The tri-role protocol (trinity.md section 3)."""

    max_calls: Positive = 5
    transcript: Literal["worker_thoughts", "full"] = "worker_thoughts"
    verifier_needs_response: bool = False
    strict_answer_tag: bool = False
    thought_chars: Positive = Field(default=2000, description="condensed thoughts are cut to this many characters")


class PriceSettings(Group):
    """Money per million tokens."""

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)


class ModelSettings(Group):
    """One model of the pool behind an OpenAI-compatible address."""

    name: Name
    model: str
    base_url: str
    api_key_env: str | None = Field(
        default=None, description="environment variable that holds the key; never the key itself"
    )
    max_tokens: Positive = 4096
    temperature: float | None = 0.1
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    price: PriceSettings = PriceSettings()
    concurrency: Positive = 64
    attempts: Positive = 5
    connect_seconds: float = Field(default=10.0, gt=0)
    total_seconds: float = Field(default=300.0, gt=0)

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise PydanticCustomError(
                _SECRET,
                "expected the name of an environment variable, such as OPENROUTER_API_KEY; never the key itself",
            )
        return name


class SimulatedModelSettings(Group):
    """A simulated model: chance of a right answer by task kind and role; `default` covers the rest."""

    name: Name
    worker: dict[str, Share]
    thinker: dict[str, Share] = Field(default_factory=lambda: {"default": 0.5})
    accepts_right: Share = Field(default=0.9, description="as Verifier: chance to accept a right response")
    accepts_wrong: Share = Field(default=0.25, description="as Verifier: chance to accept a wrong response")
    price: PriceSettings = PriceSettings()
    latency_seconds: float = Field(default=0.0, ge=0)


class PoolSettings(Group):
    """Who can be called."""

    kind: Literal["simulated", "endpoints"] = "simulated"
    models: tuple[ModelSettings, ...] = ()
    simulated: tuple[SimulatedModelSettings, ...] = ()
    wrong_concentration: Share = Field(
        default=0.5, description="simulated: 1 puts every wrong reply on one wrong answer, 0 spreads them evenly"
    )
    thinker_boost: float = Field(
        default=0.15, description="simulated: a good suggestion adds this to the Worker's chance"
    )
    shuffle_skills: bool = Field(
        default=False, description="simulated: permute the models' skills per question (a control)"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "PoolSettings":
        have, other = (self.simulated, self.models) if self.kind == "simulated" else (self.models, self.simulated)
        field = "simulated" if self.kind == "simulated" else "models"
        if not have or other:
            raise ValueError(
                f"pool.kind: {self.kind} needs at least one entry in pool.{field} and none in the other list"
            )
        names = [model.name for model in have]
        if len(set(names)) != len(names):
            raise ValueError(f"pool model names must differ, got {names}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names in head order."""
        return tuple(m.name for m in (self.simulated or self.models))


class GeneratedTask(Group):
    """Questions made by reasoning-gym."""

    kind: str = Field(description="name of a family in tasks.generated.KINDS")
    difficulty: Literal["easy", "normal"] = "easy"


class TaskSettings(Group):
    """Questions to train, validate and test on."""

    kind: Literal["generated", "jsonl"] = "generated"
    mix: tuple[GeneratedTask, ...] = Field(
        default=(), description="for generated: families, equally many questions each"
    )
    train_file: Path | None = None
    validation_file: Path | None = None
    test_file: Path | None = None
    train: Count = 48
    validation: Count = 32
    test: Count = 64
    seed: int = Field(default=42, description="seed of the generated questions, apart from the run's")

    @model_validator(mode="after")
    def _files(self) -> "TaskSettings":
        files = (self.train_file, self.validation_file, self.test_file)
        if self.kind == "jsonl" and None in files:
            raise ValueError("tasks.kind: jsonl needs train_file, validation_file and test_file")
        if self.kind == "generated" and (not self.mix or any(files)):
            raise ValueError("tasks.kind: generated needs tasks.mix and no files")
        return self


class RepairSettings(Group):
    """Corrections of evosax 0.3.2's Sep_CMA_ES; all on by default, each a switch for comparisons."""

    separable_learning_rates: bool = True
    no_variance_creep: bool = True
    tie_averaged_weights: bool = True
    std_min: float = Field(default=1e-12, ge=0)


class FitnessSettings(Group):
    """Terms beside the mean reward, as in the released run; off by default."""

    entropy_weight: float = Field(
        default=0.0, ge=0, description="times the entropy of chosen models (nats); released: 0.15"
    )
    turn_weight: float = Field(default=0.0, ge=0, description="times the share of the K calls used; released: 0.1")
    cost_weight: float = Field(default=0.0, ge=0, description="times the mean cost of an episode")


class Sharing(StrEnum):
    """What the candidates of one generation have in common."""

    EVERYTHING = "everything"
    """Common random numbers: questions, keys of the choices, and every call that follows from the same choices."""
    QUESTIONS = "questions"
    """Questions and equal calls, but each draws its choices with keys of its own."""
    NOTHING = "nothing"
    """Own questions, own keys, own calls: the authors' way."""

    @property
    def own_questions(self) -> bool:
        """Whether each candidate draws questions (and pays calls) of its own."""
        return self is Sharing.NOTHING

    @property
    def own_keys(self) -> bool:
        """Whether each candidate draws its choices with keys of its own."""
        return self is not Sharing.EVERYTHING


class SearchSettings(Group):
    """Where random search draws its vectors, around the start."""

    box: Literal["uniform", "gaussian"] = Field(
        default="uniform", description="the paper's box, or the theorem's Gaussian of width learning.sigma0"
    )
    half_width: float = Field(default=0.5, gt=0, description="b of the box [-b, b]^n")


class GradientSettings(Group):
    """Adam's steps in reinforce, grpo and open_es."""

    learning_rate: float = Field(default=0.02, gt=0)
    standardise: bool = Field(
        default=False, description="reinforce, grpo: divide advantages by their group's standard deviation"
    )


class WarmStartSettings(Group):
    """A start for the head: models' rows from single Worker calls on training questions, role rows from a script."""

    kind: Literal["none", "ridge", "sft"] = Field(
        default="none", description="ridge regression of success, or supervised training on the best model"
    )
    roles: Literal["none", "script"] = Field(
        default="none", description="teach the role rows the script that readout.source: script has played"
    )
    questions: Positive | None = Field(default=None, description="how many each model answers; null: all")
    samples: Positive = Field(default=1, description="answers of each model to each question")
    temperature: float = Field(default=0.1, gt=0, description="ridge: the lead in success that is one logit")
    labels: Literal["majority", "mean"] = Field(
        default="majority", description="sft: a model is right by most of its answers, or as often as it is"
    )
    learning_rate: float = Field(default=1e-6, gt=0, description="sft: Adam's; the paper's")
    batch: Positive = Field(default=64, description="sft: questions per step; the paper's")
    steps: Positive = Field(default=1000, description="sft: the paper does not say")

    def calls(self, models: int, train: int) -> int:
        """How many calls it takes."""
        return 0 if self.kind == "none" else models * (self.questions or train) * self.samples


class LearningSettings(Group):
    """How the vector is learned; the paper's way is `sep_cma_es` (trinity.md section 6)."""

    learner: Literal["sep_cma_es", "isotropic_es", "open_es", "random_search", "reinforce", "grpo"] = Field(
        default="sep_cma_es",
        description="all deploy their mean, but random_search the vector with the best (noisy) fitness so far",
    )
    generations: int = Field(default=60, ge=0, description="0 deploys the start")
    population: Annotated[int, Field(ge=4)] | None = Field(default=None, description="null: 4 + 3 ln n, rounded up")
    questions: Positive = Field(default=16, description="training questions per generation")
    repeats: Positive = 1
    common_random_numbers: bool = Field(
        default=True, description="candidates share questions and luck; reinforce and grpo have rules of their own"
    )
    sigma0: float = Field(default=0.03, gt=0)
    step_size: Literal["csa", "tpa"] = "csa"
    active: bool = Field(
        default=False, description="sep_cma_es: bad candidates count against their directions, as in pycma"
    )
    repairs: RepairSettings = RepairSettings()
    search: SearchSettings = SearchSettings()
    gradient: GradientSettings = GradientSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    fitness: FitnessSettings = FitnessSettings()

    @model_validator(mode="after")
    def _fits_the_learner(self) -> "LearningSettings":
        repaired = self.repairs.model_copy(update={"std_min": 0.0}) == RepairSettings(std_min=0.0)
        if self.active and (self.learner != "sep_cma_es" or not repaired):
            raise ValueError("learning.active needs learner: sep_cma_es with every switch of learning.repairs on")
        if self.by_gradient and self.fitness != FitnessSettings():
            raise ValueError(
                f"learning.fitness weighs candidates, but learning.learner: {self.learner} weighs episodes, by their "
                "reward alone; leave it at its default"
            )
        if self.learner == "open_es" and self.population and self.population % 2:
            raise ValueError(
                f"learning.population: open_es draws pairs, expected an even number, got {self.population}"
            )
        if not self.generations and self.warm_start.kind == "none":
            raise ValueError("learning.generations: 0 deploys the start, so learning.warm_start must make one")
        return self

    @property
    def by_gradient(self) -> bool:
        """Whether the learner follows the gradient of its choices' log-probability."""
        return self.learner in ("reinforce", "grpo")

    @property
    def sharing(self) -> Sharing:
        """What candidates share. Those of a gradient learner are one vector: with shared keys they would be one run.

        reinforce plays as many questions as it can; grpo compares episodes of the same question.
        """
        if self.learner == "grpo":
            return Sharing.QUESTIONS
        own = self.learner == "reinforce" or not self.common_random_numbers
        return Sharing.NOTHING if own else Sharing.EVERYTHING


class TrainingSettings(Group):
    """The generation loop."""

    validate_every: Positive = 5
    max_failed_share: Share = Field(default=0.2, description="more episodes than this without a reward stop the run")


class EvaluationSettings(Group):
    """The table at the end."""

    repeats: Positive = Field(default=1, description="episodes per held-out question")
    bootstrap: int = Field(default=10_000, ge=100, description="resamples of the intervals")
    fixed_policy: bool = Field(
        default=True, description="search the best fixed tri-role policy on the training questions"
    )


class JournalSettings(Group):
    """What counts as the same call."""

    reuse: Literal["generation", "run"] = "generation"


class BudgetSettings(Group):
    """Hard caps of a run; null means none."""

    calls: Positive | None = None
    cost: float | None = Field(default=None, gt=0)


class Settings(Group):
    """Everything a run depends on."""

    kind: Literal["train"] = "train"
    seed: int = Field(default=42, ge=0, lt=2**32, description="JAX's keys take 32 bits of it")
    encoder: EncoderSettings = EncoderSettings()
    svf: SvfSettings = SvfSettings()
    head: HeadSettings = HeadSettings()
    readout: ReadoutSettings = ReadoutSettings()
    policy: PolicySettings = PolicySettings()
    episode: EpisodeSettings = EpisodeSettings()
    pool: PoolSettings
    tasks: TaskSettings
    learning: LearningSettings = LearningSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    journal: JournalSettings = JournalSettings()
    budget: BudgetSettings = BudgetSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        if self.head.kind == "block_diagonal" and self.readout.kind == "whitened":
            raise ValueError(
                "head.kind: block_diagonal needs readout.kind: raw or centred (folding would mix the blocks)"
            )
        few = self.readout.source == "questions" and self.readout.k >= self.tasks.train
        if self.readout.kind == "whitened" and few:
            raise ValueError(
                f"readout.k: {self.readout.k} directions need more than tasks.train: {self.tasks.train} questions"
            )
        for name, count in (
            ("questions", self.learning.questions),
            ("warm_start.questions", self.learning.warm_start.questions or 0),
        ):
            if count > self.tasks.train:
                raise ValueError(f"learning.{name}: {count} is more than tasks.train: {self.tasks.train}")
        if self.learning.warm_start.kind != "none" and self.head.kind != "linear":
            raise ValueError(f"learning.warm_start fits rows of head.kind: linear, got {self.head.kind}")
        if self.learning.warm_start.roles == "script" and (
            self.learning.warm_start.kind == "none" or self.readout.source != "script" or self.readout.kind == "raw"
        ):
            raise ValueError(
                "learning.warm_start.roles: script needs a warm_start.kind, and readout.source: script with "
                "readout.kind: centred or whitened"
            )
        if self.learning.by_gradient:
            needs = {
                "svf.preset: none": self.svf.preset == "none",
                "head.kind: linear or block_diagonal": self.head.kind in ("linear", "block_diagonal"),
                "policy.train: sample": self.policy.train == "sample",
            }
            missing = [need for need, met in needs.items() if not met]
            if missing:
                raise ValueError(f"learning.learner: {self.learning.learner} needs {', '.join(missing)}")
        return self


AnySettings = TypeVar("AnySettings", bound=Group)


def load(path: str | Path, overrides: tuple[str, ...] = ()) -> Settings:
    """Read, override and validate the settings of a training run; see `read` and `parse`."""
    return parse(read(path, overrides), str(path))


def read(path: str | Path, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a YAML file and apply ``a.b=value`` overrides (values are YAML); nothing is validated yet.

    A file may hold ``presets``, named groups of settings: ``study.preset=NAME`` lays that one over the file's own
    settings. Overrides count last.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    try:
        data = _yaml(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of settings, got {type(data).__name__}")
    for override in overrides:
        _override(data, override)
    chosen = _preset(data.pop("presets", {}), data, str(path))
    if chosen:
        data = _merged(data, chosen)
        for override in overrides:
            _override(data, override)
    return data


def parse(data: dict[str, Any], where: str, model: type[AnySettings] = Settings) -> AnySettings:
    """Validate a mapping; ``where`` names its origin in messages.

    Raises:
        UserError: naming the key, what is allowed and what came.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError("; ".join(_explain(item, where, model) for item in error.errors())) from error


def dump(settings: Group, path: Path) -> None:
    """Write the resolved settings, every default filled in."""
    path.write_text(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


class _Loader(yaml.SafeLoader):
    """Plain YAML in which a key may stand once: of two groups of one name, the first would be lost unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice} stands there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: such as a date that there is not
        raise UserError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from error


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override}: expected KEY=VALUE, such as learning.generations=5")
    *parents, last = key.split(".")
    node: Any = data
    parsed = _yaml(value, f"--set {override}")
    for parent in parents:
        node = node[_index(node, parent, override)] if isinstance(node, list) else node.setdefault(parent, {})
        if not isinstance(node, dict | list):
            raise UserError(f"--set {override}: {parent} is not a group of settings")
    if isinstance(node, list):
        node[_index(node, last, override)] = parsed
    else:
        node[last] = parsed


def _preset(presets: Any, data: dict[str, Any], where: str) -> dict[str, Any]:
    study = data.get("study")
    name = study.get("preset", "full") if isinstance(study, dict) else "full"
    known = ["full", *presets] if isinstance(presets, dict) else ["full"]
    chosen = presets.get(name, {} if name == "full" else None) if isinstance(presets, dict) else None
    if not isinstance(chosen, dict):
        raise UserError(f"{where}: study.preset: expected one of {', '.join(known)}, got {name!r}")
    return chosen


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Groups are merged, anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _index(items: list[Any], part: str, override: str) -> int:
    if not part.isdecimal() or int(part) >= len(items):
        raise UserError(f"--set {override}: expected a position below {len(items)}, got {part}")
    return int(part)


def _explain(item: Any, where: str, model: type[Group]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "settings"
    if item["type"] == "extra_forbidden":
        group: Any = model
        for part in item["loc"][:-1]:
            # A number is a position in a tuple[X, ...]: its settings are X's.
            field = getattr(group, "model_fields", {}).get(part)
            group = get_args(group)[0] if isinstance(part, int) else field.annotation if field else None
        known = sorted(getattr(group, "model_fields", {}))
        return f"{where}: {key}: unknown key" + (f" (known here: {', '.join(known)})" if known else "")
    hidden = item["type"] == _SECRET or isinstance(item.get("input"), dict | BaseModel)
    came = "" if hidden else f" (got {item.get('input')!r})"
    return f"{where}: {key}: {item['msg']}{came}"
