// What a report's page does by itself: it sorts a table by the column whose head is clicked. Without this script everything is there, too.
"use strict";

const ascending = "ascending", descending = "descending";

// What a cell shows is rounded and has a unit; `data-v` is the number behind it.
function valueOf(cell, isNumber) {
  if (!isNumber) return cell.textContent;
  const number = Number(cell.dataset.v ?? cell.textContent);
  return Number.isNaN(number) || cell.textContent === "" ? -Infinity : number;
}

function sort(head, order) {
  const body = head.closest("table").tBodies[0], isNumber = head.classList.contains("n");
  const sign = order === ascending ? 1 : -1;
  const rows = [...body.rows].map((row) => [valueOf(row.cells[head.cellIndex], isNumber), row]);
  const compare = isNumber ? (a, b) => (a > b) - (a < b) : (a, b) => a.localeCompare(b, "en", {numeric: true});
  rows.sort(([a], [b]) => sign * compare(a, b));
  body.append(...rows.map(([, row]) => row));
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
}

document.addEventListener("click", (event) => {
  const head = event.target.closest("th > button")?.parentElement;
  if (!head) return;
  const before = head.getAttribute("aria-sort"), first = head.classList.contains("n") ? descending : ascending;
  sort(head, before === null ? first : before === ascending ? descending : ascending);
});
