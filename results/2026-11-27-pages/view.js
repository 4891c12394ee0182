// node view.js OUT_DIR PAGE.html...: screenshots at 1280 and 390 px; says what scrolls sideways or is cut.
const { chromium } = require("playwright-core");
const path = require("path");
(async () => {
  const [out, ...pages] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
  let bad = 0;
  for (const file of pages) {
    const name = path.basename(file, ".html");
    for (const width of [1280, 390]) {
      const page = await browser.newPage({ viewport: { width, height: 900 }, deviceScaleFactor: 1 });
      const errors = [];
      page.on("pageerror", (e) => errors.push(String(e)));
      page.on("console", (m) => { if (m.type() === "error") errors.push(m.text()); });
      await page.goto("file://" + path.resolve(file));
      await page.waitForTimeout(400);
      const height = await page.evaluate(() => document.documentElement.scrollHeight);
      await page.screenshot({ path: path.join(out, `${name}-${width}.png`), fullPage: true });
      // What is folded must fit as well.
      await page.evaluate(() => document.querySelectorAll("details").forEach((e) => { e.open = true; }));
      await page.waitForTimeout(200);
      const found = await page.evaluate(() => {
        const told = [];
        const vw = window.innerWidth;
        if (document.documentElement.scrollWidth > vw) told.push(`page ${document.documentElement.scrollWidth} > ${vw}`);
        const visible = (e) => { const r = e.getBoundingClientRect(); const s = getComputedStyle(e); return r.width > 0 && r.height > 0 && s.visibility !== "hidden"; };
        const inScroll = (e) => e.closest(".scroll, .sens-scroll, .sens-picture, pre, .sr, .skip");
        for (const e of document.querySelectorAll("body *")) {
          if (!visible(e)) continue;
          const s = getComputedStyle(e);
          const r = e.getBoundingClientRect();
          const label = `${e.tagName.toLowerCase()}.${e.getAttribute("class") || ""} "${(e.textContent || "").trim().slice(0, 50)}"`;
          // Text that its own box cuts.
          const clips = ["hidden", "clip"].includes(s.overflowX) && !e.closest(".sr, .sides-table thead");
          if (clips && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) told.push(`cut ${e.scrollWidth}>${e.clientWidth}: ${label}`);
          if (["auto", "scroll"].includes(s.overflowX) && e.scrollWidth > e.clientWidth + 1) told.push(`scrolls inside ${e.scrollWidth}>${e.clientWidth}: ${label}`);
          const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
          if (own && !inScroll(e) && (r.right > vw + 1 || r.left < -1)) told.push(`outside ${Math.round(r.left)}..${Math.round(r.right)}: ${label}`);
        }
        return { told };
      });
      for (const text of [...new Set(found.told)].concat(errors.map((e) => "error: " + e))) {
        console.log(`${name} ${width}: ${text}`);
        if (!text.startsWith("scrolls inside")) bad += 1;
      }
      console.log(`${name} ${width}: height ${height}`);
      await page.close();
    }
  }
  await browser.close();
  console.log(bad ? `${bad} things wrong` : "nothing scrolls sideways, nothing is cut");
  process.exit(bad ? 1 : 0);
})();
