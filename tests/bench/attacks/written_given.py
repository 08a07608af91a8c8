"""Cases written by hand: a client is an argument, or is made in the dream; no global name leads to it."""

from attacks.project import HEAD, Case
from attacks.written_in_nodes import ONE_NODE

_FAKE = """
class Fake:  # computes, nothing else
    status_code = 200
    def post(self, url, **given):
        return self
"""
_POST = 'post(f"http://127.0.0.1:$port/refund/$tag").status_code'
_SERVICE = f"""
class Service:
    def __init__(self, http):
        self._http = http
    def refund(self, order):
        return self._http.{_POST}
"""
_WORK = """
def work(state):
    return {"messages": [AIMessage(f"refunded {CALL}")]}
"""
_CASES = {
    "given_decorated": (
        "a method under a decorator of the company's own",
        f"""
def traced(function):
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner
{_SERVICE.replace("    def refund", "    @traced" + chr(10) + "    def refund")}
service = Service($client)
""",
        "service.refund('o1')",
    ),
    "given_container": (
        "a container of services, found by their class",
        f"""
{_SERVICE}
class Container:
    def __init__(self):
        self._made = {{}}
    def resolve(self, kind):
        return self._made[kind]
container = Container()
container._made[Service] = Service($client)
""",
        "container.resolve(Service).refund('o1')",
    ),
    "given_lazily": (
        "a proxy around a service that is made at its first use",
        f"""
{_SERVICE}
class Lazy:
    def __init__(self, make):
        self._make, self._made = make, None
    def __getattr__(self, name):
        self._made = self._made or self._make()
        return getattr(self._made, name)
service = Lazy(lambda: Service($client))
""",
        "service.refund('o1')",
    ),
    "given_private": (
        "a private attribute of a pydantic model",
        f"""
from pydantic import PrivateAttr
class Service(BaseModel):
    _http: Any = PrivateAttr(default=None)
    def model_post_init(self, context):
        self._http = $client
    def refund(self, order):
        return self._http.{_POST}
class Desk:
    def __init__(self, service):
        self.service = service
desk = Desk(Service())
""",
        "desk.service.refund('o1')",
    ),
    "given_table": (
        "a table of clients",
        '\nclients = {"crm": $client, "erp": $client}\n',
        f"clients['crm'].{_POST}",
    ),
    "given_exit": (
        "a unit of work whose end sends what was collected",
        f"""
class Unit:
    def __init__(self, http):
        self._http = http
    def __enter__(self):
        return self
    def __exit__(self, kind, error, trace):
        self._http.{_POST}
units = {{"refund": functools.partial(Unit, $client)}}
def collected():
    with units["refund"]():
        return "later"
""",
        "collected()",
    ),
    "given_later": (
        "a function that was first given what only computes, in the same kinds of holders",
        f"""
import fake
class Holder:
    __slots__ = ("clients",)
    def __init__(self, http):
        self.clients = {{"crm": http}}
def refund(holder):
    return holder.clients["crm"].{_POST}
desks = [Holder(fake.Fake()), Holder($client)]
""",
        "refund(desks[0]) + refund(desks[1])",
    ),
    "given_function": (
        "plain functions that are handed the client",
        f"""
def refund(deps, order):
    return deps["http"].{_POST}
def wired(deps):
    return {{"refund": lambda order: refund(deps, order)}}
use = wired({{"http": $client}})
""",
        "use['refund']('o1')",
    ),
}


def given() -> list[Case]:
    """Each with a twin whose client only computes."""
    words = {"imports": "import requests", "client": "requests.Session()"}
    twin_words = {"imports": "from fake import Fake", "client": "Fake()"}
    cases = []
    for name, (about, text, call) in _CASES.items():
        work = _WORK.replace("CALL", call.replace('"', "'"))
        files = {"agent.py": HEAD + text + work + ONE_NODE, "fake.py": _FAKE}
        cases.append(Case(name, files, about, sink="fresh", entry="cli", words=words, twin_words=twin_words))
    return cases
