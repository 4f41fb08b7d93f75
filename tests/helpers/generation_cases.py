"""Options of generation that are drawn in pairs, and the texts that they must give by the definitions, in NumPy.

The reference knows no cache, no padding, no batch and no loop of tensors: for each token it computes the whole text
again, from `numpy_transformer`.
"""

import functools

import keras
import numpy as np
from numpy_transformer import hidden_states, weights
from small_transformers import VOCABULARY, made

from zoo import AttentionConfig, CausalLM
from zoo.generation import (
    BannedTokens,
    Beam,
    Contrastive,
    FrequencyPenalty,
    GenerationOptions,
    LogitBias,
    MinimumLength,
    NoRepeatNGram,
    PresencePenalty,
    RepetitionPenalty,
    Sample,
)

OPTIONS = {
    "position": ["none", "learned", "rotary"],
    "window": [None, 3],
    "heads": [4, 2],
    "sampler": ["greedy", "best of one", "beam", "contrastive"],
    "processor": ["none", "repetition", "frequency", "presence", "ngram", "minimum", "bias", "banned", "several"],
    "ends": ["none", "id", "ids", "sequence"],
    "draft": ["none", "model", "prompt_lookup"],
    "lookahead": [1, 3],
    "prompts": ["one", "equal", "unequal", "single tokens"],
    "limits": ["equal", "unequal"],
    "way": ["at once", "step by step", "continued"],
    "compiled": [False, True],
}
MOST, END, ENDS, SEQUENCE = 6, (3,), (3, 7, 11), ((5,), (9, 2), (4, 4))
PROMPTS = {
    "one": [[5, 6, 7, 5]],
    "equal": [[5, 6, 7, 5], [8, 9, 8, 9]],
    "unequal": [[5, 6], [8, 9, 8, 9, 8], [12, 4, 4]],
    "single tokens": [[5], [17]],
}
BIAS, BANNED = {12: 2.0, 20: -3.0, 3: 1.0}, ((13,), (8, 9))
PENALTY, BEAMS, LENGTH_PENALTY, ALPHA, CANDIDATES = 1.6, 3, 0.8, 0.4, 3
FREQUENCY, PRESENCE = 0.9, 1.4


def is_valid(case):
    has_draft = case["draft"] != "none"
    return not (
        (has_draft and case["sampler"] in ("beam", "contrastive"))
        or (not has_draft and case["lookahead"] != 1)
        or (case["way"] == "continued" and case["sampler"] in ("beam", "contrastive"))
        # a cache that forgets what left the window cannot go back by more tokens than it has to spare
        or (has_draft and case["window"] is not None)
    )


@functools.cache
def model_of(position, window, heads, seed=0):
    """A causal language model, the same one for all cases with these options, which so share compiled programs."""
    pattern = {} if window is None else {"window": (window, 0), "window_layers": (True, False)}
    keras.utils.set_random_seed(seed)
    backbone = made("decoder", position, attention=AttentionConfig(4, num_key_value_heads=heads, **pattern))
    generator = np.random.default_rng(seed)
    for weight in backbone.weights:  # so that texts do not repeat a token
        weight.assign(weight + generator.normal(0, 0.3, weight.shape))
    return CausalLM(backbone)


def of_case(case):
    return model_of(case["position"], case["window"], case["heads"])


def processors_of(case):
    return {
        "none": [],
        "repetition": [RepetitionPenalty(PENALTY)],
        "frequency": [FrequencyPenalty(FREQUENCY)],
        "presence": [PresencePenalty(PRESENCE)],
        "ngram": [NoRepeatNGram(2)],
        "minimum": [MinimumLength(3)],
        "bias": [LogitBias(BIAS)],
        "banned": [BannedTokens(BANNED)],
        "several": [
            RepetitionPenalty(PENALTY),
            FrequencyPenalty(FREQUENCY),
            PresencePenalty(PRESENCE),
            LogitBias(BIAS),
            MinimumLength(3),
        ],
    }[case["processor"]]


def ends_of(case):
    """End tokens and stop sequences."""
    return {"none": ((), ()), "id": (END, ()), "ids": (ENDS, ()), "sequence": ((), SEQUENCE)}[case["ends"]]


def limits_of(case):
    count = len(PROMPTS[case["prompts"]])
    return [MOST] * count if case["limits"] == "equal" else [2, MOST, 4][:count]


def run(case):
    """A list of rows: tokens, and their log-probability or score."""
    model = of_case(case)
    end_ids, sequences = ends_of(case)
    draft = {
        "none": None,
        "model": model_of(case["position"], None, 2, seed=1),
        "prompt_lookup": "prompt_lookup",
    }[case["draft"]]
    options = GenerationOptions(
        MOST,
        {
            "greedy": "greedy",
            "best of one": Sample(0.7, top_k=1),
            "beam": Beam(BEAMS, LENGTH_PENALTY),
            "contrastive": Contrastive(CANDIDATES, ALPHA),
        }[case["sampler"]],
        processors_of(case),
        sequences,
        end_ids,
        pad_id=0,
        lookahead=0 if draft is None else case["lookahead"],
        jit_compile=case["compiled"],
    )
    engine, prompts = model.generator.engine_with(draft), PROMPTS[case["prompts"]]
    session = engine.begin(prompts, options, limits=limits_of(case))
    if case["way"] == "at once":
        session.advance()
    elif case["way"] == "step by step":
        while not session.is_done:
            session.advance(1)
    else:
        # the first two tokens, then the rest with their cache, as texts of their own
        first = engine.begin(prompts, options, limits=[2] * len(prompts)).advance()
        longer = [[*prompt, *text] for prompt, text in zip(prompts, first.generated(), strict=True)]
        session = engine.begin(longer, options, limits=limits_of(case), cache=first.cache()).advance()
    result = session.result()
    return [
        (ids[:length].tolist(), float(score))
        for ids, length, score in zip(result["token_ids"], result["lengths"], result["log_probabilities"], strict=True)
    ]


def expected(case):
    """What `run` must give, row by row."""
    model, rows = of_case(case), []
    for prompt, limit in zip(PROMPTS[case["prompts"]], limits_of(case), strict=True):
        if case["way"] == "continued":
            text, _ = row_of(case, model, prompt, 2)
            prompt = [*prompt, *text[: len(text) - ended(case, text)]]
        rows.append(row_of(case, model, prompt, limit))
    return rows


def row_of(case, model, prompt, limit):
    if case["sampler"] == "beam":
        return _beam(case, model, prompt, limit)
    text, total = [], 0.0
    while len(text) < limit and not ended(case, text):
        logits, hidden = forward(model, [*prompt, *text])
        scores = processed(case, logits, prompt, text)
        if case["sampler"] == "contrastive":
            scores = _contrastive(model, [*prompt, *text], scores, hidden)
        choice = int(np.argmax(scores))
        text.append(choice)
        # the probability of a text is that of the model, whatever processors do
        total += log_softmax(logits)[choice]
    return text, total


def forward(model, tokens):
    """Logits of the next token, and the hidden states of all tokens."""
    hidden = hidden_states(model.backbone, np.array(tokens))
    return hidden[-1] @ weights(model.backbone.token_embedding.table.embeddings).T, hidden


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def ended(case, text):
    """Number of tokens of the end of a text, 0 without one."""
    end_ids, sequences = ends_of(case)
    if text and text[-1] in end_ids:
        return 1
    return max((len(stop) for stop in sequences if tuple(text[-len(stop) :]) == stop), default=0)


def processed(case, x, prompt, text):
    """What the processor of a case makes of logits, or of log-probabilities: -inf forbids a token."""
    x, tokens = x.copy(), [*prompt, *text]
    if case["processor"] in ("repetition", "several"):
        for token in set(tokens):
            x[token] = x[token] / PENALTY if x[token] > 0 else x[token] * PENALTY
    if case["processor"] in ("frequency", "several"):  # of what is generated, not of the prompt
        for token in text:
            x[token] -= FREQUENCY
    if case["processor"] in ("presence", "several"):
        for token in set(text):
            x[token] -= PRESENCE
    if case["processor"] in ("bias", "several"):
        for token, bias in BIAS.items():
            x[token] += bias
    for token in range(VOCABULARY):
        if case["processor"] == "ngram":
            forbidden = (tokens[-1], token) in zip(tokens, tokens[1:], strict=False)
        elif case["processor"] in ("minimum", "several"):
            end = ended(case, [*text, token])
            forbidden = end > 0 and len(text) + 1 - end < 3
        else:
            forbidden = case["processor"] == "banned" and any(
                (*tokens, token)[-len(sequence) :] == sequence for sequence in BANNED
            )
        if forbidden:
            x[token] = -np.inf
    return x


def _contrastive(model, tokens, x, hidden):
    """Su et al. 2022, equation 5: of the most probable tokens, those unlike what stands there already."""
    probabilities, scores = np.exp(log_softmax(x)), np.full(VOCABULARY, -np.inf)
    for token in np.argsort(-x)[:CANDIDATES]:
        new = forward(model, [*tokens, token])[1][-1]
        cosines = hidden @ new / np.linalg.norm(hidden, axis=1) / np.linalg.norm(new)
        scores[token] = (1 - ALPHA) * probabilities[token] - ALPHA * cosines.max()
    return scores


def _beam(case, model, prompt, limit):
    """The best text, and its log-probability after the processor, of a search that always goes to the limit."""
    alive, complete = [(0.0, [])], []
    for length in range(1, limit + 1):
        extensions = []
        for total, text in alive:
            x = processed(case, log_softmax(forward(model, [*prompt, *text])[0]), prompt, text)
            extensions += [(total + gained, [*text, token]) for token, gained in enumerate(x)]
        extensions.sort(key=lambda extension: -extension[0])
        for total, text in extensions[:BEAMS]:
            if ended(case, text) or length == limit:
                complete.append((total / ((5 + length) / 6) ** LENGTH_PENALTY, total, text))
        alive = [extension for extension in extensions if not ended(case, extension[1])][:BEAMS]
    _, total, text = max(complete)
    return text, total


def error(case):
    """The largest error of the score of a row beside its size; 1 where a token is another one."""
    actual, wanted = run(case), expected(case)
    if [tokens for tokens, _ in actual] != [tokens for tokens, _ in wanted]:
        return 1.0
    scores, right = (np.array([score for _, score in rows]) for rows in (actual, wanted))
    return np.max(np.abs(scores - right) / np.maximum(1, np.abs(right)))


def tolerance(case):
    """float32 sums of log-probabilities of tens of nats."""
    return 2e-4
