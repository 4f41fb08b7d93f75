"""What the recipes that train an encoder-decoder share: keys of tokenizer and training, batches, training, pictures."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

import zoo
from recipes.common.batching import PairBatches
from recipes.common.config import setting
from recipes.common.parallel_text import TextPair
from recipes.common.run_folder import RunFolder
from recipes.common.tokenizers import TokenizerConfig
from recipes.common.training import TrainingConfig, make_optimizer, train
from zoo.inspect import plot_attention, plot_position_encoding
from zoo.training import TokenCount, TokenCrossEntropy, TokenNegativeLogLikelihood


@dataclasses.dataclass(frozen=True)
class JointTokenizerConfig(TokenizerConfig):
    """The tokenizer, trained on both sides of the training data."""

    kind: Literal["bpe", "unigram"] = setting("bpe", "Kind of SentencePiece model.")
    vocabulary_size: int = setting(110, "Number of tokens, special ones included.")
    split_digits: bool = setting(True, "Whether each digit is a token of its own.")


@dataclasses.dataclass(frozen=True)
class Seq2SeqTrainingConfig(TrainingConfig):
    """How the model is trained."""

    # the schedule does not depend on how long the training is, so a resumed run may be longer
    epochs: int = setting(5, "Most passes over the training data.", harmless=True)
    schedule: Literal["inverse_square_root"] = setting(
        "inverse_square_root", "How the learning rate falls after the warm-up."
    )
    optimizer: Literal["adam"] = setting("adam", "The optimizer.")
    learning_rate: float = setting(0.002, "Peak of the learning rate.")
    warmup_steps: float = setting(300, "Updates up to the peak; below 1 their share of all updates.")
    beta_2: float = setting(0.98, "Adam's second decay rate.")
    epsilon: float = setting(1e-9, "Adam's epsilon.")
    clip_norm: float | None = setting(None, "Norm that the whole gradient is clipped to.")
    tokens_per_batch: int = setting(4096, "Tokens of a batch: source and target together, padding included.")
    number_of_buckets: int = setting(6, "Most distinct lengths that texts are padded to.")
    label_smoothing: float = setting(0.1, "Probability mass spread over the vocabulary.")
    samples: int = setting(4, "Texts whose outputs are shown at every validation.", harmless=True)


def make_pair_batches(
    training: Seq2SeqTrainingConfig,
    model: zoo.Seq2SeqLM,
    train_pairs: Iterable[TextPair],
    validation_pairs: Iterable[TextPair],
    *,
    max_source_length: int,
    max_target_length: int,
) -> tuple[PairBatches, PairBatches]:
    """Returns training and validation batches, and says what was left out.

    Args:
        training: The configuration.
        model: The model, whose tokenizer and start tokens are taken.
        train_pairs: Training pairs.
        validation_pairs: Validation pairs.
        max_source_length: Longest source in tokens, end token included; longer ones are dropped.
        max_target_length: Longest target likewise.
    """

    def make(name: str, pairs: Iterable[TextPair], shuffle: bool) -> PairBatches:
        batches = PairBatches(
            pairs,
            model.tokenizer,
            add_start_token=model.adds_start_token,
            decoder_start_id=model.decoder_start_id,
            tokens_per_batch=training.tokens_per_batch,
            max_source_length=max_source_length,
            max_target_length=max_target_length,
            number_of_buckets=training.number_of_buckets,
            shuffle=shuffle,
            seed=training.seed,
        )
        print(
            f"{name}: {batches.number_of_pairs} pairs, {batches.number_of_tokens} tokens, "
            f"{batches.number_of_batches} batches of lengths {batches.bucket_lengths}; {batches.dropped.report()}"
        )
        bad = getattr(pairs, "bad_lines", None)
        if bad is not None and bad.total:
            print(f"{name}: {bad.report()}")
        return batches

    return make("training", train_pairs, True), make("validation", validation_pairs, False)


def compile_seq2seq(model: zoo.Seq2SeqLM, training: Seq2SeqTrainingConfig, batches: PairBatches) -> None:
    """Compiles a model with the optimizer, loss and metrics of its training.

    Args:
        model: The model.
        training: The configuration.
        batches: The training batches.
    """
    model.compile(
        optimizer=make_optimizer(training, batches.number_of_batches, model),
        loss=TokenCrossEntropy(training.label_smoothing),
        weighted_metrics=[TokenNegativeLogLikelihood(name="nll"), TokenCount()],
        jit_compile=training.jit_compile,
    )


def train_seq2seq(
    model: zoo.Seq2SeqLM,
    run: RunFolder,
    training: Seq2SeqTrainingConfig,
    batches: PairBatches,
    validation_batches: PairBatches,
    validation: Sequence[TextPair],
) -> float:
    """Trains a model, showing outputs at every validation, and returns the seconds of this process.

    Args:
        model: The compiled model.
        run: The run folder.
        training: The configuration.
        batches: Training batches.
        validation_batches: Validation batches.
        validation: The validation pairs, of which the first ones are shown.
    """
    pairs = pairs_that_fit(model, validation, training.samples)

    def samples() -> list[str]:
        outputs = model.generate([pair.source for pair in pairs], jit_compile=False)
        return [
            f"{pair.source}\n  -> {output}\n   ({pair.target})" for pair, output in zip(pairs, outputs, strict=True)
        ]

    return train(
        model,
        run,
        training,
        batches,
        validation_batches.dataset,
        curves={"training, smoothed": "loss", "training": "nll", "validation": "val_nll"},
        monitor="val_nll",
        samples=samples,
    )


def pairs_that_fit(model: zoo.Seq2SeqLM, pairs: Iterable[TextPair], count: int) -> list[TextPair]:
    """Returns the first pairs whose source is not longer than the model.

    Args:
        model: The model.
        pairs: Pairs.
        count: Most pairs to return.
    """
    # beside its tokens a source has an end token
    fitting = (pair for pair in pairs if len(model.tokenizer.tokenize(pair.source)) < model.backbone.config.max_length)
    return list(itertools.islice(fitting, count))


def draw_seq2seq(run: RunFolder, model: zoo.Seq2SeqLM, source: str) -> None:
    """Draws cross-attention with tokens on the axes, and the position encoding, where the model has them.

    Args:
        run: The run folder.
        model: The trained model.
        source: The text whose output is looked at.
    """
    position = getattr(model.backbone.decoder, "position", None)
    if position is not None and position.acts_on_embeddings():
        encoding = position(np.arange(min(100, model.backbone.config.max_length)))
        plot_position_encoding(np.asarray(encoding, "float32"), run.plots / "positions.png")
    tokenizer = model.tokenizer
    output = model.generate(source, jit_compile=False, truncate=True)
    inputs, labels, _ = model.preprocess([source], [output])
    cross_attention = model.backbone.attention_weights(inputs).get("cross")
    if not cross_attention:
        return
    tokens = [
        [tokenizer.id_to_token(int(token_id)).replace("\u2581", " ") for token_id in np.asarray(ids)[0]]
        for ids in (labels, inputs["encoder_token_ids"])
    ]
    plot_attention(
        np.mean(np.asarray(cross_attention[-1], "float32")[0], axis=0),
        *tokens,
        run.plots / "cross_attention.png",
        title="Cross-attention of the last block, mean over heads",
    )
