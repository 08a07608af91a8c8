"""The curve of a threshold: what it answers and how much of that is exact, on held-out recordings."""

from dreamgym_kit.dream.calibration import Trial
from dreamgym_kit.dream.state.curve import Trials, curve

# the raw support of "weak" answers says 0.8 as that of "good" ones does; a tenth of them is right
EPISODES = [
    Trials(
        [Trial("good", "rule", 0.8, exact=True)] * 4 + [Trial("weak", "rule", 0.8, exact=number % 10 == 0)], 6
    )
    for number in range(60)
]


def test_a_higher_threshold_answers_less_and_is_righter() -> None:
    points = curve(EPISODES)
    assert [point.answered for point in points] == sorted((point.answered for point in points), reverse=True)
    assert points[0].answered == 5 / 6
    exact = {point.threshold: point.exact for point in points}
    assert exact[0.0] == (4 + 0.1) / 5
    assert exact[0.7] == 1.0


def test_an_episode_does_not_calibrate_itself() -> None:
    """Every second episode is right, the others wrong: what one half says of itself the other denies."""
    told = [Trials([Trial("t", "rule", 0.9, exact=number % 2 == 0)] * 3, 3) for number in range(60)]
    assert curve(told, (0.5,))[0].exact in (0.0, None)


def test_few_trials_draw_no_curve() -> None:
    assert curve(EPISODES[:10]) == ()
