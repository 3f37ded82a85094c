// What the page does by itself: it works without, but for watching a run and weighing at once.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const still = matchMedia("(prefers-reduced-motion: reduce)");
document.documentElement.classList.add("scripted");

// Forms

async function send(form, submitter) {
  const body = new URLSearchParams(new FormData(form, submitter));
  const answer = await fetch(form.action, {
    method: "POST",
    headers: { accept: "application/json" },
    body,
  });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error || `${answer.status} ${answer.statusText}`);
  return told;
}

function complain(form, words) {
  let notice = $(":scope > .notice.error", form);
  if (!notice) {
    notice = document.createElement("p");
    notice.className = "notice error";
    notice.setAttribute("role", "alert");
    const before = form.id === "ask" ? $("textarea", form) : form.lastElementChild;
    before.after(notice);
  }
  notice.textContent = words;
}

async function submit(event) {
  const form = event.target;
  if (form.method !== "post") return;
  event.preventDefault();
  if ("sending" in form.dataset) return; // Ctrl Enter, held down
  form.dataset.sending = "";
  $(":scope > .notice.error", form)?.remove();
  const buttons = all("button", form);
  const submitter = event.submitter;
  try {
    const sending = send(form, submitter);
    for (const button of buttons) button.disabled = true;
    const told = await sending;
    if (form.id === "mark") {
      $("#marked").textContent = "Saved";
      setTimeout(() => ($("#marked").textContent = ""), 2000);
    } else if (!("quiet" in form.dataset)) {
      const beside = $("[name=beside]", form);
      if (beside && told.id) sessionStorage.setItem(`beside-${told.id}`, beside.value);
      location.href = told.address;
      return;
    }
  } catch (fault) {
    complain(form, fault.message === "Failed to fetch" ? "the server does not answer" : fault.message);
  }
  free(form);
}
document.addEventListener("submit", submit);

function free(form) {
  delete form.dataset.sending;
  for (const button of all("button", form)) button.disabled = false;
}
addEventListener("pageshow", () => all("form[data-sending]").forEach(free));

// The form of a question: its address says what it asks

const ask = $("#ask");
if (ask) {
  const state = () => {
    const data = new FormData(ask);
    const graph = data.get("graph");
    const link = new URLSearchParams();
    if (data.get("question")) link.set("question", data.get("question"));
    link.set("graph", graph);
    if (ask.index && ask.index.type !== "hidden" && ask.index.selectedIndex) {
      link.set("index", data.get("index"));
    }
    for (const field of all(`[data-graph="${graph}"] [name]`)) {
      const name = field.name.slice(graph.length + 1);
      const box = field.type === "checkbox";
      if (field.type === "hidden") continue;
      const first = box
        ? field.defaultChecked
        : field.tagName === "SELECT"
          ? all("option", field).find((option) => option.defaultSelected)?.value
          : field.defaultValue;
      const now = box ? field.checked : field.value;
      const isToken = box && field.value !== "on";
      if (isToken ? now : now !== first || field.dataset.linked) {
        link.append(name, box && !isToken ? (now ? "on" : "off") : field.value);
      }
    }
    history.replaceState(null, "", `/?${link}`);
  };
  const linked = new URLSearchParams(location.search);
  const graph = new FormData(ask).get("graph");
  for (const name of linked.keys()) {
    for (const field of all(`[name="${CSS.escape(`${graph}.${name}`)}"]`)) field.dataset.linked = "1";
  }
  ask.addEventListener("input", state);
  ask.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask.requestSubmit();
  });
}

// A run that goes on

const live = $("#live");
if (live) {
  const id = live.dataset.run;
  const steps = $("#steps");
  const tellers = new Map();
  let last = null;
  const source = new EventSource(`/runs/${id}/events`);
  const on = (kind, act) =>
    source.addEventListener(kind, (event) => act(JSON.parse(event.data)));
  on("begin", ({ id, words }) => {
    const item = document.createElement("li");
    item.className = "now";
    const name = document.createElement("span");
    name.textContent = words;
    const seconds = document.createElement("span");
    seconds.className = "seconds";
    item.append(name, seconds);
    steps.append(item);
    tellers.set(id, item);
    last = item;
    $("#progress").textContent = words;
  });
  on("end", ({ id, seconds }) => {
    const item = tellers.get(id);
    if (!item) return;
    item.classList.remove("now");
    $(".seconds", item).textContent = `${seconds.toFixed(2)} s`;
  });
  on("said", ({ html }) => {
    if (!last) return;
    const list = $("ul", last) || last.appendChild(document.createElement("ul"));
    if (list.children.length > 11) list.firstElementChild.remove();
    const line = document.createElement("li");
    line.innerHTML = html; // made by the server, where all text is escaped
    list.append(line);
  });
  on("text", ({ text, new: begins }) => {
    const answer = $("#answer-so-far");
    answer.textContent = (begins ? "" : answer.textContent) + text;
  });
  on("waiting", ({ html }) => {
    $("#waiting").innerHTML = html;
    $("#progress").textContent = "A search waits for you";
    $("#waiting input")?.focus();
  });
  on("going", () => ($("#waiting").innerHTML = ""));
  on("over", () => {
    source.close();
    const beside = sessionStorage.getItem(`beside-${id}`);
    sessionStorage.removeItem(`beside-${id}`);
    location.replace(beside ? `/compare?a=${beside}&b=${id}` : `/runs/${id}`);
  });
  source.onopen = () => ($("#fault").textContent = "");
  source.onerror = () => {
    // Refused, as by a server that was started again: the run's page says what became of it.
    if (source.readyState === EventSource.CLOSED) location.reload();
    else $("#fault").textContent = "The server does not answer. This page waits until it does.";
  };
}

// Weighing differently

const play = $("#play");
if (play) {
  const run = document.body.dataset.run;
  let asked = 0;
  let waits = null;

  const fragment = async () => {
    const mine = ++asked;
    const query = new URLSearchParams(new FormData(play));
    const answer = await fetch(`/runs/${run}/weigh?${query}`).catch(() => null);
    if (mine !== asked) return;
    $("#play > .notice")?.remove();
    if (!answer || !answer.ok) {
      const told = answer ? await answer.json().catch(() => ({})) : {};
      complain(play, told.error || "the server does not answer");
      return;
    }
    swap(await answer.text());
    history.replaceState(null, "", `/runs/${run}?${query}`);
    $("#edit").href = answer.headers.get("x-edit") || "/";
    $("#told").textContent = answer.headers.get("x-told") || "";
    refill(query);
  };

  // "Run again with these" sends what the knobs say now.
  const refill = (query) => {
    const rerun = $("#rerun");
    const graph = $("[name=graph]", rerun).value;
    const knobs = new Set(all("[name]", play).map((field) => field.name));
    for (const name of knobs) {
      for (const old of all("input", rerun)) if (old.name === `${graph}.${name}`) old.remove();
      for (const value of query.getAll(name)) {
        if (name === "played") continue;
        const field = document.createElement("input");
        Object.assign(field, { type: "hidden", name: `${graph}.${name}`, value });
        rerun.prepend(field);
      }
    }
  };

  const swap = (html) => {
    const shown = $("#shown");
    const open = new Set(
      all("details[open]", shown).map((details) => all("details", shown).indexOf(details)),
    );
    const before = new Map(all("[data-key]", shown).map((row) => [row.dataset.key, row.offsetTop]));
    shown.innerHTML = html; // made by the server, where all text is escaped
    all("details", shown).forEach((details, i) => (details.open = open.has(i)));
    if (still.matches) return;
    for (const row of all("[data-key]", shown)) {
      const moved = (before.get(row.dataset.key) ?? row.offsetTop) - row.offsetTop;
      if (moved) {
        row.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], {
          duration: 260,
          easing: "cubic-bezier(0.2, 0, 0, 1)",
        });
      }
    }
  };

  play.addEventListener("input", (event) => {
    const field = event.target;
    if (field.dataset.for) document.getElementById(field.dataset.for).value = field.value;
    const slider = $(`[data-for="${field.id}"]`);
    if (slider && field.value) slider.value = field.value;
    clearTimeout(waits);
    waits = setTimeout(fragment, 25);
  });
  play.addEventListener("submit", (event) => {
    event.preventDefault();
    fragment();
  });
}

// Keys

let pressed = "";
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=range]), textarea, select");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  const key = pressed === "g" ? `g ${event.key}` : event.key;
  pressed = event.key;
  const rows = all(".runs a");
  const at = rows.indexOf(document.activeElement);
  const acts = {
    "/": () => ($("#question, #q") ? $("#question, #q").focus() : (location.href = "/")),
    "?": () => $("#keys").showModal(),
    "g a": () => (location.href = "/"),
    "g r": () => (location.href = "/runs"),
    j: () => rows[Math.min(at + 1, rows.length - 1)]?.focus(),
    k: () => rows[Math.max(at - 1, 0)]?.focus(),
    w: () => $("#play input:not([type=hidden])")?.focus(),
  };
  if (!acts[key]) return;
  event.preventDefault();
  acts[key]();
});
$("#show-keys")?.addEventListener("click", () => $("#keys").showModal());
