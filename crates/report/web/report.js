// Draws the page's plots from the numbers in #numbers, and answers its controls. The tables need none of this.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const numbers = JSON.parse($("numbers").textContent);
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // ---- numbers as text, as the tables write them
  const grouped = (value, decimals) =>
    value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  const rateText = (perSec) => grouped(perSec, Math.abs(perSec) < 9999.95 ? 1 : 0);
  const msText = (ms) => grouped(ms, ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : ms >= 0.9995 ? 2 : 3);
  const tickText = (value) =>
    value.toLocaleString("en-US", { maximumFractionDigits: value >= 10 ? 1 : value >= 0.001 ? 4 : 6 });
  // For the narrow: 100k
  const shortText = (value) =>
    value >= 1e6 ? `${tickText(value / 1e6)}M` : value >= 1e3 ? `${tickText(value / 1e3)}k` : tickText(value);
  const color = (run) => css("--run" + (run % 6));
  const levelColor = (levels, at) => {
    const { valid, saturated } = levels[at];
    if (!valid) return css("--bad");
    if (saturated) return css("--saturated");
    const of = levels.length;
    const [from, to] = ["--level-from", "--level-to"].map((name) => css(name).split(" ").map(Number));
    const share = of < 2 ? 1 : at / (of - 1);
    return `rgb(${from.map((low, i) => Math.round(low + (to[i] - low) * share)).join(" ")})`;
  };

  // ---- theme: what the system asks for until the reader chooses
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const themeButton = $("theme");
  const nameTheme = () => (themeButton.querySelector("span").textContent = isDark() ? "Light" : "Dark");
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
    drawAll();
  });
  dark.addEventListener("change", () => {
    nameTheme();
    drawAll();
  });
  nameTheme();

  // ---- one load point's operations at a time
  const pointSelect = $("operations-point");
  if (pointSelect) {
    pointSelect.closest("[data-script]").hidden = false;
    const choose = () => {
      for (const point of document.querySelectorAll(".point")) {
        point.hidden = point.dataset.point !== pointSelect.value;
      }
    };
    pointSelect.addEventListener("change", choose);
    choose();
  }

  // ---- published values: each figure's own switch needs no script; here they are switched together
  const publishedAll = $("published-all");
  const publishedEach = [...document.querySelectorAll(".published-switch")];
  if (publishedAll && publishedEach.length > 1) {
    publishedAll.closest("[data-script]").hidden = false;
    const tell = () => {
      const on = publishedEach.filter((each) => each.checked).length;
      publishedAll.checked = on === publishedEach.length;
      publishedAll.indeterminate = on > 0 && on < publishedEach.length;
    };
    publishedAll.addEventListener("change", () => {
      for (const each of publishedEach) each.checked = publishedAll.checked;
      tell();
    });
    for (const each of publishedEach) each.addEventListener("change", tell);
    tell();
  }

  const interactive = typeof uPlot !== "undefined";
  const plots = [];
  let printing = false;
  function drawAll() {
    for (const plot of plots) plot.draw();
  }

  // ---- the floating box
  const tip = $("tip");
  const hideTip = () => (tip.hidden = true);
  const showTip = (x, y, content) => {
    tip.replaceChildren(...content);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth - 8 ? x - 16 - box.width : x + 16;
    const top = Math.min(Math.max(8, y - box.height / 2), innerHeight - box.height - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${top}px)`;
  };
  const tipTitle = (text, swatch) => {
    const title = element("b");
    const mark = element("span", "swatch");
    mark.style.background = swatch;
    title.append(mark, text);
    return title;
  };
  const tipRow = (name, value, swatch) => {
    const row = element("div", "row");
    const label = element("span");
    if (swatch) {
      const mark = element("span", "swatch");
      mark.style.background = swatch;
      label.append(mark);
    }
    label.append(name);
    row.append(label, element("span", "", value));
    return row;
  };
  const textOf = (content) =>
    content.map((part) => [...part.childNodes].map((node) => node.textContent).filter(Boolean).join(" ")).join(", ");

  // ---- the dot plot of a comparison is drawn by the page itself; here it only learns to tell
  for (const dots of document.querySelectorAll("[data-tip]")) {
    const [figure, side, at, ...pairs] = dots.dataset.tip.split("|");
    dots.addEventListener("pointermove", (event) => {
      const rows = [];
      for (let i = 0; i + 1 < pairs.length; i += 2) rows.push(tipRow(pairs[i], pairs[i + 1]));
      showTip(event.clientX, event.clientY, [tipTitle(figure, color(Number(at))), element("div", "note", side), ...rows]);
    });
    dots.addEventListener("pointerleave", hideTip);
  }
  if (!interactive) return;

  // ---- marks: the shape is the run's, hollow and amber is saturated, a red cross is INVALID
  const shape = (c, run, x, y, r) => {
    c.beginPath();
    if (run % 4 === 0) c.arc(x, y, r, 0, 2 * Math.PI);
    else if (run % 4 === 1) c.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
    else if (run % 4 === 2) [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]].forEach(([dx, dy]) => c.lineTo(x + dx * r, y + dy * r));
    else [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]].forEach(([dx, dy]) => c.lineTo(x + dx * r, y + dy * r));
    c.closePath();
  };
  const drawMark = (c, run, dot, x, y, scale) => {
    const r = 4.6 * scale;
    c.fillStyle = dot.saturated ? css("--card") : color(run);
    c.strokeStyle = dot.saturated ? css("--saturated") : color(run);
    c.lineWidth = (dot.saturated ? 2.6 : 2) * scale;
    shape(c, run, x, y, r);
    c.fill();
    c.stroke();
    if (!dot.valid) {
      c.strokeStyle = css("--bad");
      c.lineWidth = 1.6 * scale;
      c.beginPath();
      for (const way of [1, -1]) {
        c.moveTo(x - r * 1.5, y - way * r * 1.5);
        c.lineTo(x + r * 1.5, y + way * r * 1.5);
      }
      c.stroke();
    }
  };
  const drawArrow = (c, run, x, top, scale) => {
    c.strokeStyle = color(run);
    c.lineWidth = 2 * scale;
    c.beginPath();
    [[-5, 9], [0, 2], [5, 9]].forEach(([dx, dy]) => c.lineTo(x + dx * scale, top + dy * scale));
    c.stroke();
  };

  // Text that lines may cross, with paper around its letters.
  const drawText = (c, text, x, y, align, colour, scale) => {
    c.font = `${12 * scale}px system-ui, sans-serif`;
    c.textAlign = align;
    c.textBaseline = "middle";
    c.lineJoin = "round";
    c.lineWidth = 4 * scale;
    c.strokeStyle = css("--card");
    c.strokeText(text, x, y);
    c.fillStyle = colour;
    c.fillText(text, x, y);
  };
  // The rates that a benchmark names, such as the knee; of more than three curves the lines alone.
  const drawNamed = (u, curves, scale) => {
    const c = u.ctx;
    const withText = curves.filter((curve) => curve.marks?.length).length <= 3;
    let row = 0;
    for (const curve of curves) {
      for (const mark of curve.marks ?? []) {
        const x = u.valToPos(mark.per_sec, "x", true);
        c.save();
        c.strokeStyle = color(curve.run);
        c.globalAlpha = 0.6;
        c.lineWidth = scale;
        c.setLineDash([2 * scale, 3 * scale]);
        c.beginPath();
        c.moveTo(x, u.bbox.top);
        c.lineTo(x, u.bbox.top + u.bbox.height);
        c.stroke();
        c.restore();
        if (!withText) continue;
        const right = x - u.bbox.left < 0.55 * u.bbox.width;
        const y = u.bbox.top + (10 + 16 * row++) * scale;
        drawText(c, mark.text, x + (right ? 5 : -5) * scale, y, right ? "left" : "right", color(curve.run), scale);
      }
    }
  };

  // ---- what all plots share
  const height = (width) => (width < 480 ? 300 : 380);
  const axis = (label, size, text, extra) => ({
    label, size,
    labelSize: 22, labelGap: 0,
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    stroke: () => css("--soft"),
    grid: { stroke: () => css("--grid"), width: 1 },
    ticks: { stroke: () => css("--grid"), width: 1, size: 5 },
    values: (_, splits) => splits.map((value) => (value === null ? null : text(value))),
    ...extra,
  });
  // As wide as the longest tick, so that the axis' name never lies on it.
  const tickRoom = (_, ticks) => 16 + 7 * Math.max(3, ...(ticks ?? []).map((tick) => tick?.length ?? 0));
  // 1, 2 and 5 of each decade between the ends, or 1 alone where there are many decades. uPlot's own ticks count on
  // from the axis' lower end, which is seldom round.
  const logTicks = (low, high) => {
    const digits = Math.log10(high / low) > 3.2 ? [1] : [1, 2, 5];
    const ticks = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade++) {
      ticks.push(...digits.map((digit) => Number(`${digit}e${decade}`)).filter((tick) => tick >= low && tick <= high));
    }
    return ticks;
  };
  const logGrid = (low, high) => ({ splits: () => logTicks(low, high), filter: (_, splits) => splits });

  // By run, where the colour tells the variant.
  const DASHES = [undefined, [7, 5], [2, 3], [12, 3]];
  // Curves have each their own x values: every point gets a column of its own, and gaps are bridged.
  const columns = (curves, y) => {
    const cells = curves.flatMap((curve, at) => curve.dots.map((dot) => ({ at, dot, y: y(dot) })));
    cells.sort((a, b) => a.dot.rate_per_sec - b.dot.rate_per_sec);
    const rows = curves.map((_, at) => cells.map((cell) => (cell.at === at ? cell.y : null)));
    return [cells.map((cell) => cell.dot.rate_per_sec), ...rows];
  };
  const curveName = (curve) => curve.label + (curve.closed ? " (closed loop: latency is measured from the send)" : "");

  // A plot of curves; `view` says what is on its axes now.
  function curvePlot(id, curves, view) {
    const box = $(id);
    if (!box) return;
    const shown = curves.map(() => true);
    let chart = null;
    let chosen = null;

    const legend = $(id + "-legend");
    curves.forEach((curve, at) => {
      const button = element("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(markFor(curve), curveName(curve));
      button.addEventListener("click", () => {
        shown[at] = !shown[at];
        button.setAttribute("aria-pressed", String(shown[at]));
        chosen = null;
        draw();
      });
      legend.append(button);
    });

    const visibleDots = () =>
      curves.flatMap((curve, at) => (shown[at] ? curve.dots.map((dot) => ({ curve, dot, y: view().y(dot) })) : []))
        .filter((cell) => cell.y !== null);
    const place = (cell) => ({
      left: chart.valToPos(cell.dot.rate_per_sec, "x"),
      top: Math.max(0, chart.valToPos(cell.y, "y")),
    });
    const tell = (cell) => {
      const { curve, dot } = cell;
      const content = [tipTitle(curve.label, color(curve.run)), ...view().rows(curve, dot)];
      if (curve.closed) content.push(element("div", "note", `${dot.name}: latency is measured from the send`));
      if (dot.saturated) content.push(element("div", "note", "saturated: the server did not keep up"));
      if (dot.over_bound) content.push(element("div", "note", "B: over the latency bound of the search"));
      if (!dot.valid) content.push(element("div", "note", "INVALID: see the load-point table"));
      return content;
    };
    const choose = (cell, aloud) => {
      chosen = cell;
      chart.redraw(false);
      if (!cell) return hideTip();
      const { left, top } = place(cell);
      const over = chart.over.getBoundingClientRect();
      const content = tell(cell);
      showTip(over.left + left, over.top + top, content);
      if (aloud) $("said").textContent = textOf(content);
    };

    function draw() {
      const now = view();
      const width = printing ? 660 : box.clientWidth;
      const data = columns(curves, now.y);
      chart?.destroy();
      hideTip();
      chart = new uPlot({
        width, height: height(width), padding: [14, 16, 0, 0],
        legend: { show: false },
        cursor: { x: false, y: false, drag: { x: false, y: false }, points: { show: false } },
        scales: {
          x: { time: false, distr: now.xRange ? 3 : 1, log: 10, range: () => now.xRange ?? [0, now.xEnd] },
          y: { distr: now.log ? 3 : 1, log: 10, range: () => now.yRange },
        },
        axes: [
          axis(now.xLabel, 34, now.xRange && width < 480 ? shortText : tickText, now.xRange ? { space: 30, ...logGrid(...now.xRange) } : { space: 64 }),
          axis(now.yLabel, tickRoom, tickText, now.log ? logGrid(...now.yRange) : { space: 36 }),
        ],
        series: [{}, ...curves.map((curve, at) => ({
          show: shown[at], spanGaps: true, width: 2, stroke: color(curve.run),
          dash: DASHES[curve.group ?? 0] ?? (curve.closed ? [7, 5] : undefined), points: { show: false },
        }))],
        hooks: {
          drawAxes: [(u) => now.under?.(u)],
          draw: [(u) => {
            const c = u.ctx;
            const scale = devicePixelRatio;
            c.save();
            // The last line's dashes would go on in the marks.
            c.setLineDash([]);
            if (now.named) drawNamed(u, curves.filter((_, at) => shown[at]), scale);
            for (const { curve, dot } of visibleDots().filter((cell) => cell.dot.low)) {
              c.strokeStyle = color(curve.run);
              c.globalAlpha = 0.45;
              c.lineWidth = 2 * scale;
              c.beginPath();
              for (const end of [dot.low, dot.high]) {
                c.lineTo(u.valToPos(dot.rate_per_sec, "x", true), u.valToPos(end, "y", true));
              }
              c.stroke();
              c.globalAlpha = 1;
            }
            for (const cell of visibleDots()) {
              const x = u.valToPos(cell.dot.rate_per_sec, "x", true);
              const y = u.valToPos(cell.y, "y", true);
              if (chosen && chosen.dot === cell.dot) {
                c.beginPath();
                c.arc(x, Math.max(y, u.bbox.top), 10 * scale, 0, 2 * Math.PI);
                c.globalAlpha = 0.25;
                c.fillStyle = color(cell.curve.run);
                c.fill();
                c.globalAlpha = 1;
              }
              if (cell.y > now.yRange[1]) drawArrow(c, cell.curve.run, x, u.bbox.top, scale);
              else drawMark(c, cell.curve.run, cell.dot, x, y, scale);
            }
            c.restore();
          }],
        },
      }, data, box);
      now.drawn?.(visibleDots().some((cell) => cell.y > now.yRange[1]));
    }

    box.addEventListener("pointermove", (event) => {
      const over = chart.over.getBoundingClientRect();
      const [x, y] = [event.clientX - over.left, event.clientY - over.top];
      if (x < -20 || y < -20 || x > over.width + 20 || y > over.height + 20) return choose(null);
      let nearest = null;
      for (const cell of visibleDots()) {
        const at = place(cell);
        // Sideways counts more: a reader looks along the load.
        const far = Math.hypot((at.left - x) * 1.5, at.top - y);
        if (!nearest || far < nearest.far) nearest = { far, cell };
      }
      choose(nearest?.cell ?? null);
    });
    box.addEventListener("pointerleave", () => choose(null));
    box.addEventListener("blur", () => choose(null));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") return choose(null);
      if (!step) return;
      event.preventDefault();
      const cells = visibleDots();
      if (!cells.length) return;
      const at = chosen ? cells.findIndex((cell) => cell.dot === chosen.dot) : step > 0 ? -1 : cells.length;
      choose(cells[(at + step + cells.length) % cells.length], true);
    });
    plots.push({ draw, box });
  }

  function markFor(curve) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    for (const [name, value] of Object.entries({ class: `mark run${curve.run % 6}`, viewBox: "0 0 26 14", width: 26, height: 14, "aria-hidden": "true" })) {
      svg.setAttribute(name, value);
    }
    const shapes = ["M8.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", "M9 3h8v8h-8z", "M13 1.5l5 9.5h-10z", "M13 1l6 6-6 6-6-6z"];
    for (const [d, stroke] of [["M1 7H25", true], [shapes[curve.run % 4], false]]) {
      const path = document.createElementNS(space, "path");
      path.setAttribute("d", d);
      if (stroke) path.setAttribute("class", "stroke");
      const dashes = curve.group ? ["", "5 3.5", "2 2", "9 2"][curve.group] : curve.closed && "5 3.5";
      if (stroke && dashes) path.setAttribute("stroke-dasharray", dashes);
      svg.append(path);
    }
    return svg;
  }

  // ---- latency against load
  const chosenRadio = (name) => document.querySelector(`input[name="${name}"]:checked`).value;
  const all = numbers.curves;
  const rateEnd = (curves) => 1.04 * Math.max(1e-9, ...curves.flatMap((curve) => curve.dots.map((dot) => dot.rate_per_sec)));
  // For a logarithmic axis.
  const rateEnds = (curves) => {
    const rates = curves.flatMap((curve) => curve.dots.map((dot) => dot.rate_per_sec)).filter((rate) => rate > 0);
    return rates.length ? [Math.min(...rates) * 0.8, Math.max(...rates) * 1.25] : [0.1, 1];
  };
  const latencyView = () => {
    const stat = Number(chosenRadio("stat"));
    const log = chosenRadio("scale") === "log";
    const { name, linear_top_ms: top } = numbers.stats[stat];
    const values = all.flatMap((curve) => curve.dots.map((dot) => dot.latency_ms[stat])).filter((ms) => ms !== null);
    const [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0.1, 1];
    const closed = all.some((curve) => curve.closed);
    return {
      log,
      xLabel: closed ? "offered requests/s (closed loop: achieved)" : "offered requests/s",
      yLabel: `${name} latency, ms`,
      xEnd: rateEnd(all),
      xRange: log && numbers.search ? rateEnds(all) : undefined,
      yRange: log ? [low * 0.7, high * 1.5] : [0, top],
      named: true,
      y: (dot) => dot.latency_ms[stat],
      rows: (curve, dot) => [
        dot.offered_per_sec === null ? tipRow("load", dot.name) : tipRow("offered", `${rateText(dot.offered_per_sec)} /s`),
        tipRow("achieved", `${rateText(dot.achieved_per_sec)} /s`),
        tipRow(`${name} latency`, `${msText(dot.latency_ms[stat])} ms`),
      ],
      drawn: (above) => ($("latency-above").hidden = !above),
    };
  };
  if (all.length) {
    curvePlot("plot-latency", all, latencyView);
    for (const input of document.querySelectorAll('input[name="stat"], input[name="scale"]')) {
      input.addEventListener("change", () => plots.find((plot) => plot.box.id === "plot-latency").draw());
    }
  }

  // ---- achieved against offered
  const open = all.filter((curve) => !curve.closed);
  const [begin, end] = numbers.search ? rateEnds(open) : [0, rateEnd(open)];
  curvePlot("plot-achieved", open, () => ({
    xLabel: "offered requests/s",
    yLabel: "achieved requests/s",
    log: numbers.search,
    xEnd: end,
    xRange: numbers.search ? [begin, end] : undefined,
    yRange: [begin, end],
    y: (dot) => dot.achieved_per_sec,
    rows: (curve, dot) => [
      tipRow("offered", `${rateText(dot.offered_per_sec)} /s`),
      tipRow("achieved", `${rateText(dot.achieved_per_sec)} /s`),
      tipRow("of the offered", dot.offered_per_sec > 0 ? `${grouped((100 * dot.achieved_per_sec) / dot.offered_per_sec, 2)} %` : "–"),
    ],
    under: (u) => {
      const c = u.ctx;
      c.save();
      c.strokeStyle = css("--soft");
      c.lineWidth = devicePixelRatio;
      c.setLineDash([5 * devicePixelRatio, 5 * devicePixelRatio]);
      c.beginPath();
      c.moveTo(u.valToPos(begin, "x", true), u.valToPos(begin, "y", true));
      c.lineTo(u.valToPos(end, "x", true), u.valToPos(end, "y", true));
      c.stroke();
      c.restore();
    },
  }));

  // ---- a record's own curves, on logarithmic axes
  const three = msText;
  numbers.lines.forEach((of, at) => {
    const curves = of.lines.map((line) => ({
      run: line.variant, group: line.group % 4, label: line.label, closed: false,
      dots: line.points.map((point) => ({ ...point, rate_per_sec: point.x, saturated: false, valid: true })),
    }));
    const dots = curves.flatMap((curve) => curve.dots);
    const ends = (values) => [Math.min(...values) * 0.75, Math.max(...values) * 1.35];
    const xRange = ends(dots.map((dot) => dot.x));
    const yRange = ends(dots.flatMap((dot) => [dot.y, dot.low ?? dot.y, dot.high ?? dot.y]));
    const unit = of.unit && !of.unit.startsWith("/") ? ` ${of.unit}` : of.unit;
    curvePlot(`plot-curve-${at}`, curves, () => ({
      log: true, xRange, yRange,
      xLabel: of.over,
      yLabel: of.unit ? `${of.title}, ${of.unit}` : of.title,
      y: (dot) => dot.y,
      rows: (_, dot) => [
        tipRow(of.over, tickText(dot.x)),
        tipRow(of.title, three(dot.y) + unit),
        ...(dot.low ? [tipRow("95% interval", `${three(dot.low)} to ${three(dot.high)}${unit}`)] : []),
      ],
    }));
  });

  // ---- cumulative distribution
  function cumulativePlot() {
    const box = $("plot-cumulative");
    if (!box || !numbers.cumulative.length) return;
    const select = $("cumulative-run");
    const legend = $("plot-cumulative-legend");
    let chart = null;
    let hidden = null;
    const current = () => numbers.cumulative[Number(select.value)];
    const curveLabel = () => select.selectedOptions[0].textContent;

    const choose = (at, aloud) => {
      const { latency_ms: grid, levels } = current();
      if (at === null || at === undefined) return hideTip();
      const rows = levels.flatMap((level, i) =>
        hidden.has(i) ? [] : [tipRow(level.name, `${grouped(level.share_percent[at], 2)} %`, levelColor(levels, i))]);
      const content = [element("b", "", `done within ${msText(grid[at])} ms`), element("div", "note", curveLabel()), ...rows];
      const over = chart.over.getBoundingClientRect();
      showTip(over.left + chart.valToPos(grid[at], "x"), over.top + over.height / 2, content);
      if (aloud) $("said").textContent = textOf(content);
    };

    function draw() {
      const { latency_ms: grid, levels } = current();
      const width = printing ? 660 : box.clientWidth;
      hidden ??= new Set(levels.flatMap((level, i) => (level.shown ? [] : [i])));
      legend.replaceChildren(...levels.map((level, i) => {
        const button = element("button");
        button.type = "button";
        button.setAttribute("aria-pressed", String(!hidden.has(i)));
        const swatch = element("span", "swatch");
        swatch.style.background = levelColor(levels, i);
        button.append(swatch, level.name + (level.valid ? (level.saturated ? ", saturated" : "") : ", INVALID"));
        button.addEventListener("click", () => {
          if (!hidden.delete(i)) hidden.add(i);
          draw();
          legend.children[i].focus();
        });
        return button;
      }));
      for (const table of document.querySelectorAll(".cumulative-table")) table.hidden = table.dataset.choice !== select.value;
      chart?.destroy();
      hideTip();
      const ends = [grid[0], grid[grid.length - 1]];
      chart = new uPlot({
        width, height: height(width), padding: [14, 16, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
        scales: { x: { time: false, distr: 3, log: 10, range: () => ends }, y: { range: () => [0, 101] } },
        axes: [
          axis("latency, ms (logarithmic)", 34, tickText, { space: 40, ...logGrid(...ends) }),
          axis("requests done, %", tickRoom, tickText, { splits: () => [0, 25, 50, 75, 90, 100] }),
        ],
        series: [{}, ...levels.map((level, i) => ({
          show: !hidden.has(i), width: 2, stroke: levelColor(levels, i), points: { show: false },
          dash: level.valid ? (level.saturated ? [8, 4] : undefined) : [2, 4],
        }))],
        hooks: {
          draw: [(u) => {
            const scale = devicePixelRatio;
            u.ctx.save();
            u.ctx.setLineDash([]);
            levels.forEach(({ tag }, i) => {
              if (hidden.has(i)) return;
              const [x, y] = [u.valToPos(tag.latency_ms, "x", true), u.valToPos(tag.share_percent, "y", true)];
              drawText(u.ctx, tag.text, x + (tag.left ? -6 : 6) * scale, y, tag.left ? "right" : "left", levelColor(levels, i), scale);
            });
            u.ctx.restore();
          }],
        },
      }, [grid, ...levels.map((level) => level.share_percent)], box);
      at = null;
    }

    let at = null;
    // Not uPlot's own cursor index: it lags behind by one move.
    box.addEventListener("pointermove", (event) => {
      const over = chart.over.getBoundingClientRect();
      const left = event.clientX - over.left;
      choose(left < 0 || left > over.width ? null : chart.posToIdx(left));
    });
    box.addEventListener("pointerleave", hideTip);
    box.addEventListener("blur", hideTip);
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -4, ArrowRight: 4 }[event.key];
      if (event.key === "Escape") return hideTip();
      if (!step) return;
      event.preventDefault();
      const last = current().latency_ms.length - 1;
      at = Math.min(last, Math.max(0, (at ?? (step > 0 ? -step : last - step)) + step));
      const left = chart.valToPos(current().latency_ms[at], "x");
      chart.setCursor({ left, top: 0 });
      choose(at, true);
    });
    select.addEventListener("change", () => {
      hidden = null;
      draw();
    });
    plots.push({ draw, box });
  }
  cumulativePlot();

  // ---- drawn once now, and again when the room or the paper changes
  drawAll();
  // Widths as drawn: the room may change before the observer first tells of it.
  const widths = new Map(plots.map(({ box }) => [box, box.clientWidth]));
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const before = widths.get(target);
      widths.set(target, target.clientWidth);
      if (before !== target.clientWidth && !printing) plots.find((plot) => plot.box === target).draw();
    }
  });
  for (const { box } of plots) resized.observe(box);
  let themeBefore;
  addEventListener("beforeprint", () => {
    printing = true;
    themeBefore = root.dataset.theme;
    root.dataset.theme = "light";
    drawAll();
  });
  addEventListener("afterprint", () => {
    printing = false;
    if (themeBefore === undefined) delete root.dataset.theme;
    else root.dataset.theme = themeBefore;
    drawAll();
  });
})();
