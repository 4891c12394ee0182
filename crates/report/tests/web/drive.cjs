// Opens a report in Chromium and checks what a reader sees and does. Prints "ok" lines; fails by an assertion.
// usage: node drive.cjs NPM_DIRECTORY CHROMIUM PROFILE_DIRECTORY interactive|search|fixed|hostile|comparison|curves|passes|views PAGE
"use strict";
const assert = require("node:assert/strict");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");
const [npm, executablePath, profile, kind, file] = process.argv.slice(2);
const { chromium } = createRequire(npm + "/")("playwright-core");
const address = pathToFileURL(file).href;

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
setTimeout(() => { console.error("no end after 100 s"); process.exit(1); }, 100_000).unref();

const ok = (what) => console.log("ok", what);
/** Pixels of a canvas that are not transparent, and a digest of them all. */
const inked = (page, plot) => page.evaluate((id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  // Read from a copy made for reading: Chromium complains of repeated reads of the drawn one.
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const bytes = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  let [count, digest] = [0, 0];
  for (let at = 0; at < bytes.length; at += 4) {
    if (bytes[at + 3] > 0) count += 1;
    digest = (digest * 31 + bytes[at] * 7 + bytes[at + 1] * 5 + bytes[at + 2] * 3 + bytes[at + 3]) | 0;
  }
  return { count, digest };
}, plot);
/** What observes a size has been told, and what it draws then is laid out: it is told after the animation frame's scripts. */
const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const fits = async (page, what) => {
  await drawn(page);
  const [content, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= room, `${what}: content is ${content} px wide on ${room} px`);
  ok(what);
};

async function interactive(page) {
  const plots = ["plot-latency", "plot-achieved", "plot-cumulative"];
  for (const plot of plots) assert.ok((await inked(page, plot)).count > 2000, `${plot} is empty`);
  ok("three plots are drawn");

  // Where the numbers say that a point lies, the box tells what the table tells.
  await page.locator("#plot-latency").scrollIntoViewIfNeeded();
  const target = await page.evaluate(() => {
    const { curves, stats } = JSON.parse(document.getElementById("numbers").textContent);
    const dot = curves[1].dots[3];
    const end = 1.04 * Math.max(...curves.flatMap((curve) => curve.dots.map((d) => d.rate_per_sec)));
    const over = document.querySelector("#plot-latency .u-over").getBoundingClientRect();
    const row = document.querySelectorAll("#latency tbody tr")[curves[0].dots.length + 3];
    return {
      x: over.left + (over.width * dot.rate_per_sec) / end,
      y: over.bottom - (over.height * dot.latency_ms[3]) / stats[3].linear_top_ms,
      label: curves[1].label,
      cells: [...row.children].map((cell) => cell.textContent.trim()),
    };
  });
  await page.mouse.move(target.x + 4, target.y - 3);
  const tip = page.locator("#tip");
  await tip.waitFor({ state: "visible" });
  const told = await tip.innerText();
  assert.equal(target.cells[0], target.label);
  assert.ok(told.includes(target.label), told);
  assert.ok(told.includes(`${target.cells[2]} /s`), `${told} should tell ${target.cells[2]} /s`);
  assert.ok(told.includes(`${target.cells[6]} ms`), `${told} should tell ${target.cells[6]} ms`);
  await page.mouse.move(2, 2);
  await tip.waitFor({ state: "hidden" });
  ok("the tooltip tells the numbers of the point under the mouse, with units");

  await page.locator("#plot-latency").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  const second = (await page.locator("#latency tbody tr").nth(1).locator("td").nth(1).textContent()).trim();
  const said = await page.locator("#said").innerText();
  assert.ok(said.includes(`${second} /s`), `${said} should tell ${second} /s`);
  await page.keyboard.press("Escape");
  assert.ok(await tip.isHidden());
  ok("arrow keys go through the points and the live region tells them");

  await page.locator("#plot-cumulative").scrollIntoViewIfNeeded();
  const over = await page.locator("#plot-cumulative .u-over").boundingBox();
  await page.mouse.move(over.x + over.width / 2, over.y + over.height / 2);
  await tip.waitFor({ state: "visible" });
  const within = (await tip.innerText()).match(/done within ([\d.,]+) ms/)[1];
  const row = page.locator('.cumulative-table:not([hidden]) tbody tr', { has: page.locator(`th:text-is("${within}")`) }).first();
  const share = (await row.locator("td").first().textContent()).trim();
  assert.ok((await tip.innerText()).includes(`${share} %`), `${await tip.innerText()} should tell ${share} %`);
  await page.mouse.move(2, 2);
  ok("the cumulative plot's tooltip tells the shares of the table");

  let before = await inked(page, "plot-latency");
  const changes = async (what, act) => {
    await act();
    const after = await inked(page, "plot-latency");
    assert.notEqual(after.digest, before.digest, what);
    assert.ok(after.count > 2000, what);
    before = after;
    ok(what);
  };
  await changes("choosing p50 redraws", () => page.locator('input[name="stat"][value="1"]').check());
  await changes("choosing the logarithmic scale redraws", () => page.locator('input[name="scale"][value="log"]').check());
  const button = page.locator("#plot-latency-legend button").first();
  await changes("a click in the legend hides a curve", () => button.click());
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  await changes("and another shows it again", () => button.click());
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await changes("the theme button makes it dark", () => page.locator("#theme").click());
  assert.notEqual(await background(), light);
  await changes("and light again", () => page.locator("#theme").click());
  assert.equal(await background(), light);

  const cumulative = await inked(page, "plot-cumulative");
  await page.locator("#cumulative-run").selectOption({ index: 1 });
  assert.notEqual((await inked(page, "plot-cumulative")).digest, cumulative.digest);
  ok("choosing another run redraws the cumulative plot");

  await page.setViewportSize({ width: 375, height: 800 });
  await page.waitForFunction(() => document.querySelector("#plot-latency canvas").getBoundingClientRect().width <= 375);
  await fits(page, "nothing is wider than a phone of 375 px");
  for (const plot of plots) assert.ok((await inked(page, plot)).count > 1000, `${plot} is empty on a phone`);
  const pdf = await page.pdf({ format: "A4" });
  assert.ok(pdf.length > 20_000, `a PDF of ${pdf.length} bytes`);
  ok("it prints");
  await narrowedAtOnce(page.context());
}

/** The room narrows after the plots were drawn and before anything observed their size. */
async function narrowedAtOnce(context) {
  const page = await context.newPage();
  await page.addInitScript(() => {
    const observe = ResizeObserver.prototype.observe;
    ResizeObserver.prototype.observe = function (...of) {
      document.documentElement.style.width = "375px";
      return observe.apply(this, of);
    };
  });
  await page.goto(address);
  await drawn(page);
  const widths = await page.evaluate(() => [...document.querySelectorAll(".plot canvas")].map((canvas) => canvas.getBoundingClientRect().width));
  assert.ok(widths.length > 0);
  assert.ok(Math.max(...widths) <= 375, `plots are ${widths} px wide in 375 px`);
  await page.close();
  ok("plots fit room that narrowed before they were shown");
}

async function tables(page) {
  if (["interactive", "fixed"].includes(kind)) {
    const shown = () => page.locator(".point:not([hidden])");
    assert.equal(await shown().count(), 1);
    await page.locator("#operations-point").selectOption({ index: 2 });
    assert.equal(await shown().count(), 1);
    assert.ok((await shown().locator("h3").innerText()).includes("1,500/s offered"));
    ok("the operations of one load point are shown at a time");
  }
  const bare = await page.evaluate(() => [
    document.querySelectorAll("th:not([scope])").length,
    [...document.querySelectorAll("select, input")].filter((field) => !field.labels.length).length,
    document.querySelectorAll(".plot:not([aria-label]), section:not([aria-label]):not([aria-labelledby])").length,
  ]);
  assert.deepEqual(bare, [0, 0, 0], "headers without scope, fields without label, regions without name");
  ok("headers have scopes, fields labels, regions names");
}

async function fixed(page) {
  assert.equal(await page.locator("canvas").count(), 0);
  assert.ok(await page.getByText("This page shows fixed SVG plots").isVisible());
  const svgs = page.locator(".fixed svg");
  assert.equal(await svgs.count(), 5);
  for (const svg of await svgs.all()) assert.ok((await svg.boundingBox()).height > 150);
  ok("five SVGs are shown, and the page says so");
  await page.setViewportSize({ width: 375, height: 800 });
  await fits(page, "nothing is wider than a phone of 375 px");
}

async function comparison(page) {
  assert.match(await page.locator(".said strong").innerText(), /^B is faster by [\d.]+% \(95% CI [\d.]+ to [\d.]+\)$/);
  for (const id of ["latency", "operations", "points", "cumulative"]) assert.equal(await page.locator(`#${id}`).count(), 0);
  ok("the answer comes first, and nothing speaks of load points");
  const rows = page.locator(".dots-row:not(.axis)");
  assert.ok((await rows.count()) > 15);
  assert.equal(await page.locator("#comparison .one-run").count(), 10 * (await rows.count()));
  const [one, low] = await page.evaluate(() => {
    const row = document.querySelector(".dots-row.lead svg");
    const left = (element) => element.getBoundingClientRect().left;
    return [left(row.querySelector("line.one")), left(row.querySelector("line.interval"))];
  });
  assert.ok(low > one + 5, `the interval begins at ${low} px, the line at 1 is at ${one}`);
  ok("every figure has its dots, and the headline's interval lies off the line at 1");
  const tip = page.locator("#tip");
  await page.locator("#comparison").scrollIntoViewIfNeeded();
  const strip = await page.locator(".dots-row.lead svg.dots-strip").boundingBox();
  await page.mouse.move(strip.x + strip.width / 2, strip.y + strip.height * 0.75);
  await tip.waitFor({ state: "visible" });
  const told = await tip.innerText();
  const cells = await page.locator("#comparison tbody tr").nth(1).locator("td").allTextContents();
  for (const at of [2, 3, 4]) assert.ok(told.includes(cells[at].trim()), `${told} should tell ${cells[at]}`);
  await page.mouse.move(2, 2);
  await tip.waitFor({ state: "hidden" });
  ok("the tooltip tells median, ratio and interval of the table");
  const mark = () => page.evaluate(() => getComputedStyle(document.querySelector(".dots-strip .interval")).stroke);
  const before = await mark();
  await page.locator("#theme").click();
  assert.notEqual(await mark(), before);
  ok("the dots follow the theme");
  await page.setViewportSize({ width: 375, height: 800 });
  await fits(page, "nothing is wider than a phone of 375 px");
  await page.emulateMedia({ media: "print" });
  assert.ok(await page.locator(".dots-row.lead").isVisible());
  assert.ok((await page.pdf({ format: "A4" })).length > 20_000);
  await page.emulateMedia({ media: "screen" });
  ok("it prints");
}

async function search(page) {
  const first = page.locator(".answer .said strong");
  assert.equal(await first.innerText(), "Holds 3600 requests a second.");
  const [answer, verdicts] = await Promise.all([first.boundingBox(), page.locator(".run").first().boundingBox()]);
  assert.ok(answer.y < verdicts.y, "the answer is above the verdicts");
  ok("the page begins with the answer");
  const written = (plot) => page.evaluate((id) => globalThis.written.get(document.querySelector(`#${id} canvas`)), plot);
  const latency = await written("plot-latency");
  for (const text of ["200", "5,000", "knee 2,400/s", "highest held 3,600/s"]) assert.ok(latency.includes(text), `no ${text} among ${latency}`);
  assert.ok((await written("plot-achieved")).includes("200"), "achieved against offered is logarithmic too");
  ok("rates are on a logarithmic axis, with the knee and the highest rate held");
  const levels = ["100/s", "200/s", "800/s", "2,400/s", "3,600/s", "3,900/s, saturated"];
  const named = async () => [...new Set((await written("plot-cumulative")).filter((text) => text.includes("/s")))];
  assert.deepEqual(await named(), levels);
  ok("six levels of ten are drawn, with their names on the lines");
  await page.locator("#plot-cumulative-legend button", { hasText: "6,400/s" }).click();
  assert.ok((await named()).includes("6,400/s, saturated"));
  ok("the legend shows another level");
  await page.locator('input[name="scale"][value="linear"]').check();
  assert.ok(!(await written("plot-latency")).includes("200"));
  ok("the linear scale is one click away");
  await page.setViewportSize({ width: 375, height: 800 });
  await fits(page, "nothing is wider than a phone of 375 px");
}

async function curves(page) {
  const plots = await page.locator(".plot").count();
  assert.equal(plots, 4);
  for (let at = 0; at < plots; at += 1) assert.ok((await inked(page, `plot-curve-${at}`)).count > 2000, `curve ${at} is empty`);
  ok("four plots are drawn");
  const written = await page.evaluate(() => globalThis.written.get(document.querySelector("#plot-curve-3 canvas")));
  for (const tick of ["5,000", "10,000", "50,000"]) assert.ok(written.includes(tick), `no tick ${tick} among ${written}`);
  ok("a logarithmic axis whose ends are not round has ticks at round numbers");
  const target = await page.evaluate(() => {
    const { lines } = JSON.parse(document.getElementById("numbers").textContent)[`lines`][0];
    const points = lines.flatMap((line) => line.points);
    const ends = (values) => [Math.min(...values) * 0.75, Math.max(...values) * 1.35];
    const share = ([low, high], value) => Math.log(value / low) / Math.log(high / low);
    const point = lines[0].points[15];
    const over = document.querySelector("#plot-curve-0 .u-over").getBoundingClientRect();
    document.querySelector("#plot-curve-0").scrollIntoView({ block: "center" });
    const now = document.querySelector("#plot-curve-0 .u-over").getBoundingClientRect();
    const row = document.querySelectorAll("#curve-0 tbody tr")[15];
    return {
      x: now.left + over.width * share(ends(points.map((p) => p.x)), point.x),
      y: now.bottom - over.height * share(ends(points.flatMap((p) => [p.y, p.low, p.high])), point.y),
      cells: [...row.children].map((cell) => cell.textContent.trim()),
    };
  });
  const tip = page.locator("#tip");
  await page.mouse.move(target.x + 2, target.y - 2);
  await tip.waitFor({ state: "visible" });
  const told = await tip.innerText();
  for (const cell of target.cells) assert.ok(told.includes(cell), `${told} should tell ${cell}`);
  await page.mouse.move(2, 2);
  ok("a point tells its line, size, value and interval, as the table does");
  await page.locator("#plot-curve-0").focus();
  await page.keyboard.press("ArrowRight");
  assert.ok((await page.locator("#said").innerText()).includes("95% interval"));
  await page.keyboard.press("Escape");
  const before = await inked(page, "plot-curve-0");
  await page.locator("#plot-curve-0-legend button").first().click();
  assert.notEqual((await inked(page, "plot-curve-0")).digest, before.digest);
  ok("arrow keys go through the points, and the legend hides a line");
  await page.setViewportSize({ width: 375, height: 800 });
  await page.waitForFunction(() => document.querySelector("#plot-curve-0 canvas").getBoundingClientRect().width <= 375);
  await fits(page, "nothing is wider than a phone of 375 px");
  assert.ok((await page.pdf({ format: "A4" })).length > 20_000);
  ok("it prints");
}

async function views(page) {
  await page.locator("#tally-0 svg.bar").first().hover();
  assert.ok((await page.locator("#tip").innerText()).includes("count"));
  ok("a bar tells its value");
  await page.mouse.move(2, 2);
  const line = await page.locator("#tally-0-asked polyline").first().boundingBox();
  assert.ok(line.width > 200 && line.height > 5, JSON.stringify(line));
  ok("a line is drawn across its figure");
  const mark = await page.locator("#tally-0 .published-mark").first().evaluate((of) => getComputedStyle(of).strokeDasharray);
  assert.ok(mark.startsWith("3"), mark);
  for (const width of [1200, 480, 375]) {
    await page.setViewportSize({ width, height: 800 });
    await fits(page, `nothing is wider than ${width} px`);
  }
}

async function passes(page) {
  const shown = (figure) => page.evaluate((id) => {
    const parts = [...document.querySelectorAll(`#rounds-${id} > .picture > .plain, #rounds-${id} > .picture > .published`)];
    return parts.filter((part) => part.offsetHeight > 0).map((part) => part.className).join();
  }, figure);
  assert.equal(await shown("rate-mean"), "plain");
  assert.equal(await shown("rate-left"), "published");
  ok("published values are shown at first where they fit");
  await page.locator("label[for=published-rate-mean]").click();
  assert.equal(await shown("rate-mean"), "published");
  assert.ok((await page.locator("#rounds-rate-mean .published").innerText()).includes("about 40/s"));
  await page.locator("label[for=published-rate-left]").click();
  assert.equal(await shown("rate-left"), "plain");
  ok("each figure has its switch");
  const all = page.locator("#published-all");
  assert.equal(await all.evaluate((box) => box.indeterminate), true);
  await all.check();
  for (const id of ["rate-mean", "rate-passes", "rate-left", "delete-passes"]) {
    assert.equal(await shown(id), "published", id);
  }
  await all.uncheck();
  assert.equal(await shown("rate-left"), "plain");
  assert.equal(await shown("rate-again"), "plain");
  ok("and one switches all");
  await page.locator("#rounds-rate-passes .plain .catch").first().hover();
  assert.ok((await page.locator("#tip").innerText()).includes("20,000/s"));
  await page.mouse.move(2, 2);
  ok("a mark tells its value");
  await all.check();
  for (const width of [1200, 480, 375]) {
    await page.setViewportSize({ width, height: 800 });
    await fits(page, `nothing is wider than ${width} px`);
    // Names beside an axis must not lie on each other.
    const overlaps = await page.evaluate(() => [...document.querySelectorAll(".published .names")].flatMap((names) => {
      const boxes = [...names.querySelectorAll("span")].map((span) => span.getBoundingClientRect()).filter((box) => box.height > 0);
      boxes.sort((a, b) => a.top - b.top);
      return boxes.slice(1).filter((box, at) => box.top < boxes[at].bottom - 0.5);
    }).length);
    assert.equal(overlaps, 0);
  }
  ok("no name lies on another");
  assert.ok((await page.pdf({ format: "A4" })).length > 20_000);
  ok("it prints");
}

async function hostile(page) {
  assert.equal(await page.locator("main img").count(), 0);
  assert.ok((await page.locator("h1").innerText()).includes("<img"));
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  await page.setViewportSize({ width: 375, height: 800 });
  await fits(page, "a long name without blanks breaks on a phone");
}

(async () => {
  const context = await chromium.launchPersistentContext(profile, { executablePath, args: FLAGS, viewport: { width: 1200, height: 900 } });
  context.setDefaultTimeout(15_000);
  try {
    for (const colorScheme of ["interactive", "search", "comparison", "curves", "passes", "views"].includes(kind) ? ["light", "dark"] : ["light"]) {
      const page = await context.newPage();
      const [complaints, requests] = [[], []];
      page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
      page.on("pageerror", (error) => complaints.push(String(error)));
      page.on("dialog", (dialog) => { complaints.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
      page.on("request", (request) => requests.push(request.url()));
      await page.route("**/*", (route) => (route.request().url() === address ? route.continue() : route.abort()));
      await page.emulateMedia({ colorScheme });
      // What is written onto a canvas cannot be asked of it afterwards.
      await page.addInitScript(() => {
        globalThis.written = new Map();
        const fillText = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          globalThis.written.set(this.canvas, [...(globalThis.written.get(this.canvas) ?? []), String(text)]);
          return fillText.call(this, text, ...rest);
        };
      });
      await page.goto(address);
      const luminance = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3);
      assert.ok(colorScheme === "dark" ? luminance < 60 : luminance > 200, `${colorScheme} paper has luminance ${luminance}`);
      ok(`the paper follows the system's ${colorScheme} scheme`);
      if (kind !== "hostile") await tables(page);
      await { interactive, search, fixed, hostile, comparison, curves, passes, views }[kind](page);
      const outside = requests.filter((url) => url !== address && !url.startsWith("data:"));
      assert.equal(complaints.join("\n"), "", "the console is not silent");
      assert.equal(outside.join("\n"), "", "a request left the file");
      ok("the console is silent and no request leaves the file");
      await page.close();
    }
  } finally {
    await context.close();
  }
  console.log("all checks passed");
})().catch((error) => { console.error(error); process.exitCode = 1; });
