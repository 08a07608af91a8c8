"""The checklist on worlds it never saw: what it asks for, what it says is wrong, and what it cannot tell."""

from dream.checklist_clinic import Clinic
from dream.checklist_recorded import advances, recorded

from dreamgym_kit.dream.checklist.checklist import Wrong, arguments_that_do_not_matter
from dreamgym_kit.dream.checklist.labels import accepted, examples_of, worlds_of
from dreamgym_kit.dream.checklist.patterns import Write, candidates_in, write_of
from dreamgym_kit.dream.checklist.things import gather
from dreamgym_kit.dream.state.history import step_of
from dreamgym_kit.vocabulary import Answer, Call, Effect, Transition, Verdict

UNSEEN = [Clinic(seed) for seed in range(1000, 1060)]


def test_candidates_are_patterns_that_recur_and_never_text_that_somebody_worded() -> None:
    told = {str(pattern) for pattern in recorded().lessons.patterns}
    assert told == {
        "cancel_visit(visit_id visit*<patient:name)",
        "charge_fee(amount 1/2 of price, visit_id visit*<patient:name)",
    }


def test_a_number_is_cut_where_it_decides() -> None:
    assert recorded().lessons.fields.cuts == {("visit", "days"): (3.0,)}


def test_what_unseen_worlds_ask_for_is_what_a_good_colleague_does() -> None:
    right = 0
    for clinic in UNSEEN:
        things = worlds_of(clinic.crawled(), advances)[str(clinic.world)]
        sheet = recorded().checklist.sheet(clinic.text, things)
        right += sheet.expected == {write_of(tool, args) for tool, args in clinic.right()} and not sheet.open
    assert right >= 57


def test_what_is_wrong_is_named() -> None:
    clinic = next(one for one in UNSEEN if len(one.right()) == 2)
    things = worlds_of(clinic.crawled(), advances)[str(clinic.world)]
    checklist = recorded().checklist
    sheet = checklist.sheet(clinic.text, things)
    cancel, fee = (write_of(tool, args) for tool, args in clinic.right())
    other = Write("charge_fee", (("amount", "1.00"), ("visit_id", clinic.wanted)))
    mail = Write("send_mail", (("patient_id", clinic.patient),))
    assert checklist.judge(sheet, [cancel, fee]).verdict is Verdict.PASSED
    assert checklist.judge(sheet, [cancel]) == (Verdict.FAILED, f"missing: {fee}", {Wrong.MISSING})
    assert checklist.judge(sheet, [cancel, fee, mail]) == (
        Verdict.FAILED,
        f"extra: {mail}",
        {Wrong.EXTRA},
    )
    assert checklist.judge(sheet, [cancel, fee, fee]) == (Verdict.FAILED, f"twice: {fee}", {Wrong.TWICE})
    assert checklist.judge(sheet, [cancel, other]).wrong == {Wrong.ARGUMENT}
    assert checklist.judge(sheet, [cancel], [fee]).wrong == {Wrong.REFUSED}


def test_where_nobody_has_read_what_decides_there_is_no_verdict() -> None:
    clinic = UNSEEN[0]
    seen = [step_of(row) for row in clinic.worked(1, hasty=True).transitions]
    sheet = recorded().checklist.sheet(clinic.text, gather([seen], advances))
    assert sheet.blank == "nobody knows what get_visit says of what the request is about"
    found = recorded().checklist.judge(sheet, [])
    assert found.verdict is Verdict.INCONCLUSIVE


def test_a_request_that_names_nothing_known_has_no_verdict() -> None:
    sheet = recorded().checklist.sheet("What time is it?", recorded().worlds["clinic:0"])
    assert sheet.blank == "the request names nothing that is known of this world"


def test_a_name_that_no_recording_knows_is_found_by_its_place() -> None:
    read = recorded().checklist.wordings.read("Zara speaking. I cannot come to Dr Abel.")
    assert read.mentions == {"name": ("Zara",), "doctor": ("Abel",)}
    assert "zara" not in read.words


def test_a_read_after_a_write_counts_for_all_that_the_write_did_not_touch() -> None:
    clinic = Clinic(7)
    other = next(visit for visit in clinic.visits if visit != clinic.wanted)
    rows = clinic.rows(
        "one",
        [
            ("cancel_visit", {"visit_id": clinic.wanted}),
            ("get_visit", {"visit_id": clinic.wanted}),
            ("list_visits", {"patient_id": clinic.patient}),
        ],
    )
    things = gather([[step_of(row) for row in rows]], advances)
    assert things.fields[clinic.wanted] == {}
    assert things.fields[other]["doctor"] == clinic.visits[other]["doctor"]
    assert things.owners[other] == {"patient": clinic.patient}


def test_a_lucky_success_is_no_example() -> None:
    looked = [one for one in recorded().works if any(row.call.tool == "get_visit" for row in one.transitions)]
    lucky = [one for one in recorded().works if one.success and one not in looked][:3]
    assert len(lucky) == 3  # hasty, and right by chance
    careful = [one for one in looked if one.task not in {work.task for work in lucky}]
    wordings = recorded().lessons.wordings
    found = examples_of([*careful, *lucky], recorded().worlds, wordings, advances)
    assert len(found) > 40
    assert not {one.task for one in found} & {work.task for work in lucky}


def test_what_a_success_never_read_is_filled_with_something_else_each_time() -> None:
    lessons = recorded().lessons
    towns = [
        {filling[0].scene.things.fields[one]["town"] for filling in lessons.fillings}
        for one, kind in lessons.examples[0].scene.things.kinds.items()
        if kind == "patient"
    ]
    assert len(towns[0]) == 1  # find_patient was read: it stays
    other = next(one for one in lessons.examples[0].scene.focus.roles["visit<patient:name"])
    days = {filling[0].scene.things.fields[other]["days"] for filling in lessons.fillings}
    assert len(days) > 2  # the other visit was only listed: its day cannot have decided


def test_a_refused_write_is_no_write_and_one_that_timed_out_may_be() -> None:
    done = Transition(Call("charge_fee", {"visit_id": "v"}), Answer({"done": True}), Effect.WRITE, "e", 1)
    refused = Transition(
        Call("charge_fee", {"visit_id": "v"}), Answer("no", error="no such visit"), Effect.WRITE, "e", 2
    )
    assert len(accepted([done, refused], advances)) == 1
    assert len(accepted([done, refused], lambda step: step.writes)) == 2


def test_an_argument_in_which_two_successes_differ_does_not_matter() -> None:
    here = frozenset({Write("ticket", (("customer", "1"), ("topic", "return")))})
    there = frozenset({Write("ticket", (("customer", "1"), ("topic", "refund")))})
    assert arguments_that_do_not_matter({"a": [here, there], "b": [here, there]}) == {("ticket", "topic")}
    assert not arguments_that_do_not_matter({"a": [here, there]})


def test_patterns_make_no_candidate_of_a_thing_that_plays_another_role() -> None:
    scene = recorded().lessons.examples[0].scene
    made = candidates_in(scene, recorded().lessons.patterns)
    assert {one.things[0] for one in made} == set(scene.focus.roles["visit*<patient:name"])
