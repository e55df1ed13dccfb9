"use strict";
(function () {
  const box = document.getElementById("filter"), found = document.getElementById("found");
  const tables = Array.from(document.querySelectorAll("details.filtered"));
  const opened = tables.map((table) => table.open);
  box.addEventListener("input", function () {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    tables.forEach(function (table, at) {
      const caption = table.querySelector("summary").textContent.toLowerCase();
      const rows = Array.from(table.querySelectorAll("tbody tr"));
      let kept = 0;
      rows.forEach(function (row) {
        const text = caption + " " + row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        kept += row.hidden ? 0 : 1;
      });
      table.hidden = words.length > 0 && kept === 0;
      table.open = words.length > 0 ? kept > 0 && kept <= 200 : opened[at];
      shown += kept;
    });
    found.textContent = words.length ? shown + " rows" : "";
  });
})();
