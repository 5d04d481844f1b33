// Pages used by keyboard: which elements the Tab key reaches, and whether a person sees where the focus is.

/** The elements that can be used. Those with `tabindex="-1"` are reached by other keys. */
const USABLE = "a[href], button, input, select, textarea, summary, [tabindex='0']";

/**
 * Reads the element with the focus as a person sees it: its place in the list of usable elements, its name, and whether
 * it is in view and has an outline. With `moveTo`, a place in the list, that element gets the focus first.
 */
const readFocus = (page, moveTo = null) => page.evaluate(({ usable, moveTo: place }) => {
  const nameOf = (it) => `${it.tagName.toLowerCase()} ${it.getAttribute("aria-label") ?? it.textContent.trim()}`;
  const isUsable = (it) => it.checkVisibility() && !it.disabled && it.getAttribute("tabindex") !== "-1";
  const all = [...document.querySelectorAll(usable)].filter(isUsable);
  if (place !== null) all.at(place).focus();
  const focused = document.activeElement;
  const { top, bottom, left, right, width, height } = focused.getBoundingClientRect();
  const header = document.querySelector("body > header");
  // The link that skips the header is shown above it.
  const isAtTop = header === null || header.contains(focused) || focused.classList.contains("skip");
  const above = isAtTop ? 0 : Math.max(0, header.getBoundingClientRect().bottom);
  const { outlineStyle, outlineWidth } = getComputedStyle(focused);
  return {
    names: all.map(nameOf),
    place: all.indexOf(focused),
    name: nameOf(focused).slice(0, 80),
    isInDocument: focused !== document.body,
    isInView:
      width > 0 && height > 0 && bottom > above && top < window.innerHeight && right > 0 && left < window.innerWidth,
    hasOutline: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2,
  };
}, { usable: USABLE, moveTo });

/** Presses a key until the focus leaves the document or comes to its first stop again. Returns the stops. */
async function pressUntilEnd(page, key) {
  const stops = [];
  for (;;) {
    await page.keyboard.press(key);
    const stop = await readFocus(page);
    const isEnd = !stop.isInDocument || (stops.length > 0 && stop.place === stops[0].place && stop.place >= 0);
    if (isEnd) return stops;
    stops.push(stop);
    if (stops.length > 3 * stop.names.length + 10) throw new Error(`the focus is caught at ${stop.name}`);
  }
}

/**
 * Walks through the page with the Tab key, forward and back. Returns `{missed, hidden}`: the names of the elements that
 * it does not reach in the order of the document, and of the stops at which the focus is not seen.
 */
export async function walkByTab(page) {
  // Before the first element is the end of the document, and behind the last one its beginning.
  await readFocus(page, 0);
  await page.keyboard.press("Shift+Tab");
  const forward = await pressUntilEnd(page, "Tab");
  await readFocus(page, -1);
  await page.keyboard.press("Tab");
  const back = await pressUntilEnd(page, "Shift+Tab");
  const { names } = await readFocus(page);
  const missed = [];
  for (const [stops, wanted] of [
    [forward, names.map((_, index) => index)],
    [back, names.map((_, index) => names.length - 1 - index)],
  ]) {
    // Chromium also stops at regions that scroll and contain nothing to use.
    const places = stops.map(({ place }) => place).filter((place) => place >= 0);
    if (places.join() !== wanted.join()) {
      const left = wanted.filter((place) => !places.includes(place)).map((place) => names[place]);
      missed.push(left.length > 0 ? left : `in another order: ${places.map((place) => names[place]).join(", ")}`);
    }
  }
  const isUnseen = ({ isInView, hasOutline }) => !isInView || !hasOutline;
  const hidden = [...forward, ...back].filter(isUnseen).map(({ name }) => name);
  return { missed: missed.flat(), hidden, count: names.length };
}

/** Presses the Tab key until an element has the focus. `target` is a locator. */
export async function tabTo(page, target) {
  await target.waitFor();
  for (let presses = 0; presses < 400; presses += 1) {
    if (await target.evaluate((it) => it === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`the Tab key does not reach ${target}`);
}
