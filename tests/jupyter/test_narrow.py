"""What cells show, in a browser as narrow as a side panel: all of it is in sight, and no word is broken."""

from __future__ import annotations

import pytest

from tests import browsers

STEP = """%%tessera --profile "step(x, w)"
@ts.function
def step(x: Tensor["N", "N", ts.f32], w: Tensor["N", "N", ts.f32]):
    for _ in range(2):
        x = x + ts.softmax((x @ w) @ w.T * 0.1) @ (x @ w)
    return ts.gelu(x @ w).sum(axis=0)
"""
LONG = """%%tessera --show shapes
@ts.function
def mixed(queries: Tensor["N", "N", ts.f32], keys: Tensor["N", "N", ts.f32], scale: float = 0.125):
    return ts.softmax(queries @ keys.T * scale) @ keys + queries * 0.5 + keys * 0.25 + queries @ keys
"""
WRONG = "%%tessera\n@ts.function\ndef wrong(x: Tensor['B', 'D']):\n    mean = x.mean(axis=-1)\n    return x - mean"
TUNED = """@ts.kernel.autotune(space=dict(BLOCK_ALONG_ROWS=[64, 4096, 3]))
def waves(x: ts.Tensor['n', ts.f32]) -> ts.Tensor['n', ts.f32]:
    c = ts.tile.context()
    assert c.BLOCK_ALONG_ROWS != 3, 'three is no size'
    return ts.tile.exp(x[tile_n : tile_n + c.BLOCK_ALONG_ROWS])
waves(np.ones(10_000, np.float32))
"""
OVER = """() => [...document.querySelectorAll('.cell')].flatMap(cell => [...cell.querySelectorAll('*')]
    .filter(e => e.getClientRects().length && !e.closest('pre'))
    .filter(e => e.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1
        || e.matches('svg text') && e.getBoundingClientRect().left < cell.getBoundingClientRect().left - 1)
    .map(e => `${e.tagName}.${e.getAttribute('class')}: ${e.textContent.slice(0, 60)}`))"""
BROKEN = """() => [...document.querySelectorAll('th, td:not(:last-child), pre.tessera-diagnostic')].flatMap(cell => {
    const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; node = texts.nextNode();) for (const word of node.data.matchAll(/[\\w=.]{1,20}(?![\\w=.])/g)) {
        const range = document.createRange();
        range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) found.push(word[0]);
    }
    return found; })"""
CUT = """() => [...document.querySelectorAll('.ts-typed')].filter(e => e.getClientRects().length)
    .filter(e => e.scrollWidth > e.clientWidth).map(e => `${e.scrollWidth} in ${e.clientWidth}: ${e.textContent}`)"""
LABELS = """() => [...document.querySelectorAll('.ts-chart svg text')].filter(e => e.getClientRects().length)
    .map(e => e.getBoundingClientRect().height)"""


@pytest.mark.usefixtures("extension")
def test_everything_fits(nb):
    nb.run("x = w = np.ones((64, 64), np.float32)")
    cells = [STEP, LONG]
    cells += [TUNED, "waves.tuning_report()", "%tessera compare step(x, w), step(w, x)", "%tessera functions"]
    cells += ["prof = %tessera profile step(x, w)", "prof.summary()", "%tessera doctor", "%tessera memory step(x, w)"]
    ran = [nb.run(cell) for cell in cells]
    assert not [r.error for r in ran if r.error]
    shown = [html for r in ran for d in r.displays if (html := d.get("text/html"))]
    shown += [nb.run(WRONG).displays[0]["text/html"]]
    shown += [html() for r in ran if (html := getattr(r.result, "_repr_html_", None))]
    assert len(shown) >= len(cells) - 1
    # The last panel has no profile: its style comes last, and must take nothing from those before.
    shown += [d["text/html"] for d in nb.run(STEP.replace('--profile "step(x, w)"', "")).displays]
    with browsers.chromium() as browser:
        page = browser.new_page()
        page.set_content("".join(f'<div class="cell">{html}</div>' for html in shown))
        page.add_style_tag(content=".cell pre { word-break: break-all }")  # as JupyterLab's
        for width in (300, 460, 880):
            page.set_viewport_size({"width": width + 16, "height": 900})
            for tab in ("Profile", "Kernel", "Shapes", "Hints"):
                for button in page.get_by_role("tab", name=tab).all():
                    button.click()
                assert page.evaluate(OVER) == [], (width, tab)
                assert page.evaluate(BROKEN) == [], (width, tab)
                assert page.evaluate(CUT) == [], (width, tab)
                assert min(page.evaluate(LABELS), default=20) >= 9, "a letter is too small to be read"
