"""A hundred texts that would run script, load something or break the page, were they ever markup."""

_MARKUP = (
    "<script>window.hurt=1</script>",
    "<img src=x onerror=window.hurt=1>",
    "<svg onload=window.hurt=1>",
    "<iframe src=javascript:window.hurt=1></iframe>",
    "<a href=javascript:window.hurt=1>x</a>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<style>*{display:none}</style>",
    "<base href=http://127.0.0.1:9/>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<form action=http://127.0.0.1:9/><button autofocus onfocus=window.hurt=1>",
    "<details open ontoggle=window.hurt=1>",
    "<video><source onerror=window.hurt=1></video>",
    "<math><mi xlink:href=javascript:window.hurt=1>x</mi></math>",
    "<object data=http://127.0.0.1:9/x></object>",
    "<template><script>window.hurt=1</script></template>",
    "<x-y style=background:url(http://127.0.0.1:9/x) id=app>",
)
_BREAKS = ("", '">', "'>", "</script>", "--></title></textarea>", "]]>")
_SPECIAL = (
    "javascript:window.hurt=1",
    "@@script@@ @@report@@ @@style-hash@@",
    "<!--<script>",
    "\u2028window.hurt=1\u2029//",
    '{"__proto__": {"hurt": 1}}',
)
PAYLOADS = tuple([break_ + markup for break_ in _BREAKS for markup in _MARKUP][:95]) + _SPECIAL[:5]
HIDDEN = "a\u202eb\u200bc\x1b]8;;http://x\x07d\u2066e\ufefff\x9bg\U000e0041h"
