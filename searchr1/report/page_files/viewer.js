// The trajectory viewer: filters and list, side-by-side columns, tokens. The address after # holds
// the filters and the open columns, so that every view is a link.

const PAGE = 60;
const detail = document.getElementById("detail");
const list = document.getElementById("list");
const filters = document.getElementById("filters");
let index = null;
let matches = [];
let shown = 0;
let wholeSequence = false;

const field = (name, row) => index.columns[name][row];

function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  return { query, open: query.getAll("t").map((text) => text.split("|")) };
}

function addressOf(rows) {
  const query = new URLSearchParams();
  for (const name of ["text", "place", "source", "outcome", "stop"]) {
    const value = filters.elements[name].value.trim();
    if (value) query.set(name, value);
  }
  for (const row of rows) query.append("t", nameOf(row));
  return `#${query}`;
}

function nameOf(row) {
  const place = index.places[field("place", row)];
  const question = index.questions[field("question", row)];
  const names = [`${place.phase}/${place.key}`, question.id, field("sample", row)];
  return names.map(encodeURIComponent).join("|");
}

function findRow([place, id, sample]) {
  return index.byName.get(`${place}|${id}|${sample}`);
}

// ---- filters and list

function fillSelect(name, title, options) {
  const select = filters.elements[name];
  select.replaceChildren(element("option", { value: "", text: title }));
  for (const [value, label] of options) select.append(element("option", { value, text: label }));
}

function prepareFilters() {
  const places = index.places.map((place, number) => [place, number]);
  const evaluations = places.filter(([place]) => place.phase === "evaluation");
  const steps = places.filter(([place]) => place.phase === "train");
  steps.sort(([a], [b]) => Number(a.key) - Number(b.key));
  const several = index.series.length > 1;
  fillSelect("place", "All evaluations and steps", [
    ["evaluation", "All evaluations"],
    ["train", "All training steps"],
    ...evaluations.map(([place]) => [
      `evaluation/${place.key}`,
      several ? `${place.label}, ${index.series[place.series]}` : place.label,
    ]),
    ...steps.map(([place]) => [`train/${place.key}`, place.label]),
  ]);
  const named = (names) => names.map((name) => [name, name.replaceAll("_", " ")]);
  fillSelect("source", "All sources", named([...index.sources].sort()));
  fillSelect("outcome", "All outcomes", named(index.outcomes));
  fillSelect("stop", "All stop reasons", named([...index.stop_reasons].sort()));
}

function applyFilters() {
  const value = (name) => filters.elements[name].value;
  const words = value("text").trim().toLowerCase().split(/\s+/).filter(Boolean);
  const place = value("place");
  const [source, outcome, stop] = [
    index.sources.indexOf(value("source")),
    index.outcomes.indexOf(value("outcome")),
    index.stop_reasons.indexOf(value("stop")),
  ];
  const places = index.places.map(
    (one) => !place || place === one.phase || place === `${one.phase}/${one.key}`,
  );
  const questions = index.questions.map(
    (one) =>
      (source < 0 || one.source === source) && words.every((word) => one.search.includes(word)),
  );
  matches = [];
  for (let row = 0; row < index.size; row++) {
    if (!places[field("place", row)]) continue;
    if (outcome >= 0 && field("outcome", row) !== outcome) continue;
    if (stop >= 0 && field("stop", row) !== stop) continue;
    if (questions[field("question", row)] || (words.length && answerMatches(row, words, source))) {
      matches.push(row);
    }
  }
  list.replaceChildren();
  shown = 0;
  showMore();
  filters.querySelector("output").textContent =
    `${matches.length.toLocaleString("en")} of ${index.size.toLocaleString("en")} trajectories`;
}

function answerMatches(row, words, source) {
  const question = index.questions[field("question", row)];
  if (source >= 0 && question.source !== source) return false;
  const text = `${question.search} ${(field("answer", row) ?? "").toLowerCase()}`;
  return words.every((word) => text.includes(word));
}

function showMore() {
  const open = new Set(openRows());
  for (const row of matches.slice(shown, shown + PAGE)) {
    const question = index.questions[field("question", row)];
    const outcome = index.outcomes[field("outcome", row)];
    const searches = field("searches", row);
    const place = index.places[field("place", row)];
    const about = [
      place.phase === "train" ? `${place.label} #${field("sample", row)}` : place.label,
      index.sources[question.source],
      `${searches} ${searches === 1 ? "search" : "searches"}`,
    ];
    const link = element(
      "a",
      { href: addressOf(columnsFor(row)), "data-row": row },
      question.text,
      element(
        "small",
        {},
        element("b", { class: outcome, text: outcome }),
        ` · ${about.join(" · ")}`,
      ),
    );
    link.setAttribute("aria-current", open.has(row));
    list.append(element("li", {}, link));
  }
  shown = Math.min(matches.length, shown + PAGE);
  document.getElementById("more").hidden = shown >= matches.length;
}

// ---- which columns

function alternatives(row) {
  // All trajectories for the same question that make sense beside this one: of the same series of
  // evaluations, or of the same group.
  const place = index.places[field("place", row)];
  return index.rowsOf.get(field("question", row)).filter((other) => {
    const its = index.places[field("place", other)];
    return place.phase === "evaluation"
      ? its.phase === "evaluation" && its.series === place.series
      : field("place", other) === field("place", row);
  });
}

function columnsFor(row) {
  // An evaluated trajectory opens beside the base's and the last checkpoint's.
  const place = index.places[field("place", row)];
  if (place.phase !== "evaluation") return [row];
  const same = alternatives(row).filter((other) => field("sample", other) === field("sample", row));
  const wanted = new Set([same[0], row, same[same.length - 1]]);
  return same.filter((other) => wanted.has(other));
}

function openRows() {
  return readAddress()
    .open.map(findRow)
    .filter((row) => row !== undefined);
}

// ---- start

function bringIntoView() {
  const { top } = detail.getBoundingClientRect();
  if (top < 0 || top > innerHeight * 0.6) detail.scrollIntoView();
}

function follow() {
  const { query, open } = readAddress();
  if (!open.length && ![...query.keys()].some((name) => filters.elements[name])) return;
  for (const name of ["text", "place", "source", "outcome", "stop"]) {
    filters.elements[name].value = query.get(name) ?? "";
  }
  applyFilters();
  showOpen();
}

async function startViewer() {
  index = await unpack("index");
  index.size = index.columns.place.length;
  index.rowsOf = new Map();
  index.byName = new Map();
  for (const one of index.questions) {
    one.search = [one.text, one.id, ...one.answers].join(" ").toLowerCase();
  }
  for (let row = 0; row < index.size; row++) {
    const question = field("question", row);
    if (!index.rowsOf.has(question)) index.rowsOf.set(question, []);
    index.rowsOf.get(question).push(row);
    index.byName.set(nameOf(row), row);
  }
  prepareFilters();
  applyFilters();
  showChanges();
  const changed = () => {
    history.replaceState(null, "", addressOf(openRows()));
    applyFilters();
  };
  filters.addEventListener("input", changed);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(changed));
  document.getElementById("more").addEventListener("click", showMore);
  addEventListener("hashchange", () => {
    follow();
    if (readAddress().open.length) bringIntoView();
  });
  follow();
  if (readAddress().open.length) document.getElementById("trajectories").scrollIntoView();
  document.documentElement.dataset.ready = "true";
}

startViewer();
