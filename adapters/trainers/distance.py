"""How far an update moved the policy, by tokens that it had sampled before.

For each token with log-ratio x = log p_now - log p_sampled: |x| - 1 + exp(-|x|). Near 0 that is x^2 / 2, the
estimator of the divergence that is hardly biased there (http://joschu.net/blog/kl-approx.html); far out it
grows with |x| and not with its square or its exponential. Learning honestly takes a token now and then
from one chance in two to one in a hundred thousand: its square alone looked like a policy that had come loose
(seen on the desk, three trainings of ten), and r - 1 - log r does so for tokens that rise.
"""

import math
from collections.abc import Iterable


def distance(log_ratios: Iterable[float]) -> float:
    """Mean over the tokens, in nats; nan where there are none."""
    moved = [abs(one) for one in log_ratios]
    if not moved:
        return math.nan
    return math.fsum(one + math.expm1(-one) for one in moved) / len(moved)
