"""Bodies of PyTRIO's requests, checked on arrival. Fields that are not listed are ignored."""

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from searchr1.engine.errors import Code, EngineError

FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?$", max_length=200)
]
M = TypeVar("M", bound=BaseModel)


class SessionCreate(BaseModel):
    """POST service-sessions."""

    sdk_version: str = ""


class SessionClose(BaseModel):
    """POST service-sessions/{id}/close."""

    status: Literal["ENDED", "CANCELLED"]


class TrainingRunCreate(BaseModel):
    """POST service-sessions/{id}/training-runs."""

    base_model: str = ""
    lora_rank: int = Field(ge=1, le=512)
    train_mlp: bool = True
    train_attn: bool = True
    train_unembed: bool = True
    source_checkpoint_uri: str = ""
    restore_optimizer: bool = False
    seed: int | None = Field(default=None, ge=0, lt=2**63)


class TrainingRunUpdate(BaseModel):
    """PATCH service-sessions/{id}/training-runs/{run}."""

    source_checkpoint_uri: str = Field(min_length=1)
    restore_optimizer: bool = False


class SamplingRunCreate(BaseModel):
    """POST service-sessions/{id}/sampling-runs."""

    base_model: str
    source_checkpoint_uri: str = ""


class Metadata(BaseModel):
    """Where an event belongs."""

    run_id: str
    step: int = 0


class Envelope(BaseModel):
    """POST v1/events."""

    event_id: str = Field(pattern=r"^event_[0-9a-z]{12}$")
    type: Literal[
        "trainer.init_run",
        "trainer.forward",
        "trainer.forward_backward",
        "trainer.optimize_step",
        "trainer.save_state",
        "trainer.save_weights",
        "trainer.end_run",
    ]
    metadata: Metadata
    payload: dict[str, object]


class Chunk(BaseModel):
    """A piece of model input. Images are refused: the engine serves text models."""

    type: Literal["encoded_text"]
    tokens: list[int]


class ModelInput(BaseModel):
    """Tokens, in pieces."""

    chunks: list[Chunk] = Field(min_length=1)

    @property
    def tokens(self) -> list[int]:
        """All tokens in order."""
        return [token for chunk in self.chunks for token in chunk.tokens]


class InitRun(BaseModel):
    """Payload of trainer.init_run; the LoRA settings are those of the run itself."""

    base_model: str
    checkpoint_uri: str | None = None
    load_optimizer: bool = False

    @property
    def source(self) -> str:
        """The checkpoint to start from; empty for none."""
        return self.checkpoint_uri or ""


class Datum(BaseModel):
    """One training sample of T tokens; every list has T items."""

    model_input: ModelInput
    target_ids: list[int] = Field(min_length=1)
    weights: list[FiniteFloat] | None = None
    logprobs: list[FiniteFloat] | None = None
    advantages: list[FiniteFloat] | None = None


class Loss(BaseModel):
    """Loss name and settings."""

    type: str
    config: dict[str, object] = Field(default_factory=dict)


class GradientAccumulation(BaseModel):
    """Totals of the whole call, of which the event may be a part."""

    total_samples: int = Field(gt=0)


class Forward(BaseModel):
    """Payload of trainer.forward and trainer.forward_backward."""

    data: list[Datum] = Field(min_length=1)
    auto_shift: bool = False
    loss: Loss
    gradient_accumulation: GradientAccumulation


class AdamParams(BaseModel):
    """AdamW with decoupled weight decay; `grad_clip_norm` 0 means no clipping."""

    learning_rate: float = Field(ge=0, allow_inf_nan=False)
    beta1: float = Field(ge=0, lt=1)
    beta2: float = Field(ge=0, lt=1)
    eps: float = Field(gt=0, allow_inf_nan=False)
    weight_decay: float = Field(ge=0, allow_inf_nan=False)
    grad_clip_norm: float = Field(ge=0, allow_inf_nan=False)


class OptimizeStep(BaseModel):
    """Payload of trainer.optimize_step."""

    adam_params: AdamParams


class Save(BaseModel):
    """Payload of trainer.save_state and trainer.save_weights."""

    name: Name
    ttl_seconds: int | None = Field(default=None, gt=0)
    overwrite: bool = False
    visibility: Literal["WORKSPACE", "TEMPORARY"] = "WORKSPACE"


class SamplingParams(BaseModel):
    """How to sample. Temperature 0 is greedy; top_k -1 or 0 keeps all ids."""

    max_tokens: int = Field(ge=1)
    temperature: float = Field(default=1.0, ge=0, le=100)
    top_k: int = Field(default=-1, ge=-1)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = None
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list, max_length=64)
    stop_token_ids: list[int] = Field(default_factory=list, max_length=1024)


class SampleRequest(BaseModel):
    """POST v1/sampling-runs/{id}/sample."""

    request_id: str = ""
    prompt: ModelInput
    sampling_params: SamplingParams
    num_samples: int = Field(default=1, ge=1)
    return_text: bool = True
    return_token_logprobs: bool = True
    return_prompt_logprobs: bool = False
    topk_prompt_logprobs: int = Field(default=0, ge=0, le=100)


def parse(model: type[M], value: object, code: Code = Code.INVALID_BODY) -> M:
    """Check a decoded body. Raises EngineError with `code`, naming the first wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise EngineError(code, f"{place}: {first['msg']}") from None
