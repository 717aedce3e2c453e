// The page of a large run.

document.title = DATA.name;
byId("title").textContent = DATA.name;
byId("lead").textContent = DATA.lead;
byId("banner").textContent = DATA.banner;
byId("banner").hidden = DATA.finished;
showTiles(DATA.tiles);
byId("footer").textContent = DATA.footer;

const lastRound = Math.max(1, ...DATA.quantiles.round);
chart("score-chart", () => {
  const { round, q1, q10, q50, q90, q99 } = DATA.quantiles, shared = { x: round, mode: "lines", line: { width: 0 }, showlegend: false };
  const filled = (name, y, opacity) => ({ ...shared, name, y, fill: "tonexty", fillcolor: `rgba(0, 114, 178, ${opacity})`, showlegend: true });
  return {
    traces: [
      { ...shared, name: "1 %", y: q1 }, filled("98 % of the devices", q99, 0.15),
      { ...shared, name: "10 %", y: q10 }, filled("80 % of the devices", q90, 0.3),
      { x: round, y: q50, name: "median", mode: mode(q50), line: { color: colour(0) } },
    ],
    layout: { height: 360, hovermode: "x unified", xaxis: roundAxis(lastRound), yaxis: DATA.score.percent ? shareAxis({ range: [0, 1] }) : axis({ title: DATA.score.title }) },
  };
});
chart("sizes-chart", () => ({
  traces: DATA.sizes.map((cluster, i) => ({
    x: cluster.round, y: cluster.members, name: cluster.name, mode: mode(cluster.members), line: { color: colour(i), dash: dash(i) },
  })),
  layout: { height: 360, xaxis: roundAxis(lastRound), yaxis: axis({ title: "devices", rangemode: "tozero" }) },
}));

const words = (name) => ({ name, words: true });
table("clusters-table", "", [words("cluster"), { name: "devices" }, words("planted as"), { name: "since round" }, words("stopped"), { name: "worst tenth" }, { name: "mean" }], DATA.clusters, false);
table("worst-table", "", [{ name: "device" }, words("cluster"), words("planted as"), { name: DATA.score.title }, { name: "loss" }], DATA.worst, false);
table("rounds-table", "", ["round", "lasts", "uploads", "missed", "clusters"].map((name) => ({ name })), DATA.rounds, false);
table("numbers-table", "", [words("metric"), { name: "value" }, words("meaning")], DATA.numbers, false);
table("config-table", "", [words("field"), words("value"), words("meaning")], DATA.config, false);
drawWaiting();
