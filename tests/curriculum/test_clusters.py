"""Which tasks are alike."""

from curriculum.making_doubles import asking

from dreamgym_kit.adapters.embedders.models import HashedEmbedder
from dreamgym_kit.curriculum.task_sampler import Clusters, text_of
from dreamgym_kit.recipes.desk.tasks import drawn_tasks
from dreamgym_kit.types import Task

CANCEL = [
    asking(f"c{place}", f"{name} here. Please cancel order O1{place}.") for place, name in enumerate("AB")
]
LATE = [asking(f"l{place}", f"Where is my order O2{place}?") for place in range(2)]


def test_tasks_that_say_alike_are_of_one_cluster() -> None:
    found = Clusters(None, HashedEmbedder())
    found.add([*CANCEL, *LATE])
    assert found.of["c0"] == found.of["c1"] != found.of["l0"] == found.of["l1"]


def test_a_task_that_comes_later_joins_and_moves_no_other() -> None:
    found = Clusters(None, HashedEmbedder())
    found.add([CANCEL[0], LATE[0]])
    before = dict(found.of)
    found.add([CANCEL[1], *LATE])
    assert found.of["c1"] == before["c0"]
    assert before.items() <= found.of.items()


def test_a_field_of_meta_says_it_where_it_is_named_and_words_where_a_task_lacks_it() -> None:
    one, two = (asking(f"m{place}", text, meta={"family": "f"}) for place, text in enumerate(("Hi.", "No!")))
    found = Clusters("family", HashedEmbedder())
    found.add([one, two, *CANCEL])
    assert found.of["m0"] == found.of["m1"] != found.of["c0"] == found.of["c1"]


def test_without_field_and_embedder_each_task_is_alone() -> None:
    found = Clusters(None, None)
    found.add([*CANCEL, *LATE])
    assert sorted(found.of.values()) == [0, 1, 2, 3]


def test_on_the_desk_most_tasks_are_with_their_own_kind() -> None:
    tasks = drawn_tasks(90)
    found = Clusters(None, HashedEmbedder())
    found.add(tasks)
    kinds: dict[int, list[str]] = {}
    for task in tasks:  # strangers ask as those who cancel do
        kinds.setdefault(found.of[task.id], []).append(str(task.meta["family"]).replace("stranger", "cancel"))
    assert sum(max(map(kind.count, kind)) for kind in kinds.values()) / len(tasks) > 0.9
    assert len(kinds) < 25


def test_the_text_of_a_task_is_what_is_said_in_it_in_any_form() -> None:
    assert text_of(asking("a", "Hi.")) == "Hi."
    assert text_of(Task("b", {"messages": [["user", "Hi."]]})) == "user Hi."
    assert text_of(Task("c", {"question": "Hi.", "count": 3})) == "Hi."
