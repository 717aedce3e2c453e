"use strict";
// What both pages share: data, colours, drawing, tables.

const DATA = JSON.parse(document.getElementById("data").textContent);

// Okabe and Ito's palette, told apart by colour-blind eyes too; dashes and symbols repeat later than colours do.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c00", "#7f7f7f"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
const LARGEST = "triangle-up"; // of one point there is no dotted line to tell it from the mean
const colour = (i) => COLOURS[i % COLOURS.length];
const dash = (i) => DASHES[i % DASHES.length];
const symbol = (i) => SYMBOLS[i % SYMBOLS.length];

const byId = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Not innerWidth: on a phone that grows with whatever sticks out, such as a chart that is about to be drawn anew.
const screenWidth = () => document.documentElement.clientWidth;
const narrow = () => screenWidth() < 600;
const percent = (share) => (share === null || share === undefined ? "–" : (100 * share).toFixed(1) + " %");
const whole = (first, last) => Array.from({ length: last - first + 1 }, (_, i) => first + i);

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [unit, length] of [["days", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 3 * length) return (seconds / length).toFixed(1) + " " + unit;
  return seconds >= 1 || seconds === 0 ? Number(seconds.toPrecision(3)) + " s" : Number((1000 * seconds).toPrecision(3)) + " ms";
}

// 0-6, 9, 11-13
function spans(ids) {
  const runs = [];
  for (const i of [...ids].sort((a, b) => a - b))
    if (runs.length && i === runs[runs.length - 1][1] + 1) runs[runs.length - 1][1] = i;
    else runs.push([i, i]);
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(", ");
}

// Numbers that came as base64 of a typed array.
const TYPES = { i1: Int8Array, i2: Int16Array, f4: Float32Array };
function numbers(packed) {
  const text = atob(packed.base64);
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  return new TYPES[packed.type](bytes.buffer);
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// -------------------------------------------------------------------------------- charts

const PAPER_PIXELS = 680;
let paperWidth; // while printing
const drawn = new Map(); // chart id -> function that gives {traces, layout}

function axis(extra) {
  return {
    gridcolor: css("--line"), linecolor: css("--line"), zerolinecolor: css("--line"), automargin: true,
    ...extra, title: extra && extra.title ? { text: extra.title, standoff: 8 } : undefined,
  };
}

// A chart's numbers, one line for each point: which series, and its coordinates.
function chartCsv(id) {
  const quoted = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(value) ? `"${`${value}`.replaceAll('"', '""')}"` : `${value}`);
  const lines = [["series", "x", "y", "value"]];
  for (const trace of byId(id).data) {
    const [x, y] = [Array.from(trace.x ?? []), Array.from(trace.y ?? [])], base = Array.from(trace.base ?? []);
    if (trace.type === "heatmap") trace.z.forEach((row, i) => row.forEach((value, j) => lines.push([trace.name ?? "", x[j], y[i], value])));
    else if (trace.hoverinfo !== "skip") // lines that only lead the eye
      x.forEach((value, i) => lines.push([trace.name ?? trace.text ?? "", value, y[i], base.length ? base[i] : ""]));
  }
  return lines.map((cells) => cells.map(quoted).join(",")).join("\n") + "\n";
}
// The buttons over a chart: save it as a picture, for slides or for print, or save its numbers.
function saveButtons(id) {
  const filename = `${document.title.split(" ")[0].replace(/[^\w.-]/g, "")}-${id.replace("-chart", "")}`;
  const picture = (format, icon) => ({ name: format, title: `Save as ${format.toUpperCase()}`, icon,
    click: (chart) => Plotly.downloadImage(chart, { format, filename, width: chart.clientWidth, height: chart.clientHeight, scale: 2 }) });
  return [picture("png", Plotly.Icons.camera), picture("svg", Plotly.Icons["camera-retro"]), {
    name: "csv", title: "Save the numbers as CSV", icon: Plotly.Icons.disk,
    click: () => {
      const link = element("a", { href: URL.createObjectURL(new Blob([chartCsv(id)], { type: "text/csv" })), download: `${filename}.csv` });
      link.click();
      URL.revokeObjectURL(link.href);
    },
  }];
}

function draw(id) {
  const { traces, layout } = drawn.get(id)();
  const themed = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: css("--ink"), family: "system-ui, sans-serif", size: narrow() ? 11 : 13 },
    margin: { l: 48, r: 16, t: 24, b: 48 },
    legend: { orientation: "h", yanchor: "bottom", y: 1.02, xanchor: "left", x: 0 },
    hoverlabel: { namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--ink") },
    width: paperWidth || byId(id).clientWidth,
    ...layout,
  };
  const options = { displaylogo: false, displayModeBar: true, scrollZoom: false, modeBarButtons: [saveButtons(id)] };
  byId(id).style.height = byId(id).style.minHeight = `${themed.height}px`;
  return Plotly.react(id, traces, themed, options);
}

// A line of one point would not be seen, and one of few points hides where they are.
function mode(y) {
  const points = y.filter((value) => value !== null && value !== undefined).length;
  return points < 2 ? "markers" : points <= 12 ? "lines+markers" : "lines";
}
const wholes = (most) => (most <= 12 ? { dtick: 1 } : {}); // no half rounds, and no half uploads
const roundAxis = (last, extra) => axis({ title: "round", rangemode: "tozero", ...wholes(last), ...extra });
// What devices are scored by: accuracy, in percent, or R², which may be far below 0 where a model has learnt nothing yet.
const scored = DATA.score, scoreFormat = scored.percent ? ".1%" : ".3f";
const scoreText = (value) => (value === null || value === undefined ? "–" : scored.percent ? percent(value) : value.toFixed(3));
const shareAxis = (extra) => axis({ title: scored.title, ...(scored.percent ? { tickformat: ".0%", rangemode: "tozero" }
  : { autorangeoptions: { clipmin: -1, clipmax: 1.05, include: [0, 1] } }), ...extra });

// One small panel for each name, side by side as far as there is room. `panel(name)` gives its traces and, if it has any,
// its horizontal and vertical lines; all panels have the same axes, and are `each` pixels high.
function panels(id, names, panel, xaxis, yaxis, each = 170) {
  const wide = paperWidth || byId(id).clientWidth, columns = Math.max(1, Math.min(4, names.length, Math.floor(wide / 270)));
  const rows = Math.ceil(names.length / columns), between = 64, height = rows * (each + between) + 40;
  const layout = { height, showlegend: false, hovermode: "closest", shapes: [], annotations: [], margin: { l: 56, r: 12, t: 28, b: 44 } };
  const inside = height - layout.margin.t - layout.margin.b, traces = [];
  names.forEach((name, i) => {
    const number = i ? `${i + 1}` : "", column = i % columns, row = Math.floor(i / columns), step = (each + between) / inside;
    const [left, right] = [(column + 0.02) / columns, (column + 0.94) / columns], top = 1 - row * step, bottom = Math.max(0, top - each / inside);
    const [x, y] = [`x${number}`, `y${number}`], lowest = i + columns >= names.length, found = panel(name);
    layout[`xaxis${number}`] = { ...xaxis(), domain: [left, right], anchor: y, ...(i ? { matches: "x" } : {}), ...(lowest ? {} : { title: undefined }) };
    layout[`yaxis${number}`] = { ...yaxis(), domain: [bottom, top], anchor: x, ...(i ? { matches: "y" } : {}),
      ...(column ? { showticklabels: false, title: undefined } : {}) };
    layout.annotations.push(label(`<b>${name}</b>`, left, top, { xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", font: { size: 13, color: css("--ink") } }));
    for (const value of found.across || []) layout.shapes.push(line(0, 1, value, value, { xref: `${x} domain`, yref: y, line: { color: css("--ink"), width: 1, dash: "dash" } }));
    for (const value of found.upright || []) layout.shapes.push(line(value, value, 0, 1, { xref: x, yref: `${y} domain` }));
    traces.push(...found.traces.map((trace) => ({ ...trace, xaxis: x, yaxis: y })));
  });
  return { traces, layout };
}

// A chart is announced at once and drawn in its turn, so that the page answers from the first one on.
const waiting = [];
function chart(id, make) {
  drawn.set(id, make);
  waiting.push(id);
}
function drawWaiting() {
  if (typeof Plotly === "undefined") { // the page was moved away from the file that it shares with others
    byId("banner").hidden = false;
    byId("banner").textContent = "The charts need the file plotly-….min.js, which is not where this page expects it: fedclade report DIR --single-file makes a page that needs nothing else.";
    return;
  }
  if (waiting.length) {
    const id = waiting.shift();
    draw(id);
    performance.mark(id); // for whoever wants to know how long the page takes
    setTimeout(drawWaiting);
  } else document.documentElement.dataset.ready = "yes";
}

const redraw = () => { for (const id of drawn.keys()) draw(id); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let redrawLater, width = innerWidth;
addEventListener("resize", () => { // once a dragged window rests; a phone's address bar changes the height alone
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(redrawLater);
  redrawLater = setTimeout(redraw, 100);
});
matchMedia("print").addEventListener("change", redraw);
// A sheet is narrower than most windows, and nothing can be unfolded on it.
function print(on) {
  paperWidth = on ? PAPER_PIXELS : undefined;
  document.querySelectorAll("details").forEach((details) => { details.open = on; });
  redraw();
}
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));

const line = (x0, x1, y0, y1, extra) => ({
  type: "line", x0, x1, y0, y1, layer: "below", line: { color: css("--soft"), width: 1, dash: "dot" }, ...extra,
});
const label = (text, x, y, extra) => ({
  text, x, y, showarrow: false, font: { size: 11, color: css("--soft") }, ...extra,
});

// Accuracies from the worst to the best device, and their mean: the lower edge, the filled upper one, the line.
function band(name, x, low, middle, high, colour, extra) {
  const common = { x, mode: mode(middle), legendgroup: name, connectgaps: true, ...extra };
  return [
    { ...common, y: low, name: `${name}: worst`, line: { width: 1, color: colour }, showlegend: false },
    { ...common, y: high, name: `${name}: best`, line: { width: 1, color: colour }, fill: "tonexty",
      fillcolor: colour + "33", showlegend: false },
    { ...common, y: middle, name, line: { width: 2.5, color: colour, ...(extra && extra.line) } },
  ];
}

// -------------------------------------------------------------------------------- tables

// "+3.0 [+2.0, +4.0]" may be broken before its bracket, but nowhere else.
const breakable = (value) => String(value).replace(", ", ",\u00a0").replace(" ± ", "\u00a0±\u00a0");
// columns: [{name, words}], rows: arrays of {text, sort} or plain values; a click or Enter on a heading sorts.
function table(id, caption, columns, rows, sortable = true) {
  const body = element("tbody", {});
  const fill = (order) =>
    body.replaceChildren(
      ...order.map((row) =>
        element("tr", {}, ...row.map((cell, i) =>
          element("td", { className: columns[i].words ? "words" : "" }, ...(cell.nodes || [breakable(cell.text ?? cell)])))))
    );
  const heads = columns.map((column, i) => {
    const head = element("th", { scope: "col", className: column.words ? "words" : "" });
    if (!sortable) { head.append(column.name); return head; }
    const button = element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row[i].sort ?? row[i].text ?? row[i];
      const sign = up ? 1 : -1;
      fill([...rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // what does not exist comes last
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      }));
    });
    head.append(button);
    return head;
  });
  fill(rows);
  const made = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...heads)), body);
  byId(id).replaceChildren(made);
}

// -------------------------------------------------------------------------------- both pages

const crowded = (devices) => devices > 60;
// Every device has its label where that leaves room between them; or else only some have.
function everyLabelFits(names, pixels) {
  return names.length * (8 + 8 * Math.max(...names.map((name) => name.length))) <= pixels;
}
const deviceAxis = (names, pixels = Math.min(screenWidth(), 1300) - (narrow() ? 60 : 160)) => axis({
  title: "device", type: "category", categoryorder: "array", categoryarray: names, tickangle: 0,
  ...(everyLabelFits(names, pixels) ? { dtick: 1 } : { nticks: Math.max(2, Math.floor(pixels / 45)) }),
});

// Models × devices, in a given order of the devices.
function modelsHeatmap(models, order) {
  const called = (name) => (name === "conventional" ? "one model for all" : name);
  const names = [...models.names.map(called), "best per device"], devices = order.map((device) => `${device}`), many = crowded(order.length);
  const z = models.score.map((row) => order.map((device) => row[device])), dots = { x: [], y: [] };
  z.push(order.map((device) => Math.max(...models.score.map((row) => row[device]))));
  models.names.forEach((name, i) => order.forEach((device) => {
    if (models.member[i][device] && name !== "conventional") { dots.x.push(`${device}`); dots.y.push(name); }
  }));
  return {
    traces: [
      { type: "heatmap", x: devices, y: names, z, zmin: 0, zmax: 1, colorscale: "Cividis",
        hovertemplate: `model %{y} on device %{x}: %{z:${scoreFormat}}<extra></extra>`, colorbar: { tickformat: scored.percent ? ".0%" : ".2f", thickness: 12 } },
      { ...dots, mode: "markers", name: "made for this device", hoverinfo: "skip",
        marker: { color: "#ffffff", size: many ? 2 : narrow() ? 4 : 7, line: { color: "#000000", width: many ? 0 : 1.5 } } },
    ],
    layout: {
      height: 150 + 30 * names.length, xaxis: deviceAxis(devices, Math.min(screenWidth(), 1300) - (narrow() ? 210 : 260)), showlegend: true,
      yaxis: axis({ type: "category", autorange: "reversed", title: "model" }),
    },
  };
}

// The headlines: what came out, and why.
function showTiles(tiles) {
  byId("tiles").classList.toggle("long", tiles.some(({ value }) => value.length > 18));
  byId("tiles").replaceChildren(...tiles.map(({ label, value, why }) => element("div", { className: "tile" }, element("dt", {}, label),
    element("dd", { className: "value" }, value), element("dd", { className: "why" }, why))));
}

function listSections() {
  document.querySelectorAll("main section").forEach((section, i) => {
    section.id ||= `part-${i}`;
    const link = element("a", { href: `#${section.id}` }, section.querySelector("h2").textContent);
    if (!section.hidden) byId("contents").append(element("li", {}, link));
  });
}
