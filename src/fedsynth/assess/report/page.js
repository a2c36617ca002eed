// Shows what a mark says while somebody points at it; everything else works without scripts.
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
  addEventListener("beforeprint", () => { tip.hidden = true; });
})();
