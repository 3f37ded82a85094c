// What the page does by itself; without it, forms and links do the same.
"use strict";

const graph = document.querySelector("#graph");
if (graph) {
  graph.addEventListener("change", () => {
    const given = new URLSearchParams(new FormData(graph.form));
    location.href = `/?${new URLSearchParams(
      ["question", "graph"].map((name) => [name, given.get(name) || ""]),
    )}`;
  });
}

const live = document.querySelector("#live");
if (live) {
  const steps = document.querySelector("#steps");
  const text = document.querySelector("#text");
  const source = new EventSource(`/runs/${live.dataset.run}/events`);
  const on = (kind, act) =>
    source.addEventListener(kind, (event) => act(JSON.parse(event.data)));
  const waits = Boolean(document.querySelector("#waiting"));
  let resumed = 0;
  on("begin", ({ id, words }) => {
    if (document.getElementById(`step-${id}`)) return;
    const item = document.createElement("li");
    item.id = `step-${id}`;
    item.textContent = words;
    steps.append(item);
  });
  on("end", ({ id, seconds }) => {
    const item = document.getElementById(`step-${id}`);
    if (item && seconds !== undefined && !item.dataset.over) {
      item.dataset.over = "1";
      item.append(` ${seconds.toFixed(2)} s`);
    }
  });
  on("text", ({ text: words, new: begins }) => {
    text.textContent = (begins ? "" : text.textContent) + words;
  });
  // The log is sent from its beginning: only a pause that this page does not show is new.
  on("waiting", () => (resumed += 1) && !waits && location.reload());
  on("over", () => {
    source.close();
    location.reload();
  });
}

const weigh = document.querySelector("#weigh");
if (weigh) {
  let latest = 0;
  weigh.addEventListener("input", async (event) => {
    event.target.previousElementSibling.textContent = Number(event.target.value).toFixed(2);
    const turn = ++latest;
    const address = `${location.pathname}?${new URLSearchParams(new FormData(weigh))}`;
    const answer = await fetch(address);
    if (!answer.ok || turn !== latest) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["answer-part", "changes", "details"]) {
      document.getElementById(id).replaceWith(page.getElementById(id));
    }
    history.replaceState(null, "", address);
  });
}
