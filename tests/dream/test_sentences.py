"""Rules as a person reads them."""

from each_row import each_row

from dreamgym_kit.dream.state.sentences import form, operation, question, quoted, spelled, stated, whole


@each_row(
    ("kind", "path", "value", "says"),
    [
        ("set", "status", "'blocked'", "sets status to 'blocked'"),
        ("set", "", "args.body", "sets the answer to args.body"),
        (
            "set",
            "items.[id=args.id].state",
            "'gone'",
            "sets items.state of the row with id = args.id to 'gone'",
        ),
        ("set", "sum", "old - args.amount", "subtracts args.amount from sum"),
        ("set", "sum", "old + 1", "adds 1 to sum"),
        ("new", "note", "args.note", "adds the field note: args.note"),
        ("delete", "owner", "", "takes owner away"),
        ("append", "", "a record with id = args.id", "puts a record with id = args.id last in the list"),
        ("prepend", "log", "args.line", "puts args.line first in log"),
        ("remove", "tags", "args.tag", "takes args.tag out of tags"),
        ("add", "sum", "args.amount", "adds args.amount to sum"),
        ("subtract", "sum", "5", "subtracts 5 from sum"),
    ],
)
def test_what_a_write_does_is_a_sentence(kind: str, path: str, value: str, says: str) -> None:
    assert operation(kind, path, value) == says


@each_row(
    ("feature", "value", "way", "says"),
    [
        (("is", "view.mode"), "night", 0, "view.mode is 'night'"),
        (("is", "view.mode"), "night", 1, "view.mode is not 'night'"),
        (("is", "view.mode"), "night", 2, "it is not known what view.mode is"),
        (("is", "bound.get(a:b).failed"), "False", 1, "bound.get(a:b).failed is not false"),
        (("=", "args.a", "args.b"), True, 0, "args.a is args.b"),
        (("=", "args.a", "args.b"), False, 0, "args.a is not args.b"),
        (("in", "args.a", "view.list"), False, 1, "args.a is among view.list"),
        ((">", "args.sum", "row.sum"), True, 2, "it is not known whether args.sum is more than row.sum"),
        (("seen", "args.a"), False, 0, "nothing here has named args.a"),
        (("done",), True, 1, "this very call has not gone well before"),
        (("before",), "{ok:yes}", 0, "this very call was answered {ok:yes} before"),
        (("type", "args.a"), "int", 0, "args.a is of type int"),
        (("positive", "args.a"), True, 1, "args.a is not more than 0"),
    ],
)
def test_what_a_decision_asks_is_a_sentence(feature, value, way, says) -> None:
    assert question(feature, value, way) == says


def test_values_are_told_as_what_they_are() -> None:
    assert [quoted("it's"), quoted(5), quoted(None)] == ['"it\'s"', "5", "null"]
    assert [stated("{args.city}"), stated("to {args.city}")] == ["args.city", "'to {args.city}'"]
    assert [spelled('"gone"'), spelled("args.a"), spelled("3")] == ["'gone'", "args.a", "3"]
    assert whole([("", "args.a")]) == "args.a"
    assert whole([("a", "1"), ("b", "'x'")]) == "a record with a = 1, b = 'x'"


@each_row(
    ("spelled_form", "says"),
    [
        ("s", "a text"),
        ("n", "a number"),
        ("[]", "a list"),
        ("{ok:true}", "{ok:true}"),
        ("{$answer:{error:no card #,error_type:s}}", "the failure 'no card #'"),
        ("{$answer:{content:[],error:a, b: {c},error_type:s}}", "the failure 'a, b: {c}'"),
    ],
)
def test_a_form_is_told_as_what_it_stands_for(spelled_form: str, says: str) -> None:
    assert form(spelled_form) == says
