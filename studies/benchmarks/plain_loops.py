"""The plain per-word loops that our rates are compared with. FROZEN: a change here changes every ratio ever reported.

Written by us from the papers, in the way research scripts are written: whitespace words, dictionaries of lists,
one NumPy call per word, one full sort per output set; of language models one forward per word or one text at a time.
Nothing here is private: NumPy's generator draws, unknown words stay unchanged. They count only where they reach 80% of
the rate at which the published scripts were measured (`PUBLISHED`, CPU-seconds of one thread of a machine of this
class).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

PUBLISHED = {
    "custext_words_per_second": 86_000.0,
    "custext_mapping_seconds": 9.1,
    "santext_words_per_second": 15_600.0,  # at a vocabulary of 10,000 words
    "diffractor_words_per_second": 5_734.0,  # five lists of 5,000 words
    "diffractor_lists_seconds": 36.3,  # the same lists
    "madlib_words_per_second": 125.0,  # at a vocabulary of 20,000 words of 300 dimensions
    "dpmlm_words_per_minute": 1_090.0,  # roberta-base shape, SST-2; with products in bfloat16, stopwords kept
    "dpmlm_draws_per_minute": 609.0,  # of these words those that were drawn
    "dpmlm_sequences_per_draw": 1.56,  # a draw next to a sequence of a 16 x 50 batch of the same model, at most
    "dpbart_documents_per_minute": 98.0,  # bart-base shape, 20 tokens
}
ENOUGH = 0.8

Sets = dict[str, list[str]]
Probabilities = dict[str, list[float]]


def custext_mapping(
    words: list[str], vectors: npt.NDArray[np.float64], k: int, epsilon: float
) -> tuple[Sets, Probabilities]:
    """Build output sets and probabilities (cosine): for each word not yet in a set, score all, sort all, keep k."""
    table = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = {word: row for row, word in enumerate(words)}
    sets: Sets = {}
    probabilities: Probabilities = {}
    for word in words:
        if word in sets:
            continue
        similarities = table @ table[index[word]]
        chosen = [int(row) for row in np.argsort(-similarities)[:k]]
        names = [words[row] for row in chosen]
        for name in names:
            if name in sets:
                continue
            scores = np.array([float(table[row] @ table[index[name]]) for row in chosen])
            spread = scores.max() - scores.min()
            utility = (scores - scores.min()) / spread if spread > 0 else np.zeros(len(scores))
            weights = np.exp(epsilon * utility / 2)
            sets[name] = names
            probabilities[name] = list(weights / weights.sum())
        for row in chosen:
            table[row] = 0.0
    return sets, probabilities


def custext_texts(texts: list[str], sets: Sets, probabilities: Probabilities) -> list[str]:
    """Replace word by word: split at white space, look up, draw, join with blanks; numbers shifted, others kept."""
    released = []
    for text in texts:
        out = []
        for word in text.split():
            if word in sets:
                out.append(np.random.choice(sets[word], p=probabilities[word]))
            elif word.isdigit():
                out.append(str(int(word) + np.random.randint(1000)))
            else:
                out.append(word)
        released.append(" ".join(out))
    return released


def santext_probabilities(vectors: npt.NDArray[np.float32], epsilon: float) -> npt.NDArray[np.float32]:
    """Build the whole matrix of probabilities: all distances, a softmax of every row."""
    norms = (vectors * vectors).sum(axis=1)
    squared = norms[:, None] + norms[None, :] - 2 * vectors @ vectors.T
    scores = -epsilon * np.sqrt(np.maximum(squared, 0)) / 2
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: npt.NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return probabilities


def santext_texts(texts: list[str], words: list[str], probabilities: npt.NDArray[np.float32]) -> list[str]:
    """Replace word by word: look up the row, draw from it, join with blanks; unknown words become any word."""
    index = {word: row for row, word in enumerate(words)}
    released = []
    for text in texts:
        out = []
        for word in text.split():
            if word in index:
                out.append(words[np.random.choice(len(words), 1, p=probabilities[index[word]])[0]])
            else:
                out.append(words[np.random.randint(len(words))])
        released.append(" ".join(out))
    return released


Orders = list[list[str]]
Places = list[dict[str, int]]


def diffractor_lists(words: list[str], embeddings: list[npt.NDArray[np.float64]]) -> tuple[Orders, Places]:
    """Order the words by each embedding: from the last word to the nearest that is left, one row of scores per step."""
    orders: Orders = []
    places: Places = []
    for table in embeddings:
        norms = (table * table).sum(axis=1)
        order = [0]
        while len(order) < len(words):
            norms[order[-1]] = np.inf
            order.append(int(np.argmin(norms - 2 * (table @ table[order[-1]]))))
        orders.append([words[row] for row in order])
        places.append({word: place for place, word in enumerate(orders[-1])})
    return orders, places


def diffractor_tem(texts: list[str], orders: Orders, places: Places, epsilon: float, gamma: int) -> list[str]:
    """Replace word by word: every list proposes by noisy scores of its window, one proposal is used; others kept."""
    released = []
    for text in texts:
        out = []
        for word in text.split():
            proposals = []
            for order, place in zip(orders, places, strict=True):
                if word not in place:
                    continue
                here = place[word]
                window = [at for at in range(here - gamma, here + gamma + 1) if 0 <= at < len(order)]
                scores = {at: -abs(here - at) + np.random.gumbel(0, 2 / epsilon) for at in window}
                outside = len(order) - len(window)
                scores[-1] = -gamma + 2 * np.log(outside) / epsilon + np.random.gumbel(0, 2 / epsilon)
                chosen = max(scores, key=lambda at: scores[at])
                while chosen == -1:
                    at = np.random.randint(len(order))
                    chosen = -1 if at in window else at
                proposals.append(order[chosen])
            out.append(np.random.choice(proposals) if proposals else word)
        released.append(" ".join(out))
    return released


def diffractor_geometric(texts: list[str], orders: Orders, places: Places, epsilon: float) -> list[str]:
    """Replace word by word: every list proposes the word a two-sided geometric step away; others kept."""
    stop = 1 - np.exp(-epsilon)
    released = []
    for text in texts:
        out = []
        for word in text.split():
            proposals = []
            for order, place in zip(orders, places, strict=True):
                if word not in place:
                    continue
                step = np.random.geometric(stop) - np.random.geometric(stop)
                proposals.append(order[int(np.clip(place[word] + step, 0, len(order) - 1))])
            out.append(np.random.choice(proposals) if proposals else word)
        released.append(" ".join(out))
    return released


def madlib_texts(texts: list[str], words: list[str], vectors: npt.NDArray[np.float32], epsilon: float) -> list[str]:
    """Replace word by word: move its vector, score all words by one product, use the nearest; others dropped."""
    index = {word: row for row, word in enumerate(words)}
    norms = (vectors * vectors).sum(axis=1)
    dimensions = vectors.shape[1]
    released = []
    for text in texts:
        out = []
        for word in text.split():
            if word in index:
                direction = np.random.normal(size=dimensions)
                length = np.random.gamma(dimensions, 1 / epsilon)
                moved = vectors[index[word]] + direction / np.linalg.norm(direction) * length
                out.append(words[int(np.argmin(norms - 2 * (vectors @ moved.astype(np.float32))))])
        released.append(" ".join(out))
    return released


def dpmlm_text(
    text: str, model: Any, tokenizer: Any, epsilon: float, clip: tuple[float, float], kept: frozenset[str]
) -> str:
    """Rewrite word by word (algorithm 2): one forward of the pair (text, text as rewritten so far) per word.

    Scores of all tokens at all positions are computed, masks' are clipped, divided by the temperature, given
    to a float32 softmax and drawn from.

    Args:
        text: Words between blanks.
        model: A masked language model of transformers.
        tokenizer: Its tokenizer.
        epsilon: Per word.
        clip: Range of the scores.
        kept: Words that stay as they are, as the published script keeps stopwords.
    """
    import torch

    low, high = clip
    temperature = 2 * (high - low) / epsilon
    words = text.split()
    for place, word in enumerate(words):
        if word in kept:
            continue
        masked = " ".join([*words[:place], tokenizer.mask_token, *words[place + 1 :]])
        pair = tokenizer(" " + text, " " + masked, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**pair).logits[0]
        mask = int((pair["input_ids"][0] == tokenizer.mask_token_id).nonzero()[-1])
        scores = torch.clamp(logits[mask].float(), low, high) / temperature
        probabilities = torch.softmax(scores, dim=-1).double().numpy()
        drawn = np.random.choice(len(probabilities), p=probabilities / probabilities.sum())
        words[place] = tokenizer.decode([int(drawn)]).strip()
    return " ".join(words)


def dpbart_text(text: str, model: Any, tokenizer: Any, length: int, clip: float, sigma: float, beams: int) -> str:
    """Rewrite one text: encode it, clip, add Gaussian noise to every number, generate with cache and beams.

    Args:
        text: A text.
        model: A BART of transformers.
        tokenizer: Its tokenizer.
        length: Tokens of the input and of the output.
        clip: Bound of every number.
        sigma: Standard deviation of the noise, computed once.
        beams: Of the search.
    """
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    read = tokenizer(text, truncation=True, max_length=length, padding="max_length", return_tensors="pt")
    read = {name: read[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        states = model.get_encoder()(**read).last_hidden_state.clamp(-clip, clip)
        noise = torch.from_numpy(np.random.normal(0.0, sigma, states.shape)).to(states.dtype)
        written = model.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states + noise),
            attention_mask=torch.ones_like(read["attention_mask"]),
            num_beams=beams,
            do_sample=False,
            use_cache=True,
            max_length=length,
        )
    return str(tokenizer.decode(written[0], skip_special_tokens=True)).strip()
