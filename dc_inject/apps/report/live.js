// Renews a served report without reload: what has changed is replaced, what was unfolded or sorted stays so.
"use strict";

const parts = () => document.querySelectorAll("main > *");
const status = document.getElementById("renewed"), every = Number(status.dataset.every);
const shown = new Map(Array.from(parts(), (part) => [part.id, part.outerHTML]));
let tag = null;

function keep(before, part) {
  const open = Array.from(before.querySelectorAll("details"), (one) => one.open);
  part.querySelectorAll("details").forEach((one, number) => { one.open = open[number] ?? false; });
  const tables = part.querySelectorAll("table");
  before.querySelectorAll("table").forEach((table, number) => {
    const head = table.querySelector("[aria-sort]"), same = tables[number]?.tHead.rows[0].cells[head?.cellIndex];
    if (head && same) sort(same, head.getAttribute("aria-sort"));
  });
}

function take(fresh) {
  const ids = new Set();
  let last = null;
  for (const part of fresh.querySelectorAll("main > *")) {
    ids.add(part.id);
    const before = document.getElementById(part.id), text = part.outerHTML;
    if (before && shown.get(part.id) === text) {
      last = before;
      continue;
    }
    shown.set(part.id, text);
    const adopted = document.adoptNode(part);
    if (before) {
      keep(before, adopted);
      before.replaceWith(adopted);
    } else if (last) {
      last.after(adopted);
    }
    last = adopted;
  }
  for (const part of parts()) if (!ids.has(part.id)) part.remove();
}

async function renew() {
  try {
    const headers = tag ? {"If-None-Match": tag} : {};
    const answer = await fetch(location.pathname, {cache: "no-store", headers});
    if (answer.status === 200) {
      tag = answer.headers.get("ETag");
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    const well = answer.status === 200 || answer.status === 304;
    if (well) status.textContent = `Renewed ${new Date().toISOString().slice(11, 19)} UTC, every ${every} s.`;
    status.classList.toggle("red", !well);
  } catch {
    status.classList.add("red");
  }
  if (status.classList.contains("red")) status.textContent = "No answer: what is shown is not renewed.";
  setTimeout(renew, 1000 * every);
}

setTimeout(renew, 1000 * every);
