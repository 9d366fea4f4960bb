// Questions gained and lost, each a link to its two trajectories.

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

