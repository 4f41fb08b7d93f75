"""The configuration of a recurrent encoder-decoder."""

import dataclasses
from typing import ClassVar

from layers.recurrent.decoder import ATTENTIONS, BRIDGES
from layers.recurrent.layer import NETWORKS
from layers.recurrent.readout import READOUTS
from layers.recurrent.sampling import check_schedule
from layers.recurrent.window import CENTERS
from zoo.config.checks import require, require_in_use, require_positive, require_rates, require_types
from zoo.config.model import ModelConfig

SCORES = ("additive", "dot", "scaled_dot", "bilinear")
FEEDINGS = ("teacher_forcing", "free_running", "scheduled_sampling")


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """A recurrent encoder-decoder, with soft attention or a fixed context.

    Args:
        vocabulary_size: Number of tokens, joint for both sides.
        embedding_dim: Width of the token embeddings.
        hidden_dim: Width of the state of each decoder layer.
        encoder_dim: Width of the state of each encoder layer and direction; None for `hidden_dim`.
        num_layers: Number of encoder layers.
        num_decoder_layers: Number of decoder layers; None for `num_layers`.
        max_length: Longest sequence that the model is made for, in tokens.
        cell: "simple", "gru" or "lstm".
        reset_after: Whether the reset gate of a GRU acts after the matrix product, see `layers.RecurrentLayer`.
        bidirectional: Whether the encoder reads in both directions.
        reverse_source: Whether an encoder of one direction reads from the end (Sutskever et al. 2014, section 3.3).
        bridge: How the decoder's initial states are computed from the encoder's last states: "dense", "copy",
            "backward" or "context", see `layers.RecurrentDecoder`.
        attention: "none" (fixed context), "previous_state" (Bahdanau et al. 2015) or "current_state" (Luong et al.
            2015).
        score: "additive", "dot", "scaled_dot" or "bilinear".
        score_units: Width of the hidden layer of "additive"; None for `hidden_dim`.
        window: Number of positions on each side that local attention sees; None for global attention.
        window_center: "predicted" (local-p) or "monotonic" (local-m).
        input_feeding: Whether the previous readout is part of the decoder's input (Luong et al. 2015, section 3.3).
        context_input: Whether a fixed context is part of the decoder's input at every step (Cho et al. 2014).
        readout: The vector from which logits are computed: "state", "attentional", "concatenation" or "maxout", see
            `layers.RecurrentReadout`.
        readout_dim: Width of "attentional" and "maxout"; None for `hidden_dim`.
        share_embeddings: Whether source and target share one embedding.
        tie_output: Whether the output projection is the transposed target embedding. Readout and embedding must then
            have the same width.
        dropout: Rate of the dropout on the inputs of each layer and on the readout.
        feeding: Tokens that the decoder reads in training: "teacher_forcing" (true tokens), "free_running" (its own
            tokens) or "scheduled_sampling" (true tokens at first, its own later; Bengio et al. 2015).
        feeding_choice: How its own tokens are chosen: "argmax" or "sample".
        schedule: Decay of the probability of a true token, see `layers.ScheduledSampling`: "linear", "exponential" or
            "inverse_sigmoid"; None unless `feeding` is "scheduled_sampling".
        schedule_constant, schedule_slope, schedule_minimum: Arguments of `layers.ScheduledSampling`, per training
            batch.

    Raises:
        ValueError: If a choice is out of range. The message names it, its value and what is allowed.

    Example:

    >>> config = RecurrentConfig(vocabulary_size=1000, hidden_dim=64, attention="previous_state", readout="maxout")
    >>> RecurrentConfig.from_json(config.to_json()) == config
    True
    """

    kind: ClassVar[str] = "recurrent"
    architecture: ClassVar[str] = "encoder_decoder"

    vocabulary_size: int
    embedding_dim: int = 256
    hidden_dim: int = 256
    encoder_dim: int | None = None
    num_layers: int = 1
    num_decoder_layers: int | None = None
    max_length: int = 512
    cell: str = "gru"
    reset_after: bool = True
    bidirectional: bool = True
    reverse_source: bool = False
    bridge: str = "dense"
    attention: str = "none"
    score: str = "additive"
    score_units: int | None = None
    window: int | None = None
    window_center: str = "predicted"
    input_feeding: bool = False
    context_input: bool = False
    readout: str = "state"
    readout_dim: int | None = None
    share_embeddings: bool = False
    tie_output: bool = False
    dropout: float = 0.0
    feeding: str = "teacher_forcing"
    feeding_choice: str = "argmax"
    schedule: str | None = None
    schedule_constant: float = 1.0
    schedule_slope: float = 0.0
    schedule_minimum: float = 0.0

    def __post_init__(self) -> None:
        require_types(self)
        for name, allowed in (
            ("cell", tuple(NETWORKS)),
            ("bridge", BRIDGES),
            ("attention", ATTENTIONS),
            ("score", SCORES),
            ("window_center", CENTERS),
            ("readout", READOUTS),
            ("feeding", FEEDINGS),
            ("feeding_choice", ("argmax", "sample")),
        ):
            require(getattr(self, name) in allowed, name, getattr(self, name), f"one of {allowed}")
        require_positive(
            self,
            "",
            *("vocabulary_size", "embedding_dim", "hidden_dim", "num_layers", "num_decoder_layers", "max_length"),
            *("encoder_dim", "score_units", "window", "readout_dim"),
        )
        require_rates(self, "", "dropout")
        self._require_parts_that_fit()
        self._require_options_in_use()
        self._require_schedule()

    def _require_parts_that_fit(self) -> None:
        same_width = self.memory_dim == self.hidden_dim
        if self.bridge == "copy":
            require(
                same_width and (self.num_decoder_layers or self.num_layers) <= self.num_layers,
                "bridge",
                self.bridge,
                f"another than 'copy' where the encoder's width, {self.memory_dim} for all directions, is not "
                f"hidden_dim={self.hidden_dim}, or the decoder has more layers",
            )
        if self.bridge == "backward":
            require(self.bidirectional, "bridge", self.bridge, "another than 'backward' with bidirectional=False")
        if self.attention != "none" and self.score in ("dot", "scaled_dot"):
            require(
                same_width,
                "score",
                self.score,
                f"'additive' or 'bilinear' where the encoder's width, {self.memory_dim} for all directions, is not "
                f"hidden_dim={self.hidden_dim}",
            )
        if self.tie_output:
            require(
                self.readout_width == self.embedding_dim,
                "tie_output",
                self.tie_output,
                f"False where the readout has the width {self.readout_width} and embedding_dim={self.embedding_dim}",
            )

    def _require_options_in_use(self) -> None:
        """A choice that would have no effect must be left at its default."""
        no_attention = "with attention='none'"
        require_in_use(
            self,
            "",
            ("reset_after", self.cell == "gru", f"with cell={self.cell!r}"),
            ("reverse_source", not self.bidirectional, "with bidirectional=True"),
            ("score", self.attention != "none", no_attention),
            ("score_units", self.attention != "none" and self.score == "additive", "unless score='additive' is used"),
            ("window", self.attention != "none", no_attention),
            ("window_center", self.window is not None, "without a window"),
            ("input_feeding", self.attention == "current_state", f"with attention={self.attention!r}"),
            ("context_input", self.attention == "none", f"with attention={self.attention!r}"),
            ("readout_dim", self.readout in ("attentional", "maxout"), f"with readout={self.readout!r}"),
            ("feeding_choice", self.feeding != "teacher_forcing", "with feeding='teacher_forcing'"),
            ("schedule", self.feeding == "scheduled_sampling", f"with feeding={self.feeding!r}"),
            ("schedule_constant", self.schedule is not None, "without a schedule"),
            ("schedule_slope", self.schedule is not None, "without a schedule"),
            ("schedule_minimum", self.schedule is not None, "without a schedule"),
        )
        require(
            self.bridge != "context" or self.context_input,
            "bridge",
            self.bridge,
            "another than 'context' with context_input=False",
        )
        require(
            not self.input_feeding or self.readout == "attentional",
            "readout",
            self.readout,
            "'attentional' with input_feeding=True",
        )
        require(
            self.attention != "current_state" or self.readout != "state",
            "readout",
            self.readout,
            "another than 'state' with attention='current_state', whose context only the readout reads",
        )

    def _require_schedule(self) -> None:
        if self.feeding != "scheduled_sampling":
            return
        require(self.schedule is not None, "schedule", self.schedule, "given with feeding='scheduled_sampling'")
        check_schedule(self.schedule, self.schedule_constant, self.schedule_slope, self.schedule_minimum)

    @property
    def memory_dim(self) -> int:
        """Width of the encoder's outputs."""
        return (self.encoder_dim or self.hidden_dim) * (2 if self.bidirectional else 1)

    @property
    def readout_width(self) -> int:
        """Width of the vector from which logits are computed."""
        if self.readout != "concatenation":
            return self.readout_dim or self.hidden_dim
        fixed = self.hidden_dim if self.context_input else 0
        context = self.memory_dim if self.attention != "none" else fixed
        return self.hidden_dim + context + self.embedding_dim
