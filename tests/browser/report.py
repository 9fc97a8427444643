#!/usr/bin/env python3
"""Opens a page of `bdrun --report` in Chromium and looks whether it is drawn, readable and usable.

    python3 tests/browser/report.py PAGE.html [DIR]     DIR: where screenshots go

Needs Python's playwright and Debian's Chromium (BDRUN_CHROMIUM names another). Exit code 0: all well; 1: what is
wrong is said, a line each; 77: playwright or chromium is missing; 2: called wrongly.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run"]
WIDTHS = [400, 1280]
SCHEMES = ["light", "dark"]
CONTRAST = 4.5
# For anything that the browser does: a busy machine lets it wait.
PATIENCE_MS = 600_000
# Not in tests, which share the machine with others.
RENDER_MS = float(os.environ.get("BDRUN_RENDER_MS", "inf"))

# Everything that is judged from computed styles, for each element that shows text itself.
JUDGE = r"""
(least) => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll('body *')].filter(e => {
      if (e.getBoundingClientRect().right <= innerWidth + 1) return false;
      for (let p = e.parentElement; p; p = p.parentElement) if (/auto|scroll|hidden|clip/.test(getComputedStyle(p).overflowX)) return false;
      return true;
    });
    wrong.push(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth}: ${wide.slice(0, 3).map(e => `${e.tagName.toLowerCase()}.${e.getAttribute('class') || ''}`).join(', ')}`);
  }
  const parse = c => {
    const m = /^rgba?\(([^)]*)\)$/.exec(c);
    if (!m) return null;
    const [r, g, b, a] = m[1].split(/[ ,/]+/).map(Number);
    return [r, g, b, a === undefined ? 1 : a];
  };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const ground = e => { // what is behind an element: the colours of all around it, laid on white
    const layers = [];
    for (let p = e; p; p = p.parentElement) { const c = parse(getComputedStyle(p).backgroundColor); if (c && c[3] > 0) layers.push(c); }
    return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255]);
  };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const where = (e, text) => `<${e.tagName.toLowerCase()}> "${text.trim().slice(0, 40)}" in #${(e.closest('section, footer, #tip') || {}).id || 'page'}`;
  let seen = 0;
  for (const e of document.querySelectorAll('body *')) {
    const input = e.tagName === 'INPUT' || e.tagName === 'SELECT';
    const text = input ? e.placeholder || e.value : [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('');
    if (!text.trim() || /^(SCRIPT|STYLE|NOSCRIPT|OPTION)$/.test(e.tagName) || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    seen++;
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const ink = parse(svg ? style.fill : style.color), behind = ground(svg ? e.closest('svg').parentElement : e);
    if (!ink) { wrong.push(`colour of ${where(e, text)} is not understood: ${svg ? style.fill : style.color}`); continue; }
    const r = ratio(over(ink, behind), behind);
    if (r < least) wrong.push(`contrast ${r.toFixed(2)} of ${where(e, text)}`);
    // Cut off is what is larger than a box that neither shows nor scrolls it; boxes that scroll are meant to.
    for (let p = svg ? null : e; p && p !== document.body; p = p.parentElement) {
      const s = getComputedStyle(p);
      if (/auto|scroll/.test(s.overflowX)) break;
      if (/hidden|clip/.test(s.overflowX) && p.scrollWidth > p.clientWidth + 1) { wrong.push(`cut off: ${where(e, text)} (${p.scrollWidth} px in ${p.clientWidth})`); break; }
      if (/hidden|clip/.test(s.overflowY) && p.scrollHeight > p.clientHeight + 1) { wrong.push(`cut off below: ${where(e, text)}`); break; }
    }
    if (input && e.tagName === 'INPUT' && e.scrollWidth > e.clientWidth + 1) wrong.push(`cut off: ${where(e, text)}`);
    if (!svg && !input) { // words that stick out of the window where nothing scrolls
      const range = document.createRange(); range.selectNodeContents(e);
      const box = range.getBoundingClientRect();
      let scrolls = false;
      for (let p = e; p; p = p.parentElement) if (/auto|scroll/.test(getComputedStyle(p).overflowX)) scrolls = true;
      if (!scrolls && (box.right > innerWidth + 1 || box.left < -1)) wrong.push(`sticks out of the window: ${where(e, text)}`);
    }
  }
  // Labels of charts: inside their drawing, and not on top of each other.
  for (const drawing of document.querySelectorAll('.plot svg')) {
    const frame = drawing.getBoundingClientRect(), boxes = [...drawing.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]).filter(b => b[1].width);
    for (const [i, [text, b]] of boxes.entries()) {
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1) wrong.push(`label "${text}" is outside of its chart`);
      for (const [other, o] of boxes.slice(i + 1)) if (b.left < o.right - 1 && o.left < b.right - 1 && b.top < o.bottom - 3 && o.top < b.bottom - 3) wrong.push(`labels "${text}" and "${other}" overlap`);
    }
  }
  if (!seen) wrong.push('no text at all');
  return wrong;
}
"""

# The first column (the rank) of the table of ranks, as shown.
SHOWN = "() => [...document.querySelectorAll('#ranks tbody tr')].map(r => Number(r.cells[0].textContent.replaceAll(',', '')))"


def key_of(column):
    """The field of `stats.ranks` that a column shows and must be sorted by."""
    return {"Rank": "rank", "Peak": "peak_bytes", "Evictions": "evictions", "Out": "evicted_bytes", "In": "restored_bytes",
            "Waiting": "waiting_s", "Paging": "paging_s", "Set aside": "reserve_bytes", "Running": "running_s"}.get(column)


def check_sorting(page, ranks, say):
    """Clicks every header whose order is known from the data, twice, and compares."""
    by_number = {r["rank"]: r for r in ranks}
    for place, column in enumerate(page.locator("#ranks thead button").all_inner_texts()):
        key = key_of(column.strip())
        header = page.locator("#ranks thead th").nth(place)
        directions = set()
        for _ in range(2):
            header.locator("button").click()
            direction = header.get_attribute("aria-sort")
            directions.add(direction)
            others = page.locator("#ranks thead th[aria-sort]").count()
            if others != 1:
                say(f"{others} columns say that the table is sorted by them")
            if key is None:
                continue
            # Ranks that never ran have no values of their own; they come last.
            known = [r[key] for r in ranks if key in r and (key in ("rank", "reserve_bytes") or r["status"] not in ("unborn", "earlier"))]
            want = sorted(known, reverse=direction == "descending")
            shown = [by_number[n].get(key) for n in page.evaluate(SHOWN)]
            if not shown or shown[:len(want)] != want[:len(shown)]:
                say(f"table by {column} {direction}: shows {shown[:5]}…, should be {want[:5]}…")
        if directions != {"ascending", "descending"}:
            say(f"clicks on {column} give {directions}")
    if page.locator("#ranks thead button").count() == 0:
        say("the table of ranks has no headers to click")


def check_filter_and_pages(page, ranks, say):
    """The filter finds a rank by its number, and the pages go through all rows."""
    page.locator("#ranks thead button").first.click()
    last = ranks[-1]["rank"]
    field = page.locator("#ranks input")
    field.fill(str(last))
    if last not in page.evaluate(SHOWN):
        say(f"filter {last} does not find the rank")
    field.fill("surely there is no such part")
    if page.evaluate(SHOWN):
        say("the filter lets through what does not match")
    field.fill("")
    if len(ranks) > 100:
        first = page.evaluate(SHOWN)
        page.locator("#ranks .bar button", has_text="Next").click()
        second = page.evaluate(SHOWN)
        if len(first) != 100 or not second or set(first) & set(second):
            say("paging does not go on to other rows")


def check_tooltips(page, say):
    """The tooltip comes with the pointer, goes with it, and comes with the keyboard where that is offered."""
    tip = page.locator("#tip")
    for section in ["memory", "timeline", "peaks"]:
        plot = page.locator(f"#{section} .plot")
        if plot.count() == 0:
            continue
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        shown = False
        for x, y in [(0.5, 0.3), (0.4, 0.1), (0.6, 0.5), (0.35, 0.2), (0.25, 0.08), (0.8, 0.6)]:
            page.mouse.move(box["x"] + box["width"] * x, min(box["y"] + box["height"] * y, 790))
            if tip.is_visible() and tip.inner_text().strip():
                shown = True
                if re.search(r"\[object|undefined|NaN", tip.inner_text()):
                    say(f"tooltip of #{section}: {tip.inner_text()!r}")
                b = tip.bounding_box()
                if b["x"] < 0 or b["x"] + b["width"] > page.viewport_size["width"] + 0.5:
                    say(f"tooltip of #{section} sticks out of the window")
                for line in page.evaluate(JUDGE, CONTRAST):
                    if "#tip" in line:
                        say(line)
                break
        if not shown:
            say(f"no tooltip over #{section}")
        page.mouse.move(2, 2)
        if tip.is_visible():
            say(f"the tooltip of #{section} stays when the pointer leaves")
        if plot.get_attribute("role") == "slider":
            plot.focus()
            page.keyboard.press("ArrowRight")
            if not tip.is_visible() or not plot.get_attribute("aria-valuetext"):
                say(f"no value of #{section} with the keyboard")
            page.evaluate("() => document.activeElement.blur()")


def check_zoom(page, say):
    """Dragging over the timeline changes it, Reset brings it back."""
    plot = page.locator("#timeline .plot")
    if plot.count() == 0:
        return
    picture = "() => document.querySelector('#timeline canvas').toDataURL()"
    settle = "() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
    again = page.get_by_role("button", name="Show all")
    if again.count() and again.is_visible():
        say("the page says that it is zoomed, and is not")
    plot.scroll_into_view_if_needed()
    whole, box = page.evaluate(picture), plot.bounding_box()
    y = max(5, min(box["y"] + 10, 780))
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    page.mouse.up()
    page.evaluate(settle)
    if page.evaluate(picture) == whole:
        say("dragging over the timeline does not zoom")
    for line in page.evaluate(JUDGE, CONTRAST):
        say(f"zoomed: {line}")
    page.get_by_role("button", name="Reset").click()
    page.evaluate(settle)
    if page.evaluate(picture) != whole:
        say("Reset does not show all of the timeline")
    plot.focus()
    page.keyboard.press("+")
    page.evaluate(settle)
    if page.evaluate(picture) == whole:
        say("the key + does not zoom the timeline")
    page.keyboard.press("0")
    page.evaluate(settle)


def check_structure(page, data, say):
    """What must be there, whatever the job."""
    stats = data.get("stats") or {}
    if page.get_attribute("html", "lang") != "en":
        say("lang is not en")
    title = page.title()
    if not re.match(r"bdrun: .+ — .+", title):
        say(f"title is {title!r}")
    if page.locator("h1:visible").count() != 1:
        say("not exactly one h1")
    if page.locator("noscript").count() != 1:
        say("no noscript")
    for section in ["head", "memory", "timeline", "peaks", "ranks"]:
        part = page.locator(f"#{section}")
        if part.count() != 1 or not part.is_visible() or len(part.inner_text().strip()) < 10:
            say(f"section #{section} is missing or empty")
    for text in page.locator(".facts, .lede, .legend, .plot text, #ranks td.num").all_text_contents():
        if re.search(r"\[object|undefined|NaN|Infinity", text):
            say(f"a value is shown as {text!r}")
    if "could not be drawn" in page.inner_text("main"):
        say("a section could not be drawn")
    head = page.inner_text("#head")
    if data.get("line") and data["line"][:60].split("\t")[0] not in head:
        say("the command line is not in the head")
    if stats.get("error") and stats["error"].strip()[-40:] not in head:
        say("the error is not in the head, or not in full")
    good = {"ok", "earlier", "stopped", "unborn"}
    failed = [r for r in stats.get("ranks") or [] if r.get("status") not in good]
    if bool(failed) != page.locator("#failed").is_visible():
        say(f"{len(failed)} ranks failed, but the section of failed parts is {'not there' if failed else 'there'}")
    if failed and page.locator("#failed tbody tr").count() != min(100, len(failed)):
        say("the section of failed parts does not list them")
    history = data.get("history") or {}
    if history.get("t") and page.locator("#memory svg path").count() == 0:
        say("there are samples, but no chart of memory")
    if any(history.get("ranks") or []) and page.locator("#timeline canvas").count() == 0:
        say("there are states, but no timeline")
    if history.get("notes") and page.locator("#memory .notes li").count() != len(history["notes"]):
        say("the notes are not all there")
    if any(r.get("peak_bytes") for r in stats.get("ranks") or []) and page.locator("#peaks svg rect").count() < 2:
        say("there are peaks, but no histogram")
    for image in page.locator("main img, main script, main iframe").all():
        say(f"data became markup: {image.evaluate('e => e.outerHTML')[:80]}")


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("skipped: no playwright")
        return 77
    chromium = os.environ.get("BDRUN_CHROMIUM", "/usr/bin/chromium")
    if not shutil.which(chromium):
        print("skipped: no chromium")
        return 77
    path = Path(sys.argv[1]).resolve()
    shots = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
    wrong, slowest, done = [], 0, 0

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS, timeout=PATIENCE_MS)
        for scheme in SCHEMES:
            for width in WIDTHS:
                def say(what, width=width, scheme=scheme):
                    wrong.append(f"{width} px, {scheme}: {what}")

                context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
                page = context.new_page()
                page.set_default_timeout(PATIENCE_MS)
                page.on("console", lambda m, say=say: say(f"console: {m.text}") if m.type in ("error", "warning") else None)
                page.on("pageerror", lambda e, say=say: say(f"script error: {e}"))
                page.on("dialog", lambda d, say=say: (say("data ran as a script"), d.dismiss()))
                page.on("request", lambda r, say=say: say(f"asks the network for {r.url}") if not r.url.startswith(("file:", "data:")) else None)
                page.goto(path.as_uri())
                drawn = page.evaluate("() => document.documentElement.dataset.drawn")
                if drawn is None:
                    say("the page was not drawn to its end")
                    continue
                slowest = max(slowest, int(drawn))
                if int(drawn) > RENDER_MS:
                    say(f"drawn in {drawn} ms")
                data = page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")
                ranks = (data.get("stats") or {}).get("ranks") or []
                if shots:
                    page.screenshot(path=shots / f"{path.stem}-{width}-{scheme}.png", full_page=True)
                check_structure(page, data, say)
                for line in page.evaluate(JUDGE, CONTRAST):
                    say(line)
                check_tooltips(page, say)
                check_zoom(page, say)
                if ranks:
                    check_sorting(page, ranks, say)
                    check_filter_and_pages(page, ranks, say)
                done += 1
                context.close()
        if done:
            # Without JavaScript the page must say so, and on paper it must be white, whatever the screen is.
            page = browser.new_context(java_script_enabled=False).new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(path.as_uri())
            if "JavaScript" not in page.inner_text("body"):
                wrong.append("without JavaScript: the page does not say what is missing")
            page = browser.new_context(color_scheme="dark", viewport={"width": 794, "height": 1123}).new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.emulate_media(media="print", color_scheme="dark")
            page.goto(path.as_uri())
            for line in page.evaluate(JUDGE, CONTRAST):
                wrong.append(f"on paper: {line}")
            if shots:
                page.screenshot(path=shots / f"{path.stem}-print.png", full_page=True)
        browser.close()

    for line in dict.fromkeys(wrong):
        print(line, file=sys.stderr)
    if wrong:
        return 1
    print(f"ok: {path.name}: {done} views, drawn in at most {slowest} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
