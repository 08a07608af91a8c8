"""Which tasks a step learns from."""

from hypothesis import given
from hypothesis import strategies as st
from training.loop_doubles import tasks_named

from dreamgym_kit.training.plan import step_seed, tasks_of_step

sizes = st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(0, 5))


@given(sizes)
def test_no_task_comes_twice_in_an_epoch(size: tuple[int, int, int]) -> None:
    number, count, seed = size
    tasks = tasks_named(number)
    a_step = min(count, number)
    epoch = [
        task.id
        for step in range(1, number // a_step + 1)
        for task in tasks_of_step(tasks, count, step=step, seed=seed)
    ]
    assert len(epoch) == len(set(epoch)) == number // a_step * a_step


@given(sizes, st.integers(1, 1000))
def test_a_step_has_the_same_tasks_whoever_asks(size: tuple[int, int, int], step: int) -> None:
    number, count, seed = size
    tasks = tasks_named(number)
    assert tasks_of_step(tasks, count, step=step, seed=seed) == tasks_of_step(
        tasks, count, step=step, seed=seed
    )


def test_another_draw_of_a_step_takes_other_tasks_and_other_seeds() -> None:
    tasks = tasks_named(40)
    first, second = (tasks_of_step(tasks, 8, step=3, seed=1, draw=draw) for draw in (1, 2))
    assert first != second
    assert len({step_seed(seed, step, draw) for seed in (0, 1) for step in (1, 2) for draw in (1, 2)}) == 8


def test_over_many_epochs_every_task_has_its_turn() -> None:
    tasks = tasks_named(10)
    met = {task.id for step in range(1, 30) for task in tasks_of_step(tasks, 4, step=step, seed=0)}
    assert len(met) == 10
