// One question: its trajectories side by side, turn by turn.

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

