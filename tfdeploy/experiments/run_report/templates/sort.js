// Sort a table by the column whose heading is pressed. Without this script the table is as it is.
"use strict";

const keyOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.key ?? cell.textContent.trim();
};

const compare = (one, other) => {
  const difference = Number(one) - Number(other);
  return Number.isNaN(difference) ? one.localeCompare(other, "en", { numeric: true }) : difference;
};

const sortBy = (table, heads, column) => {
  const falls = heads[column].getAttribute("aria-sort") === "ascending";
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", falls ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row, column) }));
  const known = rows.filter(({ key }) => key !== "").sort((a, b) => compare(a.key, b.key));
  const unknown = rows.filter(({ key }) => key === ""); // at the end in both directions
  if (falls) known.reverse();
  body.append(...[...known, ...unknown].map(({ row }) => row));
};

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.classList.contains("unsorted")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(table, heads, column));
    head.append(button);
  });
}
