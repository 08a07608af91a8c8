"""How a constrained answer spells its JSON: as `json.dumps` does, which is what models were taught with.

Without whitespace a server's grammar would force `{"a":1}` on a model that learned `{"a": 1}`, and what
follows is then less likely in each token. llguidance reads this from the schema itself, in this process and
behind vLLM; others pass the key over, or refuse it once.
"""

from dreamgym_kit.plain import JsonValue

SPACING: dict[str, JsonValue] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
SPELLED = "x-guidance"  # the schema's key that holds it
