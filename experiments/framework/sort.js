"use strict";
// Sorts a table by the column whose heading is pressed: numbers as numbers, unknown always last.
for (const table of document.querySelectorAll("table.sorts")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      rows.sort((one, other) => {
        const [a, b] = [key(one, column), key(other, column)];
        if (a === "" || b === "") return (a === "") - (b === "");
        const [x, y] = [Number(a), Number(b)];
        const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
}
document.documentElement.dataset.ready = "yes";
