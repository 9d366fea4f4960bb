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
    const about = [
      index.places[field("place", row)].label,
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

// ---- one trajectory

async function detailsOf(row) {
  const chunk = field("chunk", row);
  if (chunk < 0) return null;
  return (await unpackOnce(`chunk-${chunk}`))[field("slot", row)];
}

let request = 0;

async function showOpen() {
  const mine = ++request;
  const rows = openRows();
  for (const link of list.querySelectorAll("a")) {
    link.setAttribute("aria-current", rows.includes(Number(link.dataset.row)));
  }
  if (!rows.length) {
    if (readAddress().open.length) {
      detail.replaceChildren(
        element("p", { class: "quiet", text: "This link names a trajectory that is not listed here." }),
      );
    }
    return;
  }
  const details = await Promise.all(rows.map(detailsOf));
  if (mine !== request) return; // another one was chosen meanwhile
  const question = index.questions[field("question", rows[0])];
  const facts = element("dl");
  for (const [name, text] of [
    ["Accepted", question.answers.join(" / ")],
    ["Source", `${index.sources[question.source]}, ${question.id}`],
  ]) {
    facts.append(element("dt", { text: name }), element("dd", { text }));
  }
  const columns = element("div", { class: "columns" });
  rows.forEach((row, place) => columns.append(column(row, details[place])));
  detail.replaceChildren(
    element("h3", { text: question.text }),
    facts,
    chips(rows),
    columns,
    key(rows),
  );
}

function chips(rows) {
  const bar = element("div", { class: "chips", role: "group", "aria-label": "Compare" });
  const others = alternatives(rows[0]);
  const several = new Set(others.map((row) => field("sample", row))).size > 1;
  for (const row of others) {
    const place = index.places[field("place", row)];
    const name =
      place.phase === "train"
        ? `#${field("sample", row)} (${field("reward", row)})`
        : place.label + (several ? ` #${field("sample", row)}` : "");
    const pressed = rows.includes(row);
    const chip = element("button", { class: "chip", type: "button", "aria-pressed": pressed });
    chip.textContent = name;
    chip.addEventListener("click", () => {
      const chosen = others.filter((other) => rows.includes(other) !== (other === row));
      if (chosen.length) location.hash = addressOf(chosen);
    });
    bar.append(chip);
  }
  const whole = element("button", { class: "chip", type: "button", "aria-pressed": wholeSequence });
  whole.textContent = "All tokens";
  whole.addEventListener("click", () => {
    wholeSequence = !wholeSequence;
    showOpen();
  });
  bar.append(whole);
  return bar;
}

function column(row, details) {
  const outcome = index.outcomes[field("outcome", row)];
  const place = index.places[field("place", row)];
  const answer = field("answer", row);
  const made = element(
    "div",
    { class: "column" },
    element("h4", {}, place.label, element("span", { class: outcome, text: outcome })),
  );
  const facts = [
    answer === null ? "no well-formed answer" : `answer: ${answer}`,
    index.stop_reasons[field("stop", row)].replaceAll("_", " "),
    `reward ${field("reward", row)}`,
  ];
  if (field("advantage", row) !== null) facts.push(`advantage ${signed(field("advantage", row))}`);
  facts.push(`${field("tokens", row)} tokens`, `${field("seconds", row)} s`);
  made.append(element("p", { class: "meta", text: facts.join(" · ") }));
  if (details === null) {
    const text = "Not in this page, to keep it small; the warehouse has it.";
    made.append(element("p", { class: "quiet", text }));
    return made;
  }
  if (details.error) made.append(element("p", { class: "error", text: details.error }));
  const tokens = details.tokens && unrollTokens(details.tokens);
  const advantage = field("advantage", row);
  if (wholeSequence && tokens) {
    made.append(tokenText(tokens, 0, tokens.texts.length, advantage, row));
    return made;
  }
  details.turns.forEach((turn, number) => {
    const label = element("span", { class: "label" });
    label.textContent = `turn ${number + 1}, ${turn.kind}, ${turn.seconds.toFixed(1)} s`;
    const body = tokens
      ? tokenText(tokens, turn.start, turn.end, advantage, row)
      : element("span", { class: `token drawn ${sign(advantage)}`, text: turn.text });
    made.append(element("div", { class: "turn" }, label, body));
    for (const search of details.searches) {
      if (search.turn === number) made.append(observation(search));
    }
  });
  return made;
}

function observation(search) {
  const about = [`search, ${search.seconds.toFixed(2)} s`];
  if (search.cached) about.push("from the cache");
  if (search.cost) about.push(`$${search.cost}`);
  const made = element(
    "div",
    { class: "observation" },
    element("span", { class: "label", text: about.join(", ") }),
    element("span", { class: "query", text: search.query }),
  );
  if (!search.ok) {
    made.append(element("p", { class: "error", text: `failed: ${search.error}` }));
  }
  if (search.items.length) {
    const items = element("ol");
    for (const [title, url, text] of search.items) {
      const name = title || url || "(no title)";
      const head = /^https?:\/\//i.test(url)
        ? element("a", { href: url, rel: "noopener noreferrer", target: "_blank", text: name })
        : element("span", { text: url && title ? `${name} (${url})` : name });
      const body = element("p", { class: "cut", text });
      body.addEventListener("click", () => body.classList.toggle("cut"));
      items.append(element("li", {}, head, body));
    }
    made.append(items);
  } else if (search.observation) {
    made.append(element("p", { text: search.observation }));
  }
  return made;
}

// ---- tokens

function unrollTokens({ text, lengths, drawn, logprobs }) {
  const texts = [];
  let from = 0;
  for (const length of lengths) texts.push(text.slice(from, (from += length)));
  const mask = [];
  drawn.forEach((length, run) => {
    for (let i = 0; i < length; i++) mask.push(run % 2 === 1);
  });
  let next = 0;
  return { texts, mask, logprobs: mask.map((own) => (own ? logprobs[next++] : null)) };
}

function sign(advantage) {
  return advantage > 0 ? "gain" : advantage < 0 ? "loss" : "";
}

function signed(value) {
  return value > 0 ? `+${value}` : String(value);
}

function tokenText(tokens, start, end, advantage, row) {
  const made = element("div", { class: "tokens" });
  const colour = `token drawn ${sign(advantage)}`;
  for (let place = start; place < end; place++) {
    const one = element("span", { class: tokens.mask[place] ? colour : "token" });
    one.textContent = tokens.texts[place];
    one.place = place;
    made.append(one);
  }
  const show = (event) => {
    const place = event.target.place;
    if (place === undefined) return;
    showTip(aboutToken(tokens, place, advantage, row), event.clientX, event.clientY);
  };
  made.addEventListener("pointerover", show);
  made.addEventListener("click", show);
  made.addEventListener("pointerleave", hideTip);
  return made;
}

function aboutToken(tokens, place, advantage, row) {
  const lines = [`${JSON.stringify(tokens.texts[place])}, token ${place}`];
  const logprob = tokens.logprobs[place];
  if (logprob === null) {
    return [...lines, "prompt or observation: carries no loss", "advantage 0"].join("\n");
  }
  lines.push(`logprob ${logprob.toFixed(3)} (${(100 * Math.exp(logprob)).toFixed(1)}%)`);
  if (index.places[field("place", row)].phase === "evaluation") {
    lines.push("drawn by the policy; evaluations are not trained on");
  } else if (advantage) {
    lines.push(`advantage ${signed(advantage)}: carries loss`);
  } else {
    lines.push("advantage 0: carries no loss");
  }
  return lines.join("\n");
}

function key(rows) {
  const trained = index.places[field("place", rows[0])].phase === "train";
  const made = element("p", { class: "key" });
  const kinds = trained
    ? [
        ["token drawn gain", "carries loss, advantage above 0"],
        ["token drawn loss", "carries loss, advantage below 0"],
        ["token drawn", "drawn by the policy, advantage 0"],
        ["token", "prompt and observations: no loss"],
      ]
    : [
        ["token drawn", "drawn by the policy: would carry loss in training"],
        ["token", "prompt and observations: no loss"],
      ];
  for (const [kind, text] of kinds) made.append(element("span", { class: kind, text }));
  return made;
}

// ---- gained and lost

function showChanges() {
  const body = document.getElementById("changes-body");
  if (!index.changed.length) return;
  const select = element("select", { "aria-label": "Checkpoint" });
  index.changed.forEach((change, number) => {
    const series = index.series.length > 1 ? `, ${index.series[change.series]}` : "";
    select.append(element("option", { value: number, text: change.label + series }));
  });
  select.value = index.changed.findLastIndex((change) => change.series === 0);
  const tables = element("div", { class: "grid" });
  const fill = () => {
    const change = index.changed[Number(select.value)];
    tables.replaceChildren(
      changeList(change, "gained", "right"),
      changeList(change, "lost", "wrong"),
    );
  };
  select.addEventListener("change", fill);
  const form = element("p", { class: "quiet" }, "Base against ", select);
  body.replaceChildren(form, tables);
  fill();
}

function changeList(change, kind, colour) {
  const count = change[`${kind}_count`];
  const made = element("div", { class: "chart", "data-kind": kind });
  made.append(element("h3", {}, element("span", { class: colour, text: `${kind} (${count})` })));
  const items = element("ol", { class: "changes" });
  for (const number of change[kind]) {
    const rows = index.rowsOf.get(number) ?? [];
    const of = (key) =>
      rows.find((row) => {
        const place = index.places[field("place", row)];
        return place.phase === "evaluation" && place.key === key;
      });
    const pair = [of(change.base), of(change.key)];
    if (pair.includes(undefined)) continue;
    const [before, after] = pair.map((row) => field("answer", row) ?? "no answer");
    const link = element("a", { href: addressOf(pair), text: index.questions[number].text });
    items.append(element("li", {}, link, element("small", { text: `${before} → ${after}` })));
  }
  made.append(items);
  if (count > change[kind].length) {
    const text = `The first ${change[kind].length}; all are in the warehouse's view gained_lost.`;
    made.append(element("p", { class: "quiet", text }));
  }
  return made;
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
