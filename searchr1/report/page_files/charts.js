// Line charts in SVG: lines with or without intervals, or stacked areas, over steps or checkpoints.

const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-6; tick += step) {
    ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return ticks;
}

function short(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

function stackedLines(lines) {
  const sums = lines[0].values.map(() => 0);
  return lines.map((line) => {
    const low = [...sums];
    line.values.forEach((value, place) => (sums[place] += value ?? 0));
    return { ...line, low, high: [...sums] };
  });
}

function drawChart(figure, chart) {
  const canvas = figure.querySelector(".canvas");
  const wide = figure.classList.contains("wide");
  const width = Math.max(220, canvas.clientWidth);
  const height = wide ? 320 : 200;
  const edge = { left: 40, right: wide ? 48 : 12, top: 12, bottom: chart.labels ? 34 : 28 };
  const lines = chart.stacked ? stackedLines(chart.lines) : chart.lines;
  const count = chart.x.length;
  const known = lines
    .flatMap((line) => [...line.values, ...(line.low ?? []), ...(line.high ?? [])])
    .filter((value) => value !== null);
  let low = chart.share || chart.stacked || chart.labels ? 0 : Math.min(...known);
  let high = chart.share ? 1 : chart.labels ? 100 : Math.max(...known);
  if (low > 0 && low < high / 2) low = 0;
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const first = chart.x[0];
  const last = chart.x[count - 1];
  const inner = width - edge.left - edge.right;
  const pad = chart.labels ? Math.min(40, inner / count / 2) : 0;
  const placeX = (place) =>
    edge.left +
    pad +
    (chart.labels
      ? (count > 1 ? place / (count - 1) : 0.5) * (inner - 2 * pad)
      : (last > first ? (chart.x[place] - first) / (last - first) : 0.5) * inner);
  const placeY = (value) =>
    height - edge.bottom - ((value - low) / (high - low)) * (height - edge.top - edge.bottom);

  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0 });
  svg.setAttribute("aria-label", chart.title);
  for (const tick of niceTicks(low, high, wide ? 5 : 4)) {
    const y = placeY(tick);
    svg.append(shape("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: y, y2: y }));
    const at = { x: edge.left - 8, y: y + 4, "text-anchor": "end" };
    svg.append(shape("text", at, short(tick)));
  }
  if (chart.labels) {
    const skip = Math.ceil((count * 62) / inner);
    chart.labels.forEach((label, place) => {
      if (place % skip && place !== count - 1) return;
      const at = { x: placeX(place), y: height - 12, "text-anchor": "middle" };
      svg.append(shape("text", at, label));
    });
  } else {
    for (const tick of niceTicks(first, last, Math.min(6, Math.max(1, count - 1)))) {
      if (!Number.isInteger(tick)) continue;
      const x = edge.left + (last > first ? (tick - first) / (last - first) : 0.5) * inner;
      svg.append(shape("text", { x, y: height - 8, "text-anchor": "middle" }, String(tick)));
    }
  }
  lines.forEach((line, number) => drawLine(svg, line, number, { placeX, placeY, chart, lines }));
  for (const step of Object.keys(chart.warnings ?? {})) {
    const x = placeX(chart.x.indexOf(Number(step)));
    const ends = { x1: x, x2: x, y1: edge.top, y2: height - edge.bottom };
    svg.append(shape("line", { class: "watchdog", ...ends }));
  }

  const cursor = shape("line", { class: "cursor", y1: edge.top, y2: height - edge.bottom });
  cursor.style.display = "none";
  svg.append(cursor);
  let at = count - 1;
  const show = (clientX, clientY) => {
    cursor.setAttribute("x1", placeX(at));
    cursor.setAttribute("x2", placeX(at));
    cursor.style.display = "";
    showTip(describe(chart, at), clientX, clientY);
  };
  const hide = () => {
    cursor.style.display = "none";
    hideTip();
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    at = 0;
    for (let place = 1; place < count; place++) {
      if (Math.abs(placeX(place) - x) < Math.abs(placeX(at) - x)) at = place;
    }
    show(event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    at = Math.max(0, Math.min(count - 1, at + move));
    const box = svg.getBoundingClientRect();
    show(box.left + (placeX(at) / width) * box.width, box.top + box.height / 3);
  });

  const legend = element("div", { class: "legend" });
  if (lines.length > 1 || chart.labels) {
    lines.forEach((line, number) => {
      const mark = element("i");
      mark.style.background = `var(--c${number % 6})`;
      legend.append(element("span", {}, mark, line.label));
    });
  }
  canvas.replaceChildren(legend, svg);
}

function drawLine(svg, line, number, { placeX, placeY, chart, lines }) {
  const colour = `var(--c${number % 6})`;
  if (chart.stacked) {
    const over = line.high.map((value, place) => `${placeX(place)},${placeY(value)}`);
    const under = line.low.map((value, place) => `${placeX(place)},${placeY(value)}`).reverse();
    const area = shape("polygon", { points: [...over, ...under].join(" "), "fill-opacity": 0.8 });
    area.style.fill = colour;
    svg.append(area);
    return;
  }
  const shift = line.low ? (number - (lines.length - 1) / 2) * 8 : 0;
  let path = "";
  let pen = "M";
  line.values.forEach((value, place) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${placeX(place) + shift},${placeY(value)}`;
    pen = "L";
  });
  const drawn = shape("path", { d: path, fill: "none", "stroke-width": 2 });
  drawn.setAttribute("stroke-linejoin", "round");
  drawn.style.stroke = colour;
  svg.append(drawn);
  line.values.forEach((value, place) => {
    if (value === null) return;
    const x = placeX(place) + shift;
    if (line.low) {
      const y1 = placeY(line.low[place]);
      const y2 = placeY(line.high[place]);
      for (const bar of [
        { x1: x, x2: x, y1, y2 },
        { x1: x - 4, x2: x + 4, y1, y2: y1 },
        { x1: x - 4, x2: x + 4, y1: y2, y2 },
      ]) {
        const made = shape("line", { ...bar, "stroke-width": 1.5 });
        made.style.stroke = colour;
        svg.append(made);
      }
      const at = { class: "value", x: x + 8, y: placeY(value) + (number ? -8 : 16) };
      const text = shape("text", at, value.toFixed(1));
      text.style.fill = colour;
      svg.append(text);
    }
    if (line.low || line.values.length <= 60) {
      const dot = shape("circle", { cx: x, cy: placeY(value), r: line.low ? 4 : 2.2 });
      dot.style.fill = colour;
      svg.append(dot);
    }
  });
}

function describe(chart, place) {
  const head = chart.labels ? chart.labels[place] : `step ${chart.x[place]}`;
  const rows = chart.lines.map((line) => {
    const value = short(line.values[place]);
    const between = line.low
      ? ` [${line.low[place].toFixed(0)}, ${line.high[place].toFixed(0)}]`
      : "";
    return `${line.label}: ${value}${between}`;
  });
  const warned = chart.warnings?.[chart.x[place]] ?? [];
  return [head, ...rows, ...warned.map((name) => `warning: ${name}`)].join("\n");
}

const drawAgain = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const figure = target.closest("figure");
    if (figure.drawnWidth === target.clientWidth) continue;
    figure.drawnWidth = target.clientWidth;
    drawChart(figure, data.charts[figure.dataset.chart]);
  }
});
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  if (data.charts[figure.dataset.chart]) drawAgain.observe(figure.querySelector(".canvas"));
}
