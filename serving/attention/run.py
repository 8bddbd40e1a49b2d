"""`capture`: load a model, run the tokens through it once, and keep what its attention did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from serving.attention.capture import Capture
from serving.attention.estimate import (
    Estimate,
    estimate_flop,
    estimate_memory,
    free_bytes,
    refuse_beyond,
)
from serving.attention.finish import to_capture
from serving.attention.options import CaptureOptions
from serving.attention.plan import HeadShape, Plan, make_plan
from serving.attention.segments import Segments
from serving.chat import ChatTokenizer
from serving.engine.shape import read_shape
from serving.errors import UsageError
from serving.models import ModelFolder
from serving.progress import Progress, Silent

if TYPE_CHECKING:
    from serving.attention.model import LoadedModel


class AttentionModel:
    """A model whose attention is captured again and again: loaded at the first capture, then kept."""

    def __init__(self, folder: ModelFolder) -> None:
        """Raises: UsageError when the folder's configuration describes no dense decoder."""
        shape = read_shape(folder.path)
        if shape is None:
            raise UsageError(
                f"Expected a decoder with heads, layers and sizes in {folder.path / 'config.json'}, got "
                "another model; capture a Llama-like one."
            )
        self.folder = folder
        self.shape = shape
        self._loaded: LoadedModel | None = None

    def estimate(
        self, segments: Segments, options: CaptureOptions | None = None, *, timed: bool = True
    ) -> Estimate:
        """What a capture will take; `timed` makes a trial of about a second, else the time is unknown."""
        import torch

        plan = self._plan(segments, options)
        memory = estimate_memory(self.folder, self.shape, plan.size, plan.options, torch.get_num_threads())
        scores, flop = estimate_flop(self.shape, plan)
        seconds = None
        if timed:
            from serving.attention.trial import trial_cpu_seconds

            seconds = trial_cpu_seconds(self.folder, plan)
        return Estimate(memory, scores, flop, seconds)

    def capture(
        self,
        token_ids: Sequence[int],
        segments: Segments,
        options: CaptureOptions | None = None,
        progress: Progress | None = None,
    ) -> Capture:
        """See `capture`; the second capture of one model does not load it again."""
        import torch

        from serving.attention.model import refuse_folder

        shown = progress or Silent()
        plan = self._plan(segments, options)
        self._check_tokens(token_ids, segments)
        refuse_folder(self.folder, plan.tokens)
        threads = torch.get_num_threads()
        need = estimate_memory(self.folder, self.shape, plan.size, plan.options, threads)
        kept = 0 if self._loaded is None else need.weights
        refuse_beyond(need, free_bytes() + kept, self.folder, self.shape, plan, threads)
        shown.note(self.estimate(segments, plan.options).in_words())
        loaded = self._load(shown)
        shown.begin("read the tokens", total=plan.shape.num_layers * plan.tokens, unit="rows")
        try:
            arrays = loaded.run(plan, token_ids, shown.advance)
        finally:
            shown.end()
        return to_capture(plan, arrays, loaded.identity, token_ids, self._pieces(token_ids))

    def _pieces(self, token_ids: Sequence[int]) -> tuple[str, ...] | None:
        if not (self.folder.path / "tokenizer.json").is_file():
            return None
        return tuple(token.piece for token in ChatTokenizer(self.folder.path).show(token_ids))

    def _plan(self, segments: Segments, options: CaptureOptions | None) -> Plan:
        heads = HeadShape(
            num_layers=self.shape.num_hidden_layers,
            num_heads=self.shape.num_attention_heads,
            num_kv_heads=self.shape.num_key_value_heads,
            head_dim=self.shape.head_dim,
        )
        return make_plan(heads, segments, options or CaptureOptions())

    def _check_tokens(self, token_ids: Sequence[int], segments: Segments) -> None:
        if len(token_ids) != segments.tokens:
            raise UsageError(
                f"Expected segments over the {len(token_ids):,} tokens, got segments over "
                f"{segments.tokens:,}; build them from the same prompt and output."
            )
        if len(token_ids) > self.folder.max_position_embeddings:
            raise UsageError(
                f"Expected at most the {self.folder.max_position_embeddings:,} tokens that {self.folder.name} "
                f"was made for, got {len(token_ids):,}; shorten the context."
            )
        if wrong := next((i for i in token_ids if not 0 <= i < self.shape.vocab_size), None):
            raise UsageError(
                f"Expected token ids below {self.shape.vocab_size:,}, got {wrong}; render with the tokenizer "
                f"of {self.folder.name}."
            )

    def _load(self, progress: Progress) -> LoadedModel:
        if self._loaded is None:
            from serving.attention.model import load

            progress.begin(f"load {self.folder.name}")
            try:
                self._loaded = load(self.folder)
            finally:
                progress.end()
        return self._loaded


def capture(
    model: ModelFolder,
    token_ids: Sequence[int],
    segments: Segments,
    options: CaptureOptions | None = None,
    progress: Progress | None = None,
) -> Capture:
    """The attention statistics of `token_ids`: a prompt and, after it, what the model generated.

    One forward pass in float32, nothing is generated; the logits are those of plain sdpa, bit for bit. The
    estimate is noted before the run.

    Raises: UsageError for a model whose attention is not plain causal attention
    (`UnsupportedAttentionError`), for tokens beyond its positions, or segments of another length; LabError,
    before anything is loaded, when the machine lacks the memory, with what would fit.
    """
    return AttentionModel(model).capture(token_ids, segments, options, progress)
