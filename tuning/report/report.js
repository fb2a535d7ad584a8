"use strict";
document.documentElement.classList.add("js");

// Narrower screens have no room for whole labels beside bars.
const NARROW_PX = 600;

const plots = [...document.querySelectorAll(".plot")];
for (const element of plots) {
  const figure = JSON.parse(element.nextElementSibling.textContent);
  if (window.innerWidth < NARROW_PX && figure.layout.meta?.short) {
    Object.assign(figure.layout.yaxis, { tickvals: figure.data[0].y, ticktext: figure.layout.meta.short });
  }
  Plotly.newPlot(element, figure.data, figure.layout, { displayModeBar: false, responsive: true });
}

// A plot is as wide as the window that it was drawn in; paper is narrower.
const PAPER_WIDTH_PX = 640;
window.addEventListener("beforeprint", () => {
  for (const element of plots) Plotly.relayout(element, { width: PAPER_WIDTH_PX });
});
window.addEventListener("afterprint", () => {
  for (const element of plots) Plotly.relayout(element, { width: null, autosize: true });
});

document.querySelector(".command button")?.addEventListener("click", async (event) => {
  const command = document.querySelector(".command pre");
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
  } catch {
    window.getSelection().selectAllChildren(command);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

for (const group of document.querySelectorAll("tbody.group")) {
  const button = group.querySelector("button");
  group.rows[0].addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(group.classList.toggle("shown")));
  });
}
