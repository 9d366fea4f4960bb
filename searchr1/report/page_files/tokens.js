// Tokens of a trajectory, coloured by whether they carry loss.

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

