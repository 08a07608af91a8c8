"""Draws all of a page in a browser and names every element and attribute that is in it."""

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
  const wait = (ms) => new Promise(done => setTimeout(done, ms));
  dispatchEvent(new Event('beforeprint'));  // draws more rows, so that all episodes are listed
  document.querySelectorAll('details').forEach(one => { one.open = true; });
  document.querySelectorAll('details.tool button').forEach(one => one.click());
  await wait(300);
  look();
  const names = [...document.querySelectorAll('.ep a')].map(one => one.getAttribute('href'));
  for (const name of names) {
    location.hash = name;
    await wait(25);
    document.querySelectorAll('details').forEach(one => { one.open = true; });
    look();
  }
  location.hash = '#q=' + encodeURIComponent('<img src=x onerror=window.hurt=1>');
  await wait(300);
  look();
  location.hash = '#e=' + encodeURIComponent('<img src=x onerror=window.hurt=1>');
  await wait(100);
  look();
  return {found: [...found].sort(), opened: names.length, hurt: window.hurt === undefined ? 0 : 1};
}"""


def walked(page: Any) -> dict[str, Any]:
    """Open everything; `found` names elements and "element attribute", `BAD ...` what no page may hold."""
    found: dict[str, Any] = page.evaluate(WALK)
    return found
