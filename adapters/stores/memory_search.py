"""Search and eviction for the store in memory: every row is looked at, nothing is kept ready.

The plain form of what the SQLite store does with indexes; the contract suite holds one against the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dreamgym_kit.adapters.stores.word_scores import best, score_words
from dreamgym_kit.ports import Embedder, HybridQuery
from dreamgym_kit.replay.fusion import Fused
from dreamgym_kit.replay.retrieval import fits, may_be_found, retrieve, sameness
from dreamgym_kit.replay.terms import rarest, rarity, search_text, terms_of
from dreamgym_kit.vocabulary import Provenance, Transition


def search_all(rows: Mapping[int, Transition], query: HybridQuery, embedder: Embedder | None) -> list[Fused]:
    """The best rows for a query, by looking at each."""
    known = {number: row for number, row in rows.items() if may_be_found(row)}
    texts = {number: search_text(row) for number, row in known.items()}
    terms = {number: set(terms_of(text)) for number, text in texts.items()}

    def rank(provenances: frozenset[Provenance], depth: int) -> Mapping[str, Sequence[int]]:
        asked = replace(query, provenances=provenances)
        allowed = [number for number, row in known.items() if fits(row, asked)]
        rankings = {"words": _by_words(query.text, terms, allowed, depth)}
        if embedder is not None and not query.words_only:
            rankings["vectors"] = _by_vectors(query.text, texts, allowed, embedder, depth)
        return rankings

    return retrieve(query, rank, lambda numbers: [sameness(known[number]) for number in numbers])


def _by_words(text: str, terms: Mapping[int, set[str]], allowed: Sequence[int], depth: int) -> list[int]:
    rows_with = Counter(term for has in terms.values() for term in has)
    asked = rarest(terms_of(text), rows_with)
    pairs = [
        (number, len(terms[number]), rarity(len(terms), rows_with[term]))
        for term in asked
        for number in allowed
        if term in terms[number]
    ]
    if not pairs:
        return []
    rows, lengths, weights = zip(*pairs, strict=True)
    average = sum(map(len, terms.values())) / len(terms)
    return best(*score_words(np.array(rows), np.array(lengths), np.array(weights), average), depth)


def _by_vectors(
    text: str, texts: Mapping[int, str], allowed: Sequence[int], embedder: Embedder, depth: int
) -> list[int]:
    if not allowed:
        return []
    asked = embedder.embed([text])[0]
    vectors = embedder.embed([texts[number] for number in allowed]).astype(np.float16).astype(np.float32)
    return best(np.array(allowed), vectors @ asked, depth)
