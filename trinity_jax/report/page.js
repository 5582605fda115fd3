"use strict";
// Filters of the conversations. A list item has data-kind, data-outcome and data-turns (JSON: [[model, role], ...]);
// model and role are met by one and the same turn.
const form = document.getElementById("filters");
const list = document.getElementById("conversation-list");

function shows(item, wanted) {
  if (wanted.kind && item.dataset.kind !== wanted.kind) return false;
  if (wanted.outcome && item.dataset.outcome !== wanted.outcome) return false;
  const turns = JSON.parse(item.dataset.turns);
  const met = ([model, role]) => (!wanted.model || model === wanted.model) && (!wanted.role || role === wanted.role);
  if ((wanted.model || wanted.role) && !turns.some(met)) return false;
  return !wanted.text || item.textContent.toLowerCase().includes(wanted.text.toLowerCase());
}

function filter() {
  const wanted = Object.fromEntries(new FormData(form));
  let shown = 0;
  for (const item of list.children) {
    item.hidden = !shows(item, wanted);
    shown += !item.hidden;
  }
  const text = `${shown} of ${list.children.length} shown`;
  const output = form.querySelector("output");
  if (output.textContent !== text) output.textContent = text;
}

if (form) {
  form.hidden = false;
  form.addEventListener("input", filter);
  form.querySelector("button").addEventListener("click", () => { form.reset(); filter(); });
  form.addEventListener("submit", event => event.preventDefault());
  filter();
}
