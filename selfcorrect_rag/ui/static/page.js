// What the page does by itself; without it, forms and links do the same.
"use strict";

const graph = document.querySelector("#graph");
if (graph) {
  const other = document.querySelector("#other"); // shows the settings of another graph
  other.hidden = true;
  graph.addEventListener("change", () => graph.form.requestSubmit(other));
}

const load = async (address) => {
  try {
    const answer = await fetch(address);
    return answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return null; // the server has ended, or the page is being left
  }
};

const live = document.querySelector("#live");
if (live && !document.querySelector("#waiting")) {
  const steps = document.querySelector("#steps");
  const text = document.querySelector("#text");
  setInterval(async () => {
    const page = await load(location.href);
    if (!page) return;
    if (!page.querySelector("#live") || page.querySelector("#waiting")) return location.reload();
    text.textContent = page.querySelector("#text").textContent;
    [...page.querySelectorAll("#steps li")].forEach((item, i) => {
      if (!steps.children[i]) steps.append(item);
      else if (steps.children[i].textContent !== item.textContent)
        steps.children[i].textContent = item.textContent;
    });
  }, 500);
}

const weigh = document.querySelector("#weigh");
if (weigh) {
  let latest = 0;
  weigh.addEventListener("input", async (event) => {
    event.target.previousElementSibling.textContent = Number(event.target.value).toFixed(2);
    const turn = ++latest;
    const address = `${location.pathname}?${new URLSearchParams(new FormData(weigh))}`;
    const page = await load(address);
    if (!page || turn !== latest) return;
    for (const id of ["answer-part", "changes", "details"]) {
      document.getElementById(id).replaceWith(page.getElementById(id));
    }
    history.replaceState(null, "", address);
  });
}
