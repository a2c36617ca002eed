// Looks for news every two seconds and puts them in place; what was ticked stays ticked.
"use strict";
(() => {
  const refresh = async () => {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      const main = document.querySelector("main");
      if (!fresh || fresh.innerHTML === main.dataset.seen) return;
      const ticked = new Set([...main.querySelectorAll("input:checked")].map((box) => box.value));
      main.dataset.seen = fresh.innerHTML;
      for (const box of fresh.querySelectorAll("input")) box.checked = ticked.has(box.value);
      main.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
      for (const box of main.querySelectorAll("input")) box.checked = ticked.has(box.value);
    } catch (error) {
      // the server was stopped: what is shown stays
    }
  };
  setInterval(refresh, 2000);
})();
