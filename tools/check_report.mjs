// Looks at a run's report.html in headless Chromium: light, dark, narrow, and by keyboard alone.
//
//   npm install --no-save playwright-core     (Debian: apt-get install chromium)
//   node tools/check_report.mjs runs/embedded-1/report.html [FOLDER FOR SCREENSHOTS]
//
// Ends with status 1 and says what is wrong: an error in the page, a request that leaves it, text that overflows the
// window, a control that the keyboard does not reach, or contrast below what people need (WCAG AA).

import { chromium } from "playwright-core";
import { pathToFileURL } from "node:url";

const [file, pictures] = process.argv.slice(2);
if (!file) {
  console.error("usage: node tools/check_report.mjs REPORT [FOLDER]");
  process.exit(2);
}
const problems = [];
const check = (holds, what) => holds || problems.push(what);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

async function open(settings) {
  const page = await browser.newPage(settings);
  page.on("pageerror", (error) => problems.push(`error in the page: ${error.message}`));
  page.on("console", (line) => line.type() === "error" && problems.push(`console: ${line.text()}`));
  page.on("request", (request) => {
    const address = request.url();
    check(address.startsWith("file:") || address.startsWith("data:"), `a request leaves the page: ${address}`);
  });
  await page.goto(pathToFileURL(file).href);
  return page;
}

// Text against what is behind it: 4.5 to 1, or 3 to 1 when it is large.
async function contrast(page, name) {
  const bad = await page.evaluate(() => {
    const parse = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
    const over = ([r, g, b, a = 1], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
    const light = (rgb) => {
      const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
      const layers = [];
      for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
      return layers.reverse().reduce((below, layer) => (layer.length ? over(layer, below) : below), [255, 255, 255]);
    };
    const found = [];
    for (const element of document.querySelectorAll("main *, header *, footer")) {
      const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
      const style = getComputedStyle(element);
      const size = parseFloat(style.fontSize);
      if (!own || !element.checkVisibility() || size === 0) continue;
      const ground = behind(element);
      const ink = over(parse(element instanceof SVGElement ? style.fill : style.color), ground);
      const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      const large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
      if (ratio < (large ? 3 : 4.5)) found.push(`${element.tagName} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
    }
    return [...new Set(found)].slice(0, 5);
  });
  bad.forEach((what) => problems.push(`${name}: too little contrast: ${what}`));
}

for (const [name, settings] of [
  ["light", { viewport: { width: 1240, height: 900 }, colorScheme: "light" }],
  ["dark", { viewport: { width: 1240, height: 900 }, colorScheme: "dark" }],
  ["narrow", { viewport: { width: 360, height: 740 }, colorScheme: "light" }],
]) {
  const page = await open(settings);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(wide <= 0, `${name}: the page is ${wide} pixels wider than the window`);
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const bright = ground.match(/\d+/g).map(Number)[0] > 128;
  check(bright === (settings.colorScheme === "light"), `${name}: the page has the colour ${ground}`);
  await contrast(page, name);
  if (pictures) await page.screenshot({ path: `${pictures}/report-${name}.png`, fullPage: true });
  await page.close();
}

// By keyboard alone.
const page = await open({ viewport: { width: 1240, height: 900 }, colorScheme: "light" });
const focused = () => page.evaluate(() => {
  const e = document.activeElement;
  return { tag: e.tagName.toLowerCase(), id: e.id, text: e.textContent.trim(), sort: e.closest("th")?.getAttribute("aria-sort") };
});
const text = (selector) => page.textContent(selector);
async function tabTo(wanted, what) {
  for (let i = 0; i < 200; i++) {
    await page.keyboard.press("Tab");
    if (wanted(await focused())) return true;
  }
  problems.push(`the keyboard does not reach ${what}`);
  return false;
}
await page.keyboard.press("Tab");
check((await focused()).text === "To the results", "the first stop is the link that skips to the results");
if (await tabTo((e) => e.id === "theme", "the switch between light and dark")) {
  await page.keyboard.press("Enter");
  check((await page.evaluate(() => document.documentElement.dataset.theme)) === "dark", "Enter switches to dark");
  await page.keyboard.press("Enter");
}
if ((await page.$("#chart-loss")) && (await tabTo((e) => e.id === "chart-loss", "the chart of the loss"))) {
  await page.keyboard.press("Home");
  const first = await text("#read-loss");
  check(/^epoch 1: training \d/.test(first), `the chart tells its values: ${first}`);
  await page.keyboard.press("End");
  const spoken = await page.getAttribute("#chart-loss", "aria-valuetext");
  check(spoken === (await text("#read-loss")), "the chart speaks what it shows");
  const box = await (await page.$("#chart-accuracy")).boundingBox();
  await page.mouse.move(box.x + box.width * 0.15, box.y + box.height / 2);
  check(/^epoch \d+: training/.test(await text("#read-accuracy")), "the pointer shows values too");
}
if ((await page.$("#matrix")) && (await tabTo((e) => e.tag === "td", "the confusion matrix"))) {
  const before = await text("#read-matrix");
  check(/recognised$/.test(before), `the first cell says how many were recognised: ${before}`);
  await page.keyboard.press("ArrowRight");
  check(/ taken for .*: \d+ of \d+$/.test(await text("#read-matrix")), "the arrow key moves to a confusion");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowUp");
  check((await text("#read-matrix")) === before, "the edge of the matrix stops the arrow keys");
}
if (await tabTo((e) => e.tag === "button" && e.sort, "the headings of the table of classes")) {
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const column = () => page.$$eval(".sortable tbody tr", (rows) => rows.map((r) => Number(r.cells[2].dataset.v)));
  const values = await column();
  check(values.every((v, i) => i === 0 || values[i - 1] <= v), "Enter on a heading sorts upwards");
  await page.keyboard.press("Enter");
  check((await focused()).sort === "descending", "and once more downwards");
}
// Decoded, not asked whether complete: that is a matter of when one asks. One that waits for scrolling never is.
const images = await page.$$eval("img", (all) => {
  const late = new Promise((done) => setTimeout(done, 10_000, false));
  const shows = (i) => i.decode().then(() => i.alt !== "" && i.naturalWidth > 0, () => false);
  return Promise.all(all.map((i) => Promise.race([shows(i), late])));
});
check(images.every(Boolean), `${images.filter((shown) => !shown).length} of ${images.length} images have no text or do not show`);
await browser.close();
problems.forEach((what) => console.error(what));
console.log(problems.length ? `${problems.length} problems` : "the report is in order");
process.exit(problems.length ? 1 : 0);
