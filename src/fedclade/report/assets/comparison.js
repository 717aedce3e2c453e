"use strict";
// The page of a comparison.

const { contenders, sizes, curves, metrics } = DATA;
const shown = new Set(contenders);
const look = new Map(contenders.map((name, i) => [name, { colour: colour(i), symbol: symbol(i), dash: dash(Math.floor(i / COLOURS.length)) }]));
const size = () => byId("size").value;
const here = () => contenders.filter((name) => shown.has(name) && curves[size()][name]);

byId("size").append(...sizes.map((devices) => element("option", { value: devices }, devices)));
byId("size").addEventListener("change", redraw);
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

const share = (extra) => axis({ title: "accuracy", tickformat: ".0%", range: [0, 1], ...extra });

chart("race-chart", () => ({
  traces: here().flatMap((name) => {
    const { colour: color, dash, symbol } = look.get(name), { seconds, mean, min } = curves[size()][name].race;
    const last = seconds.length - 1, ended = `${name} ended after ${duration(seconds[last])}`;
    // the lines end where the runs ended: a mark stands there, and nothing is drawn beyond it
    const run = (name, y, width, mark) => ({
      x: seconds, y, name, mode: "lines+markers", line: { color, dash, width }, text: seconds.map((_, i) => (i === last ? ended : "")),
      marker: { color, symbol, size: seconds.map((_, i) => (i === last ? mark : 0)) },
    });
    return [run(name, mean, 2.5, 11), run(`${name}, worst device`, min, 1, 7)];
  }),
  layout: {
    height: 460, showlegend: false, hovermode: "closest", yaxis: share(), xaxis: axis({ title: "simulated seconds", rangemode: "tozero" }),
    shapes: [line(DATA.common[size()], DATA.common[size()], 0, 1, { yref: "paper" })],
  },
}));

// Everybody at the last second at which all were still going on: the same time budget for all.
chart("abreast-chart", () => {
  byId("abreast-line").textContent = `Everybody after the same ${duration(DATA.common[size()])} on the air, ` + (DATA.time_budget
    ? "the time that every run was given." : "when the first of the runs was over; the dotted line above.") +
    " Full bar: the worst-served device. Pale: the mean of all. No bar: no round was over yet.";
  const found = here().map((name) => DATA.abreast[size()][name]);
  const bar = (part, fill) => ({
    type: "bar", x: here(), y: found.map((each) => each[part]), hovertemplate: `%{x}: ${part === "min" ? "worst device" : "mean"} %{y:.1%}<extra></extra>`,
    marker: { color: here().map((name) => look.get(name).colour + fill), line: { color: here().map((name) => look.get(name).colour), width: 1 } },
  });
  return { traces: [bar("mean", "55"), bar("min", "")], layout: {
    height: 330, barmode: "overlay", showlegend: false, xaxis: axis({ type: "category" }), yaxis: axis({ title: "accuracy", tickformat: ".0%", rangemode: "tozero" }),
  } };
});

const splitMarks = () => here().flatMap((name) => curves[size()][name].splits.map((round) =>
  line(round, round, 0, 1, { yref: "paper", line: { color: look.get(name).colour, width: 1, dash: "dot" } })));

chart("accuracy-chart", () => ({
  traces: here().flatMap((name) => {
    const of = curves[size()][name], { colour, dash } = look.get(name);
    return band(name, of.round, of.min, of.mean, of.max, colour, { line: { dash } });
  }),
  layout: { height: 440, showlegend: false, hovermode: "closest", yaxis: share(), xaxis: axis({ title: "round", rangemode: "tozero" }), shapes: splitMarks() },
}));

chart("norms-chart", () => ({
  traces: here().flatMap((name) => {
    const of = curves[size()][name], color = look.get(name).colour, common = { x: of.norm_round, mode: "lines" };
    return [
      { ...common, y: of.norm_mean, name: `${name}, mean`, line: { color, width: 2 } },
      { ...common, y: of.norm_max, name: `${name}, largest`, line: { color, width: 1.5, dash: "dot" } },
    ];
  }),
  layout: {
    height: 400, showlegend: false, hovermode: "closest", xaxis: axis({ title: "round", rangemode: "tozero" }),
    yaxis: axis({ title: "update norm", rangemode: "tozero" }),
    shapes: [...splitMarks(), ...DATA.epsilon.map((value) => line(0, 1, value, value,
      { xref: "paper", line: { color: css("--ink"), width: 1, dash: "dash" } }))],
  },
}));

// -------------------------------------------------------------------------------- at the end

const visible = () => contenders.filter((name) => shown.has(name));
const of = (metric, name, part) => sizes.map((devices) => metrics[metric].values[devices]?.[name]?.[part] ?? null);
const sizeAxis = () => axis({ type: "category" });
const sizeNames = sizes.map((devices) => `K = ${devices}`);

chart("range-chart", () => ({
  traces: visible().flatMap((name) => {
    const [low, middle, high] = ["min", "mean", "max"].map((part) => of(`accuracy_${part}`, name, "mean"));
    const { colour: color } = look.get(name);
    const text = sizes.map((_, i) => `${name}: worst ${low[i]} %, mean ${middle[i]} %, best ${high[i]} %`);
    const part = (from, to, fill) => ({
      type: "bar", name, offsetgroup: name, x: sizeNames, base: from, y: to.map((value, i) => value - from[i]),
      hovertext: text, hoverinfo: "text", marker: { color: fill, line: { color, width: 1 } },
    });
    return [part(low, middle, color), part(middle, high, color + "55")];
  }),
  layout: { height: 420, showlegend: false, barmode: "group", xaxis: sizeAxis(), yaxis: axis({ title: "accuracy (%)", range: [0, 100] }) },
}));

// One bar a contender and moment, at the chosen K.
function speed(id, unit, names) {
  chart(id, () => ({
    traces: here().map((name) => {
      const cell = (metric) => metrics[metric].values[size()][name];
      return {
        type: "bar", name, x: ["first split", "last split", "target accuracy"], y: names.map((metric) => cell(metric).mean),
        error_y: { type: "data", array: names.map((metric) => cell(metric).std ?? 0), thickness: 1.5, width: 3, color: css("--ink") },
        marker: { color: look.get(name).colour },
      };
    }),
    layout: { height: 330, showlegend: false, barmode: "group", xaxis: axis({ type: "category" }), yaxis: axis({ title: unit, rangemode: "tozero" }) },
  }));
}
byId("speed-line").textContent = "Rounds, then simulated seconds, until the groups were first told apart, until the last split, and until the " +
  `devices' mean accuracy was ${percent(DATA.target)}. No bar: it never came to it.`;
speed("rounds-chart", "rounds", ["first_split_round", "last_split_round", "rounds_to_target"]);
speed("seconds-chart", "simulated seconds", ["first_split_seconds", "last_split_seconds", "seconds_to_target"]);

byId("metric").append(...Object.entries(metrics).map(([name, { title }]) => element("option", { value: name }, title)));
byId("metric").value = "accuracy_gap";
byId("metric").addEventListener("change", () => draw("metric-chart"));
chart("metric-chart", () => {
  const metric = byId("metric").value;
  return {
    traces: visible().map((name) => ({
      type: "bar", name, x: sizeNames, y: of(metric, name, "mean"), marker: { color: look.get(name).colour },
      error_y: { type: "data", array: of(metric, name, "std").map((value) => value ?? 0), thickness: 1.5, width: 3, color: css("--ink") },
    })),
    layout: { height: 380, showlegend: false, barmode: "group", xaxis: sizeAxis(), yaxis: axis({ title: metrics[metric].title }) },
  };
});

// -------------------------------------------------------------------------------- models

byId("whose").append(...contenders.map((name) => element("option", { value: name }, name)));
byId("whose").addEventListener("change", () => draw("models-chart"));
chart("models-chart", () => {
  const found = DATA.models[size()][byId("whose").value];
  return found ? modelsHeatmap(found, whole(0, found.accuracy[0].length - 1)) : { traces: [], layout: { height: 200 } };
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
