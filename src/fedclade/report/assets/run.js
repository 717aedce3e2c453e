"use strict";
// The page of one run.

const { rounds, tree, clusters, devices, uploads, splits, models } = DATA;
const K = devices.device.length;
const leaves = tree.filter((node) => node.in_use);
const leafIndex = new Map(leaves.map((leaf, i) => [leaf.name, i]));
const leafOf = Array(K);
for (const leaf of leaves) for (const device of leaf.members) leafOf[device] = leaf.name;
// A cluster keeps its colour in all charts; a model no longer in use is grey.
// Beyond eight of them, colours go round the circle in steps that keep neighbours apart.
const leafColour = (i) => (leaves.length <= COLOURS.length ? colour(i) : `hsl(${(i * 137.5) % 360}, 65%, ${40 + 15 * (i % 2)}%)`);
const nodeColour = (name) => (leafIndex.has(name) ? leafColour(leafIndex.get(name)) : css("--soft"));
const showlegend = leaves.length <= 12; // more are told apart by their branch of the tree and by pointing at them
// What is about all clusters alike has shades of its own: sets of uploads from dark (the first) to pale.
const setColour = (i, sets) => {
  const [from, to] = css("--sets").split(" ").map(Number);
  return `hsl(275, 45%, ${from + (sets > 1 ? ((to - from) * i) / (sets - 1) : 0)}%)`;
};
const byCluster = whole(0, K - 1).sort((a, b) => leafIndex.get(leafOf[a]) - leafIndex.get(leafOf[b]) || a - b);
const many = crowded(K);

// -------------------------------------------------------------------------------- head

document.title = `${DATA.name} – fedclade`;
byId("title").textContent = DATA.name;
byId("lead").textContent = DATA.lead;
if (!DATA.finished) {
  byId("banner").hidden = false;
  byId("banner").textContent = DATA.banner;
}
showTiles(DATA.tiles);
byId("clock-seconds").textContent = DATA.seconds;
if (DATA.real) byId("timeline-title").textContent = "One round: who uploads when"; // over whatever network they have
byId("footer").textContent = DATA.footer;

// -------------------------------------------------------------------------------- clock

let clock = "round";
const endOf = new Map(rounds.round.map((round, i) => [round, rounds.end[i]]));
endOf.set(0, 0);
const at = (round) => (clock === "round" ? round : endOf.get(round) ?? null);
const lastRound = rounds.round.length ? rounds.round[rounds.round.length - 1] : 0;
const clockAxis = () => (clock === "round" ? roundAxis(lastRound) : axis({ title: DATA.seconds, rangemode: "tozero" }));
const forks = tree.filter((node) => node.split);
const splitLines = () => forks.map((node) => line(at(node.split.round), at(node.split.round), 0, 1, { yref: "paper" }));
// Splits that are too close for a label each share one.
function splitLabels(id) {
  const near = (16 * at(lastRound)) / Math.max(1, (paperWidth || byId(id).clientWidth) - 80), together = [];
  for (const node of [...forks].sort((a, b) => a.split.round - b.split.round)) {
    const last = together[together.length - 1];
    if (last && at(node.split.round) - at(last[0].split.round) < near) last.push(node);
    else together.push([node]);
  }
  return together.map((nodes) => label(
    nodes.length > 3 ? `${nodes.length} models split` : nodes.length > 1 ? `models ${nodes.map((node) => node.name).join(", ")} split`
      : `model ${nodes[0].name} splits`,
    at(nodes[0].split.round), 0.02, { yref: "paper", textangle: -90, xanchor: "right", yanchor: "bottom" }));
}

byId("clock").addEventListener("change", (event) => {
  clock = event.target.value;
  for (const id of ["tree-chart", "accuracy-chart", "drift-chart", "norms-chart"]) if (drawn.has(id)) draw(id);
});

// -------------------------------------------------------------------------------- tree

const ends = tree.filter((node) => !node.children.length); // in use, or merged into another
const height = new Map(ends.map((node, i) => [node.name, ends.length - 1 - i]));
for (const node of [...tree].reverse()) // children come after their parents
  if (node.children.length) height.set(node.name, (height.get(node.children[0]) + height.get(node.children[1])) / 2);

chart("tree-chart", () => {
  const traces = [], annotations = [];
  for (const node of tree) {
    const y = height.get(node.name);
    const [from, to] = [at(node.born_round), at(node.split ? node.split.round : node.merged_into ? node.last_round : lastRound)];
    const facts = `model ${node.name}: ${node.members.length} devices (${spans(node.members)})`;
    const evidence = node.split ? node.split.evidence : {};
    const why = node.split
      ? `<br>split in round ${node.split.round} at ${duration(node.split.seconds)}` +
        (evidence.p_group !== undefined ? `: held-out data tell the groups apart (p = ${evidence.p_group.toExponential(0)})`
          : evidence.gap !== undefined ? `, similarity gap ${evidence.gap.toFixed(2)}` : "")
      : node.merged_into ? `<br>merged into ${node.merged_into} in round ${node.last_round}`
      : `<br>worst ${scoreText(node.worst)}, mean ${scoreText(node.mean)}`;
    traces.push({
      x: [from, to], y: [y, y], mode: "lines", showlegend: false, hoverinfo: "text", text: facts + why,
      line: { width: 2 + 10 * node.members.length / K, color: nodeColour(node.name) },
    });
    if (node.split)
      traces.push({
        x: [to, to], y: node.children.map((child) => height.get(child)), mode: "lines", showlegend: false,
        hoverinfo: "text", text: facts + why, line: { width: 2, color: css("--soft") },
      });
    else {
      const ids = spans(node.members), room = narrow() ? 18 : 40;
      const whose = node.merged_into ? `merged into ${node.merged_into}` : "devices " + (ids.length > room ? ids.slice(0, room) + "…" : ids);
      annotations.push(label(`<b>${node.name}</b> ${whose}`, from, y,
        { xanchor: "left", yanchor: "bottom", yshift: 6 }));
      if (node.stopped_round !== null)
        traces.push({
          x: [at(node.stopped_round)], y: [y], mode: "markers", name: "reached its stopping point", legendgroup: "stop",
          showlegend: leaves.find((leaf) => leaf.stopped_round !== null) === node, hoverinfo: "text",
          text: `${node.name} stopped in round ${node.stopped_round}: from here only a few of its devices upload`,
          marker: { symbol: "square", size: 12, color: css("--paper"), line: { width: 2, color: css("--ink") } },
        });
    }
  }
  return { traces, layout: {
    height: 110 + 46 * ends.length, xaxis: clockAxis(), annotations, hovermode: "closest",
    yaxis: { visible: false, range: [-0.5, ends.length - 0.2] },
  } };
});

const evidenceThere = (name) => forks.some((node) => node.split.evidence[name] !== undefined);
const treeColumns = [
  { name: "model" }, { name: "devices", words: true }, DATA.planted && { name: "planted groups", words: true },
  { name: "since round" }, { name: "what became of it", words: true }, evidenceThere("sim_within_min") && { name: "cosine within ≥" },
  evidenceThere("sim_cross_max") && { name: "across ≤" }, evidenceThere("gap") && { name: "gap" },
  evidenceThere("p_group") && { name: "p of the split test" }, { name: "worst" }, { name: "mean" }, { name: "best" },
];
byId("tree-note").hidden = !evidenceThere("gap");
table("tree-table", "Every model there ever was", treeColumns.filter(Boolean), tree.map((node) => {
  const swatch = element("span", { className: "swatch", ariaHidden: "true" });
  swatch.style.background = nodeColour(node.name);
  const split = node.split;
  const fate = split ? `split in round ${split.round} (${duration(split.seconds)})`
    : node.merged_into ? `merged into ${node.merged_into} in round ${node.last_round}`
    : node.stopped_round !== null ? `in use; stopped in round ${node.stopped_round}` : "in use; not stopped yet";
  const evidence = split ? split.evidence : {};
  const cosine = (value) => (value === undefined ? "" : { text: value.toFixed(3), sort: value });
  const share = (value) => (value === null ? "" : { text: scoreText(value), sort: value });
  return [
    { nodes: [swatch, node.name], sort: node.name }, { text: spans(node.members), sort: node.members.length },
    node.planted, node.born_round, { text: fate, sort: split ? split.round : 1e9 },
    cosine(evidence.sim_within_min), cosine(evidence.sim_cross_max), cosine(evidence.gap),
    evidence.p_group === undefined ? "" : { text: evidence.p_group.toExponential(0), sort: evidence.p_group },
    share(node.worst), share(node.mean), share(node.best),
  ].filter((_, i) => treeColumns[i]);
}));

// -------------------------------------------------------------------------------- scores and norms

chart("accuracy-chart", () => {
  const seen = rounds.evaluated, x = seen.round.map(at);
  const traces = band("own model, mean and range", x, seen.min, seen.mean, seen.max, css("--ink"));
  traces.push(
    { x, y: seen.one_mean, mode: mode(x), name: "one model for all, mean", marker: { symbol: "circle-open" }, line: { color: css("--soft"), width: 2, dash: "dash" } },
    { x, y: seen.one_min, mode: mode(x), name: "one model for all, worst", marker: { symbol: "triangle-down-open" }, line: { color: css("--soft"), width: 1, dash: "dot" } },
  );
  return { traces, layout: {
    height: 420, xaxis: clockAxis(), yaxis: shareAxis(),
    shapes: splitLines(), hovermode: "x unified",
    annotations: splitLabels("accuracy-chart"),
  } };
});

const drift = DATA.drift;
if (drift) {
  byId("drift-section").hidden = false;
  byId("drift-line").textContent = (drift.line ? `${drift.line}. ` : "") + "Each thin line is a device whose data changed, and the thick one their mean. " +
    (drift.known ? "A star marks the round in which the device was first in a cluster of its new group: until then it was served by a model made for its old data."
      : "No groups are known, so nobody can say when a device was with those like it.");
  chart("drift-chart", () => {
    const x = drift.rounds.map(at), few = drift.devices.length <= COLOURS.length, stars = { x: [], y: [], text: [] };
    const traces = drift.devices.map((one, i) => ({ x, y: one.score, mode: mode(one.score), name: `device ${one.device}`, showlegend: few,
      line: { width: 1, color: few ? colour(i) : css("--soft") } }));
    for (const one of drift.devices.filter((each) => each.after !== null)) {
      stars.x.push(at(drift.round + one.after));
      stars.y.push(one.score[drift.rounds.indexOf(drift.round + one.after)]);
      stars.text.push(`device ${one.device} is with its new group`);
    }
    traces.push(
      { x, y: drift.mean, mode: mode(drift.mean), name: "their mean", line: { width: 3, color: css("--ink") } },
      { x, y: drift.others, mode: mode(drift.others), name: "mean of the others", line: { width: 2, color: css("--soft"), dash: "dash" } },
      { ...stars, mode: "markers", name: "with its new group", hoverinfo: "text", showlegend: stars.x.length > 0,
        marker: { symbol: "star", size: 13, color: css("--ink"), line: { width: 1, color: css("--paper") } } },
    );
    const change = at(drift.round);
    return { traces, layout: { height: 400, xaxis: clockAxis(), yaxis: shareAxis(), hovermode: "closest",
      shapes: [line(change, change, 0, 1, { yref: "paper", line: { color: css("--ink"), width: 1, dash: "dash" } })],
      annotations: [label("their data change", change, 0.02, { yref: "paper", textangle: -90, xanchor: "right", yanchor: "bottom" })] } };
  });
  const points = (value) => (value === null ? "–" : { text: scored.percent ? `${(100 * value).toFixed(1)} points` : value.toFixed(3), sort: value });
  const driftColumns = [{ name: "device" }, drift.known && { name: "from group" }, drift.known && { name: "to group" },
    drift.known && { name: "followed after rounds" }, { name: `${scored.title} lost ${drift.known ? "until then" : "since then"}` },
    { name: "cluster at the end", words: true }, drift.known && { name: "with its new group", words: true }];
  table("drift-table", `Who changed in round ${drift.round}, and who was followed`, driftColumns.filter(Boolean), drift.devices.map((one) => [
    one.device, one.from, one.to, { text: one.after === null ? "never" : `${one.after}`, sort: one.after ?? 1e9 }, points(one.lost),
    one.node, one.home ? "yes" : "no",
  ].filter((_, i) => driftColumns[i])));
}

const NORMS = {
  "norm-thresholds": "A cluster splits when the mean is small (below ε1) while someone still pulls hard (above ε2); " +
    "it stops when both are below their line.",
  "cross-evaluation": "They decide nothing here: a cluster splits when its devices' held-out data ask for it, and stops " +
    "when its loss on them stands still.",
};
byId("norms-line").textContent = "Solid, or a circle: length of a cluster's mean update. Dotted, or a triangle: its largest single update. " +
  (NORMS[DATA.method] ?? `They are shown to compare methods; ${DATA.method} decides in its own way.`);
chart("norms-chart", () => {
  const traces = [];
  for (const [node, of] of Object.entries(clusters)) {
    const common = { x: of.round.map(at), legendgroup: node, mode: mode(of.mean) };
    traces.push({ ...common, y: of.mean, name: `model ${node}`, line: { color: nodeColour(node), width: 2 } });
    traces.push({ ...common, y: of.max, name: `model ${node}, largest`, showlegend: false, marker: { symbol: LARGEST },
      line: { color: nodeColour(node), width: 1.5, dash: "dot" } });
  }
  const shapes = splitLines(), annotations = [];
  for (const [i, value] of DATA.epsilons.entries()) {
    shapes.push(line(0, 1, value, value, { xref: "paper", line: { color: css("--ink"), width: 1, dash: "dash" } }));
    annotations.push(label(`ε${i + 1} = ${value}`, 1, value, { xref: "paper", xanchor: "left", xshift: 4, yanchor: "middle",
      font: { size: 12, color: css("--ink") } })); // beside the chart: in it a label would hide points
  }
  return { traces, layout: {
    height: 420, xaxis: clockAxis(), shapes, annotations, hovermode: "closest", showlegend,
    margin: { l: 48, r: annotations.length ? 72 : 16, t: 24, b: 48 },
    yaxis: axis({ title: DATA.norm === "per-step" ? "update norm per step" : "update norm", rangemode: "tozero" }),
  } };
});

// -------------------------------------------------------------------------------- likeness

const LIKENESS = {
  similarity: { scale: "cosine", says: "Cosine similarity of the devices' updates: 1 is the same direction, 0 unrelated, −1 opposite." },
  affinity: { scale: "help", says: "Whose training helps whom: how much better than others two devices do with each other's model " +
    "(above 0), or worse (below), class by class, on a scale on which 1 is the most there is. White: neither, or nobody was asked." },
  neighbours: { scale: "cosine", says: "Cosine similarity of some devices' updates: 1 is the same direction, 0 unrelated, −1 opposite." },
  other: { scale: "likeness", says: "How alike the devices are, as the method saw them: 1 is the most, −1 the least." },
};

byId("likeness-section").hidden = !splits.length;
if (splits.length) {
  byId("split").append(...splits.map((split, i) =>
    element("option", { value: i }, `round ${split.round}: model ${split.node}, ${split.devices.length} devices`)));
  byId("split").addEventListener("change", () => draw("likeness-chart"));
  chart("likeness-chart", () => {
    const split = splits[Number(byId("split").value)], size = split.devices.length;
    const flat = numbers(split.likeness), { scale, says } = LIKENESS[split.by] ?? LIKENESS.other;
    byId("likeness-line").textContent = says;
    const z = split.devices.map((_, i) => Array.from(flat.subarray(i * size, (i + 1) * size), (v) => v / 127));
    const names = split.devices.map((device) => `${device}`), cuts = split.ends.slice(0, -1).map((end) => end - 0.5);
    const border = { line: { color: "#000000", width: 2 }, layer: "above" };
    const room = Math.min(600, screenWidth() - 110);
    const ticks = size > 60 ? { showticklabels: false, ticks: "" } : everyLabelFits(names, room) ? { dtick: 1, tickangle: 0 }
      : { nticks: Math.floor(room / 45), tickangle: 0 };
    return {
      traces: [{
        type: "heatmap", x: names, y: names, z, zmin: -1, zmax: 1, zmid: 0,
        colorscale: [[0, "#b35806"], [0.25, "#f1a340"], [0.5, "#f7f7f7"], [0.75, "#67a9cf"], [1, "#2166ac"]],
        hovertemplate: "devices %{y} and %{x}: %{z:.2f}<extra></extra>",
        colorbar: { title: { text: scale }, thickness: 12, len: 0.9 },
      }],
      layout: {
        height: Math.min(680, byId("likeness-chart").clientWidth + 40),
        margin: { l: 40, r: 10, t: 10, b: 50 },
        xaxis: axis({ title: "device", type: "category", constrain: "domain", ...ticks }),
        yaxis: axis({ title: "device", type: "category", autorange: "reversed", scaleanchor: "x", constrain: "domain", ...ticks }),
        shapes: cuts.flatMap((cut) => [line(cut, cut, -0.5, size - 0.5, border), line(-0.5, size - 0.5, cut, cut, border)]),
      },
    };
  });
}

// -------------------------------------------------------------------------------- timeline

const up = { device: numbers(uploads.device), set: numbers(uploads.set), channel: numbers(uploads.subchannel),
  ready: numbers(uploads.ready), start: numbers(uploads.start), end: numbers(uploads.end) };
const slider = byId("round");
slider.max = Math.max(1, lastRound);
slider.value = 1;

function uploadsOf(round) { // sub-channel -> its uploads in order; those that missed the round are under -1
  const channels = new Map();
  for (let i = uploads.first[round - 1] ?? 0; i < (uploads.first[round] ?? 0); i++) {
    const channel = up.channel[i];
    if (!channels.has(channel)) channels.set(channel, []);
    channels.get(channel).push(i);
  }
  for (const list of channels.values()) list.sort((a, b) => up.start[a] - up.start[b]);
  return channels;
}

chart("timeline-chart", () => {
  const round = Number(slider.value), channels = uploadsOf(round), index = rounds.round.indexOf(round);
  const bars = { compute: [], wait: [] }, sets = new Map(), ticks = [], names = [], shapes = [];
  const rows = [...channels.keys()].filter((channel) => channel >= 0).sort((a, b) => a - b);
  let lane = 0;
  for (const channel of rows) {
    const list = channels.get(channel);
    ticks.push(lane + (list.length - 1) / 2);
    names.push(`${channel}`);
    for (const i of list) {
      const set = up.set[i], common = { lane, device: up.device[i] };
      if (!sets.has(set)) sets.set(set, []);
      bars.compute.push({ ...common, from: 0, to: up.ready[i] });
      bars.wait.push({ ...common, from: up.ready[i], to: up.start[i] });
      sets.get(set).push({ ...common, from: up.start[i], to: up.end[i] });
      lane++;
    }
    shapes.push(line(0, 1, lane, lane, { xref: "paper", line: { color: css("--line"), width: 1 } }));
    lane++;
  }
  const bar = (doing, list, fill, extra) => ({
    type: "bar", orientation: "h", name: doing, base: list.map((b) => b.from), x: list.map((b) => b.to - b.from),
    y: list.map((b) => b.lane), width: 0.92, customdata: list.map((b) => [b.device, duration(b.from), duration(b.to)]),
    hovertemplate: `device %{customdata[0]}: ${doing}<br>%{customdata[1]} to %{customdata[2]}<extra></extra>`,
    marker: { color: fill, line: { width: 0 } }, ...extra,
  });
  const traces = [
    bar("computing", bars.compute, css("--compute")),
    bar("waiting", bars.wait, css("--wait")),
    ...[...sets.keys()].sort((a, b) => a - b).map((set, i) =>
      bar(`uploading, set ${set + 1}`, sets.get(set), setColour(i, sets.size), {
        ...(sets.size > 6 ? { showlegend: i === 0, name: `uploading, sets 1 (dark) to ${sets.size} (pale)` } : {}),
        ...(lane > 45 ? {} : { text: sets.get(set).map((b) => `${b.device}`), textposition: "inside", insidetextanchor: "middle",
          textangle: 0, textfont: { size: 11 } }),
      })),
  ];
  const missed = (channels.get(-1) || []).map((i) => up.device[i]);
  const of = (values) => (index < 0 ? 0 : values[index] ?? 0);
  byId("round-facts").textContent = `${round} of ${lastRound}: ` + (rows.length
    ? `${lane - rows.length} uploads in ${duration(of(rounds.makespan))}` : "nobody uploads") +
    (of(rounds.broadcast) ? `, after ${duration(of(rounds.broadcast))} of sending models out` : "") +
    (of(rounds.asking) ? `, then ${duration(of(rounds.asking))} of questions to the devices: ${duration(of(rounds.seconds))} in all` : "") +
    (missed.length ? `; missed it: ${spans(missed)}` : "");
  slider.setAttribute("aria-valuetext", byId("round-facts").textContent);
  return { traces, layout: {
    height: 150 + Math.max(140, lane * (lane > 100 ? 4 : lane > 45 ? 8 : 15)), barmode: "overlay", hovermode: "closest", shapes,
    bargap: 0, xaxis: axis({ title: "seconds since the devices began to compute", rangemode: "tozero" }),
    yaxis: axis({ title: "sub-channel", tickvals: ticks, ticktext: names, range: [lane - 0.5, -1], showgrid: false, zeroline: false }),
    uirevision: null,
  } };
});
const turnTo = (round) => {
  slider.value = Math.max(1, Math.min(lastRound, round));
  draw("timeline-chart");
};
slider.addEventListener("input", () => draw("timeline-chart"));
byId("round-back").addEventListener("click", () => turnTo(Number(slider.value) - 1));
byId("round-on").addEventListener("click", () => turnTo(Number(slider.value) + 1));

// -------------------------------------------------------------------------------- devices

const groupsNote = " Devices are ordered by cluster" + (many ? "." : ", coloured like their branch of the tree.");
const named = byCluster.map((device) => `${device}`);
const pick = (values) => byCluster.map((device) => values[device]);
const perLeaf = (values, make) => leaves.map((leaf) => make(leaf, leaf.members.map((d) => `${d}`), leaf.members.map((d) => values[d])));

byId("gain-line").textContent = `Each device under the one model for all (${DATA.one_model}; open circle) and under its own ` +
  `cluster's model (full mark): the longer the stem upwards, the more the device gained.` + groupsNote;
chart("gain-chart", () => {
  const { own, one } = devices, stems = { x: [], y: [] };
  for (const device of byCluster) { stems.x.push(`${device}`, `${device}`, null); stems.y.push(one[device], own[device], null); }
  return { traces: [
    { ...stems, mode: "lines", line: { color: css("--line"), width: many ? 1 : 3 }, hoverinfo: "skip", showlegend: false },
    { x: named, y: pick(one), mode: "markers", name: "one model for all", marker: { symbol: "circle-open", color: css("--ink"), size: many ? 5 : 9 } },
    ...perLeaf(own, (leaf, x, y) => ({ x, y, mode: "markers", name: `model ${leaf.name}`,
      marker: { color: nodeColour(leaf.name), size: many ? 6 : 11, symbol: symbol(leafIndex.get(leaf.name)) } })),
  ], layout: {
    height: 400, hovermode: "closest", xaxis: deviceAxis(named), yaxis: shareAxis(), showlegend,
  } };
});

byId("models-section").hidden = !models.names.length;
if (models.names.length)
  chart("models-chart", () => modelsHeatmap(models, byCluster));

byId("part-line").textContent = `Uploads of each device over the whole run; ${percent(DATA.jain)} of perfectly even ` +
  `(Jain's index).` + groupsNote;
chart("part-chart", () => ({
  traces: perLeaf(devices.uploads, (leaf, x, y) => ({ type: "bar", x, y, name: `model ${leaf.name}`, marker: { color: nodeColour(leaf.name) } })),
  layout: { height: 330, xaxis: deviceAxis(named), yaxis: axis({ title: "uploads", rangemode: "tozero", ...wholes(Math.max(...devices.uploads)) }), showlegend },
}));

chart("latency-chart", () => ({
  traces: [["computing", devices.compute, css("--compute")], ["waiting", devices.wait, css("--wait")],
    ["uploading", devices.upload, setColour(0, 1)]].map(([name, values, fill]) =>
    ({ type: "bar", x: named, y: pick(values), name, marker: { color: fill },
      hovertemplate: `device %{x}: %{y:.3g} s ${name}<extra></extra>` })),
  layout: { height: 330, barmode: "stack", xaxis: deviceAxis(named),
    yaxis: axis({ title: "seconds" }) },
}));

// -------------------------------------------------------------------------------- constraints, settings and contents

if (DATA.problem.length) {
  document.getElementById("problem-section").hidden = false;
  const columns = ["constraint", "says", "kept", "by how much"].map((name) => ({ name, words: true }));
  table("problem-table", "", columns, DATA.problem, false);
}
if (DATA.numbers.length) {
  byId("numbers-section").hidden = false;
  table("numbers-table", "", [{ name: "metric", words: true }, { name: "value" }, { name: "meaning", words: true }], DATA.numbers, false);
}
table("config-table", "", [{ name: "field", words: true }, { name: "value", words: true }, { name: "meaning", words: true }], DATA.config, false);
listSections();
drawWaiting();
