"use strict";
// What all parts of the page share: elements, the tooltip, the theme, unpacking of data.
// Text of questions, answers and web pages only ever becomes a text node.

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - box.width - 6))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}

function hideTip() {
  tip.hidden = true;
}

addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});

const data = JSON.parse(document.getElementById("data").textContent);

async function unpack(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const unpacked = new Map();

function unpackOnce(id) {
  if (!unpacked.has(id)) {
    if (unpacked.size > 40) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(id, unpack(id));
  }
  return unpacked.get(id);
}

const THEMES = ["auto", "light", "dark"];

function useTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme[0].toUpperCase() + theme.slice(1);
}

function storedTheme() {
  try {
    return localStorage.getItem("searchr1-theme") ?? "auto";
  } catch {
    return "auto"; // storage may be forbidden for files
  }
}

let theme = storedTheme();
if (!THEMES.includes(theme)) theme = "auto";
useTheme(theme);
document.getElementById("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  useTheme(theme);
  try {
    localStorage.setItem("searchr1-theme", theme);
  } catch {
    // the choice then lasts as long as the page
  }
});
