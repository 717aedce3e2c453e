"use strict";
// The page of a comparison.

const { contenders, sizes, curves, metrics } = DATA;
const shown = new Set(contenders);
const look = new Map(contenders.map((name, i) => [name, { colour: colour(i), symbol: symbol(i), dash: dash(Math.floor(i / COLOURS.length)) }]));
const size = () => byId("size").value;
const here = () => contenders.filter((name) => shown.has(name) && curves[size()][name]);

byId("size").append(...sizes.map((devices) => element("option", { value: devices }, devices)));
const showVerdict = () => showTiles(DATA.verdicts.filter(({ devices }) => `${devices}` === size()));
showVerdict();
byId("size").addEventListener("change", () => { showVerdict(); redraw(); });
for (const name of contenders) {
  const box = element("input", { type: "checkbox", name: "contender", value: name, checked: true });
  const swatch = element("span", { className: "swatch", ariaHidden: "true" });
  swatch.style.background = look.get(name).colour;
  byId("contenders").append(element("label", {}, box, swatch, name));
  box.addEventListener("change", () => {
    if (box.checked) shown.add(name); else shown.delete(name);
    redraw();
  });
}

// -------------------------------------------------------------------------------- over time

const CROWD = 6; // contenders in one chart; more have a panel each, or a row with their name beside it
// The bars of many contenders, a row each, in a panel for each group: a number of devices, or a moment.
const rowAxis = () => axis({ type: "category", autorange: "reversed" });
function rows(id, names, groups, traces, title, extra) {
  const colours = names.map((name) => look.get(name).colour);
  const panel = (group) => ({ traces: traces(groups.indexOf(group), colours).map((trace) => ({ type: "bar", orientation: "h", y: names, name: group, ...trace })) });
  const { traces: all, layout } = panels(id, groups, panel, () => axis({ title, rangemode: "tozero", ...extra }), rowAxis, 22 * names.length);
  return { traces: all, layout: { ...layout, barmode: "overlay" } };
}
const whiskers = (values) => ({ type: "data", array: values.map((value) => value ?? 0), thickness: 1.5, width: 3, color: css("--ink") });
const secondsAxis = () => axis({ title: "simulated seconds", rangemode: "tozero" });
const lastRound = () => Math.max(0, ...here().flatMap((name) => [...curves[size()][name].round, ...curves[size()][name].norm_round]));
const legend = () => ({ showlegend: true }); // also for whoever saves the chart

// The lines end where the runs ended: a mark stands there, and nothing is drawn beyond it. Seeds end at different seconds: from
// the first of them on, the way to the mark is dotted.
function race(name) {
  const { colour: color, dash, symbol } = look.get(name), { seconds, mean, min } = curves[size()][name].race;
  const last = seconds.length - 1, text = ["", `ended after ${duration(seconds[last])}`];
  return [[name, mean, 2.5, 11], [`${name}, worst device`, min, 1, 7]].flatMap(([called, y, width, mark], i) => [
    { x: seconds.slice(0, last), y: y.slice(0, last), name: called, mode: mode(y.slice(0, last)), line: { color, dash, width },
      marker: { color }, legendgroup: name, showlegend: i === 0 },
    { x: seconds.slice(last - 1), y: y.slice(last - 1), name: `${called}: the end`, mode: "lines+markers", text, legendgroup: name, showlegend: false,
      line: { color, dash: "dot", width: 1 }, marker: { color, symbol, size: [0, mark], opacity: 1 } },
  ]);
}
chart("race-chart", () => {
  const common = DATA.common[size()];
  if (here().length > CROWD)
    return panels("race-chart", here(), (name) => ({ upright: [common], traces: [
      ...here().filter((other) => other !== name).map((other) => ({ x: curves[size()][other].race.seconds, y: curves[size()][other].race.mean,
        mode: "lines", hoverinfo: "skip", line: { color: css("--line"), width: 1 } })), ...race(name)] }), secondsAxis, shareAxis);
  return { traces: here().flatMap(race), layout: { height: 460, ...legend(), hovermode: "closest", yaxis: shareAxis(), xaxis: secondsAxis(),
    shapes: [line(common, common, 0, 1, { yref: "paper" })] } };
});

// Everybody at the last second at which all were still going on: the same time budget for all.
chart("abreast-chart", () => {
  byId("abreast-line").textContent = `Everybody after the same ${duration(DATA.common[size()])} on the air, ` + (DATA.time_budget
    ? "the time that every run was given." : "when the first of the runs was over; the dotted line above.") +
    " Full bar: the worst-served device. Pale: the mean of all. No bar: no round was over yet.";
  const found = here().map((name) => DATA.abreast[size()][name]);
  const part = (which, fill, value) => ({
    hovertemplate: `${which === "min" ? "worst device" : "mean"} %{${value}:${scoreFormat}}<extra>%{${value === "x" ? "y" : "x"}}</extra>`,
    [value]: found.map((each) => each[which]),
    marker: { color: here().map((name) => look.get(name).colour + fill), line: { color: here().map((name) => look.get(name).colour), width: 1 } },
  });
  if (here().length > CROWD)
    return rows("abreast-chart", here(), [`after ${duration(DATA.common[size()])}`], () => [part("mean", "55", "x"), part("min", "", "x")],
      scored.title, scored.percent ? { tickformat: ".0%" } : {});
  const bar = (which, fill) => ({ type: "bar", x: here(), ...part(which, fill, "y") });
  return { traces: [bar("mean", "55"), bar("min", "")], layout: {
    height: 330, barmode: "overlay", showlegend: false, xaxis: axis({ type: "category" }), yaxis: shareAxis(),
  } };
});

// Bands hide each other, so every contender has a panel of its own.
chart("accuracy-chart", () => panels("accuracy-chart", here(), (name) => {
  const of = curves[size()][name];
  return { upright: of.splits, traces: band(name, of.round, of.min, of.mean, of.max, look.get(name).colour) };
}, () => roundAxis(lastRound()), shareAxis));

const thresholds = Object.values(DATA.epsilons).map((found) => found.length > 0);
byId("norms-line").textContent = "The first seed's update norms. Solid, or a circle: the mean update. Dotted, or a triangle: the largest single update. " +
  (!thresholds.some(Boolean) ? "Norms decide nothing here." : "Where dashed lines stand (ε1, ε2), the norms decide: a cluster splits when the " +
    "mean is below the first while the largest is above the second." + (thresholds.every(Boolean) ? "" : " Where there are none, they decide nothing."));
chart("norms-chart", () => panels("norms-chart", here(), (name) => {
  const of = curves[size()][name], color = look.get(name).colour, common = { x: of.norm_round, mode: mode(of.norm_mean) };
  return { upright: of.splits, across: DATA.epsilons[name], traces: [
    { ...common, y: of.norm_mean, name: `${name}, mean`, marker: { color }, line: { color, width: 2 } },
    { ...common, y: of.norm_max, name: `${name}, largest`, marker: { color, symbol: LARGEST }, line: { color, width: 1.5, dash: "dot" } },
  ] };
}, () => roundAxis(lastRound()), () => axis({ title: "update norm", rangemode: "tozero" })));

// -------------------------------------------------------------------------------- at the end

const visible = () => contenders.filter((name) => shown.has(name));
const of = (metric, name, part) => sizes.map((devices) => metrics[metric].values[devices]?.[name]?.[part] ?? null);
const sizeAxis = () => axis({ type: "category" });
const sizeNames = sizes.map((devices) => `K = ${devices}`);

const unit = scored.percent ? " %" : "";
chart("range-chart", () => visible().length > CROWD ? rows("range-chart", visible(), sizeNames, (i, colours) => {
  const [low, middle, high] = ["min", "mean", "max"].map((part) => visible().map((name) => of(`${scored.name}_${part}`, name, "mean")[i]));
  const text = visible().map((name, j) => `${name}: worst ${low[j]}${unit}, mean ${middle[j]}${unit}, best ${high[j]}${unit}`);
  return [[low, middle, ""], [middle, high, "55"]].map(([from, to, fill]) => ({
    base: from, x: to.map((value, j) => value - from[j]), hovertext: text, hoverinfo: "text",
    marker: { color: colours.map((color) => color + fill), line: { color: colours, width: 1 } },
  }));
}, scored.title + (unit && " (%)")) : ({
  traces: visible().flatMap((name) => {
    const [low, middle, high] = ["min", "mean", "max"].map((part) => of(`${scored.name}_${part}`, name, "mean"));
    const { colour: color } = look.get(name);
    const text = sizes.map((_, i) => `${name}: worst ${low[i]}${unit}, mean ${middle[i]}${unit}, best ${high[i]}${unit}`);
    const part = (from, to, fill) => ({
      type: "bar", name, offsetgroup: name, x: sizeNames, base: from, y: to.map((value, i) => value - from[i]),
      hovertext: text, hoverinfo: "text", marker: { color: fill, line: { color, width: 1 } },
    });
    return [part(low, middle, color), { ...part(middle, high, color + "55"), showlegend: false }];
  }),
  layout: { height: 420, ...legend(), barmode: "group", xaxis: sizeAxis(), yaxis: axis({ title: scored.title + (unit && " (%)"), rangemode: "tozero" }) },
}));

// One bar a contender and moment, at the chosen K.
function speed(id, unit, names) {
  const most = () => Math.max(...here().flatMap((name) => names.map((metric) => metrics[metric].values[size()][name].mean ?? 0)));
  const moments = ["first split", "last split", `target ${scored.title}`], whole = () => (unit === "rounds" ? wholes(most()) : {});
  const cell = (metric, name) => metrics[metric].values[size()][name];
  chart(id, () => here().length > CROWD ? rows(id, here(), moments, (i, colours) => [{
    x: here().map((name) => cell(names[i], name).mean), error_x: whiskers(here().map((name) => cell(names[i], name).std)), marker: { color: colours },
  }], unit, whole()) : ({
    traces: here().map((name) => {
      return {
        type: "bar", name, x: moments, y: names.map((metric) => cell(metric, name).mean), error_y: whiskers(names.map((metric) => cell(metric, name).std)),
        marker: { color: look.get(name).colour },
      };
    }),
    layout: { height: 330, ...legend(), barmode: "group", xaxis: axis({ type: "category" }), yaxis: axis({ title: unit, rangemode: "tozero", ...whole() }) },
  }));
}
byId("speed-line").textContent = "Rounds, then simulated seconds, until the first split and until the last one, whether they were right or wrong, and " +
  `until the devices' mean ${scored.title} was ${scored.percent ? percent(DATA.target) : DATA.target}. No bar: it never came to it.`;
speed("rounds-chart", "rounds", ["first_split_round", "last_split_round", "rounds_to_target"]);
speed("seconds-chart", "simulated seconds", ["first_split_seconds", "last_split_seconds", "seconds_to_target"]);

byId("metric").append(...Object.entries(metrics).map(([name, { title }]) => element("option", { value: name }, title)));
byId("metric").value = `${scored.name}_gap`;
byId("metric").addEventListener("change", () => draw("metric-chart"));
chart("metric-chart", () => {
  const metric = byId("metric").value;
  if (visible().length > CROWD)
    return rows("metric-chart", visible(), sizeNames, (i, colours) => [{ marker: { color: colours },
      x: visible().map((name) => of(metric, name, "mean")[i]), error_x: whiskers(visible().map((name) => of(metric, name, "std")[i])) }], metrics[metric].title);
  return {
    traces: visible().map((name) => ({
      type: "bar", name, x: sizeNames, y: of(metric, name, "mean"), marker: { color: look.get(name).colour },
      error_y: whiskers(of(metric, name, "std")),
    })),
    layout: { height: 380, ...legend(), barmode: "group", xaxis: sizeAxis(), yaxis: axis({ title: metrics[metric].title }) },
  };
});

// -------------------------------------------------------------------------------- models

byId("whose").append(...contenders.map((name) => element("option", { value: name }, name)));
byId("whose").addEventListener("change", () => draw("models-chart"));
chart("models-chart", () => {
  const found = DATA.models[size()][byId("whose").value];
  return found ? modelsHeatmap(found, whole(0, found.score[0].length - 1)) : { traces: [], layout: { height: 200 } };
});

// -------------------------------------------------------------------------------- tables

document.title = `${DATA.name} – fedclade`;
byId("title").textContent = DATA.name;
byId("lead").textContent = DATA.lead;
byId("banner").hidden = !DATA.banner;
byId("banner").textContent = DATA.banner;
byId("footer").textContent = DATA.footer;
for (const { name, title, columns, rows } of DATA.tables) {
  const id = `table-${name}`;
  byId("tables").append(element("div", { className: "scroll", id, tabIndex: 0, role: "region", ariaLabel: title }));
  table(id, title, [{ name: "policy" }, { name: "K" }, ...columns.map((column) => ({ name: column }))],
    rows.map(([devices, policy, cells]) => [policy, devices, ...cells.map(([text, sort]) => ({ text, sort: sort ?? "" }))]));
}
table("runs-table", "", [{ name: "policy" }, { name: "K" }, { name: "seed" }, { name: "state", words: true }],
  DATA.runs.map(({ contender, devices, seed, state, page }) => [contender, devices, seed,
    { nodes: [page ? element("a", { href: page }, state) : state], sort: state }]));
listSections();
drawWaiting();
