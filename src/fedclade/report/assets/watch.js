"use strict";
// The live page: asks the server for news and draws what changed.

const EVERY = 2000, QUIET = 60; // milliseconds between two questions; seconds without a round until the page says so
let now = DATA;

const last = (values) => (values.length ? values[values.length - 1] : null);
const sum = (of) => now.runs.reduce((total, run) => total + of(run), 0);
const count = (state) => now.runs.filter((run) => run.state === state).length;
const chosen = () => document.querySelector('input[name="clock"]:checked').value;
const contenders = () => [...new Set(now.runs.map((run) => run.name))];

function tilesOfRun(run) {
  return [
    { label: "Round", value: `${run.done} of ${run.rounds}`, why: run.state },
    { label: scored.title[0].toUpperCase() + scored.title.slice(1), value: scoreText(last(run.curves.mean)), why: `mean of ${run.devices} devices; worst ${scoreText(last(run.curves.worst))}` },
    { label: "Clusters", value: `${run.clusters}`, why: run.clusters === 1 ? "one model serves all" : "each with a model of its own" },
    { label: "Simulated time", value: duration(run.seconds), why: `of ${run.done} rounds` },
  ];
}
function tilesOfComparison() {
  return [
    { label: "Runs finished", value: `${count("finished")} of ${now.runs.length}`, why: `${count("going on")} going on, ${count("waiting")} waiting` },
    { label: "Rounds done", value: `${sum((run) => run.done)}`, why: "of all runs" },
    { label: "Failed", value: `${count("failed")}`, why: count("failed") ? "failure.txt in the run's directory says why" : "none" },
  ];
}

function tell() {
  const [first] = now.runs, left = now.left_seconds;
  document.title = `${now.over ? "✓" : Math.round((100 * sum((run) => run.share)) / now.runs.length) + " %"} ${now.name}`;
  byId("title").textContent = now.name;
  byId("lead").textContent = now.over ? "All is done." : left === null ? "Going on; how long it may take is told after the next round." : `Going on, about ${duration(left)} left.`;
  const quiet = !now.over && now.news_seconds > QUIET;
  byId("banner").hidden = !quiet;
  byId("banner").textContent = quiet ? `Nothing new for ${duration(now.news_seconds)}. If it was stopped, go on with: ${now.resume}` : "";
  Object.assign(byId("bar"), { max: sum((run) => run.devices), value: sum((run) => run.share * run.devices) });
  showTiles(now.comparison ? tilesOfComparison() : tilesOfRun(first));
  byId("accuracy-line").textContent = now.comparison ? `The mean ${scored.title} of all devices, one line for each run.`
    : `Of each device, on its own test data: ${scored.meaning}.`;
  byId("runs-section").hidden = !now.comparison;
  if (now.comparison)
    table("runs-table", "", [{ name: "policy", words: true }, { name: "devices" }, { name: "seed" }, { name: "rounds" }, { name: "mean" }, { name: "worst" }, { name: "state", words: true }],
      now.runs.map((run) => [run.name, run.devices, run.seed, `${run.done} of ${run.rounds}`, scoreText(last(run.curves.mean)), scoreText(last(run.curves.worst)), run.state]), false);
  byId("events-section").hidden = now.comparison || !first.events.length;
  if (!now.comparison) byId("events").replaceChildren(...[...first.events].reverse().map((text) => element("li", {}, text)));
}

function linesOfRun({ curves }) {
  const x = curves[chosen()], common = (y) => ({ x, y, mode: mode(y) });
  return [
    { ...common(curves.mean), name: "mean device", line: { color: css("--ink"), width: 2.5 } },
    { ...common(curves.worst), name: "worst device", line: { color: css("--ink"), width: 1 } },
    { ...common(curves.one_mean), name: "one model for all, mean", line: { color: css("--soft"), dash: "dash" } },
  ];
}
function linesOfComparison() {
  const names = contenders(), shown = new Set();
  return now.runs.filter((run) => run.curves.mean.length).map((run) => {
    const i = names.indexOf(run.name), showlegend = !shown.has(run.name);
    shown.add(run.name);
    return { x: run.curves[chosen()], y: run.curves.mean, mode: mode(run.curves.mean), name: run.name, legendgroup: run.name, showlegend,
      line: { color: colour(i), dash: dash(Math.floor(i / COLOURS.length)), width: 1.5 },
      hovertemplate: `${run.name}, ${run.devices} devices, seed ${run.seed}: %{y:${scoreFormat}}<extra></extra>` };
  });
}
chart("accuracy-chart", () => ({
  traces: now.comparison ? linesOfComparison() : linesOfRun(now.runs[0]),
  layout: { height: 420, hovermode: "closest", yaxis: shareAxis(), uirevision: chosen(), // what was zoomed stays so
    xaxis: chosen() === "round" ? roundAxis(Math.max(...now.runs.map((run) => run.done))) : axis({ title: "simulated seconds", rangemode: "tozero" }) },
}));
document.querySelectorAll('input[name="clock"]').forEach((input) => input.addEventListener("change", () => draw("accuracy-chart")));

async function ask() {
  try {
    const answer = await fetch("/data");
    if (!answer.ok) throw new Error(await answer.text());
    const before = JSON.stringify(now.runs);
    now = await answer.json();
    tell();
    if (JSON.stringify(now.runs) !== before) draw("accuracy-chart");
  } catch (error) {
    byId("banner").hidden = false;
    byId("banner").textContent = `No answer from fedclade watch: ${error.message}. What you see is the last there was.`;
  }
  document.documentElement.dataset.asked = Number(document.documentElement.dataset.asked || 0) + 1;
  if (!now.over) setTimeout(ask, EVERY);
}

tell();
drawWaiting();
if (!now.over) setTimeout(ask, EVERY);
