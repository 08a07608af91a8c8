"""How often a task is passed: by one try, by the best of k, by all of k.

A task that was tried n times with c successes is worth more than its first k tries: both estimators average
over all ways to choose k of the n, so that no episode is thrown away and none counts more than another.
"""

from math import comb


def pass_at(k: int, tries: int, successes: int) -> float:
    """Give the chance that at least one of k tries succeeds, unbiased: `1 - C(n-c, k) / C(n, k)`.

    M. Chen et al., Evaluating Large Language Models Trained on Code, arXiv 2107.03374, equation 1.

    Args:
        k: tries that the chance is about.
        tries: n, all decided.
        successes: c of them.

    Raises:
        ValueError: fewer than k tries, or more successes than tries.
    """
    return 1.0 - _chance_of_kind(k, tries, tries - successes)


def pass_all(k: int, tries: int, successes: int) -> float:
    """Give the chance that k tries in a row all succeed (pass^k), unbiased: `C(c, k) / C(n, k)`.

    S. Yao et al., tau-bench, arXiv 2406.12045: what a user meets who comes k times. Arguments and errors as
    for `pass_at`.
    """
    return _chance_of_kind(k, tries, successes)


def _chance_of_kind(k: int, tries: int, kind: int) -> float:
    """The chance that k tries, chosen of all, are all of one kind."""
    if not (1 <= k <= tries and 0 <= kind <= tries):
        raise ValueError(f"no {k} of {tries} tries, {kind} of one kind")
    return comb(kind, k) / comb(tries, k)
