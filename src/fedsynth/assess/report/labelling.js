// Counts the labels that were given, finds the next example without one, and saves them as a file.
"use strict";
(() => {
  const box = document.getElementById("examples");
  const told = document.getElementById("labelled");
  const choices = [...box.querySelectorAll("select")];
  const given = () => choices
    .filter((choice) => choice.value !== "")
    .map((choice) => ({ row: Number(choice.dataset.row), label: choice.value }));
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const written = {
    csv: (labels) => "row,label\n" + labels.map((each) => `${each.row},${quoted(each.label)}\n`).join(""),
    json: (labels) => JSON.stringify({ source: box.dataset.source, labels }, null, 1) + "\n",
  };
  box.addEventListener("change", () => {
    told.textContent = `${given().length} of ${choices.length} labelled`;
  });
  document.getElementById("next").addEventListener("click", () => {
    const last = choices.findLastIndex((choice) => choice.value !== "");
    const next = choices.find((choice, place) => place > last && choice.value === "") || choices.find((choice) => choice.value === "");
    if (next) {
      next.closest("figure").scrollIntoView({ block: "center" });
      next.focus({ preventScroll: true });
    }
  });
  for (const button of document.querySelectorAll("button[data-save]")) {
    button.addEventListener("click", () => {
      const kind = button.dataset.save;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([written[kind](given())], { type: "text/plain" }));
      link.download = `labels.${kind}`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
})();
