"""Draws all of a page in a browser and names every element and attribute that is in it.

The page was opened with `pages.settling.COUNT`.
"""

from typing import Any

WALK = """async () => {
  const found = new Set();
  const look = () => {
    for (const node of document.querySelectorAll('*')) {
      found.add(node.localName);
      for (const at of node.attributes) {
        found.add(node.localName + ' ' + at.name);
        if (/^on|^style$|^src|^srcdoc$|^action$|^formaction$/.test(at.name)) found.add('BAD ' + at.name);
        if (/href$/.test(at.name) && !at.value.startsWith('#')) found.add('BAD link ' + at.value);
      }
    }
  };
  dispatchEvent(new Event('beforeprint'));  // draws more rows, so that all episodes are listed
  document.querySelectorAll('details').forEach(one => { one.open = true; });
  document.querySelectorAll('details.tool button').forEach(one => one.click());
  await settled();
  look();
  const names = [...document.querySelectorAll('.ep a')].map(one => one.getAttribute('href'));
  for (const name of names) {
    await visit(name);
    document.querySelectorAll('details').forEach(one => { one.open = true; });
    look();
  }
  await visit('#q=' + encodeURIComponent('<img src=x onerror=window.hurt=1>'));
  look();
  await visit('#e=' + encodeURIComponent('<img src=x onerror=window.hurt=1>'));
  const late = [...document.images].filter((one) => !one.complete);  // one that cannot be had says so late
  await Promise.all(late.map((one) => new Promise((done) => { one.addEventListener('error', done); })));
  await settled();
  look();
  return {found: [...found].sort(), opened: names.length, hurt: window.hurt === undefined ? 0 : 1};
}"""


def walked(page: Any) -> dict[str, Any]:
    """Open everything; `found` names elements and "element attribute", `BAD ...` what no page may hold."""
    found: dict[str, Any] = page.evaluate(WALK)
    return found
