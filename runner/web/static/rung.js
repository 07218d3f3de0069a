"use strict";
// Keeps an open page up to date: a stream tells that something has changed, and the changed parts are fetched again.

const page = document.body;
const live = document.getElementById("live");
// Several events come at once; one look at the page shows all of them.
const SETTLE_MS = 150;
const AGAIN_MS = 1500;
let waiting = null;
let fetching = false;
let late = false;
let pressed = false;
// What the server sent last of each part: the page itself also changes, when somebody opens or types something.
const shown = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part.outerHTML]));

function show(text, state) {
  if (!live) return;
  live.textContent = text;
  live.dataset.state = state;
}

function refreshSoon(delay = SETTLE_MS) {
  if (waiting === null) waiting = setTimeout(refresh, delay);
}

async function refresh() {
  waiting = null;
  if (fetching || pressed) {
    late = true;
    return;
  }
  fetching = true;
  try {
    const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
    if (answer.status === 401) return ended();
    const fresh = answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    // The fresh page is out of date by the time the click is over.
    if (pressed) late = true;
    else if (fresh) replaceParts(fresh);
  } catch {
    // The stream says when the server answers again.
  } finally {
    fetching = false;
    catchUp();
  }
}

function catchUp() {
  if (late && !pressed) {
    late = false;
    refreshSoon();
  }
}

// A button of the mouse is down: a click on a part that is replaced before it is up again would be lost.
function press(down) {
  pressed = down;
  // The click itself comes after the button is up.
  if (!down) setTimeout(catchUp);
}

function replaceParts(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next && next.outerHTML !== shown.get(part.id) && !isSelected(part)) swap(part, next);
  }
  if (document.querySelector("[data-again]")) setTimeout(refreshSoon, AGAIN_MS);
}

// Text that somebody is about to copy stays; the next change shows what is new.
function isSelected(part) {
  const selection = window.getSelection();
  return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode);
}

// Open details, the focus and the place in a log stay as the person left them.
function swap(part, next) {
  const sent = new DOMParser().parseFromString(shown.get(part.id), "text/html");
  shown.set(part.id, next.outerHTML);
  // Only those that a person has opened or closed: the newest attempt is open by itself.
  const changed = [...part.querySelectorAll("details[id]")].filter((each) => each.open !== sent.getElementById(each.id)?.open);
  const opened = new Map(changed.map((each) => [each.id, each.open]));
  const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : "";
  const log = part.querySelector(".log");
  const atEnd = log && log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  const top = log ? log.scrollTop : 0;
  const made = document.importNode(next, true);
  for (const each of made.querySelectorAll("details[id]")) {
    if (opened.has(each.id)) each.open = opened.get(each.id);
  }
  part.replaceWith(made);
  announce(sent, made);
  const newLog = made.querySelector(".log");
  if (newLog) newLog.scrollTop = atEnd ? newLog.scrollHeight : top;
  if (focused) {
    const same = [...made.querySelectorAll("a, button, input, summary, [tabindex]")].find((each) => nameOf(each) === focused);
    same?.focus({ preventScroll: true });
  }
}

// A reader of the screen hears what matters: a new state of a job, or one that needs a person; not each step.
function announce(before, after) {
  const text = (root) => root.querySelector("[data-say]")?.textContent.trim().replace(/\s+/g, " ") ?? "";
  const news = document.getElementById("news");
  if (news && text(after) && text(after) !== text(before)) news.textContent = text(after);
}

// What tells an element that can have the focus from the others of its part.
function nameOf(element) {
  return [element.tagName, element.id, element.getAttribute("href"), element.closest("details")?.id].join(" ");
}

function ended() {
  show("not connected: start rung web again", "off");
}

function listen() {
  const stream = new EventSource("/events?after=" + encodeURIComponent(page.dataset.cursor));
  stream.addEventListener("begin", () => {
    show("live", "on");
    refreshSoon();
  });
  stream.addEventListener("job", (event) => {
    const about = JSON.parse(event.data);
    if (!page.dataset.job || page.dataset.job === about.job) refreshSoon();
  });
  stream.addEventListener("progress", () => refreshSoon());
  stream.onerror = () => {
    show(stream.readyState === EventSource.CLOSED ? "not connected" : "connecting …", "off");
  };
}

async function act(form) {
  const question = form.dataset.confirm;
  if (question && !window.confirm(question)) return;
  const knobs = {};
  for (const field of form.querySelectorAll("input[name]")) {
    if (field.value !== field.defaultValue) knobs[field.name] = field.value;
  }
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const answer = await fetch(form.dataset.action, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ knobs }),
    });
    const text = await answer.text();
    let found;
    try {
      found = JSON.parse(text);
    } catch {
      found = { error: text.trim().replace(/^rung: /, "") };
    }
    say(found.error ? "rung: " + found.error : found.said, Boolean(found.error));
    if (!found.error) refreshSoon(0);
  } catch {
    say("rung: the server does not answer; nothing was changed, as far as is known", true);
  } finally {
    button.disabled = false;
  }
}

function say(text, bad) {
  const said = document.getElementById("said");
  said.textContent = text;
  said.classList.toggle("bad", bad);
  said.hidden = false;
}

document.addEventListener("submit", (event) => {
  if (event.target.dataset.action) {
    event.preventDefault();
    act(event.target);
  }
});

document.addEventListener("pointerdown", () => press(true));
for (const over of ["pointerup", "pointercancel"]) document.addEventListener(over, () => press(false));
// A drag ends without a pointerup.
document.addEventListener("dragend", () => press(false));

for (const log of document.querySelectorAll(".log:not(.whole)")) log.scrollTop = log.scrollHeight;
if (page.dataset.cursor) listen();
if (document.querySelector("[data-again]")) setTimeout(refreshSoon, AGAIN_MS);
// A link to an attempt opens it.
function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
window.addEventListener("hashchange", openTarget);
openTarget();
