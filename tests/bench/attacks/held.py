"""How an agent holds the function that acts."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Held:
    """One way, as text of a module."""

    source: str  # at the module's top
    get: str  # an expression: the callable, where it is needed
    told: str = "SCHEMA"  # an expression: what a model is bound with
    owner: str = ""  # an expression: an object that has it as an attribute, by its name
    reference: str = ""  # how `[functions]` names it
    twin_reference: str = ""  # the same for what really runs, where that is another
    declares: str = ""  # of a twin: a line that declares it pure where it stands
    is_tool: bool = False
    plain: str = ""  # of a tool: an expression for the function under it
    node_takes_it: bool = False  # a ToolNode does
    always_sync: bool = False
    of_bank: bool = False  # what is held is the bank's own
    files: Mapping[str, str] = field(default_factory=dict)


FUNCTION = '$hdef $name(order: str) -> str:\n    "$doc"\n    return $act\n'
_DESK = 'class Desk:\n    $hdef $name(self, order: str) -> str:\n        "$doc"\n        return $act\n'
_MADE = (
    "def made_for(user):\n"
    '    $hdef $name(order: str) -> str:\n        "$doc"\n        return $act\n'
    "    $mark_closure\n    return $name\n"
)
_OPS = {"pkg/__init__.py": "", "pkg/ops.py": f"$imports\n{FUNCTION}"}
_TOOL = 'StructuredTool.from_function({0}, name="$name", description="$doc")'

HELD: Mapping[str, Held] = {
    "module function": Held(
        FUNCTION,
        "$name",
        told="$name",
        owner="sys.modules[__name__]",
        reference="agent:$name",
        node_takes_it=True,
    ),
    "decorated into a table": Held(
        "REGISTRY = {}\ndef register(function):\n    REGISTRY[function.__name__] = function\n"
        f"    return function\n@register\n{FUNCTION}del $name\n",
        'REGISTRY["$name"]',
        told='REGISTRY["$name"]',
        declares='$mark_pure(REGISTRY["$name"])',
    ),
    "partial": Held(
        '$hdef from_account(account: str, order: str) -> str:\n    "$doc"\n    return $act\n'
        '$name = functools.partial(from_account, "main")\n',
        "$name",
        owner="sys.modules[__name__]",
        twin_reference="agent:from_account",
    ),
    "bound method": Held(
        f"{_DESK}desk = Desk()\n", "desk.$name", told="desk.$name", owner="desk", reference="agent:Desk.$name"
    ),
    "client's own method": Held(
        "$name = client.$name\n",
        "$name",
        owner="client",
        twin_reference="spelling:Client.spell_out",
        always_sync=True,
        of_bank=True,
    ),
    "closure": Held(_MADE, 'made_for("u1")', told='made_for("u1")'),
    "lru_cache": Held(
        f"@functools.lru_cache\n{FUNCTION}",
        "$name",
        owner="sys.modules[__name__]",
        told="$name",
        declares="$mark_pure($name)",
        always_sync=True,
    ),
    "wraps": Held(
        "def tried(function):\n    @functools.wraps(function)\n"
        "    def again(*args, **kwargs):\n        return function(*args, **kwargs)\n"
        f"    return again\n@tried\n{FUNCTION}",
        "$name",
        told="$name",
        owner="sys.modules[__name__]",
        reference="agent:$name",
    ),
    "imported twice": Held(
        'sys.path.insert(0, str(Path(__file__).parent / "pkg"))\nimport ops\nfrom ops import $name\n',
        "$name",
        owner="ops",
        reference="pkg.ops:$name",
        files=_OPS,
    ),
    "reloaded": Held(
        "from pkg import ops\n",
        "importlib.reload(ops).$name",
        owner="importlib.reload(ops)",
        reference="pkg.ops:$name",
        files=_OPS,
    ),
    "overriding subclass": Held(
        'class Plain:\n    $hdef $name(self, order: str) -> str:\n        "$doc"\n        return "plain"\n'
        f"{_DESK.replace('Desk', 'Desk(Plain)')}desk = Desk()\n",
        "desk.$name",
        owner="desk",
        reference="agent:Plain.$name",
        twin_reference="agent:Desk.$name",
    ),
    "StructuredTool": Held(
        f"{FUNCTION}held = {_TOOL.format('${by}$name')}\n$mark_pure(held)\n",
        "held",
        told="held",
        is_tool=True,
        plain="$name",
        node_takes_it=True,
    ),
    "tool per request": Held(
        f"{_MADE}def tool_for(user):\n    held = {_TOOL.format('${by}made_for(user)')}\n"
        "    $mark_pure(held)\n    return held\n",
        'tool_for("u1")',
        told='tool_for("u1")',
        is_tool=True,
        plain='made_for("u1")',
    ),
    "namesake of a pure tool": Held(
        f"import other_agent\n{FUNCTION}held = tool($name)\n$mark_pure(held)\n",
        "held",
        told="held",
        is_tool=True,
        plain="$name",
        node_takes_it=True,
        files={
            "other_agent.py": "from dreamgym_kit import effect\nfrom langchain_core.tools import tool\n"
            '@effect("pure")\n@tool\ndef $name(formula: str) -> str:\n'
            '    "Apply a formula."\n    return "4"\n'
        },
    ),
    "class with run": Held(
        'class $Name(BaseModel):\n    "$doc"\n    order: str\n'
        "    $hdef run(self):\n        order = self.order\n        return $act\n",
        "(lambda order: $Name(order=order).run())",
        twin_reference="agent:$Name.run",
    ),
    "callable object": Held(
        _DESK.replace("$name", "__call__") + "$name = Desk()\n",
        "$name",
        owner="sys.modules[__name__]",
        twin_reference="agent:Desk.__call__",
    ),
    "lambda": Held(
        "$name = lambda order: $act\n",
        "$name",
        owner="sys.modules[__name__]",
        reference="agent:$name",
        always_sync=True,
    ),
}
