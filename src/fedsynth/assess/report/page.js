// Tips at marks, a search among columns, and opened details on paper; everything else works without scripts.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const place = (event) => {
    const wide = document.documentElement.clientWidth;
    const x = Math.max(4, Math.min(event.clientX + 14, wide - tip.offsetWidth - 6));
    const above = event.clientY - tip.offsetHeight - 12;
    const y = above > 4 ? above : event.clientY + 20;
    tip.style.transform = `translate(${x}px, ${y}px)`;
  };
  const point = (event) => {
    const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !mark;
    if (mark) {
      tip.textContent = mark.dataset.tip;
      place(event);
    }
  };
  for (const kind of ["pointerover", "pointermove", "pointerdown"]) document.addEventListener(kind, point);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  for (const search of document.querySelectorAll(".search")) {
    search.hidden = false;
    const [box, told] = [search.querySelector("input"), search.querySelector("[role=status]")];
    const columns = [...document.querySelectorAll("[data-column]")];
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      const names = new Set();
      for (const each of columns) {
        each.hidden = !each.dataset.column.toLowerCase().includes(wanted);
        if (!each.hidden) names.add(each.dataset.column);
      }
      told.textContent = wanted ? `${names.size} found` : "";
    });
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    tip.hidden = true;
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of opened) each.open = false; });
})();
